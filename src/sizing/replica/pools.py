"""A run on separate prefill and decode workers: the same curve, with the stall taken out of the decode."""

import numpy as np

from sizing.engines.timing import Scheduling
from sizing.replica.curve import chunks_of, prefill_s
from sizing.replica.run import (
    ClosedLoop,
    Curve,
    Lengths,
    Offline,
    OpenLoop,
    Run,
    RunLoad,
    State,
    curve_at,
    decode_grid,
    decode_tokens_s,
    run_of,
)
from sizing.steptable import delivery_share
from sizing.steptime import StepModel


def predict_pools(
    prefill: StepModel,
    decode: StepModel,
    workers: tuple[float, float],
    load: RunLoad,
    lengths: Lengths,
    scheduling: Scheduling,
    *,
    transfer_bytes_per_s: float = 5e10,
    spread: dict[str, float] | None = None,
) -> Run:
    """A run on a prefill pool and a decode pool.

    Parameters
    ----------
    prefill, decode
        Step times of one worker of each pool.
    workers
        Prefill workers, decode workers. [1]
    load, lengths, scheduling, spread
        As for :func:`sizing.replica.run.predict_run`.
    transfer_bytes_per_s
        At which a worker's KV cache moves to the other pool. [B/s]

    Notes
    -----
    X = n_d B / ((O - 1) t(B)); a prompt waits as in M/D/n_p, is prefilled, and its cache is moved; users = n_d B
    + X (time before the first token).
    """
    users = load.users if isinstance(load, ClosedLoop) else (load.requests or 1e4)
    givers, takers = max(workers[0], 1.0), max(workers[1], 1.0)
    decoding = decode_grid(max(users / takers, 1.0))
    output = max(lengths.output_tokens - 1.0, 1e-9)
    tpot = decode_tokens_s(decode, 1.0 + decoding, lengths, scheduling)
    rate = takers * decoding / (output * tpot)
    several = max(scheduling.step_tokens / lengths.input_tokens, 1.0)
    alone_s, full_s = np.split(prefill_s(prefill, np.array([1.0, several]), lengths, scheduling), 2, axis=-1)
    service = np.minimum(alone_s, full_s / several) / givers
    use = np.minimum(rate * service, 0.9995)
    moved = lengths.input_tokens * decode.deployment.model.kv_bytes_per_token(decode.deployment.formats.kv)
    start = alone_s + use * service / (2.0 * (1.0 - use)) + moved / transfer_bytes_per_s + tpot
    held = prefill.engine.first_token_steps * delivery_share(1.0 + decoding) * tpot
    start = prefill.engine.start_scale * start + prefill.engine.first_token_s + held
    rate = np.minimum(rate, 0.9995 / service)
    full_step_s = full_s / chunks_of(lengths, scheduling)
    curve = Curve(
        decoding=decoding, rate_per_s=rate, tpot_s=np.broadcast_to(tpot, rate.shape), start_s=start,
        active=takers * decoding + rate * start, full_step_s=np.broadcast_to(full_step_s, rate.shape),
        decode_s=np.broadcast_to(tpot, rate.shape), stall_s=np.zeros_like(rate),
    )  # fmt: skip
    state: State = {"waiting": 0.0, "limited_by": "load", "kv_short": False}
    if isinstance(load, OpenLoop) and np.isfinite(load.request_rate_per_s):
        found = curve_at(curve, curve.rate_per_s, load.request_rate_per_s)
    else:
        found = curve_at(curve, curve.active, users)
    requests = max(getattr(load, "requests", None) or 10.0 * users, 1.0)
    first = min(users / requests, 1.0) if not isinstance(load, OpenLoop | Offline) else 0.0
    wave = np.ravel(service) * users / 2.0 + np.ravel(alone_s)
    found["ttft_s"] = first * np.maximum(wave, found["start_s"]) + (1.0 - first) * found["start_s"]
    return run_of(found, state, lengths, spread or {})
