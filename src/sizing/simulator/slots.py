"""Slots, queues and the calendar of finishes of one replica (compiled)."""

from sizing.simulator import layout as at
from sizing.simulator.compiler import compiled
from sizing.simulator.layout import Ints, Offsets, Small
from sizing.simulator.prefixcache import attach, release


@compiled
def reset(s: Ints, w: Small, o: Offsets, r: int) -> None:
    """Empty a replica: no request, no cached block."""
    row, a = r * at.ROW, r * o.arena
    for k in range(o.arena):
        w[a + k] = -1
    for k in range(o.block):
        w[a + o.grow + k] = 0
    for k in range(o.most_running):
        w[a + o.pool + k] = k
    for k in range(o.chains):
        w[a + o.cached + k] = w[o.start + k]
        w[a + o.full + k] = 0
    s[row + at.END], s[row + at.PHASE] = at.NEVER, at.IDLE
    s[row + at.DECODING] = s[row + at.CONTEXT] = s[row + at.WAITING] = s[row + at.WAITING_TOKENS] = 0
    s[row + at.PART] = s[row + at.CHUNK_HEAD] = s[row + at.CHUNK_TAIL] = -1
    s[row + at.NEXT_FINISH], s[row + at.SLOT_POOL], s[row + at.FREE] = at.NEVER, o.most_running, o.blocks
    s[row + at.LRU_HEAD] = s[row + at.LRU_TAIL] = -1
    if o.chains > 0:
        base, size = a + o.runs, o.run_size
        for k in range(size - 1):
            w[base + at.R_NEXT * size + k] = k + 1
        s[row + at.RUN_POOL] = 1
        s[row + at.LRU_HEAD] = s[row + at.LRU_TAIL] = 0
        w[base + at.R_LOW * size] = 0
        w[base + at.R_HIGH * size] = o.blocks
        w[base + at.R_NEXT * size] = -1


@compiled
def queue_back(s: Ints, w: Small, q: Small, o: Offsets, r: int, i: int) -> None:
    """Put a request at the end of its class's queue."""
    base = r * o.arena + o.queue + 2 * q[i, at.CLASS]
    q[i, at.NEXT] = -1
    if w[base + 1] >= 0:
        q[w[base + 1], at.NEXT] = i
    else:
        w[base] = i
    w[base + 1] = i
    s[r * at.ROW + at.WAITING] += 1
    s[r * at.ROW + at.WAITING_TOKENS] += q[i, at.ESTIMATE]


@compiled
def queue_front(s: Ints, w: Small, q: Small, o: Offsets, r: int, i: int) -> None:
    """Put a preempted request at the head of its class's queue."""
    base = r * o.arena + o.queue + 2 * q[i, at.CLASS]
    q[i, at.NEXT] = w[base]
    if w[base] < 0:
        w[base + 1] = i
    w[base] = i
    s[r * at.ROW + at.WAITING] += 1
    s[r * at.ROW + at.WAITING_TOKENS] += q[i, at.ESTIMATE]


@compiled
def queue_head(w: Small, o: Offsets, r: int) -> int:
    """The request to admit next, -1 when nobody waits."""
    for k in range(o.classes):
        i = w[r * o.arena + o.queue + 2 * k]
        if i >= 0:
            return i
    return -1


@compiled
def pop_head(s: Ints, w: Small, q: Small, o: Offsets, r: int, i: int) -> None:
    """Take the head of a class's queue."""
    base = r * o.arena + o.queue + 2 * q[i, at.CLASS]
    w[base] = q[i, at.NEXT]
    if w[base] < 0:
        w[base + 1] = -1
    s[r * at.ROW + at.WAITING] -= 1
    s[r * at.ROW + at.WAITING_TOKENS] -= q[i, at.ESTIMATE]


@compiled
def admit(s: Ints, w: Small, q: Small, o: Offsets, r: int, i: int, chain: int, hit: int) -> int:
    """Give a request a slot, last in the running order of its class."""
    row, a, size = r * at.ROW, r * o.arena, o.most_running
    s[row + at.SLOT_POOL] -= 1
    slot = w[a + o.pool + s[row + at.SLOT_POOL]]
    base = a + o.slot
    w[base + slot] = i
    w[base + at.S_FINISH * size + slot] = -1
    order = a + o.order + 2 * q[i, at.CLASS]
    last = w[order + 1]
    w[base + at.S_BEFORE * size + slot] = last
    w[base + at.S_AFTER * size + slot] = -1
    if last >= 0:
        w[base + at.S_AFTER * size + last] = slot
    else:
        w[order] = slot
    w[order + 1] = slot
    if chain >= 0:
        attach(w, o, r, slot, chain, hit)
    return slot


@compiled
def vacate(s: Ints, w: Small, q: Small, o: Offsets, r: int, slot: int, blocks: int, tokens: int) -> None:
    """Take a sequence out of the running order and free its blocks; ``tokens`` of them are computed."""
    row, a, size = r * at.ROW, r * o.arena, o.most_running
    base = a + o.slot
    i = w[base + slot]
    order = a + o.order + 2 * q[i, at.CLASS]
    before, after = w[base + at.S_BEFORE * size + slot], w[base + at.S_AFTER * size + slot]
    if before >= 0:
        w[base + at.S_AFTER * size + before] = after
    else:
        w[order] = after
    if after >= 0:
        w[base + at.S_BEFORE * size + after] = before
    else:
        w[order + 1] = before
    leaf = q[i, at.CHAIN]
    depth = min(q[i, at.SHARED], tokens) // o.block if leaf >= 0 else 0
    release(s, w, o, r, slot, leaf, o.reserved if o.reserved > 0 else blocks, depth)
    w[a + o.pool + s[row + at.SLOT_POOL]] = slot
    s[row + at.SLOT_POOL] += 1


@compiled
def join(s: Ints, w: Small, q: Small, o: Offsets, r: int, slot: int, step: int, tokens: int) -> None:
    """Let a sequence with ``tokens`` in the cache decode from ``step + 1`` on."""
    row, a, size = r * at.ROW, r * o.arena, o.most_running
    base = a + o.slot
    i = w[base + slot]
    finish = step + q[i, at.OUTPUT] - q[i, at.GENERATED]
    w[base + at.S_JOIN * size + slot] = step
    w[base + at.S_TOKENS * size + slot] = tokens
    w[base + at.S_FINISH * size + slot] = finish
    day = finish & (o.ring - 1)
    last = w[a + o.ring_tail + day]
    w[base + at.S_PREV * size + slot] = last
    w[base + at.S_NEXT * size + slot] = -1
    if last >= 0:
        w[base + at.S_NEXT * size + last] = slot
    else:
        w[a + o.ring_head + day] = slot
    w[a + o.ring_tail + day] = slot
    s[row + at.NEXT_FINISH] = min(s[row + at.NEXT_FINISH], finish)
    if o.reserved == 0:
        w[a + o.grow + (step + 1 - tokens) % o.block] += 1
    s[row + at.DECODING] += 1
    s[row + at.CONTEXT] += tokens


@compiled
def part_from(s: Ints, w: Small, o: Offsets, r: int, slot: int, context: int) -> None:
    """Take a decoding sequence out of the calendar, the growth counters and the sums."""
    row, a, size = r * at.ROW, r * o.arena, o.most_running
    base = a + o.slot
    day = w[base + at.S_FINISH * size + slot] & (o.ring - 1)
    before, after = w[base + at.S_PREV * size + slot], w[base + at.S_NEXT * size + slot]
    if before >= 0:
        w[base + at.S_NEXT * size + before] = after
    else:
        w[a + o.ring_head + day] = after
    if after >= 0:
        w[base + at.S_PREV * size + after] = before
    else:
        w[a + o.ring_tail + day] = before
    if o.reserved == 0:
        step, tokens = w[base + at.S_JOIN * size + slot], w[base + at.S_TOKENS * size + slot]
        w[a + o.grow + (step + 1 - tokens) % o.block] -= 1
    s[row + at.DECODING] -= 1
    s[row + at.CONTEXT] -= context
