"""The loop over a fleet whose requests arrive by the clock: routing (compiled).

A router sees the completions strictly before an arrival; a step sees the arrivals at or before its start. An
arrival at an idle replica makes an empty step at that instant, so that simultaneous arrivals are batched.
"""

from sizing.simulator.compiler import compiled, entry
from sizing.simulator.engine import advance, present
from sizing.simulator.layout import (
    ARRIVAL,
    CHAIN,
    DRAW,
    END,
    ESTIMATE,
    FIRST_ROW,
    GENERATED,
    HELD_HEAD,
    HELD_TAIL,
    IDLE,
    LEAST_LOADED,
    NEVER,
    NEXT_ARRIVAL,
    NULL,
    P_ARRIVALS,
    P_BLOCK,
    P_FLEET,
    P_HORIZON,
    P_LOAD_TOKENS,
    P_MISS_WEIGHT,
    P_PARENT,
    P_REPLICAS,
    P_ROUTER,
    P_UP,
    PHASE,
    PRESENT,
    PROMPT,
    RANDOM,
    REPLICA,
    ROUND_ROBIN,
    ROW,
    SHARED,
    STATE,
    STEP,
    STICKY,
    TURN,
    UP,
    WAITING_TOKENS,
    Floats,
    IntRows,
    Ints,
    Small,
    SmallRows,
)
from sizing.simulator.prefixcache import find
from sizing.simulator.slots import queue_back, reset


@compiled
def list_up(s: Ints, w: Small) -> int:
    """List the replicas that take requests; returns their number."""
    count = 0
    for r in range(s[P_REPLICAS]):
        if s[FIRST_ROW + r * ROW + STATE] == UP:
            w[s[P_UP] + 1 + count] = r
            count += 1
    w[s[P_UP]] = count
    return count


@compiled
def uncached(s: Ints, w: Small, q: SmallRows, r: int, i: int) -> int:
    """Prompt tokens of a request that a replica would have to compute."""
    total = q[i, PROMPT] + q[i, GENERATED]
    if q[i, CHAIN] < 0:
        return total
    limit = min(q[i, SHARED], total - 1) // s[P_BLOCK]
    return total - find(s, w, r, q[i, CHAIN], limit)[1] * s[P_BLOCK]


@compiled
def route(s: Ints, w: Small, q: SmallRows, i: int) -> int:
    """Choose a replica among those that are up."""
    count = w[s[P_UP]]
    shift = q[i, DRAW] % count
    if count == 1 or s[P_ROUTER] == RANDOM:
        return w[s[P_UP] + 1 + shift]
    if s[P_ROUTER] == ROUND_ROBIN:
        turn = s[s[P_FLEET] + TURN]
        s[s[P_FLEET] + TURN] = turn + 1
        return w[s[P_UP] + 1 + turn % count]
    if s[P_ROUTER] == STICKY:
        chain = q[i, CHAIN]
        while chain >= 0 and w[s[P_PARENT] + chain] >= 0:
            chain = w[s[P_PARENT] + chain]
        return w[s[P_UP] + 1 + (shift if chain < 0 else chain % count)]
    best, least = -1, NEVER
    for k in range(count):
        r = w[s[P_UP] + 1 + (k + shift) % count]
        if s[P_ROUTER] == LEAST_LOADED:
            load = s[FIRST_ROW + r * ROW + PRESENT]
        else:
            load = s[FIRST_ROW + r * ROW + WAITING_TOKENS] + s[P_LOAD_TOKENS] * s[FIRST_ROW + r * ROW + PRESENT]
            total, miss = q[i, PROMPT] + q[i, GENERATED], uncached(s, w, q, r, i)
            if miss * 10 > total * 7:
                miss = total  # a short hit is worth no imbalance
            load += s[P_MISS_WEIGHT] * miss
        if load < least:
            best, least = r, load
    return best


@compiled
def hand_over(s: Ints, w: Small, q: SmallRows, f: Floats, i: int, r: int, time: int) -> None:
    """Put a request into a replica's queue."""
    row = FIRST_ROW + r * ROW
    q[i, REPLICA] = r
    q[i, ESTIMATE] = uncached(s, w, q, r, i)
    queue_back(s, w, q, r, i)
    present(s, f, r, time, 1)
    if s[row + PHASE] == IDLE:
        s[row + END], s[row + PHASE] = time, NULL


@entry
def initialise(s: Ints, w: Small) -> None:
    """Empty every replica and the fleet's lists."""
    for r in range(s[P_REPLICAS]):
        reset(s, w, r)
        s[FIRST_ROW + r * ROW + STEP] = 0
    s[s[P_FLEET] + HELD_HEAD] = s[s[P_FLEET] + HELD_TAIL] = -1
    list_up(s, w)


@entry
def run(s: Ints, w: Small, q: SmallRows, t: IntRows, f: Floats, until: int) -> None:
    """Take in the arrivals up to number ``until``, all by the clock; after the last one run to the horizon."""
    row = s[P_FLEET]
    alone = s[P_ROUTER] == RANDOM or s[P_ROUTER] == ROUND_ROBIN or s[P_ROUTER] == STICKY
    over = until >= s[P_ARRIVALS]
    while True:
        i = s[row + NEXT_ARRIVAL]
        if i >= until and not over:
            break
        now = min(t[i, ARRIVAL], s[P_HORIZON]) if i < until else s[P_HORIZON]
        low, high, chosen = 0, s[P_REPLICAS], -1
        if alone and now < s[P_HORIZON]:
            chosen = route(s, w, q, i)
            low, high = chosen, chosen + 1
        for r in range(low, high):
            if s[FIRST_ROW + r * ROW + END] < now:
                advance(s, w, q, t, f, r, now)
        if now >= s[P_HORIZON]:
            break
        s[row + NEXT_ARRIVAL] = i + 1
        hand_over(s, w, q, f, i, chosen if chosen >= 0 else route(s, w, q, i), now)
