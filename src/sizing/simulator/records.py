"""What came of each request, and of the fleet as a whole."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PS = 1e-12
DONE, UNFINISHED, REFUSED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """One run of the simulator: a record per request, in the order they were given.

    Attributes
    ----------
    arrival_ps, scheduled_ps, first_token_ps, finish_ps
        Times; -1 where it did not come to that. [ps]
    input_tokens, output_tokens
        Lengths. [token]
    replica
        Where it ran last; -1 nowhere.
    preempted
        Times it lost its KV cache.
    hit_tokens
        Prompt tokens found in the prefix cache at its first admission. [token]
    status
        0 done, 1 unfinished at the horizon, 2 refused: longer than the engine can hold.
    client_s
        Time between client and scheduler, part of TTFT and end-to-end latency. [s]
    delivery_ps
        Time until a first token that is ready reaches the client; the rest of the answer follows it. [ps]
    steps, busy_s, prefilled_tokens, preemptions, present_request_s, peak_kv_blocks
        Per replica: steps done, time in them, prompt tokens computed, preemptions, time integral of the
        requests present, most KV blocks in use.
    gap_s, gap_count
        Histogram of the gaps between tokens (ITL, pooled over all tokens): bin middles and counts. [s]
    end_s
        Time of the last event. [s]
    """

    arrival_ps: NDArray[np.int64]
    scheduled_ps: NDArray[np.int64]
    first_token_ps: NDArray[np.int64]
    finish_ps: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    replica: NDArray[np.int32]
    preempted: NDArray[np.int32]
    hit_tokens: NDArray[np.int32]
    status: NDArray[np.int8]
    client_s: Floats
    delivery_ps: NDArray[np.int64]
    steps: NDArray[np.int64]
    busy_s: Floats
    prefilled_tokens: NDArray[np.int64]
    preemptions: NDArray[np.int64]
    present_request_s: Floats
    peak_kv_blocks: NDArray[np.int64]
    gap_s: Floats
    gap_count: NDArray[np.int64]
    end_s: float

    def __len__(self) -> int:
        return len(self.arrival_ps)

    @property
    def arrival_s(self) -> Floats:
        """Arrival. [s]"""
        return np.asarray(self.arrival_ps * PS, dtype=np.float64)

    @property
    def done(self) -> NDArray[np.bool_]:
        """Which requests were answered to the end."""
        return self.status == DONE

    @property
    def queue_s(self) -> Floats:
        """Arrival to first scheduling; infinite where never. [s]"""
        return np.where(self.scheduled_ps >= 0, (self.scheduled_ps - self.arrival_ps) * PS, np.inf)

    @property
    def ttft_s(self) -> Floats:
        """Time to first token; infinite where there is none. [s]"""
        first = (self.first_token_ps + self.delivery_ps - self.arrival_ps) * PS + self.client_s
        return np.where(self.first_token_ps >= 0, first, np.inf)

    @property
    def tpot_s(self) -> Floats:
        """Mean gap after the first token; NaN for an answer of one token, infinite where unfinished. [s]"""
        gaps = np.maximum(self.output_tokens - 1, 1)
        mean = np.where(self.output_tokens > 1, (self.finish_ps - self.first_token_ps) * PS / gaps, np.nan)
        return np.where(self.done, mean, np.inf)

    @property
    def latency_s(self) -> Floats:
        """End-to-end latency; infinite where unfinished. [s]"""
        whole = (self.finish_ps + self.delivery_ps - self.arrival_ps) * PS + self.client_s
        return np.where(self.done, whole, np.inf)
