"""Dropouts that the graph allows, set-ups and hand-overs; tests/conformance and test_secure_sums have the sums."""

import itertools
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.flamingo.messages import Service
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.set_up_messages import KeptService
from testbed.committee.parameters import CommitteeSection
from testbed.errors import ExperimentError, RoundAborted
from testbed.messages import decode
from tests.aggregation.flamingo_rounds import (
    DELTAS,
    federation,
    leave,
    parameters_with,
    played,
    played_from,
)

SET_UP = ("flamingo/set-up-deal", "flamingo/set-up-check", "flamingo/set-up-finish")


def test_as_many_as_may_drop_out_and_no_more() -> None:
    parameters = parameters_with(dropouts=0.34)
    (outcome,) = played(federation(parameters=parameters, leaving={"flamingo/report": {0, 3, 5}}), 1)
    assert outcome.survivors.tolist() == [1, 2, 4, 6, 7, 8]
    (ended,) = played(federation(parameters=parameters, leaving={"flamingo/report": {0, 3, 5, 8}}), 1)
    assert str(ended).startswith("below-threshold: 5 of 6 needed reported")


def test_members_need_not_take_part() -> None:
    """Clients 0 and 2 to 5 take part; the committee is of others, too."""
    small = federation()

    async def taking(number: int, train: Any = small.train) -> Any:
        start = await train(number)
        start.participants = start.trained = np.array([0, 2, 3, 4, 5])
        return start

    small.train = taking  # type: ignore[assignment,method-assign]
    (outcome,) = played(small, 1)
    assert outcome.survivors.tolist() == [0, 2, 3, 4, 5]
    assert np.abs(outcome.mean - np.float32(DELTAS)[[0, 2, 3, 4, 5]].mean(0)).max() <= 2 / (2**16 - 1)


def test_a_sparse_graph_leaves_fewer_masks_and_the_same_sum() -> None:
    deltas = np.random.default_rng(1).uniform(-1, 1, (24, 7))
    parameters = parameters_with(dishonest=0.05, security=5, correctness=5, dropouts=0.25)
    density = parameters.density(24)
    assert density.epsilon < 0.75
    gone = {3, 11, 19}
    small = federation(deltas, parameters, leaving={"flamingo/report": gone})
    (outcome,) = played(small, 1)
    online = [client for client in range(24) if client not in gone]
    assert outcome.mean.tobytes() == small.mean_of(online).tobytes()


# -- rounds after the first --------------------------------------------------------------------------------------------


def stages_asked(small: Any) -> list[str]:
    return [delivery.kind.stage for delivery, _ in small.hosts.seen]


def test_the_set_up_serves_all_rounds() -> None:
    small = federation()
    outcomes = played(small, 3)
    assert all(outcome.survivors.tolist() == list(range(9)) for outcome in outcomes)
    for number, outcome in enumerate(outcomes, 1):
        assert outcome.mean.tobytes() == small.mean_of(list(range(9)), number).tobytes()
    asked = [stage for stage, _ in itertools.groupby(stages_asked(small))]
    assert [stage for stage in asked if stage != "train"] == [*SET_UP, *FlamingoParameters.stages * 3]


def test_the_key_is_handed_over_to_the_next_committee() -> None:
    section = CommitteeSection(size=5, threshold=3, serves_rounds=2)
    small = federation(parameters=parameters_with(committee=section))
    kept, memory = [], dict[str, Any]()
    for number in range(1, 6):
        outcome = played_from(small, number, memory)
        assert outcome.mean.tobytes() == small.mean_of(list(range(9)), number).tobytes()
        (stored,) = memory.values()
        kept.append(decode(KeptService, stored.tobytes()).certificate.service)
    assert [service.committee.first_round for service in kept] == [1, 1, 3, 3, 5]
    assert len({service.public_key for service in kept}) == 1
    assert len({service.commitments for service in kept}) == 3
    assert len({service.committee.clients for service in kept}) == 3


def test_a_set_up_that_fails_is_tried_again_in_the_next_round() -> None:
    small = federation(leaving={"flamingo/set-up-check": {1, 2, 4}})
    memory: dict[str, Any] = {}
    (ended,) = played(small, 1, memory)
    assert isinstance(ended, RoundAborted)
    assert memory == {}
    leave(small, {})
    assert played_from(small, 2, memory).survivors.tolist() == list(range(9))


@pytest.mark.parametrize("variant", ["lotto-client-centric", "lotto-server-centric"])
def test_a_set_up_that_is_tried_again_has_the_same_members_whoever_answers_then(variant: str) -> None:
    """A server that drew again would choose among committees."""
    section = CommitteeSection(selection=variant, size=4, threshold=3, over_selection=2.2)
    given = parameters_with(committee=section)
    honest, small = (federation(parameters=given) for _ in range(2))
    memory: dict[str, Any] = {}
    played_from(honest, 1, memory)
    would_be = service_in(memory).committee.clients
    away = would_be[0]
    leave(small, {"committee/sortition": {away}, "flamingo/set-up-check": set(range(9))})
    memory = {}
    assert isinstance(played_from(small, 1, memory), RoundAborted)
    leave(small, {})
    assert played_from(small, 2, memory).survivors.tolist() == list(range(9))
    members = service_in(memory).committee.clients
    assert away not in members
    assert set(would_be[1:]) < set(members)
    assert "committee/sortition" not in [one.stage for one in small.network.exchanges]  # of the second round


def service_in(memory: dict[str, Any]) -> Service:
    """That which the server keeps."""
    return decode(KeptService, memory["flamingo service"].tobytes()).certificate.service


def handing_over_fails(stage: str) -> tuple[Any, dict[str, Any], Service]:
    """Return a federation in which the first committee was silent at `stage` of the handover in round 2."""
    small = federation(parameters=parameters_with(committee=CommitteeSection(size=5, threshold=3, serves_rounds=1)))
    memory: dict[str, Any] = {}
    played(small, 1, memory)
    before = service_in(memory)
    leave(small, {stage: set(range(9))})
    ended = played_from(small, 2, memory)
    assert isinstance(ended, RoundAborted)
    assert ended.reason == "below-threshold"
    leave(small, {})
    return small, memory, before


def test_a_former_committee_that_is_gone_ends_one_round_and_the_next_has_a_key_of_its_own() -> None:
    small, memory, before = handing_over_fails("flamingo/set-up-deal")
    assert not any("flamingo service" in name for name in memory)
    assert [event.kind for event in small.network.events] == ["committee-lost"]
    assert played_from(small, 3, memory).survivors.tolist() == list(range(9))
    assert service_in(memory).committee.first_round == 3
    assert service_in(memory).public_key != before.public_key


def test_a_handing_over_that_fails_at_the_new_members_is_tried_again_with_the_same_key() -> None:
    small, memory, before = handing_over_fails("flamingo/set-up-check")
    assert service_in(memory) == before
    assert played_from(small, 3, memory).survivors.tolist() == list(range(9))
    assert service_in(memory).committee.first_round == 3
    assert service_in(memory).public_key == before.public_key


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dropouts": 0.9}, r"dropouts: 9 of 10 participants may drop out and 1 may be dishonest; at least 2 others"),
        ({"dropouts": 0.2, "dishonest": 0.7}, r"dropouts: 2 of 10 participants may drop out and 7 may be dishonest"),
    ],
)
def test_requirements_that_cannot_be_are_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parameters_with(**given).check(10)


def test_sums_beyond_the_ring_are_refused() -> None:
    parameters = FlamingoParameters()
    parameters.check_weights(100, 655)
    with pytest.raises(ExperimentError, match=r"aggregation\.bits"):
        parameters.check_weights(100, 700)
