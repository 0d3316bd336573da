"""The step model: operations summed, tables of it, and what binds."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.calibration import Calibration, EngineTime
from sizing.catalog import Gpu
from sizing.deployment import Deployment
from sizing.engines.timing import engine_timing
from sizing.operations import Operation, Step, launches, operations, seconds, work
from sizing.steptable import StepTable, side_by_side
from sizing.steptime.constants import scaled, with_engine
from sizing.steptime.knots import between, even_knots, middle

Seconds = NDArray[np.float64]
FEW = 128
"""Sizes of steps below which drawn constants are evaluated size by size. [1]"""


@dataclass(frozen=True, kw_only=True)
class StepModel:
    """Step times of one deployment under one calibration.

    Attributes
    ----------
    deployment, calibration
        What was asked for.
    operations
        The pass, as one GPU runs it.
    launch_s, cache_copies
        Of an engine that launches every kernel from Python: time of a launch, and how often a step copies
        the cache. [s], [1]
    """

    deployment: Deployment
    calibration: Calibration
    operations: tuple[Operation, ...]
    launch_s: float = 0.0
    cache_copies: float = 0.0

    @property
    def gpu(self) -> Gpu:
        """The accelerator."""
        return self.deployment.gpu

    @property
    def engine(self) -> EngineTime:
        """The engine's own time."""
        return self.calibration.engine_time

    @cached_property
    def _kernels(self) -> Calibration:
        return scaled(self.calibration)

    def with_calibration(self, calibration: Calibration) -> "StepModel":
        """The same pass under other constants."""
        return replace(self, calibration=calibration)

    # -- the step -----------------------------------------------------------------------------------------

    def step_s(
        self,
        decode_batch: ArrayLike,
        context_tokens: ArrayLike,
        prefill_tokens: ArrayLike = 0.0,
        prefill_attention: ArrayLike = 0.0,
        prefill_sequences: ArrayLike | None = None,
    ) -> Seconds:
        """Time of one step. [s]

        Parameters
        ----------
        decode_batch
            Decoding sequences. [sequence]
        context_tokens
            Tokens in their caches, all sequences together. [token]
        prefill_tokens
            New prompt tokens. [token]
        prefill_attention
            Sum over chunks of ``q * start + q * (q + 1) / 2``. [1]
        prefill_sequences
            Sequences that are prefilled; None: one where there are new tokens. [sequence]
        """
        step = self._step(decode_batch, context_tokens, prefill_tokens, prefill_attention, prefill_sequences)
        if self.calibration.ideal:
            return self._ideal_s(step)
        return self._with_engine_s(self.kernels_s(step), step)

    def kernels_s(self, step: Step) -> Seconds:
        """Time of a step's kernels, the engine's own left out. [s]

        Parameters
        ----------
        step
            What is computed.
        """
        total = self._once_a_token_s(step)
        decodes, prefills = bool(np.any(step.batch > 0)), bool(np.any(step.new > 0))
        for op in self.operations:
            if (op.phase == "decode" and decodes) or (op.phase == "prefill" and prefills):
                total = total + seconds(op, step, self.gpu, self._kernels)
        return total

    def decode_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> Seconds:
        """Time of one decode step of a batch at a mean context. [s]

        Parameters
        ----------
        batch
            Sequences. [sequence]
        context_tokens
            Tokens in the cache of one, on average. [token]
        """
        return self.step_s(batch, np.asarray(batch, dtype=float) * np.asarray(context_tokens, dtype=float))

    def prefill_s(self, tokens: ArrayLike, history_tokens: ArrayLike = 0.0, sequences: ArrayLike = 1.0) -> Seconds:
        """Time of one step that prefills and does nothing else. [s]

        Parameters
        ----------
        tokens
            New tokens of each sequence. [token]
        history_tokens
            Tokens of each that are in the cache already. [token]
        sequences
            Prompts of that length in the step. [sequence]
        """
        q, history, count = (np.asarray(x, dtype=float) for x in (tokens, history_tokens, sequences))
        return self.step_s(0.0, 0.0, count * q, count * (q * history + q * (q + 1.0) / 2.0), count)

    def _step(self, batch: ArrayLike, context: ArrayLike, new: ArrayLike, pairs: ArrayLike,
              sequences: ArrayLike | None) -> Step:  # fmt: skip
        n, c, q, a = (np.asarray(x, dtype=float) for x in (batch, context, new, pairs))
        s = (q > 0).astype(float) if sequences is None else np.where(q > 0, np.maximum(sequences, 1e-9), 0.0)
        return Step(tokens=n + q, rows=n + s, batch=n, context=c, new=q, pairs=a, sequences=s)

    def _once_a_token_s(self, step: Step) -> Seconds:
        """Parts that depend on the number of tokens, and of rows, alone, between knots. [s]

        Constants with draws are asked for few sizes, so they go without knots.
        """
        if self._drawn and step.tokens.size < FEW:
            return self.linear_s(step.tokens) + self.head_s(step.rows)
        knots, linear, head = self._knots
        return between(step.tokens, knots, linear) + between(step.rows, knots, head)

    @cached_property
    def _drawn(self) -> bool:
        """Whether constants carry draws."""
        return bool(np.ndim(self.calibration.engine_time.scale) or any(
            np.ndim(getattr(constants, "scale", 0.0)) for constants in self.calibration.families.values()
        ))  # fmt: skip

    @cached_property
    def _knots(self) -> tuple[Seconds, Seconds, Seconds]:
        """Numbers of tokens, and the time of both parts at them, computed once."""
        edges = np.concatenate([64.0 * np.arange(1, 9), 256.0 * np.arange(3, 17)])
        even = [np.arange(1.0, 17.0), np.round(np.geomspace(17.0, 65536.0, 140))]
        knots = np.unique(np.concatenate([*even, edges, edges + 1.0]))
        return knots, self.linear_s(knots), self.head_s(knots)

    def linear_s(self, tokens: ArrayLike) -> Seconds:
        """Time of everything that depends on the tokens of a step alone. [s]

        Parameters
        ----------
        tokens
            Decode and prefill together. [token]
        """
        return self._phase_s("tokens", np.asarray(tokens, dtype=float))

    def head_s(self, rows: ArrayLike) -> Seconds:
        """Time of the head and of sampling. [s]

        Parameters
        ----------
        rows
            Positions whose logits are computed. [token]
        """
        return self._phase_s("rows", np.asarray(rows, dtype=float))

    def _phase_s(self, phase: str, size: Seconds) -> Seconds:
        zero, some = np.zeros_like(size), np.where(size > 0, size, 1.0)
        step = Step(tokens=some, rows=some, batch=zero, context=zero, new=zero, pairs=zero, sequences=zero)
        total: Seconds = zero
        for op in self.operations:
            if op.phase == phase:
                total = total + seconds(op, step, self.gpu, self._kernels)
        return np.where(size > 0, total, 0.0)

    def _with_engine_s(self, kernels_s: Seconds, step: Step) -> Seconds:
        engine = self.engine
        if self.launch_s:
            kernels_s = self._eager_s(kernels_s, step)
        mine = step.batch / self._schedulers
        own = engine.step_s + engine.sequence_s * mine + engine.prefill_token_s * step.new
        whole = side_by_side(engine.scale * kernels_s + own, engine.host_step_s + engine.host_sequence_s * mine)
        return np.where(step.tokens > 0, whole + np.where(step.new > 0, engine.prefill_step_s, 0.0), 0.0)

    @property
    def _schedulers(self) -> int:
        """Ranks of data-parallel attention, each of which schedules and streams its own sequences."""
        return self.deployment.parallelism.dp

    def _eager_s(self, kernels_s: Seconds, step: Step) -> Seconds:
        """Kernels launched one by one, a cache copied as it grows, scores written out after a history. [s]

        A chunk that has a history gets an explicit mask, and with it a kernel that writes every score: some
        eight passes over two bytes for each query head and pair.
        """
        bandwidth = 0.75 * self.gpu.memory_bandwidth_bytes_per_s
        copied = self.cache_copies * 2.0 * step.context * self._cache_bytes_per_token
        each = step.new / np.maximum(step.sequences, 1.0)
        history = np.maximum(step.pairs / np.maximum(step.new, 1.0) - each / 2.0, 0.0)
        masked = np.where(history > 1.0, step.pairs, 0.0)
        scores = sum(op.count * op.heads for op in self.operations if op.family == "attention_prefill") * 16.0
        launched = np.maximum(kernels_s, self._launches * self.launch_s)
        return launched + (copied + masked * scores) / bandwidth

    @cached_property
    def _launches(self) -> float:
        return float(launches(self.deployment.model))

    @cached_property
    def _cache_bytes_per_token(self) -> float:
        return self.deployment.model.kv_bytes_per_token(self.deployment.formats.kv, self.deployment.parallelism.tp)

    # -- rooflines ----------------------------------------------------------------------------------------

    def _roofline(self, step: Step) -> tuple[Seconds, Seconds]:
        """Time of all traffic and of all operations at peak rates. [s], [s]"""
        memory, compute = np.zeros_like(step.tokens), np.zeros_like(step.tokens)
        for op in self.operations:
            moved, flops, peak = work(op, step, self.gpu)
            memory = memory + moved / self.gpu.memory_bandwidth_bytes_per_s
            compute = compute + flops / peak
        return memory, compute

    def _ideal_s(self, step: Step) -> Seconds:
        gemm = self.calibration.gemm("bf16")
        memory, compute = self._roofline(step)
        exchange = sum(
            (seconds(op, step, self.gpu, self.calibration) for op in self.operations if op.gpus > 1),
            np.zeros(()),
        )
        return np.maximum(memory / gemm.memory_fraction, compute / gemm.compute_fraction) + exchange

    def floor_s(self, decode_batch: ArrayLike, context_tokens: ArrayLike, prefill_tokens: ArrayLike = 0.0,
                prefill_attention: ArrayLike = 0.0, prefill_sequences: ArrayLike | None = None) -> Seconds:  # fmt: skip
        """Least time of a step at the peaks of the data sheet; arguments as :meth:`step_s`. [s]"""
        step = self._step(decode_batch, context_tokens, prefill_tokens, prefill_attention, prefill_sequences)
        return np.maximum(*self._roofline(step))

    def compute_floor_s(self, tokens: float, pairs: float) -> float:
        """Least time of the operations of new tokens at the data sheet's peak, all traffic left out. [s]

        Parameters
        ----------
        tokens, pairs
            New tokens, and the pairs they attend to. [token], [1]
        """
        return float(self._roofline(self._step(0.0, 0.0, tokens, pairs, 0.0))[1])

    def moved_bytes(self, decode_batch: float, context_tokens: float, prefill_tokens: float = 0.0,
                    prefill_attention: float = 0.0) -> float:  # fmt: skip
        """Bytes that one GPU reads and writes in a step; arguments as :meth:`step_s`. [byte]"""
        step = self._step(decode_batch, context_tokens, prefill_tokens, prefill_attention, None)
        return float(sum(np.sum(work(op, step, self.gpu)[0]) for op in self.operations))

    def flops(self, decode_batch: float, context_tokens: float, prefill_tokens: float = 0.0,
              prefill_attention: float = 0.0) -> float:  # fmt: skip
        """Operations of one GPU in a step; arguments as :meth:`step_s`. [flop]"""
        step = self._step(decode_batch, context_tokens, prefill_tokens, prefill_attention, None)
        return float(sum(np.sum(work(op, step, self.gpu)[1]) for op in self.operations))

    # -- explanations -------------------------------------------------------------------------------------

    def breakdown(self, decode_batch: float, context_tokens: float, prefill_tokens: float = 0.0,
                  prefill_attention: float = 0.0, prefill_sequences: float | None = None,
                  ) -> list[tuple[str, float, str]]:  # fmt: skip
        """Each operation of a step with its time and what bounds it, longest first.

        Returns
        -------
        list
            Name, seconds, and ``memory``, ``compute``, ``latency``, ``links`` or ``engine``.
        """
        step = self._step(decode_batch, context_tokens, prefill_tokens, prefill_attention, prefill_sequences)
        found = []
        for op in self.operations:
            time_s = float(np.mean(seconds(op, step, self.gpu, self._kernels)))
            if time_s > 0:
                found.append((op.name, time_s, self._bound_of(op, step, time_s)))
        kernels = sum(time_s for _, time_s, _ in found)
        whole = float(np.mean(self._with_engine_s(np.asarray(kernels), step)))
        if whole > kernels and not self.calibration.ideal:
            found.append(("engine", whole - kernels, "engine"))
        return sorted(found, key=lambda item: -item[1])

    def _bound_of(self, op: Operation, step: Step, time_s: float) -> str:
        if op.family in ("all_reduce", "all_gather", "all_to_all", "point_to_point"):
            return "links"
        moved, flops, peak = (float(x) for x in work(op, step, self.gpu))
        memory_s, compute_s = moved / self.gpu.memory_bandwidth_bytes_per_s, flops / peak
        if max(memory_s, compute_s) < 0.3 * time_s:
            return "latency"
        return "memory" if memory_s >= compute_s else "compute"

    def bound(self, decode_batch: float, context_tokens: float, prefill_tokens: float = 0.0,
              prefill_attention: float = 0.0) -> str:  # fmt: skip
        """What most of a step's time is bound by: memory, compute, latency, links or engine."""
        total: dict[str, float] = {}
        for _, time_s, bound in self.breakdown(decode_batch, context_tokens, prefill_tokens, prefill_attention):
            total[bound] = total.get(bound, 0.0) + time_s
        return max(total, key=lambda name: total[name]) if total else "nothing"

    # -- tables -------------------------------------------------------------------------------------------

    def table(self, max_tokens: float = 16384, max_batch: float = 512, max_context: float = 32768) -> StepTable:
        """The model as arrays, for compiled loops.

        Parameters
        ----------
        max_tokens
            Largest token budget of a step. [token]
        max_batch
            Most decoding sequences. [sequence]
        max_context
            Longest context. [token]
        """
        tokens = even_knots(max(max_tokens, max_batch) + max_batch, 97)
        batch, context = even_knots(max_batch, 33), even_knots(max_context, 33)
        new, attended = even_knots(max_tokens, 33), even_knots(max_context, 33)
        head, slope = self._head_line(max_batch)
        engine = self.engine
        none = np.zeros(())
        linear = np.where(tokens > 0, self._linear_for_table(tokens) + head, 0.0)
        b, c = (x.ravel() for x in np.meshgrid(batch, context, indexing="ij"))
        decode = self._attention_s("decode", self._step(b, b * c, none, none, none))
        q, a = (x.ravel() for x in np.meshgrid(new, attended, indexing="ij"))
        prefill = self._attention_s("prefill", self._step(none, none, q, q * a, None))
        scale = middle(engine.scale)
        prefill = prefill + middle(engine.prefill_token_s) * q / scale
        return StepTable(
            tokens=tokens, linear_s=scale * linear, decode_batch=batch, decode_context=context,
            decode_attention_s=scale * decode.reshape(len(batch), len(context)), prefill_tokens=new,
            prefill_context=attended, prefill_attention_s=scale * prefill.reshape(len(new), len(attended)),
            step_s=middle(engine.step_s), sequence_s=middle(engine.sequence_s) / self._schedulers + scale * slope,
            prefill_step_s=middle(engine.prefill_step_s), prefill_sequence_s=scale * slope,
            host_step_s=middle(engine.host_step_s),
            host_sequence_s=middle(engine.host_sequence_s) / self._schedulers,
            request_s=middle(engine.first_token_s), first_token_steps=middle(engine.first_token_steps),
        )  # fmt: skip

    def _linear_for_table(self, tokens: Seconds) -> Seconds:
        if not self.calibration.ideal:
            return self.linear_s(tokens)
        zero = np.zeros_like(tokens)
        return self._ideal_s(
            Step(tokens=tokens, rows=zero, batch=zero, context=zero, new=zero, pairs=zero, sequences=zero)
        )

    def _head_line(self, max_batch: float) -> tuple[float, float]:
        """Head as a constant and a slope per row. [s], [s]"""
        if self.calibration.ideal:
            rows = np.array([1.0, max(max_batch, 2.0)])
            zero = np.zeros_like(rows)
            ends = self._ideal_s(
                Step(tokens=zero, rows=rows, batch=zero, context=zero, new=zero, pairs=zero, sequences=zero)
            )
        else:
            ends = self.head_s(np.array([1.0, max(max_batch, 2.0)]))
        slope = float(max(ends[1] - ends[0], 0.0) / (max(max_batch, 2.0) - 1.0))
        return float(ends[0]), slope

    def _attention_s(self, phase: str, step: Step) -> Seconds:
        if self.calibration.ideal:
            return self._ideal_s(replace(step, tokens=np.zeros_like(step.tokens), rows=np.zeros_like(step.rows)))
        total: Seconds = np.zeros_like(step.tokens)
        for op in self.operations:
            if op.phase == phase:
                total = total + seconds(op, step, self.gpu, self._kernels)
        return total


def step_model(deployment: Deployment, calibration: Calibration) -> StepModel:
    """Step times of a deployment under a calibration.

    Parameters
    ----------
    deployment
        Model, GPU, layout, formats, engine.
    calibration
        Efficiency constants; arrays of draws give results with the draw axis first (arguments then have at
        most one axis). One without an engine's own time gets that of the deployment's engine.
    """
    timing = engine_timing(deployment.settings.engine)
    own = calibration.engine_time
    if not any(np.any(np.asarray(x) > 0.0) for x in (own.step_s, own.host_step_s, own.first_token_s)):
        calibration = with_engine(calibration, timing)
    eager = not calibration.ideal
    return StepModel(
        deployment=deployment,
        calibration=calibration,
        operations=operations(deployment),
        launch_s=timing.values.get("launch_s", 0.0) if eager else 0.0,
        cache_copies=timing.values.get("cache_copies", 0.0) if eager else 0.0,
    )
