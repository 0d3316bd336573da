"""Memory layout of the compiled simulator: five packed arrays and the places in them.

What made the difference between 1,400 and 100 ns a step is how few arrays the kernels pass around, so the
whole state of a fleet lives in

* ``s`` int64: the parameters of the run, one row of scalars a replica, then the scalars of the fleet, the
  histogram of token gaps and the heap of arrivals that wait for a completion;
* ``w`` int32, one arena a replica (calendar of finishes, slots, queues, prefix cache), then the facts of
  the prefix tree;
* ``q`` int32, one row a request: what it is and how far it got;
* ``t`` int64, one row a request: arrival, first scheduled, first token, finish, delivery of the first token [ps];
* ``f`` float64, the step-time table and the time integrals.
"""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
STANDING = 25  # sequences that stand still while steps prefill only, by group
GROUPS = 26  # groups of them: those that decoded before, and those that each such step added
GROUP_SIZE = 32  # sequences of each group
GROUP_SINCE = 48  # when it began to stand still [ps]
MOST_GROUPS = 16
ROW = 64

# --- phases of a replica
IDLE, NULL, DECODE, MIXED, PREFILL = 0, 1, 2, 3, 4
# --- states of a replica
DOWN, UP, DRAINING = 0, 1, 2
# --- kinds of scheduled events
FAIL, START, DRAIN = 0, 1, 2
# --- routers
RANDOM, ROUND_ROBIN, LEAST_LOADED, PREFIX_AWARE, STICKY = 0, 1, 2, 3, 4

# --- scalars of the fleet (in s at P_FLEET)
NEXT_ARRIVAL, NEXT_EVENT, TURN, HEAP, HELD_HEAD, HELD_TAIL, SPAWNED = 0, 1, 2, 3, 4, 5, 6
FLEET_ROW = 8

# --- columns of q
PROMPT, OUTPUT, CHAIN, SHARED, CLASS, NEXT, GENERATED, PREEMPTED, HIT, REPLICA, DRAW, THEN, ESTIMATE = range(13)
COLUMNS = 13
# --- columns of t
ARRIVAL, SCHEDULED, FIRST, FINISH, DELIVERY = range(5)
TIMES = 5


@dataclass(frozen=True, slots=True)
class Array:
    """A packed array as kernels know it: type of its items, and items of a row (0: no rows)."""

    item: str
    columns: int = 0


Ints: TypeAlias = Annotated[NDArray[np.int64], Array("int64")]
Small: TypeAlias = Annotated[NDArray[np.int32], Array("int32")]
Floats: TypeAlias = Annotated[NDArray[np.float64], Array("float64")]
SmallRows: TypeAlias = Annotated[NDArray[np.int32], Array("int32", COLUMNS)]
IntRows: TypeAlias = Annotated[NDArray[np.int64], Array("int64", TIMES)]
EventRows: TypeAlias = Annotated[NDArray[np.int64], Array("int64", 3)]

# --- numbers at P_COSTS
C_STEP, C_SEQUENCE, C_PREFILL_STEP, C_PREFILL_SEQUENCE, C_FIRST_TOKEN, C_REQUEST, C_REQUEST_TOKEN = range(7)
C_HOST_STEP, C_HOST_SEQUENCE, C_DELIVERY = 7, 8, 9

NEVER = 1 << 62
GAP_BINS = 1 << 13
FINE_GAP_PS = 25_000_000  # 25 us up to 0.2 s
COARSE_GAP_PS = 4_000_000_000  # 4 ms beyond, up to 33 s


# --- parameters, at the begin of s
(
    P_REPLICAS,
    P_ARRIVALS,  # requests with an arrival time; those that wait for a completion come after them
    P_EVENTS,
    P_ROUTER,
    P_BUDGET,
    P_MOST_RUNNING,
    P_BLOCK,
    P_BLOCKS,
    P_RESERVED,  # blocks reserved at admission, 0 for paging, -1 for those of the request's own prompt and answer
    P_MIXED,  # prompts share steps with sequences that decode
    P_CHUNKED,  # a prompt longer than the budget that is left is split
    P_READY,  # requests arrive with their KV cache (decode pool)
    P_CHAINED,  # arrivals that wait for a completion exist
    P_LOAD_TOKENS,  # prefix-aware router: prompt tokens that one running request weighs
    P_MISS_WEIGHT,  # prefix-aware router: what an uncached token of the request weighs against one that waits
    P_HORIZON,
    P_RING,  # power of two above the longest output
    P_CLASSES,
    P_CHAINS,
    P_FLEET,
    P_GAPS,
    P_HEAP,
    P_ARENA,
    P_RING_HEAD,
    P_RING_TAIL,
    P_SLOT,  # twelve arrays of most_running, see the SLOT_* columns
    P_GROW,
    P_POOL,
    P_ORDER,  # two per class: head, tail
    P_QUEUE,  # two per class
    P_CACHED,
    P_TOP,
    P_ACTIVE,
    P_FULL,
    P_RUNS,  # seven arrays of run_size
    P_RUN_SIZE,
    P_PARENT,
    P_START,
    P_UP,
    P_LINEAR,
    P_KNOTS,  # contexts of the decode grid
    P_KNOT_COUNT,
    P_DECODE,  # value and slope per batch and knot
    P_PREFILL_Q,
    P_PREFILL_Q_COUNT,
    P_PREFILL_C,
    P_PREFILL_C_COUNT,
    P_PREFILL,
    P_COSTS,
    P_PRESENT,  # time integral of requests present, per replica [request * s]
) = range(50)
FIRST_ROW = 64  # where the rows of the replicas begin in s


# --- arrays of a slot, each most_running long, at P_SLOT
S_REQUEST, S_JOIN, S_TOKENS, S_FINISH, S_NEXT, S_PREV, S_AFTER, S_BEFORE = range(8)
S_HELD, S_CHAIN, S_MORE, S_LESS = 8, 9, 10, 11
SLOT_ARRAYS = 12
# --- arrays of a run of free blocks, each run_size long, at P_RUNS
R_CHAIN, R_LOW, R_HIGH, R_NEXT, R_PREV, R_DEEPER, R_SHALLOWER = range(7)
RUN_ARRAYS = 7
