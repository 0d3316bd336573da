"""The GPU's own sensors: clocks, power, temperature, throttling and energy, by way of NVML.

NVML is called through ``ctypes``, so nothing but the driver is needed. Where it can't be had every reading
is empty and the measurement goes on. Constants: ``nvml.h``, NVIDIA Management Library API reference.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

THROTTLE_BITS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
"""``nvmlClocksEventReason*`` bits that slow a GPU down; idle and application clocks are not among them."""

SEVERE = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})
"""Reasons that spoil a measurement. The power cap is how the chip runs for hours, so it is only noted."""

_SM_CLOCK, _MEMORY_CLOCK, _TEMPERATURE_GPU = 1, 2, 0


@dataclass(frozen=True, slots=True)
class Sensors:
    """One look at the sensors; None where the driver gives no answer.

    Attributes
    ----------
    sm_clock_mhz, memory_clock_mhz
        Clocks at this moment. [MHz]
    power_w
        Board power, averaged by the driver. [W]
    temperature_c
        Of the chip. [degC]
    throttle
        Reasons for reduced clocks, names of :data:`THROTTLE_BITS`.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """Plain values for the measurement file."""
        return {
            "sm_clock_mhz": self.sm_clock_mhz,
            "memory_clock_mhz": self.memory_clock_mhz,
            "power_w": self.power_w,
            "temperature_c": self.temperature_c,
            "throttle": list(self.throttle),
        }


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the reasons that are set in NVML's bit mask."""
    return tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit)


def _library() -> Any:
    """The driver's library, where the loader finds it or where containers mount it."""
    for name in (
        "libnvidia-ml.so.1",
        "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
        "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    ):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("no NVML")


class Watch:
    """Sensors of one GPU; silent where NVML can't be loaded.

    Parameters
    ----------
    address
        Which GPU, as ``0000:1b:00.0`` or ``GPU-...``; None: no GPU.
    library
        NVML, for tests; None: loaded from the driver.
    """

    def __init__(self, address: str | None, library: Any = None) -> None:
        self._nvml, self._handle = None, ctypes.c_void_p()
        if address is None:
            return
        try:
            nvml = library if library is not None else _library()
            by_uuid = address.startswith("GPU-")
            find = nvml.nvmlDeviceGetHandleByUUID if by_uuid else nvml.nvmlDeviceGetHandleByPciBusId_v2
            if nvml.nvmlInit_v2() == 0 and find(address.encode(), ctypes.byref(self._handle)) == 0:
                self._nvml = nvml
        except (OSError, AttributeError):
            self._nvml = None

    @property
    def works(self) -> bool:
        """Whether NVML answers for this GPU."""
        return self._nvml is not None

    def look(self) -> Sensors:
        """Read the sensors now."""
        if self._nvml is None:
            return Sensors()
        power = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        return Sensors(
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _SM_CLOCK),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _MEMORY_CLOCK),
            power_w=None if power is None else power / 1000.0,
            temperature_c=self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _TEMPERATURE_GPU),
            throttle=throttle_names(bits or 0),
        )

    def energy_j(self) -> float | None:
        """Energy the board has used since the driver was loaded. [J]"""
        millijoules = self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)
        return None if millijoules is None else millijoules / 1000.0

    def limits(self) -> dict[str, Any]:
        """Power limit and highest clocks, for the environment."""
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)
        return {
            "power_limit_w": None if limit is None else limit / 1000.0,
            "max_sm_clock_mhz": self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM_CLOCK),
            "max_memory_clock_mhz": self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _MEMORY_CLOCK),
            "driver": self._driver(),
        }

    def _driver(self) -> str | None:
        if self._nvml is None:
            return None
        text = ctypes.create_string_buffer(96)
        try:
            code = self._nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(96))
        except AttributeError:
            return None
        return text.value.decode("ascii", "replace") if code == 0 else None

    def _number(self, name: str, kind: Callable[[], Any], *before: int) -> int | None:
        """Call one of NVML's getters that fill a number; None on any error."""
        if self._nvml is None:
            return None
        value = kind()
        try:
            arguments = [ctypes.c_uint(b) for b in before]
            code = getattr(self._nvml, name)(self._handle, *arguments, ctypes.byref(value))
        except AttributeError:
            return None
        return int(value.value) if code == 0 else None
