"""Slots, queues and the calendar of finishes of one replica (compiled)."""

from sizing.simulator.compiler import compiled
from sizing.simulator.layout import (
    CHAIN,
    CHUNK_HEAD,
    CHUNK_TAIL,
    CLASS,
    CONTEXT,
    DECODING,
    END,
    ESTIMATE,
    FIRST_ROW,
    FREE,
    GENERATED,
    GROUPS,
    IDLE,
    LRU_HEAD,
    LRU_TAIL,
    NEVER,
    NEXT,
    NEXT_FINISH,
    OUTPUT,
    P_ARENA,
    P_BLOCK,
    P_BLOCKS,
    P_CACHED,
    P_CHAINS,
    P_CLASSES,
    P_FULL,
    P_GROW,
    P_MOST_RUNNING,
    P_ORDER,
    P_POOL,
    P_QUEUE,
    P_RESERVED,
    P_RING,
    P_RING_HEAD,
    P_RING_TAIL,
    P_RUN_SIZE,
    P_RUNS,
    P_SLOT,
    P_START,
    PART,
    PHASE,
    PROMPT,
    R_HIGH,
    R_LOW,
    R_NEXT,
    ROW,
    RUN_POOL,
    S_AFTER,
    S_BEFORE,
    S_FINISH,
    S_JOIN,
    S_NEXT,
    S_PREV,
    S_TOKENS,
    SHARED,
    SLOT_POOL,
    STANDING,
    WAITING,
    WAITING_TOKENS,
    Ints,
    Small,
    SmallRows,
)
from sizing.simulator.prefixcache import attach, release


@compiled
def reset(s: Ints, w: Small, r: int) -> None:
    """Empty a replica: no request, no cached block."""
    row, a = FIRST_ROW + r * ROW, r * s[P_ARENA]
    for k in range(s[P_ARENA]):
        w[a + k] = -1
    for k in range(s[P_BLOCK]):
        w[a + s[P_GROW] + k] = 0
    for k in range(s[P_MOST_RUNNING]):
        w[a + s[P_POOL] + k] = k
    for k in range(s[P_CHAINS]):
        w[a + s[P_CACHED] + k] = w[s[P_START] + k]
        w[a + s[P_FULL] + k] = 0
    s[row + END], s[row + PHASE] = NEVER, IDLE
    s[row + DECODING] = s[row + CONTEXT] = s[row + WAITING] = s[row + WAITING_TOKENS] = 0
    s[row + PART] = s[row + CHUNK_HEAD] = s[row + CHUNK_TAIL] = -1
    s[row + STANDING] = s[row + GROUPS] = 0
    s[row + NEXT_FINISH], s[row + SLOT_POOL], s[row + FREE] = NEVER, s[P_MOST_RUNNING], s[P_BLOCKS]
    s[row + LRU_HEAD] = s[row + LRU_TAIL] = -1
    if s[P_CHAINS] > 0:
        base, size = a + s[P_RUNS], s[P_RUN_SIZE]
        for k in range(size - 1):
            w[base + R_NEXT * size + k] = k + 1
        s[row + RUN_POOL] = 1
        s[row + LRU_HEAD] = s[row + LRU_TAIL] = 0
        w[base + R_LOW * size] = 0
        w[base + R_HIGH * size] = s[P_BLOCKS]
        w[base + R_NEXT * size] = -1


@compiled
def queue_back(s: Ints, w: Small, q: SmallRows, r: int, i: int) -> None:
    """Put a request at the end of its class's queue."""
    base = r * s[P_ARENA] + s[P_QUEUE] + 2 * q[i, CLASS]
    q[i, NEXT] = -1
    if w[base + 1] >= 0:
        q[w[base + 1], NEXT] = i
    else:
        w[base] = i
    w[base + 1] = i
    s[FIRST_ROW + r * ROW + WAITING] += 1
    s[FIRST_ROW + r * ROW + WAITING_TOKENS] += q[i, ESTIMATE]


@compiled
def queue_front(s: Ints, w: Small, q: SmallRows, r: int, i: int) -> None:
    """Put a preempted request at the head of its class's queue."""
    base = r * s[P_ARENA] + s[P_QUEUE] + 2 * q[i, CLASS]
    q[i, NEXT] = w[base]
    if w[base] < 0:
        w[base + 1] = i
    w[base] = i
    s[FIRST_ROW + r * ROW + WAITING] += 1
    s[FIRST_ROW + r * ROW + WAITING_TOKENS] += q[i, ESTIMATE]


@compiled
def queue_head(s: Ints, w: Small, r: int) -> int:
    """The request to admit next, -1 when nobody waits."""
    for k in range(s[P_CLASSES]):
        i = w[r * s[P_ARENA] + s[P_QUEUE] + 2 * k]
        if i >= 0:
            return i
    return -1


@compiled
def pop_head(s: Ints, w: Small, q: SmallRows, r: int, i: int) -> None:
    """Take the head of a class's queue."""
    base = r * s[P_ARENA] + s[P_QUEUE] + 2 * q[i, CLASS]
    w[base] = q[i, NEXT]
    if w[base] < 0:
        w[base + 1] = -1
    s[FIRST_ROW + r * ROW + WAITING] -= 1
    s[FIRST_ROW + r * ROW + WAITING_TOKENS] -= q[i, ESTIMATE]


@compiled
def admit(s: Ints, w: Small, q: SmallRows, r: int, i: int, chain: int, hit: int) -> int:
    """Give a request a slot, last in the running order of its class."""
    row, a, size = FIRST_ROW + r * ROW, r * s[P_ARENA], s[P_MOST_RUNNING]
    s[row + SLOT_POOL] -= 1
    slot = w[a + s[P_POOL] + s[row + SLOT_POOL]]
    base = a + s[P_SLOT]
    w[base + slot] = i
    w[base + S_FINISH * size + slot] = -1
    order = a + s[P_ORDER] + 2 * q[i, CLASS]
    last = w[order + 1]
    w[base + S_BEFORE * size + slot] = last
    w[base + S_AFTER * size + slot] = -1
    if last >= 0:
        w[base + S_AFTER * size + last] = slot
    else:
        w[order] = slot
    w[order + 1] = slot
    if chain >= 0:
        attach(s, w, r, slot, chain, hit)
    return slot


@compiled
def reserved_blocks(s: Ints, q: SmallRows, i: int) -> int:
    """Blocks that a request has from its admission to its end, where its room is reserved."""
    if s[P_RESERVED] > 0:
        return s[P_RESERVED]
    return (q[i, PROMPT] + q[i, OUTPUT] + s[P_BLOCK] - 1) // s[P_BLOCK]


@compiled
def vacate(s: Ints, w: Small, q: SmallRows, r: int, slot: int, blocks: int, tokens: int) -> None:
    """Take a sequence out of the running order and free its blocks; ``tokens`` of them are computed."""
    row, a, size = FIRST_ROW + r * ROW, r * s[P_ARENA], s[P_MOST_RUNNING]
    base = a + s[P_SLOT]
    i = w[base + slot]
    order = a + s[P_ORDER] + 2 * q[i, CLASS]
    before, after = w[base + S_BEFORE * size + slot], w[base + S_AFTER * size + slot]
    if before >= 0:
        w[base + S_AFTER * size + before] = after
    else:
        w[order] = after
    if after >= 0:
        w[base + S_BEFORE * size + after] = before
    else:
        w[order + 1] = before
    leaf = q[i, CHAIN]
    depth = min(q[i, SHARED], tokens) // s[P_BLOCK] if leaf >= 0 else 0
    release(s, w, r, slot, leaf, blocks if s[P_RESERVED] == 0 else reserved_blocks(s, q, i), depth)
    w[a + s[P_POOL] + s[row + SLOT_POOL]] = slot
    s[row + SLOT_POOL] += 1


@compiled
def join(s: Ints, w: Small, q: SmallRows, r: int, slot: int, step: int, tokens: int) -> None:
    """Let a sequence with ``tokens`` in the cache decode from ``step + 1`` on."""
    row, a, size = FIRST_ROW + r * ROW, r * s[P_ARENA], s[P_MOST_RUNNING]
    base = a + s[P_SLOT]
    i = w[base + slot]
    finish = step + q[i, OUTPUT] - q[i, GENERATED]
    w[base + S_JOIN * size + slot] = step
    w[base + S_TOKENS * size + slot] = tokens
    w[base + S_FINISH * size + slot] = finish
    day = finish & (s[P_RING] - 1)
    last = w[a + s[P_RING_TAIL] + day]
    w[base + S_PREV * size + slot] = last
    w[base + S_NEXT * size + slot] = -1
    if last >= 0:
        w[base + S_NEXT * size + last] = slot
    else:
        w[a + s[P_RING_HEAD] + day] = slot
    w[a + s[P_RING_TAIL] + day] = slot
    s[row + NEXT_FINISH] = min(s[row + NEXT_FINISH], finish)
    if s[P_RESERVED] == 0:
        w[a + s[P_GROW] + (step + 1 - tokens) % s[P_BLOCK]] += 1
    s[row + DECODING] += 1
    s[row + CONTEXT] += tokens


@compiled
def part_from(s: Ints, w: Small, r: int, slot: int, context: int) -> None:
    """Take a decoding sequence out of the calendar, the growth counters and the sums."""
    row, a, size = FIRST_ROW + r * ROW, r * s[P_ARENA], s[P_MOST_RUNNING]
    base = a + s[P_SLOT]
    day = w[base + S_FINISH * size + slot] & (s[P_RING] - 1)
    before, after = w[base + S_PREV * size + slot], w[base + S_NEXT * size + slot]
    if before >= 0:
        w[base + S_NEXT * size + before] = after
    else:
        w[a + s[P_RING_HEAD] + day] = after
    if after >= 0:
        w[base + S_PREV * size + after] = before
    else:
        w[a + s[P_RING_TAIL] + day] = before
    if s[P_RESERVED] == 0:
        step, tokens = w[base + S_JOIN * size + slot], w[base + S_TOKENS * size + slot]
        w[a + s[P_GROW] + (step + 1 - tokens) % s[P_BLOCK]] -= 1
    s[row + DECODING] -= 1
    s[row + CONTEXT] -= context
