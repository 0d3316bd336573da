"""Memory layout of the compiled simulator: four packed arrays and the offsets into them.

What made the difference between 1,400 and 100 ns a step is how few arrays the kernels pass around, so the
whole state of a fleet lives in

* ``s`` int64, one row of scalars a replica, then the scalars of the fleet, the histogram of token gaps and
  the heap of arrivals that wait for a completion;
* ``w`` int32, one arena a replica (calendar of finishes, slots, queues, prefix cache), then the facts of
  the prefix tree;
* ``q`` int32, one row a request: what it is and how far it got;
* ``t`` int64, one row a request: arrival, first scheduled, first token, finish [ps];
* ``f`` float64, the step-time table and the time integrals.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Small: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]

# --- scalars of a replica (row of s)
END = 0  # end of the step in flight [ps]
STEP = 1  # number of the step in flight
DECODING = 2  # sequences that decode
CONTEXT = 3  # sum of their tokens in the cache, the one of this step included
FREE = 4  # free KV blocks
NEXT_FINISH = 5  # step at whose end the next sequence finishes
PHASE = 6
PART = 7  # slot of the one partly prefilled sequence, or -1
PART_START = 8  # its tokens computed so far
WAITING = 9  # requests in the queue
WAITING_TOKENS = 10  # uncached prompt tokens in the queue, as the router saw them
STATE = 11
CHUNK_HEAD = 12  # slots whose prefill ends with this step, in order
CHUNK_TAIL = 13
LRU_HEAD = 14  # oldest run of free blocks
LRU_TAIL = 15
RUN_POOL = 16  # unused run records
SLOT_POOL = 17  # number of unused slots
PRESENT = 18  # requests waiting or running
LAST_CHANGE = 19  # time of the last change of PRESENT [ps]
PREEMPTIONS = 20
STEPS = 21  # steps done
PREFILLED = 22  # prompt tokens computed, recomputation included
PEAK_USED = 23  # most KV blocks in use
WORKING = 24  # time in steps [ps]
ROW = 32

# --- phases of a replica
IDLE, NULL, DECODE, MIXED = 0, 1, 2, 3
# --- states of a replica
DOWN, UP, DRAINING = 0, 1, 2
# --- kinds of scheduled events
FAIL, START, DRAIN = 0, 1, 2
# --- routers
RANDOM, ROUND_ROBIN, LEAST_LOADED, PREFIX_AWARE, STICKY = 0, 1, 2, 3, 4

# --- scalars of the fleet (in s at Offsets.fleet)
NEXT_ARRIVAL, NEXT_EVENT, TURN, HEAP, HELD_HEAD, HELD_TAIL, SPAWNED = 0, 1, 2, 3, 4, 5, 6
FLEET_ROW = 8

# --- columns of q
PROMPT, OUTPUT, CHAIN, SHARED, CLASS, NEXT, GENERATED, PREEMPTED, HIT, REPLICA, DRAW, THEN, ESTIMATE = range(13)
COLUMNS = 13
# --- columns of t
ARRIVAL, SCHEDULED, FIRST, FINISH = range(4)

NEVER = 1 << 62
GAP_BINS = 1 << 13
FINE_GAP_PS = 25_000_000  # 25 us up to 0.2 s
COARSE_GAP_PS = 4_000_000_000  # 4 ms beyond, up to 33 s


class Offsets(NamedTuple):
    """Sizes and places; all plain integers, so that kernels get them by value."""

    replicas: int
    arrivals: int  # requests with an arrival time; those that wait for a completion come after them
    events: int
    # rules
    router: int
    budget: int
    most_running: int
    block: int
    blocks: int
    reserved: int  # blocks reserved at admission, 0 for paging
    ready: int  # requests arrive with their KV cache (decode pool)
    chained: int  # arrivals that wait for a completion exist
    load_tokens: int  # prefix-aware router: prompt tokens that one running request weighs
    horizon: int
    ring: int  # power of two above the longest output
    classes: int
    chains: int
    # places in s
    fleet: int
    gaps: int
    heap: int
    # places in one replica's arena of w
    arena: int
    ring_head: int
    ring_tail: int
    slot: int  # twelve arrays of most_running, see the SLOT_* columns
    grow: int
    pool: int
    order: int  # two per class: head, tail
    queue: int  # two per class
    cached: int
    top: int
    active: int
    full: int
    runs: int  # seven arrays of run_size
    run_size: int
    # places in w after the arenas
    parent: int
    start: int
    up: int
    # places in f
    linear: int
    knots: int  # contexts of the decode grid
    knot_count: int
    decode: int  # value and slope per batch and knot
    prefill_q: int
    prefill_q_count: int
    prefill_c: int
    prefill_c_count: int
    prefill: int
    costs: int
    present: int  # time integral of requests present, per replica [request * s]


# --- arrays of a slot, each most_running long, at Offsets.slot
S_REQUEST, S_JOIN, S_TOKENS, S_FINISH, S_NEXT, S_PREV, S_AFTER, S_BEFORE = range(8)
S_HELD, S_CHAIN, S_MORE, S_LESS = 8, 9, 10, 11
SLOT_ARRAYS = 12
# --- arrays of a run of free blocks, each run_size long, at Offsets.runs
R_CHAIN, R_LOW, R_HIGH, R_NEXT, R_PREV, R_DEEPER, R_SHALLOWER = range(7)
RUN_ARRAYS = 7
