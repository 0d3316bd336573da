"""One replica's engine: a step is scheduled at its start and completed at its end (compiled).

Every decoding sequence advances by a token each step, so the step at whose end it finishes is known when its
prefill ends, and a step costs the same however many sequences decode. The KV blocks that decoding sequences
need at step ``d`` are ``grow[d mod block]``.
"""

from sizing.simulator.compiler import compiled
from sizing.simulator.layout import (
    ARRIVAL,
    C_FIRST_TOKEN,
    CHAIN,
    CHUNK_HEAD,
    CHUNK_TAIL,
    COARSE_GAP_PS,
    CONTEXT,
    DECODE,
    DECODING,
    DELIVERY,
    DOWN,
    DRAINING,
    END,
    FINE_GAP_PS,
    FINISH,
    FIRST,
    FIRST_ROW,
    FREE,
    GAP_BINS,
    GENERATED,
    GROUP_SINCE,
    GROUP_SIZE,
    GROUPS,
    HEAP,
    HIT,
    IDLE,
    LAST_CHANGE,
    MIXED,
    MOST_GROUPS,
    NEVER,
    NEXT_FINISH,
    NULL,
    OUTPUT,
    P_ARENA,
    P_BLOCK,
    P_BLOCKS,
    P_BUDGET,
    P_CHAINED,
    P_CHUNKED,
    P_CLASSES,
    P_COSTS,
    P_DECODE,
    P_FLEET,
    P_GAPS,
    P_GROW,
    P_HEAP,
    P_KNOT_COUNT,
    P_KNOTS,
    P_MIXED,
    P_MOST_RUNNING,
    P_ORDER,
    P_PRESENT,
    P_READY,
    P_RESERVED,
    P_RING,
    P_RING_HEAD,
    P_SLOT,
    PART,
    PART_START,
    PEAK_USED,
    PHASE,
    PREEMPTED,
    PREEMPTIONS,
    PREFILL,
    PREFILLED,
    PRESENT,
    PROMPT,
    ROW,
    S_FINISH,
    S_JOIN,
    S_NEXT,
    S_TOKENS,
    SCHEDULED,
    SHARED,
    SLOT_POOL,
    SPAWNED,
    STANDING,
    STATE,
    STEP,
    STEPS,
    THEN,
    WAITING,
    WORKING,
    Floats,
    IntRows,
    Ints,
    Small,
    SmallRows,
)
from sizing.simulator.prefixcache import find, free_on_path, hold, publish, take
from sizing.simulator.slots import admit, join, part_from, pop_head, queue_front, queue_head, reserved_blocks, vacate
from sizing.simulator.stepcost import beside_ps, client_ps, delivery_ps, fixed_ps, host_ps, knot, step_ps


@compiled
def blocks_for(s: Ints, tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + s[P_BLOCK] - 1) // s[P_BLOCK]


@compiled
def note_gap(s: Ints, gap_ps: int, count: int) -> None:
    """Count gaps between tokens."""
    bin_ = gap_ps // FINE_GAP_PS
    if bin_ >= GAP_BINS:
        bin_ = GAP_BINS + min(gap_ps // COARSE_GAP_PS, GAP_BINS - 1)
    s[s[P_GAPS] + bin_] += count


@compiled
def present(s: Ints, f: Floats, r: int, time: int, change: int) -> None:
    """Count requests in and out, and integrate their number over time (Little's law)."""
    row = FIRST_ROW + r * ROW
    f[s[P_PRESENT] + r] += s[row + PRESENT] * 1e-12 * (time - s[row + LAST_CHANGE])
    s[row + LAST_CHANGE] = time
    s[row + PRESENT] += change


@compiled
def spawn(s: Ints, q: SmallRows, t: IntRows, f: Floats, i: int, time: int) -> None:
    """Put the request that waits for this one's answer at the client into the heap of arrivals."""
    j = q[i, THEN]
    if j < 0:
        return
    pause = -2 - t[j, SCHEDULED] if t[j, SCHEDULED] < -1 else 0
    t[j, SCHEDULED] = -1
    t[j, ARRIVAL] = max(t[j, ARRIVAL], time + t[i, DELIVERY] + client_ps(s, f, q[i, PROMPT]) + pause)
    k = s[s[P_FLEET] + HEAP]
    s[s[P_FLEET] + HEAP] = k + 1
    s[s[P_FLEET] + SPAWNED] = 1
    when = t[j, ARRIVAL]
    while k > 0:
        up = (k - 1) // 2
        other = s[s[P_HEAP] + up]
        if t[other, ARRIVAL] < when or (t[other, ARRIVAL] == when and other < j):
            break
        s[s[P_HEAP] + k] = other
        k = up
    s[s[P_HEAP] + k] = j


@compiled
def finish(s: Ints, q: SmallRows, t: IntRows, f: Floats, r: int, i: int, time: int) -> None:
    """Note that a request got its last token."""
    q[i, GENERATED] = q[i, OUTPUT]
    t[i, FINISH] = time
    present(s, f, r, time, -1)
    if s[P_CHAINED]:
        spawn(s, q, t, f, i, time)


@compiled
def complete_decodes(s: Ints, w: Small, q: SmallRows, t: IntRows, f: Floats, r: int) -> None:
    """Finish the sequences whose last token this step made."""
    row, a, size = FIRST_ROW + r * ROW, r * s[P_ARENA], s[P_MOST_RUNNING]
    base, step = a + s[P_SLOT], s[row + STEP]
    day = step & (s[P_RING] - 1)
    slot = w[a + s[P_RING_HEAD] + day]
    while slot >= 0:
        after = w[base + S_NEXT * size + slot]
        tokens = w[base + S_TOKENS * size + slot] + step - w[base + S_JOIN * size + slot]
        part_from(s, w, r, slot, tokens)
        i = w[base + slot]
        vacate(s, w, q, r, slot, blocks_for(s, tokens), tokens)
        finish(s, q, t, f, r, i, s[row + END])
        slot = after
    if s[row + DECODING] == 0:
        s[row + NEXT_FINISH] = NEVER
        return
    step += 1
    while w[a + s[P_RING_HEAD] + (step & (s[P_RING] - 1))] < 0:
        step += 1
    s[row + NEXT_FINISH] = step


@compiled
def next_delivery(s: Ints, w: Small, q: SmallRows, f: Floats, r: int) -> int:
    """Delivery of the first tokens of this step: by a decode step of all that decode, and of those it began. [ps]"""
    row, base = FIRST_ROW + r * ROW, r * s[P_ARENA] + s[P_SLOT]
    n, context = s[row + DECODING], s[row + CONTEXT] + s[row + DECODING]
    slot = s[row + CHUNK_HEAD]
    while slot >= 0:
        i = w[base + slot]
        n += 1
        context += q[i, PROMPT] + q[i, GENERATED] + 1
        slot = w[base + S_NEXT * s[P_MOST_RUNNING] + slot]
    return delivery_ps(s, f, n, context)


@compiled
def complete_prefills(s: Ints, w: Small, q: SmallRows, t: IntRows, f: Floats, r: int) -> None:
    """Give the sequences whose prefill this step ended their token, and let them decode."""
    row, a, size = FIRST_ROW + r * ROW, r * s[P_ARENA], s[P_MOST_RUNNING]
    base, time = a + s[P_SLOT], s[row + END]
    delivery = next_delivery(s, w, q, f, r) if f[s[P_COSTS] + C_FIRST_TOKEN] > 0 else 0
    slot = s[row + CHUNK_HEAD]
    s[row + CHUNK_HEAD] = s[row + CHUNK_TAIL] = -1
    while slot >= 0:
        after = w[base + S_NEXT * size + slot]
        i = w[base + slot]
        tokens = q[i, PROMPT] + q[i, GENERATED]
        q[i, GENERATED] += 1
        if t[i, FIRST] < 0:
            t[i, FIRST], t[i, DELIVERY] = time, delivery
        if q[i, GENERATED] >= q[i, OUTPUT]:
            vacate(s, w, q, r, slot, blocks_for(s, tokens), tokens)
            finish(s, q, t, f, r, i, time)
        else:
            join(s, w, q, r, slot, s[row + STEP], tokens)
        slot = after


@compiled
def complete(s: Ints, w: Small, q: SmallRows, t: IntRows, f: Floats, r: int) -> None:
    """End the step in flight."""
    row = FIRST_ROW + r * ROW
    if s[row + PHASE] == NULL:
        return
    s[row + STEPS] += 1
    if s[row + NEXT_FINISH] <= s[row + STEP]:
        complete_decodes(s, w, q, t, f, r)
    if s[row + CHUNK_HEAD] >= 0:
        complete_prefills(s, w, q, t, f, r)


@compiled
def last_running(s: Ints, w: Small, r: int) -> int:
    """The sequence to preempt first: last admitted of the least urgent class."""
    for k in range(s[P_CLASSES] - 1, -1, -1):
        slot = w[r * s[P_ARENA] + s[P_ORDER] + 2 * k + 1]
        if slot >= 0:
            return slot
    return -1


@compiled
def preempt_part(s: Ints, w: Small, q: SmallRows, r: int) -> None:
    """Preempt the partly prefilled sequence."""
    row = FIRST_ROW + r * ROW
    slot, computed = s[row + PART], s[row + PART_START]
    i = w[r * s[P_ARENA] + s[P_SLOT] + slot]
    vacate(s, w, q, r, slot, blocks_for(s, computed), computed)
    s[row + PART] = -1
    q[i, PREEMPTED] += 1
    s[row + PREEMPTIONS] += 1
    queue_front(s, w, q, r, i)


@compiled
def preempt_decode(s: Ints, w: Small, q: SmallRows, r: int, slot: int, past: int, grown: int) -> int:
    """Preempt a decoding sequence after step ``past``; returns the block it needed for the next one.

    ``grown`` is 1 when it already has that block and the sums hold its next token.
    """
    row, size, base = FIRST_ROW + r * ROW, s[P_MOST_RUNNING], r * s[P_ARENA] + s[P_SLOT]
    i = w[base + slot]
    tokens = w[base + S_TOKENS * size + slot] + past - w[base + S_JOIN * size + slot]
    needed = 1 if s[P_RESERVED] == 0 and tokens % s[P_BLOCK] == 0 else 0
    q[i, GENERATED] = q[i, OUTPUT] - (w[base + S_FINISH * size + slot] - past)
    part_from(s, w, r, slot, tokens + grown)
    vacate(s, w, q, r, slot, blocks_for(s, tokens + grown), tokens)
    q[i, PREEMPTED] += 1
    s[row + PREEMPTIONS] += 1
    queue_front(s, w, q, r, i)
    return needed


@compiled
def grow_decodes(s: Ints, w: Small, q: SmallRows, r: int) -> bool:
    """Give the decoding sequences the blocks of this step, preempting from the tail while there are too few."""
    row = FIRST_ROW + r * ROW
    if s[P_RESERVED] != 0:
        s[row + CONTEXT] += s[row + DECODING]
        return False
    need = w[r * s[P_ARENA] + s[P_GROW] + s[row + STEP] % s[P_BLOCK]]
    preempted = False
    while s[row + FREE] < need:
        need -= s[row + FREE]
        take(s, w, r, s[row + FREE])
        slot = last_running(s, w, r)
        if slot == s[row + PART]:
            preempt_part(s, w, q, r)
        else:
            need -= preempt_decode(s, w, q, r, slot, s[row + STEP] - 1, 0)
        preempted = True
    take(s, w, r, need)
    s[row + CONTEXT] += s[row + DECODING]
    return preempted


@compiled
def note_chunk(s: Ints, w: Small, q: SmallRows, r: int, slot: int, computed: int, total: int) -> None:
    """After a chunk is placed: publish its full blocks; it ends its prefill with this step, or is the part."""
    row, size = FIRST_ROW + r * ROW, s[P_MOST_RUNNING]
    base = r * s[P_ARENA] + s[P_SLOT]
    i = w[base + slot]
    if q[i, CHAIN] >= 0:
        publish(s, w, r, slot, q[i, CHAIN], min(q[i, SHARED], computed) // s[P_BLOCK])
    if computed < total:
        s[row + PART], s[row + PART_START] = slot, computed
        return
    if slot == s[row + PART]:
        s[row + PART] = -1
    w[base + S_NEXT * size + slot] = -1
    if s[row + CHUNK_TAIL] >= 0:
        w[base + S_NEXT * size + s[row + CHUNK_TAIL]] = slot
    else:
        s[row + CHUNK_HEAD] = slot
    s[row + CHUNK_TAIL] = slot


@compiled
def continue_part(s: Ints, w: Small, q: SmallRows, r: int, budget: int, past: int, grown: int) -> tuple[int, int, bool]:
    """Next chunk of the partly prefilled sequence: its tokens, its attention, and whether anyone was preempted.

    ``past`` and ``grown`` as in :func:`preempt_decode`, for who has to make room.
    """
    row = FIRST_ROW + r * ROW
    slot, start = s[row + PART], s[row + PART_START]
    i = w[r * s[P_ARENA] + s[P_SLOT] + slot]
    total = q[i, PROMPT] + q[i, GENERATED]
    tokens = min(total - start, budget)
    need = 0 if s[P_RESERVED] != 0 else blocks_for(s, start + tokens) - blocks_for(s, start)
    preempted = False
    while s[row + FREE] < need:
        preempted = True
        last = last_running(s, w, r)
        if last == slot:
            preempt_part(s, w, q, r)
            return 0, 0, True
        preempt_decode(s, w, q, r, last, past, grown)
    take(s, w, r, need)
    note_chunk(s, w, q, r, slot, start + tokens, total)
    return tokens, tokens * start + tokens * (tokens + 1) // 2, preempted


@compiled
def admission(s: Ints, w: Small, q: SmallRows, r: int, i: int, budget: int, first: bool) -> tuple[int, int, int, int]:
    """What admitting a request takes: new blocks (-1: too many), chain and depth of its hit, tokens to compute.

    ``first`` of a step, a prompt is taken whole where prompts are not split, however long it is.
    """
    row = FIRST_ROW + r * ROW
    total = q[i, PROMPT] + q[i, GENERATED]
    if s[P_READY] and q[i, PREEMPTED] == 0:
        need = blocks_for(s, total) if s[P_RESERVED] == 0 else reserved_blocks(s, q, i)
        return (need if need <= s[row + FREE] else -1), -1, 0, 0
    chain, hit, idle = -1, 0, 0
    if q[i, CHAIN] >= 0:
        limit = min(q[i, SHARED], total - 1) // s[P_BLOCK]
        chain, hit = find(s, w, r, q[i, CHAIN], limit)
        idle = free_on_path(s, w, r, chain, hit)
    tokens = total - hit * s[P_BLOCK]
    if s[P_CHUNKED]:
        tokens = min(tokens, budget)
    elif tokens > budget and not first:
        return -1, chain, hit, tokens
    need = reserved_blocks(s, q, i) if s[P_RESERVED] != 0 else blocks_for(s, hit * s[P_BLOCK] + tokens)
    need -= hit
    return (need if need <= s[row + FREE] - idle else -1), chain, hit, tokens


@compiled
def admit_waiting(s: Ints, w: Small, q: SmallRows, t: IntRows, r: int, budget: int) -> tuple[int, int, int]:
    """Admit from the queue until budget, sequences or blocks stop it: tokens, attention, prefilled sequences."""
    row = FIRST_ROW + r * ROW
    tokens, attention, sequences = 0, 0, 0
    while budget > 0 and s[row + WAITING] > 0 and s[row + SLOT_POOL] > 0 and s[row + PART] < 0:
        i = queue_head(s, w, r)
        need, chain, hit, some = admission(s, w, q, r, i, budget, sequences == 0)
        if need < 0:
            break
        pop_head(s, w, q, r, i)
        if t[i, SCHEDULED] < 0:
            t[i, SCHEDULED] = s[row + END]
            q[i, HIT] = hit * s[P_BLOCK]
        if chain >= 0 and hit > 0:
            hold(s, w, r, chain, hit)
        take(s, w, r, need)
        slot = admit(s, w, q, r, i, chain, hit)
        if some == 0:  # its KV cache is here already: it decodes in this very step
            join(s, w, q, r, slot, s[row + STEP] - 1, q[i, PROMPT] + q[i, GENERATED] - 1)
            s[row + CONTEXT] += 1
            budget -= 1
            continue
        start = hit * s[P_BLOCK]
        note_chunk(s, w, q, r, slot, start + some, q[i, PROMPT] + q[i, GENERATED])
        tokens += some
        attention += some * start + some * (some + 1) // 2
        sequences += 1
        budget -= some
    return tokens, attention, sequences


@compiled
def begin_step(s: Ints, f: Floats, r: int, n: int, tokens: int, attention: int, sequences: int) -> int:
    """Set the end of a step of ``n`` decoding sequences and ``tokens`` prompt tokens; its time. [ps]"""
    row = FIRST_ROW + r * ROW
    gap = step_ps(s, f, n, s[row + CONTEXT], tokens, attention, sequences)
    s[row + END] += gap
    s[row + WORKING] += gap
    s[row + PREFILLED] += tokens
    s[row + PEAK_USED] = max(s[row + PEAK_USED], s[P_BLOCKS] - s[row + FREE])
    return gap


@compiled
def stand_still(s: Ints, r: int) -> None:
    """Remember since when the decoding sequences that are new to it stand still."""
    row = FIRST_ROW + r * ROW
    k, more = s[row + GROUPS], s[row + DECODING] - s[row + STANDING]
    if more > 0 and k < MOST_GROUPS:
        s[row + GROUP_SIZE + k], s[row + GROUP_SINCE + k] = more, s[row + END]
        s[row + GROUPS] = k + 1
        s[row + STANDING] += more


@compiled
def prefill_alone(s: Ints, w: Small, q: SmallRows, t: IntRows, f: Floats, r: int) -> bool:
    """Begin a step of prompts only, while those that decode stand still; False if no prompt has room."""
    row = FIRST_ROW + r * ROW
    tokens, attention, sequences, preempted = 0, 0, 0, False
    if s[row + PART] >= 0:
        tokens, attention, preempted = continue_part(s, w, q, r, s[P_BUDGET], s[row + STEP], 0)
        sequences = 1 if tokens > 0 else 0
    if not preempted and s[row + WAITING] > 0:
        more, pairs, heads = admit_waiting(s, w, q, t, r, s[P_BUDGET] - tokens)
        tokens, attention, sequences = tokens + more, attention + pairs, sequences + heads
    if tokens == 0:
        return False
    stand_still(s, r)
    begin_step(s, f, r, 0, tokens, attention, sequences)
    s[row + PHASE] = PREFILL
    return True


@compiled
def note_gaps(s: Ints, r: int, gap: int, n: int) -> None:
    """Count the gaps that a decode step ends; those that stood still before it waited for that too."""
    row = FIRST_ROW + r * ROW
    for k in range(s[row + GROUPS]):
        some = min(s[row + GROUP_SIZE + k], n)
        if some > 0:
            note_gap(s, s[row + END] - s[row + GROUP_SINCE + k], some)
        n -= some
    s[row + GROUPS] = s[row + STANDING] = 0
    if n > 0:
        note_gap(s, gap, n)


@compiled
def schedule(s: Ints, w: Small, q: SmallRows, t: IntRows, f: Floats, r: int) -> None:
    """Compose the next step and set its end."""
    row = FIRST_ROW + r * ROW
    if s[P_MIXED] == 0 and (s[row + PART] >= 0 or s[row + WAITING] > 0) and prefill_alone(s, w, q, t, f, r):
        return
    s[row + STEP] += 1
    preempted = grow_decodes(s, w, q, r)
    budget = s[P_BUDGET] - s[row + DECODING]
    tokens, attention, sequences = 0, 0, 0
    if s[P_MIXED] and s[row + PART] >= 0:
        tokens, attention, again = continue_part(s, w, q, r, budget, s[row + STEP] - 1, 1)
        preempted = preempted or again
        sequences = 1 if tokens > 0 else 0
    if s[P_MIXED] and not preempted and s[row + WAITING] > 0:
        more, pairs, heads = admit_waiting(s, w, q, t, r, budget - tokens)
        tokens, attention, sequences = tokens + more, attention + pairs, sequences + heads
    n = s[row + DECODING]
    gap = begin_step(s, f, r, n, tokens, attention, sequences)
    s[row + PHASE] = DECODE if tokens == 0 else MIXED
    note_gaps(s, r, gap, n)


@compiled
def blocked(s: Ints, w: Small, q: SmallRows, r: int) -> bool:
    """Whether nobody can be admitted before a sequence finishes."""
    row = FIRST_ROW + r * ROW
    if s[row + WAITING] == 0 or s[row + SLOT_POOL] == 0:
        return True
    i = queue_head(s, w, r)
    beside = s[row + DECODING] if s[P_MIXED] else 0
    return admission(s, w, q, r, i, s[P_BUDGET] - beside, True)[0] < 0


@compiled
def run_decodes(s: Ints, w: Small, f: Floats, r: int, limit: int) -> None:
    """Step on while steps only decode and nobody finishes: the tight loop."""
    row, a = FIRST_ROW + r * ROW, r * s[P_ARENA]
    n, context, free, step = s[row + DECODING], s[row + CONTEXT], s[row + FREE], s[row + STEP]
    end, last = s[row + END], s[row + NEXT_FINISH]
    began, first, had = end, step, free
    fixed, host = fixed_ps(s, f, n), host_ps(s, f, n)
    low, high, value, slope = 0.0, -1.0, 0.0, 0.0
    place = step % s[P_BLOCK]
    while end < limit and step < last:
        place += 1
        if place == s[P_BLOCK]:
            place = 0
        need = 0 if s[P_RESERVED] != 0 else w[a + s[P_GROW] + place]
        if free < need:
            break
        free -= need
        step += 1
        context += n
        if context >= high:
            k = knot(f, s[P_KNOTS], s[P_KNOT_COUNT], context / n)
            cell = s[P_DECODE] + 2 * (n * s[P_KNOT_COUNT] + k)
            low, value, slope = n * f[s[P_KNOTS] + k], f[cell], f[cell + 1]
            high = n * f[s[P_KNOTS] + k + 1] if k + 2 < s[P_KNOT_COUNT] else 1e300
        gap = max(1, int(beside_ps(fixed + (value + slope * (context - low)), host) + 0.5))
        note_gap(s, gap, n)
        end += gap
    if free < had:
        take(s, w, r, had - free)
    s[row + CONTEXT], s[row + STEP], s[row + END] = context, step, end
    s[row + STEPS] += step - first
    s[row + WORKING] += end - began
    s[row + PEAK_USED] = max(s[row + PEAK_USED], s[P_BLOCKS] - s[row + FREE])


@compiled
def advance(s: Ints, w: Small, q: SmallRows, t: IntRows, f: Floats, r: int, limit: int) -> None:
    """Take a replica through every step that ends before ``limit``."""
    row = FIRST_ROW + r * ROW
    while s[row + END] < limit:
        if s[row + PHASE] == DECODE and s[row + STEP] < s[row + NEXT_FINISH] and blocked(s, w, q, r):
            run_decodes(s, w, f, r, limit)
            if s[row + END] >= limit:
                return
        complete(s, w, q, t, f, r)
        if s[P_CHAINED] and s[s[P_FLEET] + SPAWNED]:
            s[s[P_FLEET] + SPAWNED] = 0
            s[row + PHASE] = NULL
            return
        if s[row + DECODING] > 0 or s[row + PART] >= 0 or s[row + WAITING] > 0:
            schedule(s, w, q, t, f, r)
        else:
            s[row + END], s[row + PHASE] = NEVER, IDLE
            if s[row + STATE] == DRAINING:
                s[row + STATE] = DOWN
            return
