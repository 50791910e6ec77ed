"""Three ways in which one dishonest client can end a round of LightSecAgg, and the client that is recorded for it."""

from typing import Any

import numpy as np
import pytest

from testbed.adversary.lightsecagg_clients import AnswerWrongPieces, DealOtherPieces, SealUnopenablePieces
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg
from tests.adversary.rounds import Played, with_dishonest

DELTAS = np.random.default_rng(3).uniform(-1, 1, (8, 7))
PARAMETERS = LightSecAggParameters(threshold=5, max_colluders=2, weights="equal")


def played(kind: Any, dishonest: int, from_round: int = 1) -> Played:
    """Run a round with one dishonest client."""
    return with_dishonest(LightSecAgg, kind, PARAMETERS, DELTAS, {dishonest}, from_round=from_round)


def test_unopenable_pieces_end_the_round_and_every_holder_names_the_client() -> None:
    small, ended, said = played(SealUnopenablePieces, 3)
    assert ended.reason == "below-threshold"
    assert said == ["seal-unopenable-pieces: 7 pieces that do not open"]
    others = [client for client in range(8) if client != 3]
    assert small.refusals() == [(client, "lightsecagg.invalid-piece") for client in others]
    details = [event.detail for event in small.network.events if event.kind == "refusal"]
    assert all("client 3: " in detail for detail in details)


@pytest.mark.parametrize("kind", [DealOtherPieces, AnswerWrongPieces])
def test_inconsistent_pieces_and_sums_end_the_round_without_a_culprit(kind: Any) -> None:
    small, ended, said = played(kind, 3)
    assert ended.reason == "implausible-sum"
    assert len(said) == 1
    assert (small.refusals(), small.misbehaviour()) == ([], [])


def test_a_wrong_sum_that_is_not_decoded_has_no_effect() -> None:
    """The sums of clients 0 to 4 are enough."""
    _, aggregate, said = played(AnswerWrongPieces, 7)
    assert len(said) == 1
    assert np.abs(aggregate.mean - np.float32(DELTAS).mean(0)).max() < 1e-4


@pytest.mark.parametrize("kind", [SealUnopenablePieces, DealOtherPieces, AnswerWrongPieces])
def test_the_client_is_honest_in_rounds_without_attack(kind: Any) -> None:
    _, aggregate, said = played(kind, 3, from_round=2)
    assert said == []
    assert np.abs(aggregate.mean - np.float32(DELTAS).mean(0)).max() < 1e-4
