"""The loop over a fleet with failures, starts and drains, or with arrivals that wait for answers (compiled).

Apart from :mod:`sizing.simulator.fleetloop` because most questions need none of it, and compiling it takes seconds.
"""

from sizing.simulator.compiler import compiled, entry
from sizing.simulator.engine import advance, present
from sizing.simulator.fleetloop import hand_over, list_up, route
from sizing.simulator.layout import (
    ARRIVAL,
    DECODE,
    DOWN,
    DRAIN,
    DRAINING,
    END,
    FIRST_ROW,
    GENERATED,
    HEAP,
    HELD_HEAD,
    HELD_TAIL,
    IDLE,
    MIXED,
    NEVER,
    NEXT,
    NEXT_ARRIVAL,
    NEXT_EVENT,
    OUTPUT,
    P_ARENA,
    P_ARRIVALS,
    P_CHAINED,
    P_CLASSES,
    P_EVENTS,
    P_FLEET,
    P_HEAP,
    P_HORIZON,
    P_MOST_RUNNING,
    P_ORDER,
    P_QUEUE,
    P_REPLICAS,
    P_ROUTER,
    P_SLOT,
    P_UP,
    PHASE,
    PREEMPTED,
    PRESENT,
    RANDOM,
    ROUND_ROBIN,
    ROW,
    S_AFTER,
    S_FINISH,
    START,
    STATE,
    STEP,
    STICKY,
    UP,
    WORKING,
    EventRows,
    Floats,
    IntRows,
    Ints,
    Small,
    SmallRows,
)
from sizing.simulator.slots import reset


@compiled
def dispatch(s: Ints, w: Small, q: SmallRows, f: Floats, i: int, r: int, time: int) -> None:
    """Hand a request to a replica (-1: let the router choose), or hold it while none is up."""
    if w[s[P_UP]] == 0:
        q[i, NEXT] = -1
        if s[s[P_FLEET] + HELD_TAIL] >= 0:
            q[s[s[P_FLEET] + HELD_TAIL], NEXT] = i
        else:
            s[s[P_FLEET] + HELD_HEAD] = i
        s[s[P_FLEET] + HELD_TAIL] = i
        return
    hand_over(s, w, q, f, i, r if r >= 0 else route(s, w, q, i), time)


@compiled
def evicted(s: Ints, w: Small, q: SmallRows, r: int) -> int:
    """Link every request of a failed replica, in order, and bring their progress up to date; the first."""
    a, size = r * s[P_ARENA], s[P_MOST_RUNNING]
    base, done = a + s[P_SLOT], s[FIRST_ROW + r * ROW + STEP]
    if s[FIRST_ROW + r * ROW + PHASE] == DECODE or s[FIRST_ROW + r * ROW + PHASE] == MIXED:
        done -= 1  # the token in flight is lost
    head, tail = -1, -1
    for k in range(s[P_CLASSES]):
        slot = w[a + s[P_ORDER] + 2 * k]
        while slot >= 0:
            i = w[base + slot]
            last = w[base + S_FINISH * size + slot]
            if last >= 0:
                q[i, GENERATED] = q[i, OUTPUT] - (last - done)
            q[i, PREEMPTED] += 1
            if tail >= 0:
                q[tail, NEXT] = i
            else:
                head = i
            tail = i
            slot = w[base + S_AFTER * size + slot]
    for k in range(s[P_CLASSES]):
        i = w[a + s[P_QUEUE] + 2 * k]
        if i >= 0:
            if tail >= 0:
                q[tail, NEXT] = i
            else:
                head = i
            tail = w[a + s[P_QUEUE] + 2 * k + 1]
    if tail >= 0:
        q[tail, NEXT] = -1
    return head


@compiled
def happen(s: Ints, w: Small, q: SmallRows, f: Floats, r: int, kind: int, time: int) -> None:
    """A replica fails, starts, or takes no more requests."""
    row = FIRST_ROW + r * ROW
    orphan = -1
    if kind == START:
        s[row + STATE] = UP
    elif kind == DRAIN:
        if s[row + STATE] == UP:
            s[row + STATE] = DOWN if s[row + PHASE] == IDLE else DRAINING
    elif s[row + STATE] != DOWN:
        orphan = evicted(s, w, q, r)
        present(s, f, r, time, -s[row + PRESENT])
        if s[row + PHASE] >= DECODE:
            s[row + WORKING] -= s[row + END] - time
        reset(s, w, r)
        s[row + STATE] = DOWN
    list_up(s, w)
    if w[s[P_UP]] > 0:
        i = s[s[P_FLEET] + HELD_HEAD]
        s[s[P_FLEET] + HELD_HEAD] = s[s[P_FLEET] + HELD_TAIL] = -1
        while i >= 0:
            after = q[i, NEXT]
            dispatch(s, w, q, f, i, -1, time)
            i = after
    while orphan >= 0:
        after = q[orphan, NEXT]
        dispatch(s, w, q, f, orphan, -1, time)
        orphan = after


@compiled
def earlier(t: IntRows, i: int, j: int) -> bool:
    """Whether request ``i`` arrives before ``j``; simultaneous ones by number."""
    return t[i, ARRIVAL] < t[j, ARRIVAL] or (t[i, ARRIVAL] == t[j, ARRIVAL] and i < j)


@compiled
def pop_heap(s: Ints, t: IntRows) -> None:
    """Take the earliest arrival out of the heap."""
    size = s[s[P_FLEET] + HEAP] - 1
    s[s[P_FLEET] + HEAP] = size
    moved = s[s[P_HEAP] + size]
    k = 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        other = s[s[P_HEAP] + child]
        if child + 1 < size:
            right = s[s[P_HEAP] + child + 1]
            if earlier(t, right, other):
                child, other = child + 1, right
        if earlier(t, moved, other):
            break
        s[s[P_HEAP] + k] = other
        k = child
    s[s[P_HEAP] + k] = moved


@compiled
def first_to_end(s: Ints, limit: int) -> tuple[int, int]:
    """The replica whose step ends first before ``limit`` (-1: none), and how far it may go alone."""
    best, end, second, following = -1, limit, -1, limit
    for r in range(s[P_REPLICAS]):
        own = s[FIRST_ROW + r * ROW + END]
        if own < end:
            second, following = best, end
            best, end = r, own
        elif own < following:
            second, following = r, own
    return best, following + 1 if second > best else following


@compiled
def next_arrival(s: Ints, t: IntRows, until: int) -> tuple[int, int, bool]:
    """The next request by the clock or out of the heap: its number, its time, and whether it is the heap's."""
    row = s[P_FLEET]
    i = s[row + NEXT_ARRIVAL]
    arrival = t[i, ARRIVAL] if i < until else NEVER
    if s[row + HEAP] > 0:
        j = s[s[P_HEAP]]
        if t[j, ARRIVAL] <= arrival and (t[j, ARRIVAL] < arrival or j < i):
            return j, t[j, ARRIVAL], True
    return i, arrival, False


@entry
def run_events(s: Ints, w: Small, q: SmallRows, t: IntRows, f: Floats, e: EventRows, until: int) -> None:
    """Take in the arrivals up to number ``until``; after the last one run to the horizon."""
    row = s[P_FLEET]
    last = until >= s[P_ARRIVALS]
    chained = s[P_CHAINED] > 0
    alone = s[P_ROUTER] == RANDOM or s[P_ROUTER] == ROUND_ROBIN or s[P_ROUTER] == STICKY
    while last or s[row + NEXT_ARRIVAL] < until:
        i, arrival, waited = next_arrival(s, t, until)
        k = s[row + NEXT_EVENT]
        event = e[k, 0] if k < s[P_EVENTS] else NEVER
        now = min(arrival, event, s[P_HORIZON])
        low, high, limit, chosen = 0, s[P_REPLICAS], now, -1
        if chained:
            low, limit = first_to_end(s, now)
            high = low + 1
        elif alone and now == arrival and now < event and now < s[P_HORIZON] and w[s[P_UP]] > 0:
            chosen = route(s, w, q, i)
            low, high = chosen, chosen + 1
        if low >= 0:
            for r in range(low, high):
                if s[FIRST_ROW + r * ROW + END] < limit:
                    advance(s, w, q, t, f, r, limit)
            if chained:
                continue
        if now >= s[P_HORIZON]:
            break
        if event <= arrival:
            s[row + NEXT_EVENT] += 1
            happen(s, w, q, f, e[k, 1], e[k, 2], now)
            continue
        if waited:
            pop_heap(s, t)
        else:
            s[row + NEXT_ARRIVAL] += 1
        dispatch(s, w, q, f, i, chosen, now)
