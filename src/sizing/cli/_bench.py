"""What the verbs that read a benchmark share: options in words -> points and engine settings."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sizing.cli._options import Stages, option

if TYPE_CHECKING:
    from sizing.benchmarks.point import BenchPoint
    from sizing.deployment import EngineSettings


Files = Annotated[list[Path], typer.Argument(help="Result files or their folders, of any tool.", show_default=False)]
Kind = Annotated[str | None, option("Format, when the content does not tell.")]
Model = Annotated[str | None, option("Catalogue name, Hugging Face id, folder or config.json.", "--model", "-m")]
GpuName = Annotated[str | None, option("GPU that the run was on.", "--gpu", "-g")]
Engine = Annotated[str | None, option("Engine: vllm, sglang, trtllm, ...")]
Version = Annotated[str | None, option("Engine version, as its log prints it.")]
Tp = Annotated[str | None, option("Tensor parallel GPUs.")]
Ep = Annotated[str | None, option("Expert parallel ranks.")]
Dp = Annotated[str | None, option("Data-parallel attention ranks.")]
Weights = Annotated[str | None, option("Weight format: bf16, fp8, nvfp4, int4, ...")]
Kv = Annotated[str | None, option("KV cache format: bf16, fp8.")]
Replicas = Annotated[str | None, option("Replicas that shared the load.")]
Input = Annotated[str | None, option("Mean input tokens, where the file does not say.")]
Output = Annotated[str | None, option("Mean output tokens, where the file does not say.")]
Concurrency = Annotated[str | None, option("Requests in flight, where the file does not say.")]
Utilization = Annotated[str | None, option("Share of GPU memory the engine was given.")]
Sequences = Annotated[str | None, option("Requests in one engine step at most.")]
Budget = Annotated[str | None, option("Tokens in one engine step at most.")]
Longest = Annotated[str | None, option("Longest context: 32k.")]
Name = Annotated[str, typer.Option("--calibration", help="measured, rule-of-thumb or a TOML file.")]


FACTS = ("model", "gpu", "engine", "engine_version", "tp", "pp", "ep", "dp", "replicas", "weights", "kv")
"""Options that are fields of a point by the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a verb is told of a load test, as text; None where not given. The names are those of the options."""

    file: Files
    kind: Kind = None
    model: Model = None
    gpu: GpuName = None
    engine: Engine = None
    engine_version: Version = None
    tp: Tp = None
    pp: Stages = None
    ep: Ep = None
    dp: Dp = None
    replicas: Replicas = None
    weights: Weights = None
    kv: Kv = None
    input: Input = None
    output: Output = None
    concurrency: Concurrency = None
    memory_utilization: Utilization = None
    max_num_seqs: Sequences = None
    max_num_batched_tokens: Budget = None
    calibration: Name = "measured"

    def points(self) -> "tuple[BenchPoint, ...]":
        """Points of its files, with what was told filled in."""
        told = {name: getattr(self, name) for name in FACTS}
        lengths = {"input_tokens": self.input, "output_tokens": self.output, "concurrency": self.concurrency}
        return read_points(self.file, self.kind, told | lengths)

    def settings(self) -> "EngineSettings | None":
        """Engine settings that were given."""
        return settings_of(self.memory_utilization, self.max_num_seqs, self.max_num_batched_tokens)


def told_of_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, which takes a :class:`Run` first, the options of one ahead of its own.

    Parameters
    ----------
    command
        Its other parameters are options of its own.
    """
    own = list(signature(command).parameters.values())[1:]
    shared = [
        Parameter(
            item.name,
            Parameter.KEYWORD_ONLY,
            annotation=item.type,
            default=Parameter.empty if item.default is MISSING else item.default,
        )
        for item in fields(Run)
    ]

    def called(**options: Any) -> None:
        run = Run(**{item.name: options.pop(item.name) for item in shared})
        command(run, **options)

    every = [*shared, *(item.replace(kind=Parameter.KEYWORD_ONLY) for item in own)]
    called.__doc__, called.__annotations__ = command.__doc__, {item.name: item.annotation for item in every}
    called.__signature__ = Signature(every, return_annotation=None)  # type: ignore[attr-defined]
    return called


def read_points(files: Iterable[Path], kind: str | None, facts: dict[str, str | None]) -> "tuple[BenchPoint, ...]":
    """Points of every file, with the facts given on the command line filled in.

    Parameters
    ----------
    files
        Result files or folders.
    kind
        Format name.
    facts
        Texts of options by field of a point; None where not given.
    """
    from sizing import units
    from sizing.benchmarks.reading import read_benchmark

    words = ("model", "gpu", "engine", "engine_version", "weights", "kv")
    counts = ("tp", "pp", "ep", "dp", "replicas")
    parsed: dict[str, Any] = {}
    for name, text in facts.items():
        if text is None or name in words:
            parsed[name] = text
        elif name in counts:
            parsed[name] = units.whole(text, f"--{name}", least=1)
        else:
            label = f"--{name.removesuffix('_tokens')}"
            parsed[name] = units.positive(float(units.count(text, label)), label, "a number such as 512 or 4k")
    return tuple(point for file in files for point in read_benchmark(file, kind, **parsed))


def settings_of(
    utilization: str | None, max_num_seqs: str | None, max_num_batched_tokens: str | None
) -> "EngineSettings | None":
    """Engine settings that were given; None when none was.

    Parameters
    ----------
    utilization
        Share of GPU memory.
    max_num_seqs, max_num_batched_tokens
        Limits of one step.
    """
    if utilization is None and max_num_seqs is None and max_num_batched_tokens is None:
        return None
    from sizing import units
    from sizing.deployment import EngineSettings

    def whole(text: str | None, name: str) -> int | None:
        return None if text is None else units.whole(text, name, least=1)

    return EngineSettings(
        memory_utilization=None if utilization is None else units.fraction(utilization),
        max_num_seqs=whole(max_num_seqs, "--max-num-seqs"),
        max_num_batched_tokens=whole(max_num_batched_tokens, "--max-num-batched-tokens"),
    )


def remarks(points: "Sequence[BenchPoint]") -> list[str]:
    """Refusals and warnings of points, each once, with how many points they are about."""
    found: dict[str, int] = {}
    for point in points:
        for text in (*(f"not used: {r}" for r in point.refusals), *point.warnings):
            found[text] = found.get(text, 0) + 1
    return [text if count == 1 else f"{text} ({count} points)" for text, count in found.items()]
