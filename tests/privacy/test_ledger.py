"""The ledger against an obviously right one: a counter of rounds for each client, accounted from scratch."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import inf, isnan
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.privacy.ledger import Ledger, NoiseShares
from testbed.privacy.noise_plan import Guarantees, NoisePlan

POPULATION = 7
WHOLE = NoiseShares(1.0, 1.0, 1.0)


class Counting:
    """Every round costs one over its share of the noise, and delta changes nothing; how often it was asked."""

    unit: ClassVar[Literal["client", "sample"]] = "client"
    mechanism: ClassVar[str] = "counting"

    def __init__(self) -> None:
        self.asked = 0

    def epsilon(self, rounds: Any, delta: float) -> float:
        """See `Accountant`."""
        self.asked += 1
        assert delta == 0.01
        assert all(count > 0 for count in rounds.values())
        return sum((inf if share == 0 else count / share for share, count in rounds.items()), 0.0)


def noise(least: float = 1.0, of: Counting | None = None) -> NoisePlan:
    """Return the plan of an aggregation with at least this share of the planned noise in its sums."""
    return NoisePlan(of or Counting(), lambda size: Guarantees.none(size, least), 5, 5)


shares = st.sampled_from(
    [WHOLE, NoiseShares(0.5, 0.5, 0.25), NoiseShares(0.5, 0.25, 0.0), NoiseShares(None, None, 0.125)]
)
rounds_of_charges = st.lists(st.dictionaries(st.integers(0, POPULATION - 1), shares), max_size=12)


def charges_of(who: dict[int, NoiseShares]) -> dict[NoiseShares, np.ndarray]:
    kinds = sorted(set(who.values()), key=str)
    return {kind: np.array([client for client in who if who[client] == kind], np.int64) for kind in kinds}


@given(rounds_of_charges)
def test_every_row_has_the_cost_of_the_rounds_so_far(rounds: list[dict[int, NoiseShares]]) -> None:
    ledger, oracle = Ledger(noise(), POPULATION, 0.01), Counting()
    histories: dict[int, list[NoiseShares]] = defaultdict(list)
    for who in rounds:
        columns = ledger.spend(charges_of(who))
        assert columns["client"].tolist() == sorted(who)
        for place, client in enumerate(sorted(who)):
            histories[client].append(who[client])
            in_sums = [one for one in histories[client] if one.noise is not None]
            assert columns["epsilon"][place] == oracle.epsilon(Counter(one.honest_noise for one in in_sums), 0.01)
            assert columns["planned_epsilon"][place] == len(in_sums)
            known_to_server = Counter(one.colluding_noise for one in histories[client])
            assert columns["colluding_epsilon"][place] == oracle.epsilon(known_to_server, 0.01)
            assert columns["delta"][place] == 0.01
            for name, share in who[client]._asdict().items():
                found = columns[name][place]
                assert isnan(found) if share is None else found == share
    for client in set(range(POPULATION)) - set(histories):
        assert ledger.of(client) == (0.0, 0.0, 0.0)


@given(rounds_of_charges, st.floats(0.5, 30))
def test_a_ledger_rebuilt_from_its_rows_is_the_same(rounds: list[dict[int, NoiseShares]], budget: float) -> None:
    ledger, again = (Ledger(noise(0.25), POPULATION, 0.01, budget) for _ in range(2))
    recorded = [ledger.spend(charges_of(who)) for who in rounds]
    again.replay(iter([columns for columns in recorded if len(columns["client"])]))
    assert [again.of(client) for client in range(POPULATION)] == [ledger.of(client) for client in range(POPULATION)]
    assert again.spent == ledger.spent
    last = dict.fromkeys(range(POPULATION), WHOLE)
    first, second = ledger.spend(charges_of(last)), again.spend(charges_of(last))
    assert all(np.array_equal(first[name], second[name], equal_nan=True) for name in first)


@given(st.lists(st.lists(st.dictionaries(st.integers(0, POPULATION - 1), shares), max_size=4), max_size=4))
def test_rounds_that_charged_a_client_several_times_are_rebuilt_too(rounds: list[list[dict[int, NoiseShares]]]) -> None:
    ledger, again = (Ledger(noise(0.25), POPULATION, 0.01, 30.0) for _ in range(2))
    recorded = []
    for attempts in rounds:
        rows = [ledger.spend(charges_of(who)) for who in attempts]
        if rows:
            recorded.append({name: np.concatenate([each[name] for each in rows]) for name in rows[0]})
    again.replay(iter(recorded))
    assert [again.of(client) for client in range(POPULATION)] == [ledger.of(client) for client in range(POPULATION)]
    assert again.after_next == ledger.after_next


@given(rounds_of_charges, st.integers(1, 30), st.sampled_from([0.25, 0.5, 1.0]))
def test_the_budget_is_spent_when_a_round_with_the_least_noise_could_exceed_it(
    rounds: list[dict[int, NoiseShares]], budget: int, least: float
) -> None:
    ledger, oracle = Ledger(noise(least), POPULATION, 0.01, budget), Counting()
    known: dict[int, Counter[float]] = defaultdict(Counter)
    for who in rounds:
        ledger.spend(charges_of(who))
        for client, one in who.items():
            if one.noise is not None:
                known[client][one.noise] += 1
        worst = max((oracle.epsilon(known[client], 0.01) for client in range(POPULATION)), default=0.0) + 1 / least
        assert bool(ledger.spent) == (worst > budget)
        if ledger.spent:
            assert f"{worst:.4g}" in ledger.spent
            assert f"of {budget}" in ledger.spent
            assert "\n" not in ledger.spent


def test_the_reason_names_the_client_and_its_epsilon() -> None:
    ledger = Ledger(noise(0.5), POPULATION, 0.01, 3.0)
    ledger.spend({WHOLE: np.array([2, 5])})
    assert not ledger.spent
    ledger.spend({WHOLE: np.array([3, 5])})
    assert ledger.spent == (
        "privacy budget: client 5 has spent epsilon 2 of 3 (delta 0.01), another round may take it to 4"
    )


def test_without_a_budget_nothing_is_ever_spent() -> None:
    ledger = Ledger(noise(), POPULATION, 0.01)
    ledger.spend({NoiseShares(0.0, 0.0, 0.0): np.arange(POPULATION)})
    assert ledger.of(0) == (inf, 1.0, inf)
    assert ledger.spent == ""


def test_a_million_clients_share_what_is_accounted() -> None:
    """A round of half of them asks the accountant for as many epsilons as there are histories, not clients."""
    accountant = Counting()
    ledger = Ledger(noise(of=accountant), 10**6, 0.01, 100.0)
    generator = np.random.default_rng(1)
    for _ in range(5):
        columns = ledger.spend({WHOLE: np.flatnonzero(generator.random(10**6) < 0.5)})
    assert set(columns["epsilon"].tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert accountant.asked <= 3 * 6


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_order_of_rounds_makes_no_difference(order: tuple[int, int]) -> None:
    def rounds() -> Iterator[dict[NoiseShares, np.ndarray]]:
        for place in order:
            yield [{WHOLE: np.array([0])}, {NoiseShares(0.3, 0.2, 0.1): np.array([0])}][place]

    ledger = Ledger(noise(), 1, 0.01)
    for charges in rounds():
        ledger.spend(charges)
    assert ledger.of(0) == (1 + 1 / 0.2, 2.0, 1 + 1 / 0.1)
