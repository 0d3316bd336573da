"""Schemas of what goes in and out as files: the plan file and the plan document. Pydantic loads only here."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Quantity = str | int | float
Number = float | None


def _key(text: str) -> object:
    return Field(default=None, description=text)


class PlanFile(BaseModel):
    """A plan file (``--config plan.yaml``): the options of the main job, by name."""

    model_config = ConfigDict(extra="forbid", title="size-inference plan file")

    model: Annotated[str | None, _key("catalogue name, Hugging Face id, folder or config.json")] = None
    gpu: Annotated[str | list[str] | None, _key("one GPU or a list")] = None
    rps: Annotated[Quantity | None, _key("requests a second: 20, 20/s, 1200/min")] = None
    input: Annotated[Quantity | None, _key("mean input tokens")] = None
    output: Annotated[Quantity | None, _key("mean output tokens")] = None
    trace: Annotated[str | None, _key("traffic trace")] = None
    shape: Annotated[str | None, _key("shipped request shape: chat, rag, agents, ...")] = None
    cv: Annotated[Quantity | None, _key("CV of the gaps between arrivals")] = None
    slo_tpot: Annotated[Quantity | None, _key("time per output token: 20ms")] = None
    slo_ttft: Annotated[Quantity | None, _key("time to first token: 1s")] = None
    percentile: Annotated[Quantity | None, _key("share of requests within the targets, in percent")] = None
    ttft_percentile: Annotated[Quantity | None, _key("the same for TTFT alone")] = None
    tpot_percentile: Annotated[Quantity | None, _key("the same for TPOT alone")] = None
    spares: Annotated[Quantity | None, _key("spare replicas")] = None
    utilization: Annotated[Quantity | None, _key("share of capacity planned for")] = None
    memory_utilization: Annotated[Quantity | None, _key("share of GPU memory the engine may use")] = None
    weights: Annotated[str | None, _key("weight format")] = None
    kv: Annotated[str | None, _key("KV cache format")] = None
    tp: Annotated[Quantity | None, _key("tensor parallel GPUs")] = None
    pp: Annotated[Quantity | None, _key("pipeline stages")] = None
    dp: Annotated[Quantity | None, _key("data-parallel ranks of attention in a replica")] = None
    ep: Annotated[Quantity | None, _key("expert parallel ranks")] = None
    price: Annotated[Quantity | dict[str, Quantity] | list[str] | None, _key("USD per GPU and hour")] = None
    calibration: Annotated[str | None, _key("name or file of efficiency constants")] = None
    method: Annotated[str | None, _key("additive or time-share")] = None
    engine: Annotated[str | None, _key("vllm, sglang or trtllm")] = None
    catalog: Annotated[str | None, _key("TOML file with GPUs, models and prices of your own")] = None


class Candidate(BaseModel):
    """One GPU's answer."""

    model_config = ConfigDict(extra="allow")

    gpu: str
    replicas: int
    gpus_per_replica: int
    layout: str
    serving_gpus: int
    spare_gpus: int
    total_gpus: int
    total_gpus_low: int | None
    total_gpus_high: int | None
    ttft_s: Number
    ttft_low_s: Number
    ttft_high_s: Number
    tpot_s: Number
    tpot_low_s: Number
    tpot_high_s: Number
    utilization: float
    limited_by: str
    requests_per_s_per_replica: float
    concurrency_per_replica: Number
    usd_per_gpu_hour: Number
    usd_per_hour: Number
    usd_per_million_output_tokens: Number
    closed_form_replicas: int | None


class Refused(BaseModel):
    """A GPU that can't serve it, and why."""

    gpu: str
    layout: str
    limit: str
    reason: str
    remedy: str


class Assumed(BaseModel):
    """A number that the caller did not give."""

    name: str
    value: str | float | int | None
    unit: str
    basis: str
    source: str


class PlanDocument(BaseModel):
    """What ``--format json`` prints."""

    model_config = ConfigDict(extra="allow", title="size-inference plan")

    schema_version: str
    status: str
    model: str
    calibration: str
    request_rate_per_s: float
    input_tokens: float
    output_tokens: float
    slo_ttft_s: float
    slo_tpot_s: float
    slo_ttft_percentile: Number
    slo_tpot_percentile: Number
    candidates: list[Candidate]
    rejected: list[Refused]
    assumptions: list[Assumed]
    notes: list[str]
    verification: list[dict[str, bool | float | None]] | None


class Figure(BaseModel):
    """A figure with its 95 % interval."""

    model_config = ConfigDict(extra="forbid")

    value: Number
    low: Number
    high: Number


class Targets(BaseModel):
    """How a simulation stands against its targets."""

    attained: bool
    ttft_s: Figure
    tpot_s: Figure


class ReplicaFacts(BaseModel):
    """What one replica did."""

    replica: int
    requests: int
    output_tokens: int
    steps: int
    utilization: float
    prefilled_tokens: int
    preemptions: int
    requests_present: float
    peak_kv_blocks: int


class SimulationAnswer(BaseModel):
    """What came of one load."""

    summary: dict[str, Figure | dict[str, Figure]] | None = None
    targets: Targets | None = None
    replicas: list[ReplicaFacts] | None = None
    replications: int | None = None
    warm_up_s: float | None = None
    notes: list[str]


class Run(SimulationAnswer):
    """One load of several."""

    request_rate_per_s: float | None = None
    concurrency: int | None = None


class Sustainable(BaseModel):
    """The largest rate that holds."""

    request_rate_per_s: float
    too_much_per_s: float
    saturated_per_s: float
    goodput_share: Number
    closed_form: dict[str, float | str] | None
    tried: list[dict[str, float | bool]]


class SimulationDocument(SimulationAnswer):
    """What ``simulate --format json`` prints."""

    model_config = ConfigDict(extra="forbid", title="size-inference simulation", populate_by_name=True)

    schema_name: Annotated[str, Field(alias="schema")]
    schema_version: int
    question: dict[str, object]
    assumptions: list[Assumed]
    workload: dict[str, object]
    load: dict[str, float] | None = None
    runs: list[Run] | None = None
    sustainable: Sustainable | None = None
    policies: list[dict[str, str | Number]] | None = None


SCHEMAS: dict[str, type[BaseModel]] = {
    "plan-file": PlanFile, "plan": PlanDocument, "simulation": SimulationDocument,
}  # fmt: skip


def json_schema(name: str) -> dict[str, object]:
    """JSON Schema of a document by name.

    Raises
    ------
    InputError
        No such schema.
    """
    from sizing.errors import InputError, nearest

    if name not in SCHEMAS:
        raise InputError(f"no schema {name!r}; choose {' or '.join(SCHEMAS)}{nearest(name, SCHEMAS)}")
    return SCHEMAS[name].model_json_schema()
