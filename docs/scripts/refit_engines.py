"""Fit every engine's own time and error bars to measured runs and write them into data/engines.toml.

Run as ``python docs/scripts/refit_engines.py FILE --configs DIR`` with FILE in the columns of
``data/measured/serving.csv``; some minutes. Everything that is not fitted (names, versions, how steps are formed) is
left as it is; engines with few runs keep their constants.
"""

import argparse
import re
from pathlib import Path

from sizing.engines.timing import engine_timings
from sizing.errors import InputError
from sizing.fitting.left_out import LEAST_ROWS, left_out_errors
from sizing.fitting.residuals import misses, spreads
from sizing.fitting.serving import PRIORS, EngineFit, fit_engine, observations
from sizing.validation.serving import read_rows

TABLES = Path(__file__).parents[2] / "data" / "engines.toml"
KEPT = ("trtllm-session", "vllm-v0", "transformers", "deepspeed", "generic")
"""Records whose constants have other sources than runs alone."""


def inline(values: dict[str, float]) -> str:
    """An inline table."""
    return "{ " + ", ".join(f"{name} = {value:g}" for name, value in values.items()) + " }"


def with_constants(section: str, fit: EngineFit) -> str:
    """A table with its fitted constants in place of the old ones, below its source."""
    source = f'source = "{fit.rows} runs of {fit.cells} cells of GPU, model and weight format"'
    lines = [x for x in section.split("\n") if not re.match(rf"({'|'.join(PRIORS)}|prefill_token_s)\s*=", x)]
    at = next(i for i, line in enumerate(lines) if line.startswith("source"))
    own = fit.timing.values.items()
    lines[at : at + 1] = [
        source,
        *(f"{n} = [{v:.4g}, {fit.timing.spreads.get(n, 0.0):.2f}]" for n, v in own if v > 1e-9),
    ]
    return "\n".join(lines)


def with_spreads(section: str, old: dict[str, float], overall: dict[str, float], by_gpu: dict[str, dict[str, float]]
                 ) -> str:  # fmt: skip
    """A table with its residuals in place of the old ones."""
    kept = re.sub(r"(?m)^residual(_by_gpu)? = .*\n?", "", section).rstrip("\n")
    text = kept + "\nresidual = " + inline({**old, **overall}) + "\n"
    if by_gpu:
        text += "residual_by_gpu = { " + ", ".join(f"{gpu} = {inline(v)}" for gpu, v in by_gpu.items()) + " }\n"
    return text + "\n"


def sections(text: str) -> dict[str, str]:
    """The file's tables by name; what stands before the first is ''."""
    parts = re.split(r"(?m)^(?=\[[^\[])", text)
    return {(re.match(r"\[([^\]]+)\]", part) or [None, ""])[1]: part for part in parts}


def main() -> None:
    """Constants first, then error bars under them: in two runs, since tables are read once a process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--spreads-only", action="store_true", help="keep the constants")
    asked = parser.parse_args()
    rows, tables, apart = read_rows(asked.file), sections(TABLES.read_text()), {}
    for name, before in engine_timings().items():
        try:
            seen = observations(rows, name, asked.configs, most=10_000)
        except InputError:
            continue
        if len(seen) < LEAST_ROWS or name in KEPT:
            continue
        timing = before
        if not asked.spreads_only:
            fit = fit_engine(seen, before)
            tables[name], timing = with_constants(tables[name], fit), fit.timing
            print(name, fit.rows, fit.errors, flush=True)
        else:
            errors = left_out_errors(seen, timing, "cell")
            apart |= {o.case.id: errors[i] for i, o in enumerate(seen)}
    if asked.spreads_only:
        for name, (overall, by_gpu) in spreads(misses(rows, apart, asked.configs)).items():
            if name not in ("vllm-v0", "transformers", "deepspeed", "generic"):
                old = dict(engine_timings()[name].residual)
                tables[name] = with_spreads(tables[name], old, overall, by_gpu)
    TABLES.write_text("".join(tables.values()).rstrip() + "\n")
    if not asked.spreads_only:
        print("now run this again with --spreads-only")


if __name__ == "__main__":
    main()
