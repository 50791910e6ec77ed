"""Privacy cost of correlated noise, against dp_accounting and whole matrices."""

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.arrays import Floats, Ids
from testbed.privacy.ledger import NoiseShares
from testbed.privacy.matrix.accounting import CorrelatedAccountant, gaussian_delta, gaussian_epsilon
from testbed.privacy.matrix.ledger import CorrelatedLedger, ServerCharge
from testbed.privacy.matrix.strategy import strategy
from testbed.privacy.noise_plan import Guarantees, NoisePlan
from tests.privacy.matrix import oracles
from tests.thoroughness import examples

_ROUNDS, _APART, _POPULATION, _DELTA = 12, 3, 6, 1e-3
_WHOLE = NoiseShares(1.0, 1.0, 0.0)


def accountant(name: str = "blt", multiplier: float = 1.5) -> CorrelatedAccountant:
    size = 2 if name == "blt" else None
    return CorrelatedAccountant(multiplier, strategy(name, size, _ROUNDS, _APART, 4), _APART, 4)


def plan(name: str = "blt", multiplier: float = 1.5) -> NoisePlan:
    return NoisePlan(accountant(name, multiplier), lambda s: Guarantees.none(s, 1.0), 2, 2, "server")


def epsilon_by_the_matrix(of: CorrelatedAccountant, rounds: tuple[int, ...]) -> float:
    """Return dp_accounting's epsilon of the change of C x by these rounds (from 0), with every sign tried."""
    if not rounds:
        return 0.0
    changed = oracles.changed(oracles.dense(of.strategy.coefficients), rounds)
    return float(get_epsilon_gaussian(of.noise_multiplier * of.sensitivity / changed, _DELTA))


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_epsilon_is_that_of_dp_accounting(delta: float) -> None:
    mu = np.array([0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 40.0])
    found = gaussian_epsilon(mu, delta)
    for one, epsilon in zip(mu, found, strict=True):
        assert float(gaussian_delta(np.array([epsilon]), np.array([one]))[0]) <= delta * (1 + 1e-9)
        assert epsilon == pytest.approx(get_epsilon_gaussian(1 / one, delta), rel=1e-6, abs=1e-9)


def test_no_change_costs_nothing_and_no_noise_everything() -> None:
    assert gaussian_epsilon(np.array([0.0, np.inf]), 1e-3).tolist() == [0.0, np.inf]
    with pytest.raises(ValueError, match=r"delta: 1\.0"):
        gaussian_epsilon(np.array([1.0]), 1.0)


@pytest.mark.parametrize("name", ["blt", "band", "identity", "prefix-sum"])
@given(
    sets=st.lists(st.sets(st.integers(0, _POPULATION - 1)), max_size=_ROUNDS),
    skipped=st.sets(st.integers(1, _ROUNDS)),
)
@settings(max_examples=examples(15))
def test_the_ledger_matches_the_whole_matrix(name: str, sets: list[set[int]], skipped: set[int]) -> None:
    """Rounds closer than planned are accounted as they happened, not as promised."""
    ledger, again = (CorrelatedLedger(plan(name), _POPULATION, _DELTA) for _ in range(2))
    recorded: list[tuple[int, dict[str, np.ndarray]]] = []
    had: dict[int, tuple[int, ...]] = dict.fromkeys(range(_POPULATION), ())
    rows: list[tuple[float, float]] = []
    for number, who in enumerate(sets, 1):
        if number in skipped:
            assert not len(ledger.spend({}, number)["client"])
            continue
        columns = ledger.spend({_WHOLE: np.array(sorted(who), np.int64)}, number)
        recorded.append((number, columns))
        for place, client in enumerate(columns["client"].tolist()):
            had[client] += (number - 1,)
            rows.append((float(columns["epsilon"][place]), epsilon_by_the_matrix(accountant(name), had[client])))
            assert columns["colluding_epsilon"][place] == np.inf
    for found, expected in rows:
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    replayed = [{"round": np.full(len(c["client"]), number), **c} for number, c in recorded if len(c["client"])]
    again.replay(replayed)
    assert [again.of(client) for client in range(_POPULATION)] == [ledger.of(client) for client in range(_POPULATION)]


@pytest.mark.parametrize("name", ["blt", "band", "identity", "prefix-sum"])
def test_no_allowed_rounds_cost_more_than_was_planned(name: str) -> None:
    of = accountant(name)
    for count in range(1, 5):
        planned = of.epsilon({1.0: count}, _DELTA)
        costs = [
            epsilon_by_the_matrix(of, chosen)
            for chosen in oracles.allowed(_ROUNDS, _APART, count)
            if len(chosen) == count
        ]
        assert planned == pytest.approx(max(costs), rel=1e-5)
    whole = get_epsilon_gaussian(of.noise_multiplier, _DELTA)
    assert of.epsilon({1.0: 4}, _DELTA) == pytest.approx(whole, rel=1e-6)


def test_more_rounds_than_planned_cost_at_least_what_they_can() -> None:
    of = accountant("prefix-sum")
    for count in (5, 8, _ROUNDS):
        assert of.epsilon({1.0: count}, _DELTA) >= epsilon_by_the_matrix(of, tuple(range(count)))
    assert of.epsilon({}, _DELTA) == 0
    assert of.epsilon({0.0: 1}, _DELTA) == np.inf
    assert of.epsilon({0.25: 1}, _DELTA) > of.epsilon({1.0: 1}, _DELTA)


def spending(ledger: CorrelatedLedger, number: int, *clients: int) -> None:
    ledger.spend({_WHOLE: np.array(clients, np.int64)}, number)


def test_a_budget_ends_the_run_before_a_client_exceeds_it() -> None:
    """With rounds of one client 3 apart; after each, the next that it may have is accounted."""
    of = accountant("blt")
    costs = [of.epsilon({1.0: count}, _DELTA) for count in (1, 2, 3)]
    ledger = CorrelatedLedger(plan(), _POPULATION, _DELTA, budget=(costs[1] + costs[2]) / 2)
    assert not ledger.spent
    assert ledger.after_next == pytest.approx(costs[0])
    spending(ledger, 1, 0)
    spending(ledger, 2, 1)
    assert not ledger.spent
    spending(ledger, 4, 0)
    for number in (5, 6):  # nobody may have a third round
        assert not ledger.spent, number
        ledger.spend({}, number)
    assert "client 0 has spent epsilon" in ledger.spent
    assert ledger.after_next > ledger.budget
    assert ledger.of(0) == pytest.approx(costs[1])


def test_a_budget_below_one_round_is_known_at_once() -> None:
    least = accountant().epsilon({1.0: 1}, _DELTA)
    assert CorrelatedLedger(plan(), _POPULATION, _DELTA, budget=0.9 * least).spent


@given(
    tried=st.lists(st.tuples(st.integers(1, 6), st.sets(st.integers(0, 3), min_size=1)), min_size=1, max_size=3),
    sets=st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=6, max_size=6),
)
@settings(max_examples=examples(40))
def test_an_attempt_costs_at_least_the_row_that_it_adds(
    tried: list[tuple[int, set[int]]], sets: list[set[int]]
) -> None:
    """C x + z with one row more for each attempt, in which its own participants stand in for those of the round."""
    ledger, again = (CorrelatedLedger(plan("prefix-sum"), _POPULATION, _DELTA) for _ in range(2))
    matrix = oracles.dense(ledger._coefficients)
    recorded: list[dict[str, np.ndarray]] = []
    for number, who in enumerate(sets, 1):
        rows = []
        for _, attempted in (one for one in tried if one[0] == number):
            rows.append(ledger.spend(ServerCharge().of_attempt(np.array(sorted(attempted)), False), number))
        rows.append(ledger.spend({_WHOLE: np.array(sorted(who))}, number))
        recorded.append({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
        recorded[-1]["round"] = np.full(len(recorded[-1]["client"]), number)
    again.replay(recorded)
    for client in range(4):
        own = np.array([client in who for who in sets] + [False] * (_ROUNDS - 6), np.float64)
        squared = float(np.square(matrix @ own).sum())
        for number, attempted in tried:
            instead = np.append(own[: number - 1], float(client in attempted))
            squared += float(matrix[number - 1, :number] @ instead) ** 2
        least = accountant("prefix-sum").epsilon_of(np.array([squared]), _DELTA)[0]
        assert ledger.of(client) >= least - 1e-9
        assert again.of(client) == ledger.of(client)


def squared_by_what_was_shown(matrix: Floats, sets: list[set[int]], tried: tuple[int, set[int]], client: int) -> float:
    """Of all that was released, by its whole covariance: rounds with nobody in are shown with the next, as in attempts.

    The attempt takes fresh noise for its own round and for those before it that were not shown; then the rounds go on
    as if there had been none.
    """
    rounds, (number, who) = len(sets), tried
    mine = np.array([client in one for one in sets], np.float64)
    noise = np.linalg.inv(matrix[:rounds, :rounds])
    done = max((place + 1 for place, one in enumerate(sets[: number - 1]) if one), default=0)
    rows, changes, begin = [], [], 0
    for place, one in enumerate(sets):
        if one:
            rows.append(np.append(noise[begin : place + 1].sum(axis=0), np.zeros(rounds)))
            changes.append(mine[place])
            begin = place + 1
    attempt = noise[done:number].sum(axis=0)
    rows.append(
        np.concatenate([np.where(np.arange(rounds) < done, attempt, 0), np.where(np.arange(rounds) < done, 0, attempt)])
    )
    changes.append(float(client in who))
    seen, changed = np.array(rows), np.array(changes)
    return float(changed @ np.linalg.solve(seen @ seen.T, changed))


@pytest.mark.parametrize("name", ["blt", "band", "identity", "prefix-sum"])
@given(
    sets=st.lists(st.sets(st.integers(0, 3), max_size=2), min_size=6, max_size=6),
    tried=st.tuples(st.integers(1, 6), st.sets(st.integers(0, 3), min_size=1)),
)
@example(sets=[{0}, set(), {1}, set(), set(), {2}], tried=(3, {0}))
@settings(max_examples=examples(40))
def test_an_attempt_that_shows_noise_of_rounds_before_it_costs_that_too(
    name: str, sets: list[set[int]], tried: tuple[int, set[int]]
) -> None:
    """Rounds that ended early, and then one that was begun twice: their noise was in both, and not the same."""
    ledger = CorrelatedLedger(plan(name), _POPULATION, _DELTA)
    matrix = oracles.dense(ledger._coefficients)
    for number, who in enumerate(sets, 1):
        if number == tried[0]:
            ledger.spend(ServerCharge().of_attempt(np.array(sorted(tried[1])), False), number)
        ledger.spend({_WHOLE: np.array(sorted(who))} if who else {}, number)
    for client in range(4):
        assert ledger._squared[client] >= squared_by_what_was_shown(matrix, sets, tried, client) - 1e-9


def test_clients_in_no_released_sum_are_not_charged() -> None:
    everybody: Ids = np.arange(4)
    charge = ServerCharge()
    assert charge.of_round(everybody, everybody[:0], None, everybody, False) == {}
    (charged,) = charge.of_round(everybody, everybody[1:], 1.0, everybody, False).items()
    assert charged[0] == _WHOLE
    assert charged[1].tolist() == [1, 2, 3]
