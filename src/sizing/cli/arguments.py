"""The main job's options as text, from the command line and a YAML file, turned into what ``plan`` takes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sizing import units
from sizing.assumptions import Assumption, default
from sizing.errors import InputError, SizingError, UnitError, UnknownFile, nearest

if TYPE_CHECKING:
    from sizing.deployment import Parallelism

LARGEST_CONFIG_BYTES = 1_000_000


@dataclass(slots=True, kw_only=True)
class PlanOptions:
    """Raw option values; None means not given. The names are the keys of a plan file."""

    model: str | None = None
    gpu: list[str] | None = None
    rps: str | None = None
    input: str | None = None
    output: str | None = None
    trace: str | None = None
    shape: str | None = None
    cv: str | None = None
    slo_tpot: str | None = None
    slo_ttft: str | None = None
    percentile: str | None = None
    ttft_percentile: str | None = None
    tpot_percentile: str | None = None
    spares: str | None = None
    utilization: str | None = None
    memory_utilization: str | None = None
    weights: str | None = None
    kv: str | None = None
    tp: str | None = None
    pp: str | None = None
    dp: str | None = None
    ep: str | None = None
    price: list[str] | None = None
    calibration: str | None = None
    method: str | None = None
    engine: str | None = None
    catalog: str | None = None

    def with_file(self, path: Path) -> "PlanOptions":
        """These options, filled up from a plan file where they are silent."""
        filed = read_plan_file(path)
        merged = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in filed.items():
            if merged[name] is None or merged[name] == []:
                merged[name] = value
        return PlanOptions(**merged)

    def layout(self) -> "Parallelism | None":
        """How a replica is laid out where any of it was given; None leaves the choice open."""
        from sizing.deployment import Parallelism

        given = {name: text for name in ("tp", "pp", "dp", "ep") if (text := getattr(self, name)) is not None}
        return Parallelism(**{n: units.whole(v, f"--{n}", 1, 512) for n, v in given.items()}) if given else None


def option_names() -> tuple[str, ...]:
    """Keys of a plan file."""
    return tuple(f.name for f in fields(PlanOptions))


def read_plan_file(path: Path) -> dict[str, Any]:
    """Options in a YAML (or JSON) plan file.

    Raises
    ------
    UnknownFile
        No such file.
    InputError
        Not YAML, not a mapping, or a key or value that is not allowed.
    """
    import yaml

    text = read_text(path, "--config", LARGEST_CONFIG_BYTES)
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise InputError(f"--config: {str(path)!r}{line} is not YAML; see `size-inference schema`") from error
    if not isinstance(document, Mapping):
        raise InputError(f"--config: {str(path)!r} holds no mapping of options; see `size-inference schema`")
    return {key: value for key, value in (_checked(path, k, v) for k, v in document.items()) if value is not None}


def _checked(path: Path, key: object, value: object) -> tuple[str, Any]:
    name = str(key).replace("-", "_")
    names = option_names()
    if name not in names:
        raise InputError(
            f"--config: {str(path)!r} has no option {str(key)!r}; allowed are {', '.join(names)}{nearest(name, names)}"
        )
    many = name in ("gpu", "price")
    if many and isinstance(value, Mapping):
        return name, [f"{k}={v}" for k, v in value.items()]
    if many and isinstance(value, list):
        return name, [_scalar(path, name, v) for v in value]
    scalar = None if value is None else _scalar(path, name, value)
    return name, [scalar] if many and scalar is not None else scalar


def _scalar(path: Path, name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"--config: {str(path)!r}, {name}: {units.shown(value)} is not a text or a number")
    return str(value)


def read_text(path: Path, option: str, largest_bytes: int) -> str:
    """Text of a file that a user named, ``-`` for standard input; refuses folders, binaries and giants."""
    try:
        if str(path) == "-":
            return _from_stdin(option, largest_bytes).decode("utf-8-sig")
        if path.is_dir():
            raise InputError(f"{option}: {str(path)!r} is a folder; give a file")
        if path.stat().st_size > largest_bytes:
            raise InputError(f"{option}: {str(path)!r} is larger than {largest_bytes:,} bytes; give a smaller file")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UnknownFile(f"{option}: no file {str(path)!r}{_near_files(path)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{option}: {str(path)!r} is not UTF-8 text; save it as UTF-8") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{option}: {units.shown(path)} can't be read; give a readable file") from error


def _from_stdin(option: str, largest_bytes: int) -> bytes:
    import sys

    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(f"{option}: '-' reads standard input, and nothing is piped into it")
    found = sys.stdin.buffer.read(largest_bytes + 1)
    if len(found) > largest_bytes:
        raise InputError(f"{option}: standard input is larger than {largest_bytes:,} bytes; give a smaller file")
    return found


@contextmanager
def readable(name: str) -> Iterator[Path]:
    """The file of that name; ``-`` gives standard input as a file, for readers that look at it twice."""
    if name != "-":
        yield Path(name)
        return
    import sys
    from shutil import copyfileobj
    from tempfile import TemporaryDirectory

    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("'-' reads standard input, and nothing is piped into it; give a file")
    with TemporaryDirectory() as folder:
        copied = Path(folder) / "stdin"
        with copied.open("wb") as file:
            copyfileobj(sys.stdin.buffer, file)
        try:
            yield copied
        except SizingError as error:
            raise type(error)(str(error).replace(str(copied), "standard input")) from error


def _near_files(path: Path) -> str:
    try:
        return nearest(path.name, [p.name for p in path.parent.iterdir()][:1000])
    except OSError:
        return ""


class Asked:
    """Collects the value of each option, and the assumption for each that was not given."""

    def __init__(self, options: PlanOptions) -> None:
        self.options, self.assumed, self.notes = options, list[Assumption](), list[str]()

    def number(self, name: str, parse: Any) -> float:
        """Value of an option, or its default with the assumption noted."""
        text = getattr(self.options, name)
        if text is None:
            self.assumed.append(default(name))
            return float(default(name).value)  # type: ignore[arg-type]
        return float(parse(text, option(name)))

    def target_s(self, name: str) -> float:
        """A latency target; a bare number means milliseconds and a note says so."""
        text = getattr(self.options, name)
        if text is None:
            self.assumed.append(default(name))
            return float(default(name).value)  # type: ignore[arg-type]
        seconds, bare = units.slo_s(text, option(name))
        if bare:
            self.notes.append(f"{option(name)} {text}: a bare number means milliseconds")
        return seconds

    def slo(self, **more: Any) -> Any:
        """The targets, with the percentile of each; ``more`` are other attributes of an SLO."""
        from sizing.workload import Slo

        found: dict[str, Any] = {}
        for name in ("percentile", "ttft_percentile", "tpot_percentile"):
            text = getattr(self.options, name)
            found[name] = None if text is None else units.percentile(text, option(name))
        slo = Slo(ttft_s=self.target_s("slo_ttft"), tpot_s=self.target_s("slo_tpot"), **found, **more)
        if slo.ttft_at is None or slo.tpot_at is None:
            self.assumed.append(default("percentile"))
        return slo

    def workload(self) -> Any:
        """Traffic of the options alone: a shipped shape, or lengths and a rate."""
        from sizing.workload import Workload, shape

        options = self.options
        if options.shape is None:
            drawn = Workload(
                request_rate_per_s=self.number("rps", positive_rate), input_tokens=self.number("input", positive_count),
                output_tokens=self.number("output", positive_count),
            )  # fmt: skip
        else:
            if options.trace is not None:
                raise InputError("--shape and --trace: give one of them")
            drawn = shape(options.shape, self.number("rps", positive_rate))
            self.notes += workload_notes(drawn)
        return self.in_bursts(self.with_lengths(drawn))

    def with_lengths(self, seen: Any) -> Any:
        """Traffic with the lengths that were given beside it, which win."""
        from dataclasses import replace

        given = {
            f"{name}_tokens": positive_count(text, option(name))
            for name in ("input", "output")
            if (text := getattr(self.options, name)) is not None
        }
        return replace(seen, **given, pairs=None, correlation=0.0) if given else seen

    def in_bursts(self, seen: Any) -> Any:
        """Traffic whose gaps have the CV that was given; a profile stays."""
        if self.options.cv is None:
            return seen
        from dataclasses import replace

        from sizing.workload import Gamma, Poisson, Profile

        cv = units.count(self.options.cv, "--cv")
        stream = Poisson() if cv == 1 else Gamma(cv=cv)
        profiled = isinstance(seen.arrivals, Profile)
        return replace(seen, arrivals=replace(seen.arrivals, stream=stream) if profiled else stream)


def workload_notes(seen: Any) -> tuple[str, ...]:
    """What a workload file or a shape has to say about itself."""
    from sizing.workload.describe import workload_notes as noted

    return noted(seen)


def option(name: str) -> str:
    """The option of that name as it is typed."""
    return "--" + name.replace("_", "-")


def positive_rate(text: str, what: str) -> float:
    """A rate above zero."""
    return units.positive(units.rate_per_s(text, what), what, "a rate such as 20, 20/s or 1200/min")


def positive_count(text: str, what: str) -> float:
    """A token count of at least one."""
    value = units.count(text, what)
    if value < 1:
        raise UnitError(f"{what}: {units.shown(text)} is below 1; write a number of tokens such as 2000 or 4k")
    return value


def prices(items: Sequence[str] | None) -> dict[str, float] | float | None:
    """``4`` for every GPU, or ``h100=3.2`` for one."""
    if not items:
        return None
    named: dict[str, float] = {}
    for item in items:
        gpu, equals, text = item.partition("=")
        if not equals:
            if len(items) > 1:
                raise InputError(f"--price: {item!r} among several is not allowed; write GPU=USD for each")
            return units.usd_per_hour(item, "--price")
        named[gpu.strip()] = units.usd_per_hour(text, f"--price {gpu.strip()}")
    return named
