"""What is simulated: how an engine schedules, the requests, and what happens to the fleet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sizing.errors import InputError
from sizing.workload.requests import Requests

ROUTERS = ("random", "round-robin", "least-loaded", "prefix-aware", "sticky")
RESERVATIONS = ("paged", "answer", "longest")
MOST_CLASSES = 8
MOST_TOKENS = 1 << 26
LONGEST_S = 4e6


def check_whole(name: str, value: int, least: int, most: int) -> None:
    """Refuse anything but a whole number in a range."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise InputError(f"{name}: {value!r} is not allowed; give a whole number from {least} to {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """How one replica's engine composes its steps.

    Attributes
    ----------
    kv_tokens
        Tokens that the replica's KV cache holds. [token]
    max_num_seqs
        Sequences in one step, at most. [request]
    max_num_batched_tokens
        Token budget of one step; above ``max_num_seqs``. Prompts are prefilled in chunks within it. [token]
    block_tokens
        Tokens of one KV block. [token]
    prefix_caching
        Whether blocks are shared and kept for later requests with the same beginning.
    batching
        ``continuous`` (Orca's iteration-level scheduling), or ``static``: a batch is taken when the one before
        has ended, is padded to its longest answer, and is returned as a whole.
    kv_reservation
        ``paged``: blocks as tokens come (vLLM). ``answer``: blocks for prompt and whole answer at admission, so that
        nobody is preempted (TensorRT-LLM's ``GUARANTEED_NO_EVICT``). ``longest``: contiguous room for
        ``max_model_len`` tokens at admission, as engines did before.
    mixed
        Whether prompts share steps with sequences that decode. If not, a step prefills only, as long as prompts
        have room, and those that decode stand still meanwhile (SGLang).
    chunked
        Whether a prompt longer than what the budget has left is split. If not, it waits for a step where it fits, and
        one longer than the whole budget is the only one of its step.
    max_model_len
        Longest context, prompt and answer; longer requests are refused. None: what the cache holds. [token]
    """

    kv_tokens: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    block_tokens: int = 16
    prefix_caching: bool = True
    batching: Literal["continuous", "static"] = "continuous"
    kv_reservation: Literal["paged", "answer", "longest"] = "paged"
    mixed: bool = True
    chunked: bool = True
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        check_whole("kv_tokens", self.kv_tokens, 0, 1 << 40)
        check_whole("max_num_seqs", self.max_num_seqs, 1, 1 << 16)
        check_whole("max_num_batched_tokens", self.max_num_batched_tokens, 2, 1 << 22)
        check_whole("block_tokens", self.block_tokens, 1, 1 << 16)
        if self.max_model_len is not None:
            check_whole("max_model_len", self.max_model_len, 1, 1 << 30)
        if self.max_num_batched_tokens <= self.max_num_seqs:
            raise InputError(
                f"max_num_batched_tokens: {self.max_num_batched_tokens} must be above max_num_seqs"
                f" ({self.max_num_seqs}); every decoding sequence takes one token of each step"
            )
        for name, choices in {"batching": ("continuous", "static"), "kv_reservation": RESERVATIONS}.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name}: {getattr(self, name)!r} is not known; use {' or '.join(choices)}")

    @property
    def longest_request_tokens(self) -> int:
        """Longest prompt and answer that is not refused. [token]"""
        room = self.kv_tokens // self.block_tokens * self.block_tokens
        return room if self.max_model_len is None else min(room, self.max_model_len)


def check_requests(requests: Requests) -> None:
    """Refuse what cannot be simulated."""
    if len(requests) == 0:
        raise InputError("requests: none given; nothing to simulate")
    if not np.all(np.isfinite(requests.arrival_s)) or np.min(requests.arrival_s) < 0:
        raise InputError("arrival_s: times must be finite and not negative")
    if np.max(requests.arrival_s) > LONGEST_S:
        raise InputError("arrival_s: times beyond 46 days; shift the trace to begin at 0")
    for name in ("input_tokens", "output_tokens"):
        values = getattr(requests, name)
        if np.min(values) < 1 or np.max(values) > MOST_TOKENS:
            raise InputError(f"{name}: lengths must be from 1 to {MOST_TOKENS} tokens")
    urgency = requests.priority
    if urgency is not None and not 0 <= np.min(urgency) <= np.max(urgency) < MOST_CLASSES:
        raise InputError(f"priority: classes go from 0 to {MOST_CLASSES - 1}")


def closed_loop(
    concurrency: int, input_tokens: ArrayLike, output_tokens: ArrayLike, *, pause_s: float = 0.0, **more: Any
) -> Requests:
    """Users that each send a request when the one before is answered.

    Parameters
    ----------
    concurrency
        Users. [request]
    input_tokens, output_tokens
        Lengths of all requests; user ``k`` sends numbers ``k``, ``k + concurrency``, ... [token]
    pause_s
        Time between an answer and the next request. [s]
    more
        Other arrays of :class:`sizing.workload.Requests`.
    """
    bare = Requests(
        arrival_s=np.zeros(len(np.asarray(input_tokens))), input_tokens=np.asarray(input_tokens, dtype=np.int64),
        output_tokens=np.asarray(output_tokens, dtype=np.int64), **more,
    )  # fmt: skip
    return in_turns(bare, concurrency, pause_s)


def in_turns(requests: Requests, concurrency: int, pause_s: float = 0.0) -> Requests:
    """The same requests, sent by users who each wait for their answer; when they arrived does not matter.

    Parameters
    ----------
    requests
        In the order they are sent. Where users keep a conversation going, they are users already.
    concurrency, pause_s
        As for :func:`closed_loop`. [request], [s]
    """
    check_whole("concurrency", concurrency, 1, 1 << 24)
    if not 0 <= pause_s <= LONGEST_S:
        raise InputError(f"pause_s: {pause_s!r} is not allowed; give seconds from 0 to 4,000,000")
    if requests.after is not None and np.any(requests.after >= 0):
        raise InputError("concurrency: these requests wait for each other already, as turns of a conversation")
    count = len(requests)
    return replace(
        requests, arrival_s=np.zeros(count), pause_s=np.full(count, pause_s),
        after=np.maximum(np.arange(count) - concurrency, -1),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """Something that happens to a replica.

    Attributes
    ----------
    time_s
        When. [s]
    replica
        Its number, from 0.
    kind
        ``fail``: requests on it go back to the router and are prefilled anew elsewhere. ``start``: it takes
        requests from now on, with an empty cache (a cold start's delay is part of ``time_s``). ``drain``:
        it takes no more, and ends when it is empty.
    """

    time_s: float
    replica: int
    kind: Literal["fail", "start", "drain"]

    def __post_init__(self) -> None:
        if self.kind not in ("fail", "start", "drain"):
            raise InputError(f"kind: {self.kind!r} is not known; use fail, start or drain")
        if not 0 <= self.time_s <= LONGEST_S:
            raise InputError(f"time_s: {self.time_s!r} is not allowed; give seconds from 0 to 4,000,000")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """Replicas, how requests are spread over them, and what happens to them.

    Attributes
    ----------
    replicas
        Replicas that ever exist. [replica]
    router
        ``random``, ``round-robin``, ``least-loaded`` (fewest requests present), ``prefix-aware`` (fewest
        uncached prompt tokens, those in its queue and a weight per request present included; a hit of less than
        30 % of the prompt does not count, so that new conversations go where the load is least) or
        ``sticky`` (by the root of the prefix).
    down_at_start
        Replicas that are not up at time 0.
    events
        Failures, starts and drains.
    miss_weight
        What an uncached token of the request weighs for it against one that waits: computing a prefix once more
        also evicts another one. [1]
    request_weight_tokens
        What one present request weighs for the prefix-aware router. [token]
    """

    replicas: int = 1
    router: str = "least-loaded"
    down_at_start: Sequence[int] = ()
    events: Sequence[FleetEvent] = ()
    request_weight_tokens: int = 32
    miss_weight: int = 16

    def __post_init__(self) -> None:
        check_whole("replicas", self.replicas, 1, 1 << 14)
        check_whole("miss_weight", self.miss_weight, 1, 1000)
        if self.router not in ROUTERS:
            from sizing.errors import nearest

            raise InputError(
                f"router: {self.router!r} is not known; use {', '.join(ROUTERS)}{nearest(self.router, ROUTERS)}"
            )
        for replica in [*self.down_at_start, *(event.replica for event in self.events)]:
            check_whole("replica", replica, 0, self.replicas - 1)
