"""Clients that a round charges, by its end and its dishonest participants."""

from typing import Any

import numpy as np
import pytest

from testbed.aggregation.plain import PlainParameters
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.engine.registry import aggregation_protocol
from testbed.privacy.ledger import NoiseShares, PrivacyCharge
from testbed.privacy.noise_plan import NoisePlan, NoiseSource

TEN = np.arange(10, 20)
NOISY: Any = {"weights": "equal", "noise": {"noise_multiplier": 1.0}}
SECAGG = SecAggParameters(threshold=7, **NOISY)  # withstands 2 * 7 - 10 - 1 = 3 of 10


def charging(dishonest: Any = (), parameters: Any = SECAGG, source: NoiseSource = "shares") -> PrivacyCharge:
    protocol = aggregation_protocol(parameters)
    accountant: Any = protocol.accountant(10, 3)
    return PrivacyCharge(NoisePlan(accountant, protocol.guarantees, 10, 10, source), frozenset(dishonest))


def ended(survivors: Any, noise: float | None) -> tuple[Any, Any, float | None]:
    """Participants, survivors, and the share of the noise; None: the round ended early."""
    return TEN, np.asarray(survivors, np.int64), noise


def listed(charges: dict[NoiseShares, Any]) -> dict[NoiseShares, list[int]]:
    return {shares: clients.tolist() for shares, clients in charges.items()}


def test_a_completed_round_charges_its_survivors() -> None:
    charges = charging().of_round(*ended(TEN[:8], 0.8), TEN, False)
    assert listed(charges) == {NoiseShares(0.8, 0.8, 0.8): TEN[:8].tolist()}


def test_more_noise_than_planned_is_not_counted() -> None:
    assert list(charging().of_round(*ended(TEN, 1.2), TEN, False)) == [NoiseShares(1.0, 1.0, 1.0)]


def test_skipped_noise_is_missing_and_colluding_clients_know_their_own() -> None:
    two = charging(dishonest=[11, 12, 99])
    assert list(two.of_round(*ended(TEN[:8], 0.8), TEN, True)) == [NoiseShares(0.8, 0.8 * 6 / 8, 0.8 * 6 / 8)]
    assert list(two.of_round(*ended(TEN[:8], 0.8), TEN, False)) == [NoiseShares(0.8, 0.8, 0.8 * 6 / 8)]
    gone = charging(dishonest=[18, 19])  # did not survive: the noise of the others is whole
    assert list(gone.of_round(*ended(TEN[:8], 0.8), TEN, True)) == [NoiseShares(0.8, 0.8, 0.8)]


def test_too_many_accomplices_see_everybody_by_itself_survivor_or_not() -> None:
    four = charging(dishonest=[10, 11, 12, 13])
    charges = four.of_round(*ended(TEN[:8], 0.8), TEN, False)
    assert listed(charges) == {
        NoiseShares(0.8, 0.8, 0.1): TEN[:8].tolist(),
        NoiseShares(None, None, 0.1): TEN[8:].tolist(),
    }
    three = charging(dishonest=[10, 11, 12])
    assert list(three.of_round(*ended(TEN[:8], 0.8), TEN, False)) == [NoiseShares(0.8, 0.8, 0.8 * 5 / 8)]


def test_a_round_that_ended_before_anything_could_be_unmasked_charges_nobody() -> None:
    assert charging(dishonest=TEN).of_round(*ended([], None), TEN[:0], True) == {}


def test_a_round_that_ended_while_it_was_unmasked_charges_all_with_the_least_noise() -> None:
    charges = charging().of_round(*ended([], None), TEN, False)
    assert listed(charges) == {NoiseShares(0.7, 0.7, 0.7): TEN.tolist()}
    with_two = charging(dishonest=[10, 11]).of_round(*ended([], None), TEN, False)
    assert list(with_two) == [NoiseShares(0.7, 0.7, 0.7 * 5 / 7)]


def test_noise_that_is_nobodys_share_is_always_whole() -> None:
    alone = charging(dishonest=TEN[:9], source="server")
    assert list(alone.of_round(*ended(TEN[:8], 1.0), TEN, True)) == [NoiseShares(1.0, 1.0, 1.0)]


def test_own_noise_charges_all_clients_that_were_asked() -> None:
    """Whether the answer came in time, and whether the round completed, is the server's concern alone."""
    untrusted = charging(source="clients")
    for outcome in (ended(TEN[:3], 1.0), ended([], None)):
        charges = untrusted.of_round(*outcome, TEN[:8], False)
        assert [clients.tolist() for clients in charges.values()] == [TEN[:8].tolist()]
    assert untrusted.of_round(*ended([], None), TEN[:0], False) == {}


def test_an_attempt_costs_what_a_round_does_that_ended_in_its_last_stage() -> None:
    for one in (charging(dishonest=[10, 11]), charging(dishonest=TEN[:5]), charging(source="server")):
        for skipping in (True, False):
            expected = listed(one.of_round(*ended([], None), TEN, skipping))
            assert listed(one.of_attempt(TEN, skipping)) == expected


@pytest.mark.parametrize(
    ("parameters", "participants", "max_colluders", "least"),
    [
        (PlainParameters(), 10, -1, 0.1),
        (SECAGG, 10, 3, 0.7),
        (SecAggParameters(threshold=0.7, **NOISY), 10, 3, 0.7),
        (SecAggParameters(threshold=6, smallest_sum=4, **NOISY), 10, -1, 0.4),
        (SecAggParameters(threshold=7, consistency="none", **NOISY), 10, -1, 0.7),
    ],
)
def test_colluders_that_aggregations_tolerate(
    parameters: Any, participants: int, max_colluders: int, least: float
) -> None:
    guarantees = aggregation_protocol(parameters).guarantees(participants)
    assert (guarantees.max_colluders, guarantees.min_noise_share) == (max_colluders, least)


def test_secagg_plus_tolerates_as_many_colluders_as_a_neighbourhood() -> None:
    parameters = SecAggPlusParameters(dropouts=0.2, **NOISY)
    chosen = parameters.neighbourhood(200)
    guarantees = aggregation_protocol(parameters).guarantees(200)
    assert guarantees.max_colluders == 2 * chosen.threshold - chosen.neighbours - 2
    assert guarantees.max_colluders >= 0
    assert guarantees.min_noise_share == chosen.survivors / 200 == 0.8
    assert guarantees.min_partition_size == chosen.threshold < chosen.survivors


@pytest.mark.parametrize("without", [{"consistency": "none"}, {"smallest_sum": 2}])
def test_where_a_malicious_server_chooses_the_sums_everybody_is_seen_with_its_own_noise(without: Any) -> None:
    """Split-the-sharing and shrink-the-sum need few accomplices or none: the colluding column counts on neither."""
    parameters = SecAggParameters(threshold=7, **NOISY, **without)
    free = charging(parameters=parameters)
    assert listed(free.of_round(*ended(TEN[:8], 0.8), TEN, False)) == {
        NoiseShares(0.8, 0.8, 0.1): TEN[:8].tolist(),
        NoiseShares(None, None, 0.1): TEN[8:].tolist(),
    }
