"""Oort: utilities against a slow oracle, exploration and exploitation, the pacer, and a round over the network."""

import itertools
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from testbed.errors import RoundSkipped
from testbed.selection.contract import TrainingReports
from testbed.selection.oort import OortParameters, OortSelection, draw_by_weight

DRAWS = 3000
SUSPICIOUS = 1e-4


class Round:
    """Replaces a round where only number, memory and coins are read."""

    def __init__(self, number: int = 1, memory: dict[str, Any] | None = None, seed: int = 11) -> None:
        self.number = number
        self.memory = {} if memory is None else memory
        self._seed = seed

    def rng(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self._seed, self.number, *purpose.encode()])


def check_in_answers(clients: Any, latency_s: Any = 1.0) -> Any:
    """Return answers to the check-in."""
    ids = np.asarray(clients, np.int64)
    return SimpleNamespace(ids=ids, latency_s=np.broadcast_to(np.asarray(latency_s, np.float64), ids.shape))


def reports(
    clients: list[int], quality: Any, latency_s: Any, unheard: tuple[int, ...] = (), waited_s: float = 9.0
) -> TrainingReports:
    """Return reports with these qualities, each of one sample."""
    ids = np.array(clients, np.int64)
    loss = np.broadcast_to(np.asarray(quality, np.float64), ids.shape)
    times = np.broadcast_to(np.asarray(latency_s, np.float64), ids.shape)
    return TrainingReports(
        ids, np.ones(len(ids), np.int64), loss, loss**2, times, np.array(unheard, np.int64), waited_s
    )


def oort(population: int, participants: int = 10, **keys: Any) -> OortSelection:
    return OortSelection(OortParameters(participants=participants, **keys), population)


def after(protocol: OortSelection, number: int, *told: tuple[int, TrainingReports]) -> Round:
    """Return round `number` of a protocol that has received these reports, each in its round."""
    memory: dict[str, Any] = {}
    for when, what in told:
        protocol.learn(Round(when, memory), what)
    return Round(number, memory)


# -- utility ------------------------------------------------------------------------------------------------------


def slow_scores(
    parameters: OortParameters, now: int, seen: dict[int, tuple[float, float, int]], among: list[int]
) -> dict[int, float]:
    """Return the oracle's scores, client by client, from (quality, seconds, last round)."""
    times = sorted(seconds for _, seconds, _ in seen.values())
    preferred = math.inf
    if parameters.round_threshold < 100:
        preferred = times[min(int(len(times) * parameters.round_threshold / 100), len(times) - 1)]
    qualities = sorted(seen[client][0] for client in among)
    clipped_at = qualities[min(int(len(qualities) * parameters.clip), len(qualities) - 1)]
    lowest = qualities[0] * 0.999
    range_ = max(qualities[-1] - lowest, 1e-4)
    scores = {}
    for client in among:
        quality, seconds, last = seen[client]
        score = (min(quality, clipped_at) - lowest) / range_ + math.sqrt(0.1 * math.log(now) / last)
        if seconds > preferred:
            score *= (preferred / max(1e-4, seconds)) ** parameters.penalty
        scores[client] = score
    return scores


seen_clients = st.dictionaries(
    st.integers(0, 29),
    st.tuples(st.floats(0, 1e4), st.floats(1e-3, 1e3), st.integers(1, 8)),
    min_size=1,
    max_size=30,
)


@given(seen_clients, st.integers(1, 30), st.sampled_from([10.0, 30.0, 100.0]), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_scores_equal_the_oracles(seen: dict, present: int, threshold: float, clip: float) -> None:
    protocol = oort(30, round_threshold=threshold, clip=clip)
    told = [(last, reports([client], [quality], [seconds])) for client, (quality, seconds, last) in seen.items()]
    round_ = after(protocol, 9, *told)
    among = sorted(seen)[:present]
    found = protocol.scores(np.array(among), round_)
    qualities = {client: math.sqrt(quality**2) for client, (quality, _, _) in seen.items()}
    exact = {client: (qualities[client], *rest) for client, (_, *rest) in seen.items()}
    expected = slow_scores(protocol.parameters, 9, exact, among)
    assert found.tolist() == pytest.approx(list(expected.values()), rel=1e-9, abs=1e-9)
    assert (found >= 0).all()


def test_staleness_raises_a_score() -> None:
    protocol = oort(4)
    round_ = after(protocol, 50, (2, reports([0], 5.0, 1.0)), (40, reports([1, 2], 5.0, 1.0)))
    scores = protocol.scores(np.array([0, 1, 2]), round_)
    assert scores[0] - scores[1] == pytest.approx(
        math.sqrt(0.1 * math.log(50) / 2) - math.sqrt(0.1 * math.log(50) / 40)
    )
    assert scores[1] == scores[2]


# -- choice of participants -----------------------------------------------------------------------------------------


def test_exploration_decays_to_its_minimum() -> None:
    protocol = oort(10)
    assert protocol.exploration(1) == pytest.approx(0.9 * 0.98)
    assert protocol.exploration(10) == pytest.approx(0.9 * 0.98**10)
    assert protocol.exploration(1000) == 0.3


@pytest.mark.parametrize(("trained", "explored"), [(0, 10), (3, 8), (30, 8), (95, 5), (100, 0)])
def test_a_round_always_has_k_participants(trained: int, explored: int) -> None:
    """In round 1 epsilon K = 8.8 are explored: more if too few clients have trained, fewer if too few have not."""
    protocol = oort(100)
    round_ = after(protocol, 1)
    if trained:
        round_ = after(protocol, 1, (1, reports(list(range(trained)), 1.0, 1.0)))
    chosen = protocol.choose(check_in_answers(range(100)), round_)
    assert len(set(chosen.tolist())) == 10
    assert chosen.tolist() == sorted(chosen.tolist())
    assert (chosen >= trained).sum() == explored
    assert set(round_.memory["exploited"].tolist()) == {client for client in chosen.tolist() if client < trained}


def test_too_few_available_clients_skip_the_round() -> None:
    with pytest.raises(RoundSkipped, match="9 available, 10 wanted"):
        oort(100).choose(check_in_answers(range(9)), Round())


def test_exploitation_prefers_high_utility_and_respects_the_cut_off() -> None:
    """Of 100 clients, 30 have high utility and 70 none: with a cut-off of one half, only the 30 are drawn."""
    quality = np.where(np.arange(100) < 30, 100.0, 0.1)
    taken = Counter[int]()
    for seed in range(200):
        protocol = oort(100, participants=2, exploration=0.0, exploration_minimum=0.0, cut_off=0.5)
        round_ = after(protocol, 2, (1, reports(list(range(100)), quality, 1.0)))
        round_._seed = seed
        taken.update(protocol.choose(check_in_answers(range(100)), round_).tolist())
    assert set(taken) <= set(range(30))
    assert len(taken) == 30
    assert chisquare(list(taken.values())).pvalue > SUSPICIOUS


def test_slow_clients_are_avoided() -> None:
    times = np.where(np.arange(100) % 2, 10.0, 1.0)
    taken = Counter[int]()
    for seed in range(100):
        protocol = oort(100, participants=10, exploration=0.0, exploration_minimum=0.0)
        round_ = after(protocol, 2, (1, reports(list(range(100)), np.linspace(1, 2, 100), times)))
        round_._seed = seed
        taken.update((protocol.choose(check_in_answers(range(100)), round_) % 2).tolist())
    assert taken[1] < 0.03 * taken[0]  # (T/t)^2 = 1/100


def test_weighted_draws_are_sequential() -> None:
    """The probability of each ordered pair, summed over the orders: w_i/W * w_j/(W - w_i)."""
    weights = np.array([1.0, 2.0, 3.0, 6.0])
    rng = np.random.default_rng(5)
    found = Counter(frozenset(draw_by_weight(np.arange(4), weights, 2, rng).tolist()) for _ in range(DRAWS))
    pairs = [frozenset(pair) for pair in itertools.combinations(range(4), 2)]
    expected = []
    for first, second in pairs:
        a, b, whole = weights[first], weights[second], weights.sum()
        expected.append(DRAWS * (a / whole * b / (whole - a) + b / whole * a / (whole - b)))
    assert chisquare([found[pair] for pair in pairs], expected).pvalue > SUSPICIOUS


def test_a_zero_score_is_drawn_last() -> None:
    weights = np.array([0.0, 1e-3, 0.0, 5.0])
    for seed in range(50):
        drawn = draw_by_weight(np.arange(4), weights, 3, np.random.default_rng(seed)).tolist()
        assert {1, 3} < set(drawn)


def test_unexplored_clients_are_drawn_uniformly_or_by_check_in_speed() -> None:
    answered_s = np.where(np.arange(60) < 20, 0.1, 5.0)
    uniform, fast = Counter[int](), Counter[int]()
    for seed in range(300):
        for keys, taken in (({}, uniform), ({"unexplored": "check-in"}, fast)):
            round_ = Round(seed=seed)
            chosen = oort(60, participants=4, **keys).choose(check_in_answers(range(60), answered_s), round_)
            taken.update(chosen.tolist())
    assert chisquare([uniform[client] for client in range(60)]).pvalue > SUSPICIOUS
    assert set(fast) == set(range(20))  # the window of 5 * 4 clients is filled by them


def test_the_blacklist_is_off_by_default_and_leaves_enough_clients() -> None:
    everybody, told = list(range(20)), [(number, reports([0, 1, 2], 100.0, 1.0)) for number in range(1, 6)]
    told.append((6, reports(list(range(3, 20)), 1.0, 1.0)))

    def taken(**keys: Any) -> Counter[int]:
        found = Counter[int]()
        for seed in range(100):
            protocol = oort(20, participants=5, exploration=0.0, exploration_minimum=0.0, **keys)
            round_ = after(protocol, 7, *told)
            round_._seed = seed
            found.update(protocol.choose(check_in_answers(everybody), round_).tolist())
        return found

    assert taken()[0] > 60
    assert set(taken(blacklist_rounds=4)) == set(range(3, 20))
    assert taken(blacklist_rounds=5)[0] > 60  # five times are not more than five
    # At most 2 of 20 may be left out; ties go to the smaller numbers.
    assert set(taken(blacklist_rounds=4, blacklist_share=0.1)) == set(range(2, 20))
    protocol = oort(20, participants=5, blacklist_rounds=4)
    few = protocol.choose(check_in_answers([0, 1, 2, 3, 4]), after(protocol, 7, *told))
    assert few.tolist() == [0, 1, 2, 3, 4]


# -- feedback -------------------------------------------------------------------------------------------------------


def test_a_silent_client_gets_the_mean_utility_and_the_waiting_time() -> None:
    protocol = oort(6)
    memory = after(protocol, 4, (3, reports([0, 2], [1.0, 4.0], [5.0, 7.0], unheard=(4,)))).memory
    assert memory["quality"].tolist() == pytest.approx([1.0, math.nan, 4.0, math.nan, 2.5, math.nan], nan_ok=True)
    assert memory["duration_s"].tolist() == pytest.approx([5.0, math.nan, 7.0, math.nan, 9.0, math.nan], nan_ok=True)
    assert memory["last"].tolist() == [3, 0, 3, 0, 3, 0]
    assert memory["count"].tolist() == [1, 0, 1, 0, 1, 0]


def test_a_longer_measured_time_of_a_silent_client_stays() -> None:
    told = [(1, reports([0, 1], 1.0, [5.0, 50.0])), (2, reports([2], 1.0, 1.0, unheard=(0, 1), waited_s=20.0))]
    assert after(oort(3), 3, *told).memory["duration_s"].tolist() == [20.0, 50.0, 1.0]


def test_a_round_without_answers_counts_as_tried_and_is_not_paced() -> None:
    protocol = oort(4)
    round_ = after(protocol, 2, (1, reports([0, 1], [1.0, 3.0], 1.0)))
    before = {name: array.copy() for name, array in round_.memory.items()}
    protocol.learn(round_, reports([], 0.0, 0.0, unheard=(1, 2)))
    memory = round_.memory
    assert memory["last"].tolist() == [1, 2, 2, 0]
    assert memory["count"].tolist() == [1, 2, 1, 0]
    assert memory["duration_s"].tolist() == pytest.approx([1.0, 9.0, 9.0, math.nan], nan_ok=True)
    for name in ("quality", "threshold", "learned", "history"):
        assert np.array_equal(memory[name], before[name], equal_nan=True)
    # A client without reports has the mean quality: it lies between the two others, except for its time.
    same = oort(4, penalty=0.0)
    scores = same.scores(np.array([0, 2]), Round(1, memory))
    assert scores[1] == pytest.approx((2.0 - 0.999) / (2.0 - 0.999))
    assert 0 < scores[0] < scores[1]


def test_selection_works_after_rounds_without_answers() -> None:
    protocol = oort(4, participants=2)
    told = reports([], 0.0, 0.0, unheard=(0, 1, 2, 3))
    chosen = protocol.choose(check_in_answers(range(4)), after(protocol, 2, (1, told)))
    assert len(set(chosen.tolist())) == 2


def paced(qualities: list[float], **keys: Any) -> list[float]:
    """Return the pacer's percentile after each round, if client 0 is exploited and has these qualities."""
    protocol = oort(10, pacer_step=2, **keys)
    memory: dict[str, Any] = {}
    thresholds = []
    for number, quality in enumerate(qualities, start=1):
        protocol._memory(Round(number, memory))["exploited"] = np.array([0])
        protocol.learn(Round(number, memory), reports([0, 1], [quality, 1e6], 1.0))
        thresholds.append(float(memory["threshold"]))
    return thresholds


def test_the_pacer_relaxes_when_utility_stops_growing_and_tightens_when_it_leaps() -> None:
    assert paced([1, 1, 1, 1, 1, 1]) == [30, 30, 30, 35, 35, 40]  # flat
    assert paced([9, 9, 1, 1]) == [30, 30, 30, 35]  # falls
    assert paced([1, 1, 2, 2, 4, 4]) == [30] * 6  # grows
    assert paced([1, 1, 9, 9, 99, 99]) == [30, 30, 30, 25, 25, 20]  # leaps
    assert paced([1] * 6, round_threshold=96.0)[-1] == 100
    assert paced([1, 1, 9, 9, 99, 99, 999, 999], round_threshold=9.0, pacer_delta=4.0)[-1] == 4.0
