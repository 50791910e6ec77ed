"""Least sums: none is below its protocol's statement, controls are found, and real parties reproduce the sums."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from testbed.aggregation.flamingo import bound
from testbed.aggregation.plain import Plain, PlainParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlusClient
from testbed.privacy.noise_plan import Guarantees
from tests.search.least_sums import flamingo
from tests.search.least_sums.catalogue import SEARCHES, unattacked
from tests.search.least_sums.contract import FAILED, LeastSums, Result
from tests.search.least_sums.labels import least_cut
from tests.search.least_sums.programs import Program
from tests.search.least_sums.secagg import SecAggPlusSums

BUDGET, SEED = 1, 1


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.protocol)
def test_no_sum_is_smaller_than_stated_and_the_controls_are_found(search: LeastSums) -> None:
    results = list(search.results(BUDGET, SEED))
    assert not [result.line for result in results if result.is_new]
    controls = [result for result in results if result.is_control]
    assert controls
    assert [result.line for result in controls if not result.is_below] == []
    assert any(result.is_control and result.executed for result in results)
    assert {result.protocol for result in results} == {search.protocol}
    assert any(not result.is_control and result.stated for result in results)


def test_a_false_statement_and_a_failed_execution_are_new() -> None:
    false = Result("p", "n = 3", 2, 1, 1, "exact")
    assert false.is_new
    assert "least sum 2 stated, 1 found, BELOW WHAT IS STATED; exact, 1 choices; not executed" in false.line
    assert Result("p", "n = 3", 2, 2, 1, "exact", f"{FAILED}: refused").is_new
    assert not Result("p", "n = 3", 2, 1, 1, "exact", is_control=True).is_new
    assert "NOT FOUND" in Result("p", "n = 3", 2, 2, 1, "exact", is_control=True).line
    assert not Result("p", "n = 3", 0, 1, 1, "greedy").is_new


# -- every protocol --------------------------------------------------------------------------------------------------


class Unheard(PlainParameters):
    protocol: str = "unheard"  # type: ignore[assignment]


class StatingMuch(Plain):
    def guarantees(self, participants: int) -> Guarantees:
        return Guarantees(participants, 1, participants, participants, 1.0)


def test_each_protocol_with_a_stated_least_sum_is_attacked() -> None:
    assert unattacked() == []
    assert unattacked([(Unheard, StatingMuch), (PlainParameters, Plain)]) == ["unheard"]


# -- the models, against others --------------------------------------------------------------------------------------


def test_clients_without_a_check_are_detected() -> None:
    """A client that reveals shares to neighbours without shared masks; random servers do not detect it."""

    def result() -> Result:
        return SecAggPlusSums().client_by_client(8, 4, 3, 0, is_control=False, acknowledges=False)

    with patch.object(SecAggPlusClient, "has_masked_with_me", lambda self, peer: True):
        unchecked = result()
    assert (unchecked.stated, unchecked.found) == (3, 1)
    assert unchecked.is_new
    assert unchecked.executed == "1 of 8 honest clients' sum bit for bit, no refusal"
    assert result().executed.startswith(FAILED)


@pytest.mark.parametrize("seed", range(4))
def test_labels_by_programming_agree_with_single_clients_and_pairs(seed: int) -> None:
    where = flamingo.setting(24, seed, labels="random", dishonest=0.3, dropouts=0.4, security=8, correctness=4)
    cut, group = least_cut(where.graph(1), where.dishonest, where.budget, 5000), flamingo.cut_off(where, 1)
    assert cut.is_exact
    assert group is not None
    assert len(cut.group) == len(group.group) == 1


def test_a_program_without_a_solution_is_reported() -> None:
    program = Program()
    one = program.binary()
    program.at_least({one: 1}, 2)
    found = program.minimise({one: 1})
    assert found.values == []
    assert found.is_exact


# -- the fix of Flamingo ---------------------------------------------------------------------------------------------


@pytest.fixture
def without_fix() -> Iterator[None]:
    """Return parameters with the bound for random labels although the server chooses the labels."""
    bound.density.cache_clear()
    with patch.object(bound, "_fewest_if_chosen", bound._fewest_if_random):
        yield
    bound.density.cache_clear()


@pytest.mark.usefixtures("without_fix")
def test_without_the_fix_the_statement_is_false() -> None:
    large = flamingo.FlamingoSums().by_groups(flamingo.setting(500, SEED, **flamingo.MENDED), 6)
    assert (large.stated, large.found) == (400, 1)
    assert large.is_new


@pytest.mark.usefixtures("without_fix")
def test_without_the_fix_real_parties_reveal_a_single_update() -> None:
    where = flamingo.setting(30, 2, **flamingo.CUT_IN_SMALL | flamingo.MENDED)
    small = flamingo.FlamingoSums().exactly(where, BUDGET)
    assert (small.stated, small.found) == (12, 1)
    assert small.is_new
    assert small.executed.startswith("1 of 24 honest clients' sum bit for bit, no refusal")


def test_the_round_that_isolates_a_client_of_300_is_found_again() -> None:
    hit = flamingo.isolating_round(flamingo.grinding(300, **flamingo.NOT_MENDED), 1, first=331)
    assert hit is not None
    assert flamingo.isolating_round(flamingo.grinding(300, **flamingo.NOT_MENDED), 20, first=311) is None
