"""Paged KV with a prefix cache, by runs of blocks (compiled).

Prompts that share a beginning form a tree: a *chain* is an edge of it, blocks ``start[c]`` up to the start
of its children; a request names the chain where its shared part ends. The cached part of a chain is always
a prefix of it, because the blocks of one request are freed from the deep end first and children are freed
before their parents. So a chain's state is one number, its cached depth, and the queue of free blocks (least
recently used first) holds runs ``(chain, low, high)`` that are eaten from the deep end, next to anonymous
runs of private blocks. Equal, block by block, to a table of block hashes with an LRU queue; see
``reference.py``, which is one.
"""

from sizing.simulator.compiler import compiled
from sizing.simulator.layout import (
    FIRST_ROW,
    FREE,
    LRU_HEAD,
    LRU_TAIL,
    P_ACTIVE,
    P_ARENA,
    P_CACHED,
    P_CHAINS,
    P_FULL,
    P_MOST_RUNNING,
    P_PARENT,
    P_RUN_SIZE,
    P_RUNS,
    P_SLOT,
    P_START,
    P_TOP,
    R_DEEPER,
    R_HIGH,
    R_LOW,
    R_NEXT,
    R_PREV,
    R_SHALLOWER,
    ROW,
    RUN_POOL,
    S_CHAIN,
    S_HELD,
    S_LESS,
    S_MORE,
    Ints,
    Small,
)

END_OF_LIST = -1


@compiled
def drop_run(s: Ints, w: Small, r: int, run: int) -> None:
    """Unlink an empty run from the queue and from its chain."""
    row, base = FIRST_ROW + r * ROW, r * s[P_ARENA] + s[P_RUNS]
    size = s[P_RUN_SIZE]
    before, after = w[base + R_PREV * size + run], w[base + R_NEXT * size + run]
    if before >= 0:
        w[base + R_NEXT * size + before] = after
    else:
        s[row + LRU_HEAD] = after
    if after >= 0:
        w[base + R_PREV * size + after] = before
    else:
        s[row + LRU_TAIL] = before
    chain = w[base + run]
    if chain >= 0:
        deeper = w[base + R_DEEPER * size + run]
        shallower = w[base + R_SHALLOWER * size + run]
        if deeper >= 0:
            w[base + R_SHALLOWER * size + deeper] = shallower
        if shallower >= 0:
            w[base + R_DEEPER * size + shallower] = deeper
        else:
            w[r * s[P_ARENA] + s[P_TOP] + chain] = deeper
    w[base + R_NEXT * size + run] = s[row + RUN_POOL]
    s[row + RUN_POOL] = run


@compiled
def free_run(s: Ints, w: Small, r: int, chain: int, low: int, high: int) -> None:
    """Append blocks ``low`` to ``high`` of a chain (-1: private ones) to the queue of free blocks."""
    row, base = FIRST_ROW + r * ROW, r * s[P_ARENA] + s[P_RUNS]
    size = s[P_RUN_SIZE]
    s[row + FREE] += high - low
    tail = s[row + LRU_TAIL]
    if chain < 0 and tail >= 0 and w[base + tail] < 0:
        w[base + R_HIGH * size + tail] += high - low
        return
    run = s[row + RUN_POOL]
    s[row + RUN_POOL] = w[base + R_NEXT * size + run]
    w[base + run] = chain
    w[base + R_LOW * size + run] = low
    w[base + R_HIGH * size + run] = high
    w[base + R_PREV * size + run] = tail
    w[base + R_NEXT * size + run] = END_OF_LIST
    if tail >= 0:
        w[base + R_NEXT * size + tail] = run
    else:
        s[row + LRU_HEAD] = run
    s[row + LRU_TAIL] = run
    w[base + R_SHALLOWER * size + run] = END_OF_LIST
    if chain >= 0:
        top = r * s[P_ARENA] + s[P_TOP] + chain
        deeper = w[top]
        w[base + R_DEEPER * size + run] = deeper
        if deeper >= 0:
            w[base + R_SHALLOWER * size + deeper] = run
        w[top] = run


@compiled
def take(s: Ints, w: Small, r: int, blocks: int) -> None:
    """Take free blocks, the least recently used first; what they cached is forgotten."""
    row, base = FIRST_ROW + r * ROW, r * s[P_ARENA] + s[P_RUNS]
    s[row + FREE] -= blocks
    if s[P_CHAINS] == 0:
        return
    while blocks > 0:
        run = s[row + LRU_HEAD]
        chain = w[base + run]
        low, high = w[base + R_LOW * s[P_RUN_SIZE] + run], w[base + R_HIGH * s[P_RUN_SIZE] + run]
        some = min(blocks, high - low)
        high -= some
        blocks -= some
        w[base + R_HIGH * s[P_RUN_SIZE] + run] = high
        if chain >= 0:
            w[r * s[P_ARENA] + s[P_CACHED] + chain] = high
        if high == low:
            drop_run(s, w, r, run)


@compiled
def find(s: Ints, w: Small, r: int, chain: int, limit: int) -> tuple[int, int]:
    """Where the cached part of a path ends: chain, and depth up to ``limit``. [block]"""
    cached = r * s[P_ARENA] + s[P_CACHED]
    while True:
        start = w[s[P_START] + chain]
        if limit > start and w[cached + chain] > start:
            return chain, min(w[cached + chain], limit)
        up = w[s[P_PARENT] + chain]
        if up < 0:
            return chain, 0
        chain = up


@compiled
def free_on_path(s: Ints, w: Small, r: int, chain: int, depth: int) -> int:
    """Blocks of the path's first ``depth`` that nobody holds. [block]"""
    base, size = r * s[P_ARENA] + s[P_RUNS], s[P_RUN_SIZE]
    count = 0
    while chain >= 0:
        run = w[r * s[P_ARENA] + s[P_TOP] + chain]
        while run >= 0 and w[base + R_LOW * size + run] < depth:
            count += min(w[base + R_HIGH * size + run], depth) - w[base + R_LOW * size + run]
            run = w[base + R_DEEPER * size + run]
        chain = w[s[P_PARENT] + chain]
    return count


@compiled
def hold(s: Ints, w: Small, r: int, chain: int, depth: int) -> None:
    """Take the path's first ``depth`` blocks out of the queue of free ones, keeping them cached."""
    base, size = r * s[P_ARENA] + s[P_RUNS], s[P_RUN_SIZE]
    while chain >= 0:
        run = w[r * s[P_ARENA] + s[P_TOP] + chain]
        while run >= 0 and w[base + R_LOW * size + run] < depth:
            low, high = w[base + R_LOW * size + run], w[base + R_HIGH * size + run]
            deeper = w[base + R_DEEPER * size + run]
            if high <= depth:
                s[FIRST_ROW + r * ROW + FREE] -= high - low
                drop_run(s, w, r, run)
            else:
                s[FIRST_ROW + r * ROW + FREE] -= depth - low
                w[base + R_LOW * size + run] = depth
            run = deeper
        chain = w[s[P_PARENT] + chain]


@compiled
def enter(s: Ints, w: Small, r: int, slot: int, chain: int) -> None:
    """Enter a slot among the holders of a chain."""
    base, size = r * s[P_ARENA] + s[P_SLOT], s[P_MOST_RUNNING]
    head = r * s[P_ARENA] + s[P_ACTIVE] + chain
    first = w[head]
    w[base + S_CHAIN * size + slot] = chain
    w[base + S_MORE * size + slot] = first
    w[base + S_LESS * size + slot] = END_OF_LIST
    if first >= 0:
        w[base + S_LESS * size + first] = slot
    w[head] = slot


@compiled
def leave(s: Ints, w: Small, r: int, slot: int) -> None:
    """Take a slot from the holders of its chain."""
    base, size = r * s[P_ARENA] + s[P_SLOT], s[P_MOST_RUNNING]
    more, less = w[base + S_MORE * size + slot], w[base + S_LESS * size + slot]
    if more >= 0:
        w[base + S_LESS * size + more] = less
    if less >= 0:
        w[base + S_MORE * size + less] = more
    else:
        w[r * s[P_ARENA] + s[P_ACTIVE] + w[base + S_CHAIN * size + slot]] = more


@compiled
def attach(s: Ints, w: Small, r: int, slot: int, chain: int, depth: int) -> None:
    """Let a slot hold the path to ``chain`` down to ``depth`` blocks."""
    w[r * s[P_ARENA] + s[P_SLOT] + S_HELD * s[P_MOST_RUNNING] + slot] = depth
    enter(s, w, r, slot, chain)
    up = w[s[P_PARENT] + chain]
    while up >= 0:
        w[r * s[P_ARENA] + s[P_FULL] + up] += 1
        up = w[s[P_PARENT] + up]


@compiled
def publish(s: Ints, w: Small, r: int, slot: int, leaf: int, depth: int) -> None:
    """Make a slot's computed blocks up to ``depth`` hits for others, while it is at the cached frontier."""
    base, size = r * s[P_ARENA] + s[P_SLOT], s[P_MOST_RUNNING]
    held = w[base + S_HELD * size + slot]
    while held < depth:
        chain = w[base + S_CHAIN * size + slot]
        below, child = leaf, -1
        while below != chain:
            child = below
            below = w[s[P_PARENT] + below]
        end = depth if child < 0 else min(depth, w[s[P_START] + child])
        if held < end:
            if w[r * s[P_ARENA] + s[P_CACHED] + chain] != held:
                break
            w[r * s[P_ARENA] + s[P_CACHED] + chain] = end
            held = end
        if held < depth:
            leave(s, w, r, slot)
            w[r * s[P_ARENA] + s[P_FULL] + chain] += 1
            enter(s, w, r, slot, child)
    w[base + S_HELD * size + slot] = held


@compiled
def others(s: Ints, w: Small, r: int, chain: int) -> int:
    """Depth to which the slots that end in a chain hold it. [block]"""
    base, size = r * s[P_ARENA] + s[P_SLOT], s[P_MOST_RUNNING]
    depth = w[s[P_START] + chain]
    slot = w[r * s[P_ARENA] + s[P_ACTIVE] + chain]
    while slot >= 0:
        depth = max(depth, w[base + S_HELD * size + slot])
        slot = w[base + S_MORE * size + slot]
    return depth


@compiled
def release(s: Ints, w: Small, r: int, slot: int, leaf: int, blocks: int, depth: int) -> None:
    """Free a slot's blocks: publish what can be, then private ones, then its path from the deep end.

    ``blocks`` is all it has, ``depth`` the computed part of it that others may share.
    """
    if s[P_CHAINS] == 0:
        s[FIRST_ROW + r * ROW + FREE] += blocks
        return
    if leaf < 0:
        if blocks > 0:
            free_run(s, w, r, -1, 0, blocks)
        return
    publish(s, w, r, slot, leaf, depth)
    base, size = r * s[P_ARENA] + s[P_SLOT], s[P_MOST_RUNNING]
    held = w[base + S_HELD * size + slot]
    if blocks > held:
        free_run(s, w, r, -1, 0, blocks - held)
    leave(s, w, r, slot)
    chain = w[base + S_CHAIN * size + slot]
    while chain >= 0:
        if w[r * s[P_ARENA] + s[P_FULL] + chain] == 0:
            low = others(s, w, r, chain)
            if held > low:
                free_run(s, w, r, chain, low, held)
        held = w[s[P_START] + chain]
        chain = w[s[P_PARENT] + chain]
        if chain >= 0:
            w[r * s[P_ARENA] + s[P_FULL] + chain] -= 1
