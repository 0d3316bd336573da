"""The loop over a fleet: arrivals, routing, scheduled events (compiled).

A router sees the completions strictly before an arrival; a step sees the arrivals at or before its start. An
arrival at an idle replica makes an empty step at that instant, so that simultaneous arrivals are batched.
"""

from sizing.simulator import layout as at
from sizing.simulator.compiler import compiled
from sizing.simulator.engine import advance, present
from sizing.simulator.layout import Floats, Ints, Offsets, Small
from sizing.simulator.prefixcache import find
from sizing.simulator.slots import queue_back, reset


@compiled
def list_up(s: Ints, w: Small, o: Offsets) -> int:
    """List the replicas that take requests; returns their number."""
    count = 0
    for r in range(o.replicas):
        if s[r * at.ROW + at.STATE] == at.UP:
            w[o.up + 1 + count] = r
            count += 1
    w[o.up] = count
    return count


@compiled
def uncached(w: Small, q: Small, o: Offsets, r: int, i: int) -> int:
    """Prompt tokens of a request that a replica would have to compute."""
    total = q[i, at.PROMPT] + q[i, at.GENERATED]
    if q[i, at.CHAIN] < 0:
        return total
    limit = min(q[i, at.SHARED], total - 1) // o.block
    return total - find(w, o, r, q[i, at.CHAIN], limit)[1] * o.block


@compiled
def route(s: Ints, w: Small, q: Small, o: Offsets, i: int) -> int:
    """Choose a replica among those that are up."""
    count = w[o.up]
    shift = q[i, at.DRAW] % count
    if count == 1 or o.router == at.RANDOM:
        return w[o.up + 1 + shift]
    if o.router == at.ROUND_ROBIN:
        turn = s[o.fleet + at.TURN]
        s[o.fleet + at.TURN] = turn + 1
        return w[o.up + 1 + turn % count]
    if o.router == at.STICKY:
        chain = q[i, at.CHAIN]
        while chain >= 0 and w[o.parent + chain] >= 0:
            chain = w[o.parent + chain]
        return w[o.up + 1 + (shift if chain < 0 else chain % count)]
    best, least = -1, at.NEVER
    for k in range(count):
        r = w[o.up + 1 + (k + shift) % count]
        if o.router == at.LEAST_LOADED:
            load = s[r * at.ROW + at.PRESENT]
        else:
            load = s[r * at.ROW + at.WAITING_TOKENS] + o.load_tokens * s[r * at.ROW + at.PRESENT]
            load += uncached(w, q, o, r, i)
        if load < least:
            best, least = r, load
    return best


@compiled
def hand_over(s: Ints, w: Small, q: Small, f: Floats, o: Offsets, i: int, r: int, time: int) -> None:
    """Put a request into a replica's queue."""
    row = r * at.ROW
    q[i, at.REPLICA] = r
    q[i, at.ESTIMATE] = uncached(w, q, o, r, i)
    queue_back(s, w, q, o, r, i)
    present(s, f, o, r, time, 1)
    if s[row + at.PHASE] == at.IDLE:
        s[row + at.END], s[row + at.PHASE] = time, at.NULL


@compiled
def dispatch(s: Ints, w: Small, q: Small, t: Ints, f: Floats, o: Offsets, i: int, time: int) -> None:
    """Route a request, or hold it while no replica is up."""
    if w[o.up] == 0:
        q[i, at.NEXT] = -1
        if s[o.fleet + at.HELD_TAIL] >= 0:
            q[s[o.fleet + at.HELD_TAIL], at.NEXT] = i
        else:
            s[o.fleet + at.HELD_HEAD] = i
        s[o.fleet + at.HELD_TAIL] = i
        return
    stateless = o.router in (at.RANDOM, at.ROUND_ROBIN, at.STICKY)
    r = -1
    if stateless:
        r = route(s, w, q, o, i)
        if not o.chained and s[r * at.ROW + at.END] < time:
            advance(s, w, q, t, f, o, r, time)
    else:
        if not o.chained:
            for k in range(o.replicas):
                if s[k * at.ROW + at.END] < time:
                    advance(s, w, q, t, f, o, k, time)
        r = route(s, w, q, o, i)
    hand_over(s, w, q, f, o, i, r, time)


@compiled
def evicted(s: Ints, w: Small, q: Small, o: Offsets, r: int) -> int:
    """Link every request of a failed replica, in order, and bring their progress up to date; the first."""
    a, size = r * o.arena, o.most_running
    base, done = a + o.slot, s[r * at.ROW + at.STEP]
    if s[r * at.ROW + at.PHASE] != at.NULL:
        done -= 1  # the step in flight is lost
    head, tail = -1, -1
    for k in range(o.classes):
        slot = w[a + o.order + 2 * k]
        while slot >= 0:
            i = w[base + slot]
            last = w[base + at.S_FINISH * size + slot]
            if last >= 0:
                q[i, at.GENERATED] = q[i, at.OUTPUT] - (last - done)
            q[i, at.PREEMPTED] += 1
            if tail >= 0:
                q[tail, at.NEXT] = i
            else:
                head = i
            tail = i
            slot = w[base + at.S_AFTER * size + slot]
    for k in range(o.classes):
        i = w[a + o.queue + 2 * k]
        if i >= 0:
            if tail >= 0:
                q[tail, at.NEXT] = i
            else:
                head = i
            tail = w[a + o.queue + 2 * k + 1]
    if tail >= 0:
        q[tail, at.NEXT] = -1
    return head


@compiled
def happen(
    s: Ints, w: Small, q: Small, t: Ints, f: Floats, o: Offsets, r: int, kind: int, time: int
) -> None:
    """A replica fails, starts, or takes no more requests."""
    row = r * at.ROW
    orphan = -1
    if kind == at.START:
        s[row + at.STATE] = at.UP
    elif kind == at.DRAIN:
        if s[row + at.STATE] == at.UP:
            s[row + at.STATE] = at.DOWN if s[row + at.PHASE] == at.IDLE else at.DRAINING
    elif s[row + at.STATE] != at.DOWN:
        orphan = evicted(s, w, q, o, r)
        present(s, f, o, r, time, -s[row + at.PRESENT])
        if s[row + at.PHASE] == at.DECODE or s[row + at.PHASE] == at.MIXED:
            s[row + at.WORKING] -= s[row + at.END] - time
        reset(s, w, o, r)
        s[row + at.STATE] = at.DOWN
    list_up(s, w, o)
    if w[o.up] > 0:
        i = s[o.fleet + at.HELD_HEAD]
        s[o.fleet + at.HELD_HEAD] = s[o.fleet + at.HELD_TAIL] = -1
        while i >= 0:
            after = q[i, at.NEXT]
            dispatch(s, w, q, t, f, o, i, time)
            i = after
    while orphan >= 0:
        after = q[orphan, at.NEXT]
        dispatch(s, w, q, t, f, o, orphan, time)
        orphan = after


@compiled
def pop_heap(s: Ints, t: Ints, o: Offsets) -> int:
    """Take the earliest arrival out of the heap."""
    first = s[o.heap]
    size = s[o.fleet + at.HEAP] - 1
    s[o.fleet + at.HEAP] = size
    moved = s[o.heap + size]
    when, k = t[moved, at.ARRIVAL], 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        other = s[o.heap + child]
        if child + 1 < size:
            right = s[o.heap + child + 1]
            if (t[right, at.ARRIVAL], right) < (t[other, at.ARRIVAL], other):
                child, other = child + 1, right
        if (when, moved) < (t[other, at.ARRIVAL], other):
            break
        s[o.heap + k] = other
        k = child
    s[o.heap + k] = moved
    return first


@compiled
def step_chained(s: Ints, w: Small, q: Small, t: Ints, f: Floats, o: Offsets, limit: int) -> bool:
    """Advance the replica whose step ends first, up to the next end of another; False when none is due."""
    best, end, second, following = -1, limit, -1, limit
    for r in range(o.replicas):
        if s[r * at.ROW + at.END] < end:
            second, following = best, end
            best, end = r, s[r * at.ROW + at.END]
        elif s[r * at.ROW + at.END] < following:
            second, following = r, s[r * at.ROW + at.END]
    if best < 0:
        return False
    advance(s, w, q, t, f, o, best, following + 1 if second > best else following)
    return True


@compiled
def initialise(s: Ints, w: Small, o: Offsets) -> None:
    """Empty every replica and the fleet's lists."""
    for r in range(o.replicas):
        reset(s, w, o, r)
        s[r * at.ROW + at.STEP] = 0
    s[o.fleet + at.HELD_HEAD] = s[o.fleet + at.HELD_TAIL] = -1
    list_up(s, w, o)


@compiled
def run(s: Ints, w: Small, q: Small, t: Ints, f: Floats, e: Ints, o: Offsets, until: int) -> None:
    """Take in the arrivals up to number ``until``; after the last one run to the horizon."""
    row = o.fleet
    last = until >= o.arrivals
    while True:
        i = s[row + at.NEXT_ARRIVAL]
        if i >= until and not last:
            return
        arrival = t[i, at.ARRIVAL] if i < until else at.NEVER
        heap = s[row + at.HEAP] > 0
        if heap and (t[s[o.heap], at.ARRIVAL], s[o.heap]) < (arrival, i):
            arrival = t[s[o.heap], at.ARRIVAL]
        else:
            heap = False
        k = s[row + at.NEXT_EVENT]
        event = e[k, 0] if k < o.events else at.NEVER
        now = min(arrival, event, o.horizon)
        if o.chained and step_chained(s, w, q, t, f, o, now):
            continue
        if now >= o.horizon:
            break
        if event <= arrival:
            s[row + at.NEXT_EVENT] += 1
            if not o.chained:
                for r in range(o.replicas):
                    advance(s, w, q, t, f, o, r, now)
            happen(s, w, q, t, f, o, e[k, 1], e[k, 2], now)
            continue
        if heap:
            i = pop_heap(s, t, o)
        else:
            s[row + at.NEXT_ARRIVAL] += 1
        dispatch(s, w, q, t, f, o, i, now)
    if not o.chained:
        for r in range(o.replicas):
            advance(s, w, q, t, f, o, r, o.horizon)
