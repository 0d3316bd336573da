"""Paged KV with a prefix cache, by runs of blocks (compiled).

Prompts that share a beginning form a tree: a *chain* is an edge of it, blocks ``start[c]`` up to the start
of its children; a request names the chain where its shared part ends. The cached part of a chain is always
a prefix of it, because the blocks of one request are freed from the deep end first and children are freed
before their parents. So a chain's state is one number, its cached depth, and the queue of free blocks (least
recently used first) holds runs ``(chain, low, high)`` that are eaten from the deep end, next to anonymous
runs of private blocks. Equal, block by block, to a table of block hashes with an LRU queue; see
``reference.py``, which is one.
"""

from sizing.simulator import layout as at
from sizing.simulator.compiler import compiled
from sizing.simulator.layout import Ints, Offsets, Small

END_OF_LIST = -1


@compiled
def drop_run(s: Ints, w: Small, o: Offsets, r: int, run: int) -> None:
    """Unlink an empty run from the queue and from its chain."""
    row, base = r * at.ROW, r * o.arena + o.runs
    size = o.run_size
    before, after = w[base + at.R_PREV * size + run], w[base + at.R_NEXT * size + run]
    if before >= 0:
        w[base + at.R_NEXT * size + before] = after
    else:
        s[row + at.LRU_HEAD] = after
    if after >= 0:
        w[base + at.R_PREV * size + after] = before
    else:
        s[row + at.LRU_TAIL] = before
    chain = w[base + run]
    if chain >= 0:
        deeper = w[base + at.R_DEEPER * size + run]
        shallower = w[base + at.R_SHALLOWER * size + run]
        if deeper >= 0:
            w[base + at.R_SHALLOWER * size + deeper] = shallower
        if shallower >= 0:
            w[base + at.R_DEEPER * size + shallower] = deeper
        else:
            w[r * o.arena + o.top + chain] = deeper
    w[base + at.R_NEXT * size + run] = s[row + at.RUN_POOL]
    s[row + at.RUN_POOL] = run


@compiled
def free_run(s: Ints, w: Small, o: Offsets, r: int, chain: int, low: int, high: int) -> None:
    """Append blocks ``low`` to ``high`` of a chain (-1: private ones) to the queue of free blocks."""
    row, base = r * at.ROW, r * o.arena + o.runs
    size = o.run_size
    s[row + at.FREE] += high - low
    tail = s[row + at.LRU_TAIL]
    if chain < 0 and tail >= 0 and w[base + tail] < 0:
        w[base + at.R_HIGH * size + tail] += high - low
        return
    run = s[row + at.RUN_POOL]
    s[row + at.RUN_POOL] = w[base + at.R_NEXT * size + run]
    w[base + run] = chain
    w[base + at.R_LOW * size + run] = low
    w[base + at.R_HIGH * size + run] = high
    w[base + at.R_PREV * size + run] = tail
    w[base + at.R_NEXT * size + run] = END_OF_LIST
    if tail >= 0:
        w[base + at.R_NEXT * size + tail] = run
    else:
        s[row + at.LRU_HEAD] = run
    s[row + at.LRU_TAIL] = run
    w[base + at.R_SHALLOWER * size + run] = END_OF_LIST
    if chain >= 0:
        top = r * o.arena + o.top + chain
        deeper = w[top]
        w[base + at.R_DEEPER * size + run] = deeper
        if deeper >= 0:
            w[base + at.R_SHALLOWER * size + deeper] = run
        w[top] = run


@compiled
def take(s: Ints, w: Small, o: Offsets, r: int, blocks: int) -> None:
    """Take free blocks, the least recently used first; what they cached is forgotten."""
    row, base = r * at.ROW, r * o.arena + o.runs
    s[row + at.FREE] -= blocks
    if o.chains == 0:
        return
    while blocks > 0:
        run = s[row + at.LRU_HEAD]
        chain = w[base + run]
        low, high = w[base + at.R_LOW * o.run_size + run], w[base + at.R_HIGH * o.run_size + run]
        some = min(blocks, high - low)
        high -= some
        blocks -= some
        w[base + at.R_HIGH * o.run_size + run] = high
        if chain >= 0:
            w[r * o.arena + o.cached + chain] = high
        if high == low:
            drop_run(s, w, o, r, run)


@compiled
def find(w: Small, o: Offsets, r: int, chain: int, limit: int) -> tuple[int, int]:
    """Where the cached part of a path ends: chain, and depth up to ``limit``. [block]"""
    cached = r * o.arena + o.cached
    while True:
        start = w[o.start + chain]
        if limit > start and w[cached + chain] > start:
            return chain, min(w[cached + chain], limit)
        up = w[o.parent + chain]
        if up < 0:
            return chain, 0
        chain = up


@compiled
def free_on_path(w: Small, o: Offsets, r: int, chain: int, depth: int) -> int:
    """Blocks of the path's first ``depth`` that nobody holds. [block]"""
    base, size = r * o.arena + o.runs, o.run_size
    count = 0
    while chain >= 0:
        run = w[r * o.arena + o.top + chain]
        while run >= 0 and w[base + at.R_LOW * size + run] < depth:
            count += min(w[base + at.R_HIGH * size + run], depth) - w[base + at.R_LOW * size + run]
            run = w[base + at.R_DEEPER * size + run]
        chain = w[o.parent + chain]
    return count


@compiled
def hold(s: Ints, w: Small, o: Offsets, r: int, chain: int, depth: int) -> None:
    """Take the path's first ``depth`` blocks out of the queue of free ones, keeping them cached."""
    base, size = r * o.arena + o.runs, o.run_size
    while chain >= 0:
        run = w[r * o.arena + o.top + chain]
        while run >= 0 and w[base + at.R_LOW * size + run] < depth:
            low, high = w[base + at.R_LOW * size + run], w[base + at.R_HIGH * size + run]
            deeper = w[base + at.R_DEEPER * size + run]
            if high <= depth:
                s[r * at.ROW + at.FREE] -= high - low
                drop_run(s, w, o, r, run)
            else:
                s[r * at.ROW + at.FREE] -= depth - low
                w[base + at.R_LOW * size + run] = depth
            run = deeper
        chain = w[o.parent + chain]


@compiled
def enter(w: Small, o: Offsets, r: int, slot: int, chain: int) -> None:
    """Enter a slot among the holders of a chain."""
    base, size = r * o.arena + o.slot, o.most_running
    head = r * o.arena + o.active + chain
    first = w[head]
    w[base + at.S_CHAIN * size + slot] = chain
    w[base + at.S_MORE * size + slot] = first
    w[base + at.S_LESS * size + slot] = END_OF_LIST
    if first >= 0:
        w[base + at.S_LESS * size + first] = slot
    w[head] = slot


@compiled
def leave(w: Small, o: Offsets, r: int, slot: int) -> None:
    """Take a slot from the holders of its chain."""
    base, size = r * o.arena + o.slot, o.most_running
    more, less = w[base + at.S_MORE * size + slot], w[base + at.S_LESS * size + slot]
    if more >= 0:
        w[base + at.S_LESS * size + more] = less
    if less >= 0:
        w[base + at.S_MORE * size + less] = more
    else:
        w[r * o.arena + o.active + w[base + at.S_CHAIN * size + slot]] = more


@compiled
def attach(w: Small, o: Offsets, r: int, slot: int, chain: int, depth: int) -> None:
    """Let a slot hold the path to ``chain`` down to ``depth`` blocks."""
    w[r * o.arena + o.slot + at.S_HELD * o.most_running + slot] = depth
    enter(w, o, r, slot, chain)
    up = w[o.parent + chain]
    while up >= 0:
        w[r * o.arena + o.full + up] += 1
        up = w[o.parent + up]


@compiled
def publish(w: Small, o: Offsets, r: int, slot: int, leaf: int, depth: int) -> None:
    """Make a slot's computed blocks up to ``depth`` hits for others, while it is at the cached frontier."""
    base, size = r * o.arena + o.slot, o.most_running
    held = w[base + at.S_HELD * size + slot]
    while held < depth:
        chain = w[base + at.S_CHAIN * size + slot]
        below, child = leaf, -1
        while below != chain:
            child = below
            below = w[o.parent + below]
        end = depth if child < 0 else min(depth, w[o.start + child])
        if held < end:
            if w[r * o.arena + o.cached + chain] != held:
                break
            w[r * o.arena + o.cached + chain] = end
            held = end
        if held < depth:
            leave(w, o, r, slot)
            w[r * o.arena + o.full + chain] += 1
            enter(w, o, r, slot, child)
    w[base + at.S_HELD * size + slot] = held


@compiled
def others(w: Small, o: Offsets, r: int, chain: int) -> int:
    """Depth to which the slots that end in a chain hold it. [block]"""
    base, size = r * o.arena + o.slot, o.most_running
    depth = w[o.start + chain]
    slot = w[r * o.arena + o.active + chain]
    while slot >= 0:
        depth = max(depth, w[base + at.S_HELD * size + slot])
        slot = w[base + at.S_MORE * size + slot]
    return depth


@compiled
def release(s: Ints, w: Small, o: Offsets, r: int, slot: int, leaf: int, blocks: int, depth: int) -> None:
    """Free a slot's blocks: publish what can be, then private ones, then its path from the deep end.

    ``blocks`` is all it has, ``depth`` the computed part of it that others may share.
    """
    if o.chains == 0:
        s[r * at.ROW + at.FREE] += blocks
        return
    if leaf < 0:
        if blocks > 0:
            free_run(s, w, o, r, -1, 0, blocks)
        return
    publish(w, o, r, slot, leaf, depth)
    base, size = r * o.arena + o.slot, o.most_running
    held = w[base + at.S_HELD * size + slot]
    if blocks > held:
        free_run(s, w, o, r, -1, 0, blocks - held)
    leave(w, o, r, slot)
    chain = w[base + at.S_CHAIN * size + slot]
    while chain >= 0:
        if w[r * o.arena + o.full + chain] == 0:
            low = others(w, o, r, chain)
            if held > low:
                free_run(s, w, o, r, chain, low, held)
        held = w[o.start + chain]
        chain = w[o.parent + chain]
        if chain >= 0:
            w[r * o.arena + o.full + chain] -= 1
