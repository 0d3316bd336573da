"""ServeGen (Apache-2.0, arXiv:2505.09999): a client's rates by window and its lengths as distributions.

``chunk-N-trace.csv`` has no header; its rows are ``t [s], rate [1/s], CV, pattern, two shape parameters`` for windows
of 600 s. ``chunk-N-dataset.json`` beside it has, for longer windows, distributions of lengths as texts of Python
dicts. Requests are drawn from both; rates and lengths are the file's, single requests are not.
"""

import ast
import gzip
import json
import math
import re
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sizing.errors import InputError, UnknownFile
from sizing.workload.lengths import Floats, Ints
from sizing.workload.source import Head, Source
from sizing.workload.trace import FIELDS_MISSING, NOT_A_NUMBER, TRACE_READERS, Raw, Reader, RowLog

MOST_REQUESTS = 20_000_000
MOST_TEXT = 4_000_000  #: longest text of a distribution that is parsed [character]
_PATTERNS = ("gamma", "weibull", "")
_DATASET = re.compile(r'\s*\{\s*"\d+(\.\d+)?"\s*:\s*\{')

Pdf = tuple[Floats, Floats]


@TRACE_READERS.register("servegen")
class ServeGen(Reader):
    """ServeGen, one client."""

    describes = "chunk-N-trace.csv (t, rate, CV, pattern, ...) with chunk-N-dataset.json beside it"

    def recognises(self, head: Head) -> bool:
        """Whether the first rows are windows, or the file holds distributions by window."""
        if _DATASET.match("\n".join(head.lines)):
            return True
        cells = head.lines[0].split(",")
        return len(cells) == 6 and cells[3].strip().lower() in _PATTERNS and _is_number(cells[0])

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Draw requests window by window."""
        trace, dataset = _pair(source.path)
        source.path = trace
        windows = _windows(source, log)
        inputs, outputs = _lengths(dataset)
        random = np.random.Generator(np.random.PCG64(seed))
        expected = float(np.sum(windows[:, 1]) * _step_s(windows))
        if expected > MOST_REQUESTS:
            raise InputError(
                f"{trace}: {expected:,.0f} requests expected; the most that are drawn is {MOST_REQUESTS:,}"
            )
        drawn = [_arrivals(random, row, _step_s(windows)) for row in windows if row[1] > 0]
        times = np.concatenate([d[0] for d in drawn]) if drawn else np.empty(0)
        lines = np.concatenate([d[1] for d in drawn]) if drawn else np.empty(0, dtype=np.int64)
        return Raw(
            arrival_s=times, input_tokens=_draw(random, inputs, times), output_tokens=_draw(random, outputs, times),
            lines=lines, notes=[f"requests were drawn from the file's rates and distributions (seed {seed})"],
        )  # fmt: skip


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _pair(path: Path) -> tuple[Path, Path]:
    """The trace and the data set of a client, given either."""
    name = path.name
    if "dataset.json" in name:
        trace, dataset = _beside(path, name.replace("dataset.json", "trace.csv")), path
    else:
        trace, dataset = path, _beside(path, name.replace("trace.csv", "dataset.json"))
    for file, other in ((trace, dataset), (dataset, trace)):
        if file == other or not file.exists():
            raise UnknownFile(f"{path}: its other half, {file.name!r}, is not beside it; put both in one folder")
    return trace, dataset


def _beside(path: Path, name: str) -> Path:
    """A file beside another one, with or without ``.gz``; whether either is packed is told by its content."""
    plain = path.with_name(name.removesuffix(".gz"))
    packed = plain.with_name(plain.name + ".gz")
    return packed if packed.exists() and not plain.exists() else plain


def _windows(source: Source, log: RowLog) -> Floats:
    """Rows ``t, rate, CV, Weibull shape or 0, line`` of the trace."""
    rows = []
    for first, block in source.blocks():
        for line, text in enumerate(block, first):
            cells = [c.strip() for c in text.split(",")]
            if len(cells) < 4:
                if text.strip():
                    log.skip(FIELDS_MISSING, line)
                continue
            if not all(_is_number(c) for c in cells[:3]) or min(map(float, cells[:3])) < 0:
                log.skip(NOT_A_NUMBER, line)
                continue
            weibull = cells[3].lower() == "weibull" and len(cells) > 4 and _is_number(cells[4])
            rows.append([*map(float, cells[:3]), float(cells[4]) if weibull else 0.0, float(line)])
    if not rows:
        fault = log.first_fault()
        raise InputError(f"{source.path}: no window can be used" + (f", the first fault at {fault}" if fault else ""))
    return np.array(sorted(rows))


def _step_s(windows: Floats) -> float:
    return float(np.min(np.diff(windows[:, 0]))) if len(windows) > 1 else 600.0


def _arrivals(random: np.random.Generator, row: Floats, step_s: float) -> tuple[Floats, Ints]:
    """Arrivals of one window: gaps of its mean and CV."""
    begin, rate, cv, weibull, line = row
    cv = min(max(cv, 0.01), 30.0)
    n = int(rate * step_s + 8 * math.sqrt(rate * step_s) * max(cv, 1.0)) + 8
    if 0.05 < weibull < 50:
        gaps = random.weibull(weibull, n) / (rate * math.gamma(1 + 1 / weibull))
    else:
        gaps = random.standard_gamma(1 / cv**2, n) * cv**2 / rate
    times = np.cumsum(gaps)
    times = begin + np.rint(times[times < step_s] * 1e9) * 1e-9
    return times, np.full(len(times), int(line), dtype=np.int64)


def _lengths(path: Path) -> tuple[dict[float, Pdf], dict[float, Pdf]]:
    """Distributions of input and output length by the beginning of their window [s]."""
    try:
        raw = path.read_bytes()
        data = json.loads(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise InputError(f"{path}: not a JSON file that can be read ({error}); fetch it again") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: a list where windows are expected; is this a ServeGen data set?")
    found: tuple[dict[float, Pdf], dict[float, Pdf]] = ({}, {})
    for window, fields in data.items():
        if not _is_number(window) or not isinstance(fields, Mapping):
            raise InputError(f"{path}: window {window!r} is no number with a table; is this a ServeGen data set?")
        pdfs = [_pdf(fields.get(name), path, window) for name in ("input_tokens", "output_tokens")]
        if all(p is not None for p in pdfs):
            for place, pdf in zip(found, pdfs, strict=True):
                place[float(window)] = pdf  # type: ignore[assignment]
    if not found[0]:
        raise InputError(f"{path}: no window has lengths of input and output; is this a ServeGen data set?")
    return found


def _pdf(text: object, path: Path, window: str) -> Pdf | None:
    """A distribution from the text of a Python dict; None where it is empty."""
    try:
        if not isinstance(text, str) or len(text) > MOST_TEXT:
            raise TypeError("not a text of fair length")
        table = ast.literal_eval(text)
        pairs = sorted((float(k), float(v)) for k, v in table.items())
    except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError) as error:
        raise InputError(f"{path}: window {window}: a distribution does not parse ({error})") from error
    if not pairs:
        return None
    tokens, weights = np.array(pairs).T
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or weights.sum() <= 0:
        raise InputError(f"{path}: window {window}: shares must be at least 0 and not all 0")
    return tokens, np.cumsum(weights) / weights.sum()


def _draw(random: np.random.Generator, pdfs: dict[float, Pdf], times: Floats) -> Floats:
    """A length for each arrival, from the window it falls in, or the nearest that has lengths."""
    keys = np.array(sorted(pdfs))
    before = np.searchsorted(keys, times, side="right") - 1
    share, lengths = random.random(len(times)), np.empty(len(times))
    for i, key in enumerate(keys):
        chosen = np.maximum(before, 0) == i
        tokens, steps = pdfs[key]
        lengths[chosen] = tokens[np.minimum(np.searchsorted(steps, share[chosen]), len(tokens) - 1)]
    return lengths
