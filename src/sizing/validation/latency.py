"""Measured latencies of static batches: all prompts at once, then all decode together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sizing.catalog.files import data_file
from sizing.errors import InputError, SizingError
from sizing.replica.loads import Estimate, Values, estimate
from sizing.replica.run import decode_tokens_s, kv_requests
from sizing.validation.cases import Case, read_case
from sizing.validation.layouts import number
from sizing.validation.serving import DRAWS, RowPrediction, budget_of, read_rows, steps_of

CURATED = "measured/latency.csv"
TRUTH = {
    "e2e_ms": ("e2e_latency_ms", "e2e_p50_ms"),
    "ttft_ms": ("first_token_latency_ms",),
    "tpot_ms": ("tpot_ms",),
    "tok_s": ("tok_s",),
}
"""Columns that hold a row's truth, the first that is filled."""


def latency_rows(file: Path | None = None) -> list[dict[str, str]]:
    """Rows of a table of static batches; the curated set when no file is named.

    Parameters
    ----------
    file
        CSV file with the columns of ``data/measured/latency.csv``.
    """
    return read_rows(file or data_file(CURATED))


def predict_latency(
    row: Mapping[str, str], configs: Path | None = None, name: str = "measured", draws: int = DRAWS
) -> RowPrediction:
    """Latency of one static batch; a row that can't be answered says why.

    Parameters
    ----------
    row
        Cells by column; measured columns are not looked at.
    configs
        Folder of config files tried before the catalogue.
    name
        Calibration.
    draws
        Joint draws behind the error bars. [1]
    """
    batch = number(row, "batch_size")
    asked = {**row, "load_kind": "concurrency", "load_value": row.get("batch_size") or "", "len_dist": "fixed"}
    try:
        if not batch:
            raise InputError("the batch size is not stated")
        case = read_case(asked, configs)
        values = static_batch(case, batch, name, draws)
    except SizingError as error:
        return RowPrediction(id=row.get("id") or "", reason=str(error))
    tokens = values.pop("tokens").value
    kind = row.get("tok_s_kind") or "output"
    shown = case.lengths.output_tokens + (case.lengths.input_tokens if "input" in kind else 0.0)
    share = shown / case.lengths.output_tokens / (case.deployment.gpus if "per_gpu" in kind else 1.0)
    e2e = values["e2e_ms"]
    values["tok_s"] = Estimate(value=tokens * share, low=tokens * share * e2e.value / e2e.high,
                               high=tokens * share * e2e.value / e2e.low)  # fmt: skip
    return RowPrediction(id=case.id, values=values, assumptions=case.assumptions)


def static_batch(case: Case, batch: float, name: str = "measured", draws: int = DRAWS) -> dict[str, Estimate]:
    """End-to-end latency, time to first token and per token of a batch that starts at once.

    Parameters
    ----------
    case
        What runs.
    batch
        Prompts. [request]
    name, draws
        Calibration, joint draws behind the error bars.
    """
    steps = steps_of(case.deployment, case.timing, name, draws)
    if case.made_up_weights and case.deployment.model.is_moe:
        alike = tuple(replace(op, touched=op.top_k) if op.experts else op for op in steps.operations)
        steps = replace(steps, operations=alike)
    scheduling = replace(case.timing.scheduling(8192.0), chunked=True)
    fit = max(kv_requests(budget_of(case.deployment), case.lengths, scheduling), 1.0)
    waves = max(np.ceil(batch / fit), 1.0)
    active = batch / waves
    one, zero = np.ones(1), np.zeros(1)
    prompt = case.lengths.input_tokens
    together = min(active, max(scheduling.token_budget / prompt, 1.0))
    prefill = np.ravel(steps.step_s(zero, zero, one * prompt * together,
                                    one * together * prompt * (prompt + 1.0) / 2.0, one * together))  # fmt: skip
    prefill = prefill * active / together + np.ravel(steps.engine.first_token_s)
    decode = np.ravel(decode_tokens_s(steps, one * active, case.lengths, scheduling))
    output = max(case.lengths.output_tokens - 1.0, 0.0)
    e2e: Values = waves * (prefill + output * decode)
    sigma = case.timing.residual_on(case.deployment.gpu.id)
    return {
        "e2e_ms": estimate(e2e * 1e3, sigma["tpot"]),
        "ttft_ms": estimate(prefill * 1e3, sigma["ttft"]),
        "tpot_ms": estimate(decode * 1e3, sigma["tpot"]),
        "tokens": estimate(batch * case.lengths.output_tokens / e2e, sigma["rate"]),
    }


def latency_report(
    rows: Sequence[Mapping[str, str]], predictions: Sequence[RowPrediction]
) -> tuple[str, list[dict[str, object]], list[str]]:
    """Title, error table, and one line for every row that isn't answered.

    Parameters
    ----------
    rows, predictions
        In the same order.
    """
    from sizing.validation.scores import scores, table

    unanswered = [p for p in predictions if p.reason]
    title = (
        f"{len(rows)} static batches: {len(rows) - len(unanswered)} answered; errors in per cent of what was measured"
    )
    found = table(scores(rows, predictions, TRUTH), by=("engine", "gpu", "model", "quality"))
    return title, found, [f"{p.id}: {p.reason}" for p in unanswered]
