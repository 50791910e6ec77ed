"""Corollary 1 over the rounds that a server lets happen, and Corollary 2 with several lists in a round."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from analysis.bounds.lotto import secagg_fails, selection_probability
from analysis.bounds.lotto_rounds import (
    BrokenRounds,
    Training,
    candidates_at_most,
    cost_with_lotto,
    cost_with_parallel_lists,
    repeated,
    repeated_by_any,
)
from testbed.crypto.sortition import under_threshold
from testbed.crypto.vrf import SecretKey
from testbed.privacy.accounting import Skellam
from testbed.selection.lotto.messages import selection_input

SETTING = (8, 6, 1.5, 40, 5)  # c, s, a, n_min, t
ENOUGH = 4


def simulated(rounds: int, times: int, seed: int) -> npt.NDArray[np.bool_]:
    """`(times, rounds)`: which numbers are broken, drawn client by client as the protocol does (but uniformly)."""
    dishonest, participants, over_selection, population, _ = SETTING
    p = float(selection_probability(participants, over_selection, population))
    draws = np.random.default_rng(seed).random((times, rounds, dishonest))
    found: npt.NDArray[np.bool_] = (draws < p).sum(axis=2) >= ENOUGH
    return found


def most_broken(broken: npt.NDArray[np.bool_], announced: int, gap: int) -> int:
    """The most broken rounds among `announced` ones, for a server that knows them all; by trying every way."""
    best = {0: 0}
    for _ in range(announced):
        after: dict[int, int] = {}
        for last, count in best.items():
            for number in range(last + 1, min(last + gap, len(broken)) + 1):
                after[number] = max(after.get(number, 0), count + int(broken[number - 1]))
        best = after or best
    return max(best.values())


@pytest.mark.parametrize("gap", [1, 2, 5])
@pytest.mark.parametrize("announced", [1, 4])
def test_no_server_exceeds_the_bound_and_the_best_one_attains_it(gap: int, announced: int) -> None:
    rounds, times = 12, 4000
    bound = BrokenRounds(*SETTING, rounds, gap)
    cases = simulated(rounds, times, 7)
    best = np.array([most_broken(case, announced, gap) for case in cases])
    assert (best <= cases[:, : bound.reached(announced)].sum(axis=1)).all()  # case by case
    low, high = stats.binomtest(int((best > 0).sum()), times).proportion_ci(0.9999)
    assert low <= bound.some_of(bound.reached(announced)) <= high
    assert best.mean() / announced <= bound.share * 1.15 + 1e-9


def test_without_a_gap_the_first_round_is_the_best_of_all() -> None:
    rounds, times = 40, 3000
    bound = BrokenRounds(*SETTING, rounds, None)
    found = int(simulated(rounds, times, 8).any(axis=1).sum())
    low, high = stats.binomtest(found, times).proportion_ci(0.9999)
    assert low <= bound.some_of(bound.reached(1)) <= high
    assert bound.some_of(bound.reached(1)) == bound.some_of(rounds)
    assert bound.share == 1.0
    chance = secagg_fails(*SETTING)
    assert bound.chance == chance
    assert bound.expected == rounds * chance


@pytest.mark.parametrize("gap", [1, 3])
def test_with_a_beacon_the_next_round_does_not_depend_on_earlier_rounds(gap: int) -> None:
    """Looking at one number after the other, a server takes the first broken one, else the last that it may."""
    rounds, times, announced = 12, 4000, 4
    bound = BrokenRounds(*SETTING, rounds, gap)
    outcomes: list[list[bool]] = [[] for _ in range(announced)]
    for case in simulated(rounds, times, 9):
        last = 0
        for of in outcomes:
            looked = range(last + 1, last + gap + 1)
            last = next((number for number in looked if case[number - 1]), looked[-1])
            of.append(bool(case[last - 1]))
    for of in outcomes:
        low, high = stats.binomtest(sum(of), times).proportion_ci(0.9999)
        assert low <= bound.some_of(gap) <= high


def test_real_lots() -> None:
    """The same with VRF outputs of real keys, and a server that skips to the first broken round."""
    dishonest, participants, over_selection, population, threshold = SETTING
    keys = [SecretKey.from_seed(bytes([number]) * 32) for number in range(dishonest)]
    rounds, broken = 400, []
    for number in range(1, rounds + 1):
        outputs = [key.output(selection_input(bytes(16), number)) for key in keys]
        standing = sum(under_threshold(output, Fraction(3, 2), participants, population) for output in outputs)
        broken.append(standing >= ENOUGH)
    low, high = stats.binomtest(sum(broken), rounds).proportion_ci(0.9999)
    assert low <= secagg_fails(dishonest, participants, over_selection, population, threshold) <= high


def test_arguments_out_of_range_are_refused() -> None:
    for rounds, gap, name in ((0, 1, "rounds"), (5, 0, "round_gap")):
        with pytest.raises(ValueError, match=name):
            BrokenRounds(*SETTING, rounds, gap)
    assert BrokenRounds(*SETTING, 5, 9).reached(1) == 5


def test_logarithms_where_no_double_is_left() -> None:
    tiny = BrokenRounds(10**5, 1000, 1.3, 10**9, 1000, 3000, None)
    assert tiny.some_of(3000) == 0.0
    assert tiny.log10_some_of(3000) == pytest.approx(tiny.log10_some_of(1) + np.log10(3000))
    assert BrokenRounds(0, 10, 1.3, 100, 7, 5, 1).log10_some_of(5) == -np.inf


# -- several lists --------------------------------------------------------------------------------------------------


def training(population: int = 2000, rounds: int = 50) -> Training:
    return Training(20, 100, 1.3, population, 0.7, rounds, 1 / population, Skellam(6.27, 2**20, 2.0**15))


def test_more_clients_that_could_be_the_victim_cost_more_and_no_more_than_all() -> None:
    one = training()
    plain, several = cost_with_lotto(one, "client-centric"), cost_with_parallel_lists(one, 2000)
    everybody = cost_with_lotto(one, "client-centric", lambda r: repeated_by_any(2000, r, one.rounds, one.p))
    assert plain.epsilon < several.epsilon <= everybody.epsilon
    assert several.p_k + several.q_r < one.delta
    assert several.q_r > repeated(one, "client-centric", several.rounds or 0)


def test_rounds_with_more_candidates_are_allowed_for() -> None:
    one = training()
    most, beyond = candidates_at_most(one, 2000)
    assert one.participants < most < 2000
    tail = stats.binom.sf(most, 2000, float(one.p))
    assert beyond == pytest.approx(1 - (1 - tail) ** one.rounds, rel=1e-6)
    assert beyond <= one.delta / 1000 < 1 - (1 - stats.binom.sf(most - 1, 2000, float(one.p))) ** one.rounds


def test_a_server_that_keeps_everybody_stays_within_it() -> None:
    """The victim is the most frequent candidate so far, all that the server can know when lots come one by one."""
    population, participants, rounds, times, r = 60, 6, 12, 3000, 5
    one = Training(4, participants, 1.5, population, 0.7, rounds, 0.01, Skellam(6.27, 100, 2.0**15))
    most, beyond = candidates_at_most(one, population)
    draws = np.random.default_rng(3).random((times, rounds, population)) < float(one.p)
    counted = draws.sum(axis=1).max(axis=1) > r  # the best of all clients, in hindsight: more than any server gets
    bound = min(1.0, repeated_by_any(population, r, rounds, one.p))
    assert counted.mean() <= bound * 1.1
    assert (draws.sum(axis=2) > most).any(axis=1).mean() <= max(5 * beyond, 5 / times)
