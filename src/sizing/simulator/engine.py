"""One replica's engine: a step is scheduled at its start and completed at its end (compiled).

Every decoding sequence advances by a token each step, so the step at whose end it finishes is known when its
prefill ends, and a step costs the same however many sequences decode. The KV blocks that decoding sequences
need at step ``d`` are ``grow[d mod block]``.
"""

from sizing.simulator import layout as at
from sizing.simulator.compiler import compiled
from sizing.simulator.layout import Floats, Ints, Offsets, Small
from sizing.simulator.prefixcache import find, free_on_path, hold, publish, take
from sizing.simulator.slots import admit, join, part_from, pop_head, queue_front, queue_head, vacate
from sizing.simulator.stepcost import fixed_ps, knot, step_ps


@compiled
def blocks_for(o: Offsets, tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + o.block - 1) // o.block


@compiled
def note_gap(s: Ints, o: Offsets, gap_ps: int, count: int) -> None:
    """Count gaps between tokens."""
    bin_ = gap_ps // at.FINE_GAP_PS
    if bin_ >= at.GAP_BINS:
        bin_ = at.GAP_BINS + min(gap_ps // at.COARSE_GAP_PS, at.GAP_BINS - 1)
    s[o.gaps + bin_] += count


@compiled
def present(s: Ints, f: Floats, o: Offsets, r: int, time: int, change: int) -> None:
    """Count requests in and out, and integrate their number over time (Little's law)."""
    row = r * at.ROW
    f[o.present + r] += s[row + at.PRESENT] * 1e-12 * (time - s[row + at.LAST_CHANGE])
    s[row + at.LAST_CHANGE] = time
    s[row + at.PRESENT] += change


@compiled
def spawn(s: Ints, q: Small, t: Ints, o: Offsets, i: int, time: int) -> None:
    """Put the request that waits for this one's completion into the heap of arrivals."""
    j = q[i, at.THEN]
    if j < 0:
        return
    t[j, at.ARRIVAL] += time
    k = s[o.fleet + at.HEAP]
    s[o.fleet + at.HEAP] = k + 1
    s[o.fleet + at.SPAWNED] = 1
    when = t[j, at.ARRIVAL]
    while k > 0:
        up = (k - 1) // 2
        other = s[o.heap + up]
        if t[other, at.ARRIVAL] < when or (t[other, at.ARRIVAL] == when and other < j):
            break
        s[o.heap + k] = other
        k = up
    s[o.heap + k] = j


@compiled
def finish(s: Ints, q: Small, t: Ints, f: Floats, o: Offsets, r: int, i: int, time: int) -> None:
    """Note that a request got its last token."""
    q[i, at.GENERATED] = q[i, at.OUTPUT]
    t[i, at.FINISH] = time
    present(s, f, o, r, time, -1)
    if o.chained:
        spawn(s, q, t, o, i, time)


@compiled
def complete_decodes(s: Ints, w: Small, q: Small, t: Ints, f: Floats, o: Offsets, r: int) -> None:
    """Finish the sequences whose last token this step made."""
    row, a, size = r * at.ROW, r * o.arena, o.most_running
    base, step = a + o.slot, s[row + at.STEP]
    day = step & (o.ring - 1)
    slot = w[a + o.ring_head + day]
    while slot >= 0:
        after = w[base + at.S_NEXT * size + slot]
        tokens = w[base + at.S_TOKENS * size + slot] + step - w[base + at.S_JOIN * size + slot]
        part_from(s, w, o, r, slot, tokens)
        i = w[base + slot]
        vacate(s, w, q, o, r, slot, blocks_for(o, tokens), tokens)
        finish(s, q, t, f, o, r, i, s[row + at.END])
        slot = after
    if s[row + at.DECODING] == 0:
        s[row + at.NEXT_FINISH] = at.NEVER
        return
    step += 1
    while w[a + o.ring_head + (step & (o.ring - 1))] < 0:
        step += 1
    s[row + at.NEXT_FINISH] = step


@compiled
def complete_prefills(s: Ints, w: Small, q: Small, t: Ints, f: Floats, o: Offsets, r: int) -> None:
    """Give the sequences whose prefill this step ended their token, and let them decode."""
    row, a, size = r * at.ROW, r * o.arena, o.most_running
    base, time = a + o.slot, s[row + at.END]
    slot = s[row + at.CHUNK_HEAD]
    s[row + at.CHUNK_HEAD] = s[row + at.CHUNK_TAIL] = -1
    while slot >= 0:
        after = w[base + at.S_NEXT * size + slot]
        i = w[base + slot]
        tokens = q[i, at.PROMPT] + q[i, at.GENERATED]
        q[i, at.GENERATED] += 1
        if t[i, at.FIRST] < 0:
            t[i, at.FIRST] = time
        if q[i, at.GENERATED] >= q[i, at.OUTPUT]:
            vacate(s, w, q, o, r, slot, blocks_for(o, tokens), tokens)
            finish(s, q, t, f, o, r, i, time)
        else:
            join(s, w, q, o, r, slot, s[row + at.STEP], tokens)
        slot = after


@compiled
def complete(s: Ints, w: Small, q: Small, t: Ints, f: Floats, o: Offsets, r: int) -> None:
    """End the step in flight."""
    row = r * at.ROW
    if s[row + at.PHASE] == at.NULL:
        return
    s[row + at.STEPS] += 1
    if s[row + at.NEXT_FINISH] <= s[row + at.STEP]:
        complete_decodes(s, w, q, t, f, o, r)
    if s[row + at.CHUNK_HEAD] >= 0:
        complete_prefills(s, w, q, t, f, o, r)


@compiled
def last_running(w: Small, o: Offsets, r: int) -> int:
    """The sequence to preempt first: last admitted of the least urgent class."""
    for k in range(o.classes - 1, -1, -1):
        slot = w[r * o.arena + o.order + 2 * k + 1]
        if slot >= 0:
            return slot
    return -1


@compiled
def preempt_part(s: Ints, w: Small, q: Small, o: Offsets, r: int) -> None:
    """Preempt the partly prefilled sequence."""
    row = r * at.ROW
    slot, computed = s[row + at.PART], s[row + at.PART_START]
    i = w[r * o.arena + o.slot + slot]
    vacate(s, w, q, o, r, slot, blocks_for(o, computed), computed)
    s[row + at.PART] = -1
    q[i, at.PREEMPTED] += 1
    s[row + at.PREEMPTIONS] += 1
    queue_front(s, w, q, o, r, i)


@compiled
def preempt_decode(s: Ints, w: Small, q: Small, o: Offsets, r: int, slot: int, grown: int) -> int:
    """Preempt a decoding sequence before its step; returns the block it needed for it.

    ``grown`` is 1 when it already has that block and the sums hold its next token.
    """
    row, size = r * at.ROW, o.most_running
    base, step = r * o.arena + o.slot, s[row + at.STEP]
    i = w[base + slot]
    done = step - 1 - w[base + at.S_JOIN * size + slot]
    tokens = w[base + at.S_TOKENS * size + slot] + done
    needed = 1 if o.reserved == 0 and tokens % o.block == 0 else 0
    q[i, at.GENERATED] = q[i, at.OUTPUT] - (w[base + at.S_FINISH * size + slot] - (step - 1))
    part_from(s, w, o, r, slot, tokens + grown)
    vacate(s, w, q, o, r, slot, blocks_for(o, tokens + grown), tokens)
    q[i, at.PREEMPTED] += 1
    s[row + at.PREEMPTIONS] += 1
    queue_front(s, w, q, o, r, i)
    return needed


@compiled
def grow_decodes(s: Ints, w: Small, q: Small, o: Offsets, r: int) -> bool:
    """Give the decoding sequences the blocks of this step, preempting from the tail while there are too few."""
    row = r * at.ROW
    if o.reserved > 0:
        s[row + at.CONTEXT] += s[row + at.DECODING]
        return False
    need = w[r * o.arena + o.grow + s[row + at.STEP] % o.block]
    preempted = False
    while s[row + at.FREE] < need:
        need -= s[row + at.FREE]
        take(s, w, o, r, s[row + at.FREE])
        slot = last_running(w, o, r)
        if slot == s[row + at.PART]:
            preempt_part(s, w, q, o, r)
        else:
            need -= preempt_decode(s, w, q, o, r, slot, 0)
        preempted = True
    take(s, w, o, r, need)
    s[row + at.CONTEXT] += s[row + at.DECODING]
    return preempted


@compiled
def note_chunk(s: Ints, w: Small, q: Small, o: Offsets, r: int, slot: int, computed: int, total: int) -> None:
    """After a chunk is placed: publish its full blocks; it ends its prefill with this step, or is the part."""
    row, size = r * at.ROW, o.most_running
    base = r * o.arena + o.slot
    i = w[base + slot]
    if q[i, at.CHAIN] >= 0:
        publish(w, o, r, slot, q[i, at.CHAIN], min(q[i, at.SHARED], computed) // o.block)
    if computed < total:
        s[row + at.PART], s[row + at.PART_START] = slot, computed
        return
    if slot == s[row + at.PART]:
        s[row + at.PART] = -1
    w[base + at.S_NEXT * size + slot] = -1
    if s[row + at.CHUNK_TAIL] >= 0:
        w[base + at.S_NEXT * size + s[row + at.CHUNK_TAIL]] = slot
    else:
        s[row + at.CHUNK_HEAD] = slot
    s[row + at.CHUNK_TAIL] = slot


@compiled
def continue_part(s: Ints, w: Small, q: Small, o: Offsets, r: int, budget: int) -> tuple[int, int, bool]:
    """Next chunk of the partly prefilled sequence: its tokens, its attention, and whether anyone was preempted."""
    row = r * at.ROW
    slot, start = s[row + at.PART], s[row + at.PART_START]
    i = w[r * o.arena + o.slot + slot]
    total = q[i, at.PROMPT] + q[i, at.GENERATED]
    tokens = min(total - start, budget)
    need = 0 if o.reserved > 0 else blocks_for(o, start + tokens) - blocks_for(o, start)
    preempted = False
    while s[row + at.FREE] < need:
        preempted = True
        last = last_running(w, o, r)
        if last == slot:
            preempt_part(s, w, q, o, r)
            return 0, 0, True
        preempt_decode(s, w, q, o, r, last, 1)
    take(s, w, o, r, need)
    note_chunk(s, w, q, o, r, slot, start + tokens, total)
    return tokens, tokens * start + tokens * (tokens + 1) // 2, preempted


@compiled
def admission(s: Ints, w: Small, q: Small, o: Offsets, r: int, i: int, budget: int) -> tuple[int, int, int, int]:
    """What admitting a request takes: new blocks (-1: too many), chain and depth of its hit, tokens to compute."""
    row = r * at.ROW
    total = q[i, at.PROMPT] + q[i, at.GENERATED]
    if o.ready and q[i, at.PREEMPTED] == 0:
        need = blocks_for(o, total)
        return (need if need <= s[row + at.FREE] else -1), -1, 0, 0
    chain, hit, idle = -1, 0, 0
    if q[i, at.CHAIN] >= 0:
        limit = min(q[i, at.SHARED], total - 1) // o.block
        chain, hit = find(w, o, r, q[i, at.CHAIN], limit)
        idle = free_on_path(w, o, r, chain, hit)
    tokens = min(total - hit * o.block, budget)
    need = o.reserved if o.reserved > 0 else blocks_for(o, hit * o.block + tokens) - hit
    return (need if need <= s[row + at.FREE] - idle else -1), chain, hit, tokens


@compiled
def admit_waiting(s: Ints, w: Small, q: Small, t: Ints, o: Offsets, r: int, budget: int) -> tuple[int, int, int]:
    """Admit from the queue until budget, sequences or blocks stop it: tokens, attention, prefilled sequences."""
    row = r * at.ROW
    tokens, attention, sequences = 0, 0, 0
    while budget > 0 and s[row + at.WAITING] > 0 and s[row + at.SLOT_POOL] > 0 and s[row + at.PART] < 0:
        i = queue_head(w, o, r)
        need, chain, hit, some = admission(s, w, q, o, r, i, budget)
        if need < 0:
            break
        pop_head(s, w, q, o, r, i)
        if t[i, at.SCHEDULED] < 0:
            t[i, at.SCHEDULED] = s[row + at.END]
            q[i, at.HIT] = hit * o.block
        if chain >= 0 and hit > 0:
            hold(s, w, o, r, chain, hit)
        take(s, w, o, r, need)
        slot = admit(s, w, q, o, r, i, chain, hit)
        if some == 0:  # its KV cache is here already: it decodes in this very step
            join(s, w, q, o, r, slot, s[row + at.STEP] - 1, q[i, at.PROMPT] + q[i, at.GENERATED] - 1)
            s[row + at.CONTEXT] += 1
            budget -= 1
            continue
        start = hit * o.block
        note_chunk(s, w, q, o, r, slot, start + some, q[i, at.PROMPT] + q[i, at.GENERATED])
        tokens += some
        attention += some * start + some * (some + 1) // 2
        sequences += 1
        budget -= some
    return tokens, attention, sequences


@compiled
def schedule(s: Ints, w: Small, q: Small, t: Ints, f: Floats, o: Offsets, r: int) -> None:
    """Compose the next step and set its end."""
    row = r * at.ROW
    s[row + at.STEP] += 1
    preempted = grow_decodes(s, w, q, o, r)
    budget = o.budget - s[row + at.DECODING]
    tokens, attention, sequences = 0, 0, 0
    if s[row + at.PART] >= 0:
        tokens, attention, again = continue_part(s, w, q, o, r, budget)
        preempted = preempted or again
        sequences = 1 if tokens > 0 else 0
    if not preempted and s[row + at.WAITING] > 0:
        more, pairs, heads = admit_waiting(s, w, q, t, o, r, budget - tokens)
        tokens, attention, sequences = tokens + more, attention + pairs, sequences + heads
    n = s[row + at.DECODING]
    gap = step_ps(f, o, n, s[row + at.CONTEXT], tokens, attention, sequences)
    s[row + at.END] += gap
    s[row + at.WORKING] += gap
    s[row + at.PREFILLED] += tokens
    s[row + at.PEAK_USED] = max(s[row + at.PEAK_USED], o.blocks - s[row + at.FREE])
    s[row + at.PHASE] = at.DECODE if tokens == 0 else at.MIXED
    if n > 0:
        note_gap(s, o, gap, n)


@compiled
def blocked(s: Ints, w: Small, q: Small, o: Offsets, r: int) -> bool:
    """Whether nobody can be admitted before a sequence finishes."""
    row = r * at.ROW
    if s[row + at.WAITING] == 0 or s[row + at.SLOT_POOL] == 0:
        return True
    i = queue_head(w, o, r)
    return admission(s, w, q, o, r, i, o.budget - s[row + at.DECODING])[0] < 0


@compiled
def run_decodes(s: Ints, w: Small, f: Floats, o: Offsets, r: int, limit: int) -> None:
    """Step on while steps only decode and nobody finishes: the tight loop."""
    row, a = r * at.ROW, r * o.arena
    n, context, free, step = s[row + at.DECODING], s[row + at.CONTEXT], s[row + at.FREE], s[row + at.STEP]
    end, last = s[row + at.END], s[row + at.NEXT_FINISH]
    began, first, had = end, step, free
    fixed = fixed_ps(f, o, n)
    low, high, value, slope = 0.0, -1.0, 0.0, 0.0
    place = step % o.block
    while end < limit and step < last:
        place += 1
        if place == o.block:
            place = 0
        need = 0 if o.reserved > 0 else w[a + o.grow + place]
        if free < need:
            break
        free -= need
        step += 1
        context += n
        if context >= high:
            k = knot(f, o.knots, o.knot_count, context / n)
            cell = o.decode + 2 * (n * o.knot_count + k)
            low, value, slope = n * f[o.knots + k], f[cell], f[cell + 1]
            high = n * f[o.knots + k + 1] if k + 2 < o.knot_count else 1e300
        gap = max(1, int(fixed + (value + slope * (context - low)) + 0.5))
        note_gap(s, o, gap, n)
        end += gap
    if free < had:
        take(s, w, o, r, had - free)
    s[row + at.CONTEXT], s[row + at.STEP], s[row + at.END] = context, step, end
    s[row + at.STEPS] += step - first
    s[row + at.WORKING] += end - began
    s[row + at.PEAK_USED] = max(s[row + at.PEAK_USED], o.blocks - s[row + at.FREE])


@compiled
def advance(s: Ints, w: Small, q: Small, t: Ints, f: Floats, o: Offsets, r: int, limit: int) -> None:
    """Take a replica through every step that ends before ``limit``."""
    row = r * at.ROW
    while s[row + at.END] < limit:
        if s[row + at.PHASE] == at.DECODE and s[row + at.STEP] < s[row + at.NEXT_FINISH]:
            if blocked(s, w, q, o, r):
                run_decodes(s, w, f, o, r, limit)
                if s[row + at.END] >= limit:
                    return
        complete(s, w, q, t, f, o, r)
        if o.chained and s[o.fleet + at.SPAWNED]:
            s[o.fleet + at.SPAWNED] = 0
            s[row + at.PHASE] = at.NULL
            return
        if s[row + at.DECODING] > 0 or s[row + at.PART] >= 0 or s[row + at.WAITING] > 0:
            schedule(s, w, q, t, f, o, r)
        else:
            s[row + at.END], s[row + at.PHASE] = at.NEVER, at.IDLE
            if s[row + at.STATE] == at.DRAINING:
                s[row + at.STATE] = at.DOWN
            return
