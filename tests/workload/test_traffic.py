"""Workloads: means in closed form, sampled sessions, shared beginnings, seeds, speed."""

import time

import numpy as np
import pytest

from sizing.errors import InputError
from sizing.workload import (
    Fixed,
    Gamma,
    Lognormal,
    Pairs,
    Pauses,
    Poisson,
    Quantiles,
    Sessions,
    SharedPrefix,
    Workload,
    diurnal,
)
from sizing.workload.traffic import fixed


def test_plain_numbers_stay_plain() -> None:
    workload = Workload(request_rate_per_s=20, input_tokens=2000, output_tokens=400)
    assert (workload.input_tokens, workload.mean_input_tokens, workload.mean_output_tokens) == (2000, 2000.0, 400.0)
    assert (workload.ideal_prefix_share, workload.peak_rate_per_s, workload.mean_new_tokens) == (0.0, 20.0, 2000.0)


@pytest.mark.parametrize(
    ("system", "cached"),
    [(1000.0, 0.947368), (0.0, None)],
)
def test_a_conversation_of_five_turns(system: float, cached: float | None) -> None:
    """fleet/formulas.md 6: S=1000, u=100, a=300, K=5: 9,500 tokens in, 9,000 of them cached (.947368)."""
    prefix = SharedPrefix(tokens=system) if system else None
    workload = Workload(
        request_rate_per_s=1, input_tokens=100, output_tokens=300, sessions=Sessions(turns=5), prefix=prefix
    )
    assert workload.mean_input_tokens * 5 == pytest.approx(9500 - (0 if system else 5000), rel=1e-12)
    if cached:
        assert workload.ideal_prefix_share == pytest.approx(cached, abs=5e-7)


def test_sampled_sessions_agree_with_the_closed_form() -> None:
    workload = Workload(
        request_rate_per_s=50,
        input_tokens=Lognormal(mean_tokens=120, cv=1),
        output_tokens=Lognormal(mean_tokens=300, cv=1),
        arrivals=Gamma(cv=1.5),
        sessions=Sessions(turns=Quantiles(shares=(0.0, 0.5, 1.0), tokens=(1.0, 4.0, 12.0))),
        prefix=SharedPrefix(tokens=800, groups=20, zipf=1.0),
    )
    drawn = workload.sample(300_000, seed=4)
    assert len(drawn) == 300_000
    assert drawn.input_tokens.mean() == pytest.approx(workload.mean_input_tokens, rel=0.02)
    assert len(drawn) / drawn.arrival_s[-1] == pytest.approx(50, rel=0.03)
    assert np.all(np.diff(drawn.arrival_s) >= 0)


def test_every_turn_resends_what_went_before() -> None:
    workload = Workload(
        request_rate_per_s=5,
        input_tokens=Lognormal(mean_tokens=120, cv=1),
        output_tokens=Lognormal(mean_tokens=300, cv=1),
        sessions=Sessions(turns=6, pauses=Pauses(mean_s=(2.0, 20.0), cv=(1.0, 1.0), weights=(0.7, 0.3))),
    )
    drawn = workload.sample(5000, seed=1)
    last: dict[int, tuple[int, int]] = {}
    checked = 0
    rows = zip(drawn.session, drawn.turn, drawn.input_tokens, drawn.output_tokens, strict=True)
    for session, turn, inputs, outputs in rows:
        if session in last:
            before, held = last[session]
            assert turn == before + 1
            assert inputs > held
            checked += 1
        last[session] = (turn, inputs + outputs)
    assert checked > 3000


def test_contexts_end_conversations() -> None:
    workload = Workload(
        request_rate_per_s=5,
        input_tokens=1000,
        output_tokens=1000,
        sessions=Sessions(turns=50, most_context_tokens=10_000),
    )
    drawn = workload.sample(20_000)
    assert (drawn.input_tokens + drawn.output_tokens).max() == 10_000
    assert drawn.input_tokens.mean() == pytest.approx(workload.mean_input_tokens, rel=0.03)
    assert workload.mean_input_tokens == pytest.approx(np.mean([1000, 3000, 5000, 7000, 9000]), rel=1e-12)


def test_shared_prefixes_are_roots_and_conversations_hang_below() -> None:
    workload = Workload(
        request_rate_per_s=5,
        input_tokens=50,
        output_tokens=60,
        sessions=Sessions(turns=3),
        prefix=SharedPrefix(tokens=640, groups=7, zipf=1.0),
    )
    drawn = workload.sample(2000)
    assert drawn.chain is not None
    parents = drawn.chain_parent[drawn.chain]
    assert np.all((parents >= 0) & (parents < 7))
    assert np.all(drawn.chain_start_tokens[drawn.chain] == 640)
    assert np.array_equal(drawn.shared_tokens, drawn.input_tokens + drawn.output_tokens)
    shares = np.bincount(parents, minlength=7) / len(drawn)
    assert shares[0] == pytest.approx(workload.prefix.shares()[0], abs=0.05)


def test_a_prefix_alone_is_a_flat_chain() -> None:
    """llm-d's published shared-prefix workload: 150 prefixes of 6,000 tokens, questions of 1,200."""
    workload = Workload(
        request_rate_per_s=3, input_tokens=1200, output_tokens=100, prefix=SharedPrefix(tokens=6000, groups=150)
    )
    drawn = workload.sample(3000)
    assert workload.mean_input_tokens == 7200
    assert workload.ideal_prefix_share == pytest.approx(6000 / 7200)
    assert set(drawn.input_tokens.tolist()) == {7200}
    assert np.unique(drawn.chain).size == 150
    assert set(drawn.shared_tokens.tolist()) == {6000}


def test_correlated_lengths_keep_their_marginals() -> None:
    workload = Workload(
        request_rate_per_s=1,
        input_tokens=Lognormal(mean_tokens=1000, cv=1),
        output_tokens=Quantiles(shares=(0.0, 0.5, 1.0), tokens=(10.0, 100.0, 400.0)),
        correlation=0.6,
    )
    drawn = workload.sample(200_000)
    from sizing.workload.statistics import rank_correlation

    # Spearman of a normal pair: (6/pi) asin(rho/2)
    expected = 6 / np.pi * np.arcsin(0.3)
    assert rank_correlation(drawn.input_tokens, drawn.output_tokens) == pytest.approx(expected, abs=0.01)
    assert drawn.input_tokens.mean() == pytest.approx(workload.mean_input_tokens, rel=0.01)
    assert drawn.output_tokens.mean() == pytest.approx(workload.mean_output_tokens, rel=0.01)


def test_measured_pairs_stay_together() -> None:
    pairs = Pairs.of([10, 1000], [7, 70])
    first, second = pairs.marginals()
    workload = Workload(request_rate_per_s=1, input_tokens=first, output_tokens=second, pairs=pairs)
    drawn = workload.sample(1000)
    assert np.array_equal(drawn.output_tokens == 70, drawn.input_tokens == 1000)


def test_one_quantity_changes_and_the_others_stay() -> None:
    a = Workload(request_rate_per_s=5, input_tokens=Lognormal(mean_tokens=100, cv=1), output_tokens=50)
    b = Workload(request_rate_per_s=5, input_tokens=7, output_tokens=Lognormal(mean_tokens=9, cv=1))
    assert np.array_equal(a.sample(1000, 3).arrival_s, b.sample(1000, 3).arrival_s)
    assert not np.array_equal(a.sample(1000, 3).arrival_s, a.sample(1000, 4).arrival_s)


def test_the_sample_is_the_same_on_every_machine() -> None:
    """First values of seed 0, by numpy's PCG64 and SeedSequence.spawn; a change of theirs must be seen."""
    workload = Workload(
        request_rate_per_s=20,
        input_tokens=Lognormal(mean_tokens=2000, cv=1, most_tokens=16_000),
        output_tokens=Lognormal(mean_tokens=400, cv=1, most_tokens=4_000),
        arrivals=Gamma(cv=2),
    )
    streams = np.random.SeedSequence(0).spawn(6)
    by_hand = np.random.Generator(np.random.PCG64(streams[1])).standard_normal(5)
    expected = np.rint(np.clip(np.exp(np.log(2000) - np.log(2) / 2 + np.sqrt(np.log(2)) * by_hand), 1, 16_000))
    assert workload.sample(5).input_tokens.tolist() == expected.tolist()


def test_a_duration_has_its_requests() -> None:
    workload = Workload(request_rate_per_s=20, input_tokens=10, output_tokens=10, arrivals=Gamma(cv=3))
    drawn = workload.sample_for(600.0, seed=2)
    assert drawn.arrival_s[-1] < 600
    assert len(drawn) == pytest.approx(12_000, rel=0.15)


def test_the_peak_of_a_profile_is_a_steady_rate() -> None:
    workload = Workload(request_rate_per_s=10, input_tokens=10, output_tokens=10, arrivals=diurnal(0.5, cv=2))
    peak = workload.at_peak()
    assert peak.request_rate_per_s == pytest.approx(15, rel=1e-3)
    assert peak.arrivals == Gamma(cv=2)
    assert workload.at_rate(3).request_rate_per_s == 3


def test_averages_alone() -> None:
    workload = Workload(
        request_rate_per_s=10,
        input_tokens=100,
        output_tokens=300,
        sessions=Sessions(turns=5),
        prefix=SharedPrefix(tokens=1000),
    )
    plain = fixed(workload)
    assert plain.input_tokens == Fixed(tokens=1900)
    assert plain.mean_new_tokens == pytest.approx(100)


def test_a_day_of_requests_is_drawn_in_well_under_a_second() -> None:
    workload = Workload(
        request_rate_per_s=20,
        input_tokens=Lognormal(mean_tokens=2000, cv=1, most_tokens=16_000),
        output_tokens=Lognormal(mean_tokens=400, cv=1, most_tokens=4_000),
        arrivals=Gamma(cv=2),
    )
    begun = time.process_time()
    drawn = workload.sample(1_728_000)
    assert time.process_time() - begun < 1.5  # 0.4 s on an idle core
    assert drawn.arrival_s[-1] == pytest.approx(86_400, rel=0.01)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"request_rate_per_s": 0}, "request_rate_per_s"),
        ({"request_rate_per_s": float("nan")}, "request_rate_per_s"),
        ({"input_tokens": -1}, "tokens"),
        ({"input_tokens": 0}, "input_tokens"),
        ({"input_tokens": "many"}, "input_tokens"),
        ({"output_tokens": float("inf")}, "output_tokens"),
        ({"correlation": 1.0}, "correlation"),
        ({"prefix_hit_share": 1.5}, "prefix_hit_share"),
    ],
)
def test_impossible_traffic_is_refused(change: dict, names: str) -> None:
    fields = {"request_rate_per_s": 1, "input_tokens": 10, "output_tokens": 10, "arrivals": Poisson(), **change}
    with pytest.raises(InputError, match=names):
        Workload(**fields)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "a"])
def test_seeds_are_whole_numbers(seed: object) -> None:
    with pytest.raises(InputError, match="seed"):
        Workload(request_rate_per_s=1, input_tokens=10, output_tokens=10).sample(3, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Sessions(turns=0.5), "turns"),
        (lambda: Sessions(turns=3, most_context_tokens=0), "most_context_tokens"),
        (lambda: Pauses(mean_s=(1.0, 2.0)), "weights"),
        (lambda: Pauses(mean_s=(-1.0,)), "mean_s"),
        (lambda: SharedPrefix(tokens=10, groups=0), "groups"),
        (lambda: SharedPrefix(tokens=10, zipf=-1), "zipf"),
    ],
)
def test_impossible_sharing_is_refused(make, names: str) -> None:
    with pytest.raises(InputError, match=names):
        make()


def test_a_workload_of_pairs_has_their_distributions() -> None:
    pairs = Pairs.of([10, 1000], [1000, 10])
    workload = Workload(request_rate_per_s=1, input_tokens=1, output_tokens=1, pairs=pairs)
    assert (workload.mean_input_tokens, workload.mean_output_tokens) == (505, 505)
    drawn = workload.sample(1000, 0)
    assert set(zip(drawn.input_tokens.tolist(), drawn.output_tokens.tolist(), strict=True)) == {(10, 1000), (1000, 10)}
