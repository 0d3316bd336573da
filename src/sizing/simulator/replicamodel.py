"""What the simulator needs to know of a deployment: its step table and how its engine schedules."""

from dataclasses import dataclass, replace
from typing import Any

from sizing.deployment import Deployment
from sizing.engines.timing import engine_timing
from sizing.errors import Infeasible
from sizing.memory import MemoryBudget, memory_budget
from sizing.simulator.spec import Scheduler
from sizing.steptable import StepTable
from sizing.steptime import StepModel, step_model

MOST_KV_TOKENS = 1 << 40
LONGEST_TABLED = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaModel:
    """One replica, ready to be simulated.

    Attributes
    ----------
    steps
        Time of each step.
    scheduler
        How its engine composes steps.
    gpus
        GPUs of a replica. [gpu]
    """

    steps: StepTable
    scheduler: Scheduler
    gpus: int = 1

    def with_scheduler(self, **changes: Any) -> "ReplicaModel":
        """The same replica with other settings of its engine."""
        return replace(self, scheduler=replace(self.scheduler, **changes))


def replica_model(
    deployment: Deployment, *, steps: StepModel | None = None, memory: MemoryBudget | None = None,
    calibration: str = "measured", **settings: Any,
) -> ReplicaModel:  # fmt: skip
    """Memory and step times of a deployment, as the simulator reads them.

    Parameters
    ----------
    deployment
        Model, GPU, layout, formats, engine.
    steps, memory
        Where they are known already.
    calibration
        Constants for the step times, when ``steps`` is not given.
    settings
        Settings of :class:`Scheduler` in place of the engine's own.

    Raises
    ------
    Infeasible
        The model does not fit.
    """
    if steps is None:
        from sizing.calibration import calibration as load_calibration
        from sizing.steptime import with_engine

        timing = engine_timing(deployment.settings.engine)
        constants = load_calibration(calibration, deployment.gpu, timing.kernels)
        steps = step_model(deployment, with_engine(constants, timing))
    memory = memory or memory_budget(deployment)
    kv_tokens = int(min(memory.kv_tokens, MOST_KV_TOKENS))
    if kv_tokens < 1:
        raise Infeasible(
            f"{deployment.model.name} leaves no room for a KV cache on {deployment.gpus} x {deployment.gpu.name};"
            " use more GPUs (--tp), a smaller weight format, or a GPU with more memory"
        )
    own, forms = deployment.settings, engine_timing(deployment.settings.engine)
    sequences, tokens = memory.limits
    chosen: dict[str, Any] = {
        "kv_tokens": kv_tokens,
        "max_num_seqs": sequences,
        "max_num_batched_tokens": tokens,
        "block_tokens": own.block_size or 16,
        "prefix_caching": own.prefix_caching,
        "mixed": forms.mixed and own.chunked_prefill,
        "chunked": forms.chunked and own.chunked_prefill,
        "kv_reservation": "answer" if forms.reserves_output else "paged",
        "max_model_len": own.max_model_len or deployment.model.max_positions or None,
    }
    chosen |= settings
    chosen["max_num_batched_tokens"] = max(chosen["max_num_batched_tokens"], chosen["max_num_seqs"] + 1)
    scheduler = Scheduler(**chosen)
    longest = min(scheduler.longest_request_tokens, LONGEST_TABLED)
    table = steps.table(scheduler.max_num_batched_tokens, scheduler.max_num_seqs, max(longest, 1024))
    return ReplicaModel(steps=table, scheduler=scheduler, gpus=deployment.gpus)
