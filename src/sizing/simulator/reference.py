"""The simulator once more in plain Python: explicit sequences, block ids, a table of block hashes.

Slow on purpose, and written without looking at the kernels' data structures: it walks every sequence every
step, keeps every block, and looks hashes up one by one. The kernels must agree with it request by request.
"""

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np

from sizing.simulator.packing import pack_steps, to_ps
from sizing.simulator.spec import FleetPlan, Scheduler
from sizing.steptable import DELIVERY_SEQUENCES, StepTable
from sizing.workload.requests import Requests

Hash = tuple[int, int]
Block = int


def _beside(kernels: float, host: float) -> float:
    """Kernels and host side by side. [ps]"""
    kernels, host = kernels * kernels, host * host
    return math.sqrt(math.sqrt(kernels * kernels + host * host))


@dataclass(slots=True)
class Sequence:
    """A request on its way."""

    number: int
    prompt: int
    output: int
    chain: int
    shared: int
    urgency: int
    generated: int = 0
    preempted: int = 0
    hit: int = 0
    scheduled_ps: int = -1
    first_ps: int = -1
    finish_ps: int = -1
    delivery_ps: int = 0
    replica: int = -1
    estimate: int = 0
    computed: int = 0
    blocks: list[Block] = field(default_factory=list)
    public: int = 0  # leading blocks that it shares under their hash
    decoding: bool = False


class StepCost:
    """Picoseconds of a step, read off the same table in the same order of operations."""

    def __init__(self, steps: StepTable, scheduler: Scheduler, longest: int) -> None:
        self.steps, self.knots = steps, np.unique(np.rint(steps.decode_context)).tolist()
        from sizing.simulator.packing import Cursor

        places, values = pack_steps(steps, scheduler, longest, Cursor())
        self.f, self.places = values.tolist(), places

    @staticmethod
    def _knot(axis: list[float], at: float) -> int:
        k = 0
        while k < len(axis) - 2 and axis[k + 1] <= at:
            k += 1
        return k

    def decode(self, n: int, context: int) -> float:
        """Decode attention. [ps]"""
        if n == 0:
            return 0.0
        k = self._knot(self.knots, context / n)
        at = self.places["decode"] + 2 * (n * len(self.knots) + k)
        return self.f[at] + self.f[at + 1] * (context - n * self.knots[k])

    def prefill(self, tokens: int, attention: int) -> float:
        """Prefill attention. [ps]"""
        rows, columns = self.steps.prefill_tokens.tolist(), self.steps.prefill_context.tolist()
        mean = attention / tokens
        i, j = self._knot(rows, tokens), self._knot(columns, mean)
        u = (tokens - rows[i]) / (rows[i + 1] - rows[i])
        v = (mean - columns[j]) / (columns[j + 1] - columns[j])
        at = self.places["prefill"] + i * len(columns) + j
        near = self.f[at] * (1.0 - v) + self.f[at + 1] * v
        far = self.f[at + len(columns)] * (1.0 - v) + self.f[at + len(columns) + 1] * v
        return near * (1.0 - u) + far * u

    def step(self, n: int, context: int, tokens: int, attention: int, sequences: int) -> int:
        """The whole step. [ps]"""
        costs = self.f[self.places["costs"] :]
        total = self.f[self.places["linear"] + n + tokens] + (costs[0] + costs[1] * n)
        total = total + self.decode(n, context)
        host = costs[7] + costs[8] * n
        if not tokens:
            return max(1, int(_beside(total, host) + 0.5))
        total = total + self.prefill(tokens, attention) + costs[3] * sequences
        return max(1, int(_beside(total, host) + costs[2] + 0.5))

    def delivery(self, contexts: list[int]) -> int:
        """Until a first token is at its client, when sequences of these lengths decode next. [ps]"""
        n = len(contexts)
        share = n / (n + DELIVERY_SEQUENCES)
        return int(self.steps.first_token_steps * share * self.step(n, sum(contexts), 0, 0, 0) + 0.5)

    def client(self, prompt: int) -> int:
        """Between client and scheduler. [ps]"""
        return int(self.steps.request_s * 1e12 + self.steps.request_token_s * 1e12 * prompt + 0.5)


class Replica:
    """One engine."""

    def __init__(self, number: int, scheduler: Scheduler, cost: StepCost, tree: "Tree") -> None:
        self.number, self.scheduler, self.cost, self.tree = number, scheduler, cost, tree
        self.steps = self.preemptions = 0
        self.state = "up"
        self.reset()

    def reset(self) -> None:
        """Empty it."""
        self.end: int | None = None
        self.null = self.alone = False
        self.waiting: dict[int, deque[Sequence]] = {}
        self.running: list[Sequence] = []  # in order of admission
        self.joined: list[Sequence] = []  # decoding ones, in the order they began to
        self.ending: list[Sequence] = []  # prefill ends with the step in flight
        self.free: OrderedDict[Block, None] = OrderedDict(
            (block, None) for block in range(self.scheduler.kv_tokens // self.scheduler.block_tokens)
        )
        self.hash_of: dict[Block, Hash] = {}
        self.cached: dict[Hash, Block] = {}
        self.users: dict[Block, int] = {}

    # --- blocks
    def take_block(self) -> Block:
        """The least recently used free block; what it cached is forgotten."""
        block = next(iter(self.free))
        del self.free[block]
        if block in self.hash_of:
            del self.cached[self.hash_of.pop(block)]
        self.users[block] = 1
        return block

    def cached_path(self, sequence: Sequence, limit: int) -> list[Block]:
        """Cached blocks of a request's path from its begin, ``limit`` at most."""
        found: list[Block] = []
        while len(found) < limit:
            block = self.cached.get(self.tree.hash_at(sequence.chain, len(found)))
            if block is None:
                break
            found.append(block)
        return found

    def publish(self, sequence: Sequence, computed: int) -> None:
        """Enter its full shared blocks in the table, from where its own entries end, if no one else did."""
        if sequence.chain < 0:
            return
        depth = min(sequence.shared, computed) // self.scheduler.block_tokens
        while sequence.public < depth:
            name = self.tree.hash_at(sequence.chain, sequence.public)
            if name in self.cached:
                return
            block = sequence.blocks[sequence.public]
            self.cached[name] = block
            self.hash_of[block] = name
            sequence.public += 1

    def give_back(self, sequence: Sequence, computed: int) -> None:
        """Free its blocks from the deep end."""
        self.publish(sequence, computed)
        for block in reversed(sequence.blocks):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.free[block] = None
        sequence.blocks, sequence.public, sequence.computed, sequence.decoding = [], 0, 0, False

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.scheduler.block_tokens)

    # --- queue
    @property
    def present(self) -> int:
        """Requests here."""
        return len(self.running) + sum(map(len, self.waiting.values()))

    def head(self) -> Sequence | None:
        """The request to admit next."""
        for urgency in sorted(self.waiting):
            if self.waiting[urgency]:
                return self.waiting[urgency][0]
        return None

    def push(self, sequence: Sequence, now: int) -> None:
        """Enter the queue."""
        sequence.replica = self.number
        self.waiting.setdefault(sequence.urgency, deque()).append(sequence)
        if self.end is None:
            self.end, self.null = now, True

    def victim(self) -> Sequence:
        """Last admitted of the least urgent class."""
        worst = max(s.urgency for s in self.running)
        return [s for s in self.running if s.urgency == worst][-1]

    def preempt(self, sequence: Sequence) -> None:
        """Take its blocks and queue it again in front."""
        self.give_back(sequence, sequence.computed)
        self.running.remove(sequence)
        if sequence in self.joined:
            self.joined.remove(sequence)
        sequence.preempted += 1
        self.preemptions += 1
        self.waiting.setdefault(sequence.urgency, deque()).appendleft(sequence)

    def allocate(self, sequence: Sequence, tokens: int) -> bool:
        """Blocks up to ``tokens``, preempting others; False when it lost its own place."""
        need = self.blocks_for(tokens) - len(sequence.blocks)
        if self.scheduler.kv_reservation != "paged":
            return True
        while len(self.free) < need:
            victim = self.victim()
            self.preempt(victim)
            if victim is sequence:
                return False
        sequence.blocks += [self.take_block() for _ in range(need)]
        return True

    # --- steps
    def schedule(self) -> None:
        """Compose the next step."""
        if not self.scheduler.mixed and self.prefill_alone():
            return
        before = self.preemptions
        order = sorted(self.running, key=lambda s: s.urgency)
        for sequence in [s for s in order if s.decoding]:
            if sequence.decoding:
                self.allocate(sequence, sequence.computed + 1)
        budget = self.scheduler.max_num_batched_tokens - len(self.joined)
        chunks: list[tuple[int, int]] = []
        if self.scheduler.mixed:
            chunks = self.prompts(budget, before)
        n, q = len(self.joined), sum(tokens for _, tokens in chunks)
        context = sum(s.computed + 1 for s in self.joined)
        attention = sum(tokens * start + tokens * (tokens + 1) // 2 for start, tokens in chunks)
        assert self.end is not None
        self.end += self.cost.step(n, context, q, attention, len(chunks))
        self.null = self.alone = False

    def prompts(self, budget: int, before: int) -> list[tuple[int, int]]:
        """Go on with what is partly prefilled, then admit unless somebody was preempted; chunks."""
        chunks: list[tuple[int, int]] = []
        for sequence in [s for s in self.running if not s.decoding]:
            start = sequence.computed
            tokens = min(sequence.prompt + sequence.generated - start, budget)
            if self.allocate(sequence, start + tokens):
                self.place(sequence, start, tokens)
                chunks.append((start, tokens))
                budget -= tokens
        return chunks + self.admissions(budget) if self.preemptions == before else chunks

    def prefill_alone(self) -> bool:
        """A step of prompts only; False if none has room."""
        chunks = self.prompts(self.scheduler.max_num_batched_tokens, self.preemptions)
        if not chunks:
            return False
        attention = sum(tokens * start + tokens * (tokens + 1) // 2 for start, tokens in chunks)
        assert self.end is not None
        self.end += self.cost.step(0, 0, sum(tokens for _, tokens in chunks), attention, len(chunks))
        self.null, self.alone = False, True
        return True

    def place(self, sequence: Sequence, start: int, tokens: int) -> None:
        """A chunk is part of this step."""
        sequence.computed = start + tokens
        self.publish(sequence, sequence.computed)
        if sequence.computed == sequence.prompt + sequence.generated:
            self.ending.append(sequence)

    def admissions(self, budget: int) -> list[tuple[int, int]]:
        """Admit until something stops it; chunks as (start, tokens)."""
        chunks: list[tuple[int, int]] = []
        partial = any(not s.decoding and s not in self.ending for s in self.running)
        size = self.scheduler.block_tokens
        while budget > 0 and not partial and len(self.running) < self.scheduler.max_num_seqs:
            sequence = self.head()
            if sequence is None:
                break
            total = sequence.prompt + sequence.generated
            hits: list[Block] = []
            if sequence.chain >= 0:
                hits = self.cached_path(sequence, min(sequence.shared, total - 1) // size)
            start = len(hits) * size
            tokens = total - start
            if self.scheduler.chunked:
                tokens = min(tokens, budget)
            elif tokens > budget and chunks:
                break
            need = self.blocks_for(start + tokens) - len(hits)
            if self.scheduler.kv_reservation == "longest":
                need = self.blocks_for(self.scheduler.longest_request_tokens)
            elif self.scheduler.kv_reservation == "answer":
                need = self.blocks_for(sequence.prompt + sequence.output) - len(hits)
            if len(self.free) - sum(block in self.free for block in hits) < need:
                break
            self.waiting[sequence.urgency].popleft()
            for block in hits:
                self.free.pop(block, None)
                self.users[block] = self.users.get(block, 0) + 1
            sequence.blocks = hits + [self.take_block() for _ in range(need)]
            sequence.public = len(hits)
            if sequence.scheduled_ps < 0:
                assert self.end is not None
                sequence.scheduled_ps, sequence.hit = self.end, start
            self.running.append(sequence)
            self.place(sequence, start, tokens)
            chunks.append((start, tokens))
            budget -= tokens
            partial = sequence.computed < total
        return chunks

    def complete(self) -> list[Sequence]:
        """End the step in flight; who finished."""
        finished: list[Sequence] = []
        if self.null:
            return finished
        assert self.end is not None
        self.steps += 1
        for sequence in [] if self.alone else list(self.joined):
            sequence.computed += 1
            sequence.generated += 1
            if sequence.generated == sequence.output:
                self.leave(sequence)
                finished.append(sequence)
        ending, self.ending = self.ending, []
        contexts = [s.computed + 1 for s in self.joined + ending]
        for sequence in ending:
            sequence.generated += 1
            if sequence.first_ps < 0:
                sequence.first_ps, sequence.delivery_ps = self.end, self.cost.delivery(contexts)
            if sequence.generated == sequence.output:
                self.leave(sequence)
                finished.append(sequence)
            else:
                sequence.decoding = True
                self.joined.append(sequence)
        return finished

    def leave(self, sequence: Sequence) -> None:
        """A sequence is done."""
        assert self.end is not None
        sequence.finish_ps = self.end
        self.give_back(sequence, sequence.computed)
        self.running.remove(sequence)
        if sequence in self.joined:
            self.joined.remove(sequence)

    def proceed(self) -> None:
        """Schedule, or fall idle."""
        if self.running or self.head() is not None:
            self.schedule()
            return
        self.end = None
        if self.state == "draining":
            self.state = "down"

    def orphans(self) -> list[Sequence]:
        """Everybody here, when it fails: running ones by class and admission, then the queues."""
        running = sorted(self.running, key=lambda s: s.urgency)
        for sequence in running:
            sequence.blocks, sequence.public, sequence.computed, sequence.decoding = [], 0, 0, False
            sequence.preempted += 1
        queued = [s for urgency in sorted(self.waiting) for s in self.waiting[urgency]]
        return running + queued


class Tree:
    """Names of the blocks of a prefix tree."""

    def __init__(self, requests: Requests, block_tokens: int) -> None:
        count = 0 if requests.chain is None else int(requests.chain.max()) + 1
        parent, start = requests.chain_parent, requests.chain_start_tokens
        self.parent = [-1] * count if parent is None else [int(x) for x in parent]
        self.start = [0] * count if start is None else [int(x) // block_tokens for x in start]

    def hash_at(self, chain: int, depth: int) -> Hash:
        """Name of the block at a depth on the path to a chain: (edge, depth)."""
        while self.start[chain] > depth:
            chain = self.parent[chain]
        return chain, depth

    def root(self, chain: int) -> int:
        """First edge of the path."""
        while self.parent[chain] >= 0:
            chain = self.parent[chain]
        return chain


class Router:
    """Chooses a replica."""

    def __init__(self, fleet: FleetPlan, tree: Tree, draws: list[int]) -> None:
        self.fleet, self.tree, self.draws, self.turn = fleet, tree, draws, 0

    def choose(self, replicas: list[Replica], s: Sequence) -> Replica:
        """Among the replicas that are up."""
        shift, kind = self.draws[s.number] % len(replicas), self.fleet.router
        if len(replicas) == 1 or kind == "random":
            return replicas[shift]
        if kind == "round-robin":
            self.turn += 1
            return replicas[(self.turn - 1) % len(replicas)]
        if kind == "sticky":
            return replicas[shift if s.chain < 0 else self.tree.root(s.chain) % len(replicas)]
        rotated = replicas[shift:] + replicas[:shift]
        if kind == "least-loaded":
            return min(rotated, key=lambda r: r.present)
        return min(rotated, key=lambda r: self.cost(r, s))

    def cost(self, r: Replica, s: Sequence) -> int:
        """What a replica costs by the prefix-aware router."""
        total, miss = s.prompt + s.generated, uncached(r, s)
        if miss * 10 > total * 7:
            miss = total
        queued = sum(x.estimate for queue in r.waiting.values() for x in queue)
        return queued + self.fleet.request_weight_tokens * r.present + self.fleet.miss_weight * miss


def uncached(replica: Replica, s: Sequence) -> int:
    """Prompt tokens that a replica would have to compute."""
    total, size = s.prompt + s.generated, replica.scheduler.block_tokens
    if s.chain < 0:
        return total
    return total - size * len(replica.cached_path(s, min(s.shared, total - 1) // size))


class Fleet:
    """The loop over arrivals, events and steps."""

    def __init__(self, requests: Requests, steps: StepTable, scheduler: Scheduler, fleet: FleetPlan, seed: int) -> None:
        caching = scheduler.prefix_caching and scheduler.kv_reservation != "longest"
        draws = np.random.default_rng([seed, 0x5EED]).integers(0, 1 << 30, len(requests), dtype=np.int32)
        self.sequences = [
            Sequence(
                i, int(requests.input_tokens[i]), int(requests.output_tokens[i]),
                int(requests.chain[i]) if requests.chain is not None and caching else -1,
                int(requests.shared_tokens[i]) if requests.shared_tokens is not None else 0,
                int(requests.priority[i]) if requests.priority is not None else 0,
            )
            for i in range(len(requests))
        ]  # fmt: skip
        tree = Tree(requests, scheduler.block_tokens)
        cost = StepCost(steps, scheduler, int((requests.input_tokens + requests.output_tokens).max()))
        self.replicas = [Replica(r, scheduler, cost, tree) for r in range(fleet.replicas)]
        for r in fleet.down_at_start:
            self.replicas[r].state = "down"
        self.router = Router(fleet, tree, draws.tolist())
        self.held: list[Sequence] = []
        times = to_ps(requests.arrival_s).tolist()
        after = [-1] * len(requests) if requests.after is None else requests.after.tolist()
        self.follower = {a: i for i, a in enumerate(after) if a >= 0}
        pause = np.zeros(len(requests)) if requests.pause_s is None else requests.pause_s
        self.pause, self.cost = to_ps(pause).tolist(), cost
        # By the clock first, then those that wait: that is how ties are broken.
        self.rank = {
            i: k
            for k, i in enumerate(
                sorted(range(len(after)), key=lambda i: (after[i] >= 0, times[i] if after[i] < 0 else 0, i))
            )
        }
        self.arrivals = sorted((times[i], self.rank[i], i) for i in range(len(after)) if after[i] < 0)
        self.arrival_ps = list(times)
        self.events = sorted((int(to_ps(e.time_s)), k) for k, e in enumerate(fleet.events))
        self.fleet = fleet

    def dispatch(self, s: Sequence, now: int) -> None:
        """Route, or hold."""
        up = [r for r in self.replicas if r.state == "up"]
        if not up:
            self.held.append(s)
            return
        replica = self.router.choose(up, s)
        s.estimate = uncached(replica, s)
        replica.push(s, now)

    def happen(self, number: int, now: int) -> None:
        """A scheduled event."""
        event = self.fleet.events[number]
        replica, orphans = self.replicas[event.replica], list[Sequence]()
        if event.kind == "start":
            replica.state = "up"
        elif event.kind == "drain" and replica.state == "up":
            replica.state = "down" if replica.end is None else "draining"
        elif event.kind == "fail" and replica.state != "down":
            orphans = replica.orphans()
            replica.reset()
            replica.state = "down"
        if any(r.state == "up" for r in self.replicas):
            held, self.held = self.held, []
            for s in held:
                self.dispatch(s, now)
        for s in orphans:
            self.dispatch(s, now)

    def step(self, replica: Replica) -> None:
        """A step ends."""
        finished, spawned = replica.complete(), False
        for s in finished:
            if s.number in self.follower:
                j = self.follower[s.number]
                answered = s.finish_ps + s.delivery_ps + self.cost.client(s.prompt)
                self.arrival_ps[j] = max(self.arrival_ps[j], answered + self.pause[j])
                self.arrivals.append((self.arrival_ps[j], self.rank[j], j))
                spawned = True
        if spawned:
            self.arrivals.sort()
            replica.null = True
        else:
            replica.proceed()

    def run(self, horizon_ps: int | None = None) -> list[Sequence]:
        """Until nothing is left to do, or to the horizon."""
        never = 1 << 62
        horizon = never if horizon_ps is None else horizon_ps
        while True:
            arrival = self.arrivals[0][0] if self.arrivals else never
            event = self.events[0][0] if self.events else never
            now = min(arrival, event, horizon)
            busy = [r for r in self.replicas if r.end is not None and r.end < now]
            if busy:
                self.step(min(busy, key=lambda r: (r.end, r.number)))
            elif now >= horizon:
                return self.sequences
            elif event <= arrival:
                self.happen(self.events.pop(0)[1], now)
            else:
                self.dispatch(self.sequences[self.arrivals.pop(0)[2]], now)
