"""The device that is measured, and how long and how finely to measure on it."""

import gc
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir

import torch

from profilers.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a case has been measured well enough.

    Attributes
    ----------
    target_spread
        Standard error of the median over the median at which sampling stops. [1]
    min_samples, max_samples
        Fewest and most samples. [1]
    max_time_s
        Longest sampling of a case; a slow call still gets ``min_samples`` up to ten times this. [s]
    sample_s
        Least duration of a sample: short calls are repeated within it, so that the few microseconds between two
        graphs are lost in it. [s]
    energy_s
        Window of an energy reading; NVML refreshes its counter every 20 to 100 ms. [s]
    """

    target_spread: float = 0.003
    min_samples: int = 10
    max_samples: int = 200
    max_time_s: float = 0.15
    sample_s: float = 1e-3
    energy_s: float = 1.0


TOY_LIMITS = Limits(target_spread=0.2, min_samples=3, max_samples=5, max_time_s=0.02, sample_s=1e-5, energy_s=0.05)
"""Just enough to exercise every step of a dry run."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """Where and how to measure.

    Attributes
    ----------
    device
        torch device.
    limits
        When a case is done.
    watch
        Sensors.
    toy
        Dry run: smallest sizes, nothing that takes long.
    disk
        Folder for the file that weight loading reads.
    held
        Something large that the next case may use again, behind what it was made for; None: nothing.
    """

    device: torch.device
    limits: Limits = field(default_factory=Limits)
    watch: Watch = field(default_factory=lambda: Watch(None))
    toy: bool = False
    disk: Path = field(default_factory=lambda: Path(gettempdir()))
    held: tuple[object, object] | None = None

    @property
    def cuda(self) -> bool:
        """Whether this is an NVIDIA GPU (or one that torch presents as such)."""
        return self.device.type == "cuda"

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability; (0, 0) on a CPU."""
        return torch.cuda.get_device_capability(self.device) if self.cuda else (0, 0)

    @property
    def cache_bytes(self) -> int:
        """Size of the L2 cache. [B]"""
        if not self.cuda:
            return 1 << 16
        properties = torch.cuda.get_device_properties(self.device)
        return int(getattr(properties, "L2_cache_size", 0)) or 50 << 20

    @property
    def free_bytes(self) -> int:
        """Memory that can still be had, what torch holds unused included. [B]"""
        if not self.cuda:
            return 1 << 30
        free, _ = torch.cuda.mem_get_info(self.device)
        held = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(free + held)

    @property
    def crowded(self) -> bool:
        """Whether torch holds so much memory that the next case should start from none."""
        if not self.cuda:
            return False
        _, total = torch.cuda.mem_get_info(self.device)
        return torch.cuda.memory_reserved(self.device) > 0.4 * total

    def copies(self, operand_bytes: float, at_most: int = 96) -> int:
        """How many copies of an operand to rotate through, so that the L2 never holds the next one.

        Parameters
        ----------
        operand_bytes
            Size of what a served model reads cold: weights or KV cache. [B]
        at_most
            Most copies. [1]
        """
        needed = int(3 * self.cache_bytes / max(operand_bytes, 1.0)) + 1
        if operand_bytes < 10 * self.cache_bytes:
            needed = max(needed, 2)
        room = int(0.4 * self.free_bytes / max(operand_bytes, 1.0))
        return max(1, min(needed, at_most, room)) if not self.toy else min(2, max(1, room))

    def synchronize(self) -> None:
        """Wait until the device has done everything."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def hold(self, purpose: object, thing: object) -> None:
        """Keep something large for the next case, in place of what was kept before.

        Parameters
        ----------
        purpose
            What it was made for.
        thing
            What to keep.
        """
        self.held = (purpose, thing)

    def held_for(self, purpose: object) -> object | None:
        """What was kept for that purpose; anything else is let go and its memory given back.

        Parameters
        ----------
        purpose
            What it must have been made for.
        """
        if self.held is not None and self.held[0] == purpose:
            return self.held[1]
        self.drop()
        return None

    def drop(self) -> None:
        """Let go what is kept and give its memory back."""
        if self.held is not None:
            self.held = None
            gc.collect()
            self.release()

    def release(self) -> None:
        """Give unused memory back, so that the next case starts clean."""
        if self.cuda:
            torch.cuda.empty_cache()


def open_bench(device: str, *, toy: bool, limits: Limits | None = None, disk: Path | None = None) -> Bench:
    """The bench for a device name.

    Parameters
    ----------
    device
        ``cpu``, ``cuda`` or ``cuda:1``.
    toy
        Dry run at toy sizes.
    limits
        When a case is done; None: the usual, or the toy's.
    disk
        Folder for the file that weight loading reads.
    """
    where = torch.device(device)
    if where.type == "cuda":
        where = torch.device("cuda", where.index or 0)
        torch.cuda.set_device(where)
    elif toy:
        torch.set_num_threads(1)  # toy sizes gain nothing from more
    return Bench(
        device=where,
        limits=limits or (TOY_LIMITS if toy else Limits()),
        watch=Watch(_address(where)),
        toy=toy,
        disk=disk or Path(gettempdir()),
    )


def _address(device: torch.device) -> str | None:
    """PCI address of a GPU as NVML wants it, or its UUID; None where torch says neither."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    try:
        domain, bus, slot = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    except AttributeError:
        return f"GPU-{properties.uuid}" if hasattr(properties, "uuid") else None
    return f"{domain:08x}:{bus:02x}:{slot:02x}.0"
