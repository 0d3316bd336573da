"""The answer as records: one evaluation a deployment, the rejected ones, and the plan that holds them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sizing.architecture import Model
from sizing.assumptions import Assumption
from sizing.batching import Batch
from sizing.cost import Cost
from sizing.deployment import Deployment
from sizing.errors import Infeasible, InputError
from sizing.fleet import Fleet, Spares, Targets
from sizing.memory import MemoryBudget
from sizing.replica.colocated import Load, ReplicaCapacity
from sizing.steptime import StepModel
from sizing.workload import Slo, Workload

if TYPE_CHECKING:
    from sizing.simulator.rates import Verification

SCHEMA_VERSION = "1.0"
COLUMNS = (
    "gpu", "replicas", "gpus_per_replica", "layout", "serving_gpus", "spare_gpus", "total_gpus",
    "total_gpus_low", "total_gpus_high", "ttft_s", "ttft_low_s", "ttft_high_s", "tpot_s", "tpot_low_s", "tpot_high_s",
    "utilization", "limited_by", "requests_per_s_per_replica", "concurrency_per_replica", "usd_per_gpu_hour",
    "usd_per_hour", "usd_per_million_output_tokens", "closed_form_replicas",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Bounds that hold the truth in 80 % of cases, from the spread of the constants and what they leave."""

    replicas_low: int
    replicas_high: int
    ttft_low_s: float
    ttft_high_s: float
    tpot_low_s: float
    tpot_high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A deployment that meets the targets, stage by stage.

    ``caution`` says why the closed form should not be relied on for it, and ``closed_form_replicas`` what it had
    counted where simulation took its place.
    """

    deployment: Deployment
    memory: MemoryBudget
    steps: StepModel
    batch: Batch
    replica: ReplicaCapacity
    fleet: Fleet
    spares: Spares
    load: Load
    cost: Cost
    interval: Interval | None = None
    caution: str = ""
    closed_form_replicas: int | None = None

    @property
    def serving_gpus(self) -> int:
        """GPUs that carry the traffic. [gpu]"""
        return self.fleet.replicas * self.deployment.gpus

    @property
    def spare_gpus(self) -> int:
        """GPUs that stand by. [gpu]"""
        return self.spares.replicas * self.deployment.gpus

    @property
    def total_gpus(self) -> int:
        """GPUs to buy or rent. [gpu]"""
        return self.serving_gpus + self.spare_gpus

    def total_between(self) -> tuple[int, int] | None:
        """GPUs in total at both ends of the 80 % interval; None without one. [gpu]"""
        if self.interval is None:
            return None
        ends = (self.interval.replicas_low, self.interval.replicas_high)
        low, high = ((n + self.spares.replicas) * self.deployment.gpus for n in ends)
        return low, high

    def to_record(self) -> dict[str, object]:
        """One flat row with the unit in each key."""
        between = self.total_between()
        span = self.interval
        return {
            "gpu": self.deployment.gpu.id,
            "replicas": self.fleet.replicas,
            "gpus_per_replica": self.deployment.gpus,
            "layout": str(self.deployment.parallelism),
            "serving_gpus": self.serving_gpus,
            "spare_gpus": self.spare_gpus,
            "total_gpus": self.total_gpus,
            "total_gpus_low": None if between is None else between[0],
            "total_gpus_high": None if between is None else between[1],
            "ttft_s": float(self.load.ttft_s),
            "ttft_low_s": None if span is None else span.ttft_low_s,
            "ttft_high_s": None if span is None else span.ttft_high_s,
            "tpot_s": float(self.load.tpot_s),
            "tpot_low_s": None if span is None else span.tpot_low_s,
            "tpot_high_s": None if span is None else span.tpot_high_s,
            "utilization": self.fleet.utilization,
            "limited_by": self.replica.limited_by,
            "requests_per_s_per_replica": self.replica.request_rate_per_s,
            "concurrency_per_replica": float(self.load.concurrency),
            "usd_per_gpu_hour": self.cost.usd_per_gpu_hour,
            "usd_per_hour": self.cost.usd_per_hour,
            "usd_per_million_output_tokens": self.cost.usd_per_million_output_tokens,
            "closed_form_replicas": self.closed_form_replicas,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A deployment that can't serve the workload, the limit that says so, and what would help."""

    deployment: Deployment
    limit: str
    reason: str
    remedy: str

    def to_record(self) -> dict[str, object]:
        """One flat row."""
        return {
            "gpu": self.deployment.gpu.id,
            "layout": str(self.deployment.parallelism),
            "limit": self.limit,
            "reason": self.reason,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer: one evaluation a GPU, the cheapest first, and what was assumed.

    Attributes
    ----------
    evaluations
        Feasible candidates, cheapest first; those without a price last.
    rejected
        One candidate a GPU that has no feasible one.
    assumptions
        Every number that the caller did not give.
    notes
        What short names were taken for, and warnings of the model.
    verification
        The cheapest candidate replayed in the simulator, when that was asked for.
    """

    model: Model
    workload: Workload
    slo: Slo
    targets: Targets
    calibration: str
    evaluations: tuple[Evaluation, ...]
    rejected: tuple[Rejected, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...] = ()
    verification: "Verification | None" = None

    @property
    def status(self) -> str:
        """``feasible`` or ``infeasible``."""
        return "feasible" if self.evaluations else "infeasible"

    @property
    def best(self) -> Evaluation | None:
        """The cheapest candidate, or None."""
        return self.evaluations[0] if self.evaluations else None

    def require(self) -> Evaluation:
        """The cheapest candidate.

        Raises
        ------
        Infeasible
            No candidate meets the targets.
        """
        if not self.evaluations:
            raise Infeasible("; ".join(f"{r.deployment.gpu.id}: {r.reason}" for r in self.rejected))
        return self.evaluations[0]

    def pareto(self, *keys: str) -> tuple[Evaluation, ...]:
        """Candidates that no other beats in every key of their records (less is better)."""
        records = [e.to_record() for e in self.evaluations]
        for key in keys:
            if records and key not in records[0]:
                raise InputError(f"pareto: no column {key!r}; choose from {', '.join(records[0])}")
        points = np.array([[np.inf if r[k] is None else r[k] for k in keys] for r in records], dtype=float)
        beaten = [bool(np.any(np.all(points <= p, axis=1) & np.any(points < p, axis=1))) for p in points]
        return tuple(e for e, worse in zip(self.evaluations, beaten, strict=True) if not worse)

    @staticmethod
    def columns() -> tuple[str, ...]:
        """Keys of a candidate's record, in order."""
        return COLUMNS

    def to_records(self) -> list[dict[str, object]]:
        """One flat row a candidate."""
        return [e.to_record() for e in self.evaluations]

    def to_dict(self) -> dict[str, object]:
        """The plan as one document with a schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "model": self.model.name,
            "calibration": self.calibration,
            "request_rate_per_s": self.workload.request_rate_per_s,
            "input_tokens": self.workload.mean_input_tokens,
            "output_tokens": self.workload.mean_output_tokens,
            "slo_ttft_s": self.slo.ttft_s,
            "slo_tpot_s": self.slo.tpot_s,
            "slo_ttft_percentile": self.slo.ttft_at,
            "slo_tpot_percentile": self.slo.tpot_at,
            "candidates": self.to_records(),
            "rejected": [r.to_record() for r in self.rejected],
            "assumptions": [
                {"name": a.name, "value": a.value, "unit": a.unit, "basis": a.basis, "source": a.source}
                for a in self.assumptions
            ],
            "notes": list(self.notes),
            "verification": None if self.verification is None else self.verification.to_records(),
        }
