"""Clients count announcements: an announcement that skips earlier rounds is refused."""

import contextlib
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from testbed.errors import RoundAborted
from testbed.experiment.schema import validated
from testbed.selection.lotto.refinement import Refinement
from testbed.selection.lotto.variants import ClientCentricParameters, ClientCentricServer
from testbed.selection.verifiable_batch_partition import VerifiableBatchPartitionParameters, VerifiableBatchServer
from tests.messages_named import naming
from tests.selection.federations import Selecting

POPULATION = 30
PROTOCOLS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "client-centric": (ClientCentricServer, ClientCentricParameters, {"participants": 5, "over_selection": 3.0}),
    "batches": (
        VerifiableBatchServer,
        VerifiableBatchPartitionParameters,
        {"participants": 4, "privacy": 2, "over_selection": 4.0},
    ),
}


def server(name: str, **more: Any) -> Any:
    kind, section, keys = PROTOCOLS[name]
    return kind(section(**keys, **more), POPULATION)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Announcing:
    """Mixed in before a server to announce the numbers in `numbers` for the run's rounds."""

    numbers: dict[int, int]

    async def select(self, round_: Any) -> Any:
        number = self.numbers.get(round_.number, round_.number)
        return await super().select(replace(round_, number=number))  # type: ignore[misc]


def announcing(name: str, numbers: dict[int, int], **more: Any) -> Any:
    kind, section, keys = PROTOCOLS[name]
    return type("Skipping", (Announcing, kind), {"numbers": numbers})(section(**keys, **more), POPULATION)


@pytest.mark.parametrize(("gap", "number", "accepted"), [(1, 1, True), (1, 2, False), (3, 3, True), (3, 4, False)])
def test_the_first_round_is_within_the_gap(gap: int, number: int, accepted: bool, protocol: str) -> None:
    run = Selecting(announcing(protocol, {1: number}, max_round_gap=gap), POPULATION)
    if accepted:
        assert len(run.select(1).participants) in (4, 5)
        return
    with pytest.raises(RoundAborted, match=f"{POPULATION} clients refused: lotto.round-gap-too-large"):
        run.select(1)
    assert set(run.refusals().values()) == {"lotto.round-gap-too-large"}
    assert all(run.client(number).last_round == 0 for number in range(POPULATION))


@pytest.mark.parametrize("unbounded", ["none", None])
def test_without_a_bound_any_later_round_is_accepted(unbounded: Any, protocol: str) -> None:
    run = Selecting(announcing(protocol, {1: 700}, max_round_gap=unbounded), POPULATION)
    assert len(run.select(1).participants) in (4, 5)


def test_a_refused_announcement_counts_as_one_round(protocol: str) -> None:
    """A run continues honestly, and no faster than with one announcement after the other."""
    run = Selecting(announcing(protocol, {2: 50, 3: 5}), POPULATION)
    run.select(1)
    for number in (2, 3):
        with pytest.raises(RoundAborted, match=r"lotto\.round-gap-too-large"):
            run.select(number)
    assert len(run.select(4).participants) in (4, 5)


def test_refused_announcements_leave_no_choice_of_numbers(protocol: str) -> None:
    """A server with three refused announcements cannot choose among the first three numbers."""
    run = Selecting(announcing(protocol, {1: 700, 2: 700, 3: 700, 4: 2, 5: 5}), POPULATION)
    for number in (1, 2, 3):
        with pytest.raises(RoundAborted, match=r"lotto\.round-gap-too-large"):
            run.select(number)
    with pytest.raises(RoundAborted, match=r"lotto\.round-in-the-past"):
        run.select(4)
    assert len(run.select(5).participants) in (4, 5)


def test_after_an_aborted_round_the_next_number_is_accepted(protocol: str) -> None:
    """The next number follows an aborted round."""
    run = Selecting(server(protocol), POPULATION)
    run.select(1)
    run.protocol.require_candidates = lambda *_: (_ for _ in ()).throw(RoundAborted("power-cut"))
    with pytest.raises(RoundAborted, match="power-cut"):
        run.select(2)
    del run.protocol.require_candidates
    run.select(3)
    assert run.refusals() == {}


def test_clients_that_missed_rounds_take_part_again(protocol: str) -> None:
    """Half of the clients are away in each round, different ones each time: none takes missed rounds for skipped."""
    away = {"model": "bernoulli", "unavailable": 0.5}
    run = Selecting(server(protocol, signatures=1), POPULATION, availability=away)
    there = []
    for number in range(1, 9):
        with contextlib.suppress(RoundAborted):  # too few clients were available
            run.select(number)
        assert run.refusals() == {}
        there.append(run.network.availability.presence(number, "lotto/announce", 0.0, np.arange(POPULATION)).reachable)
    assert sum(int((after & ~before).sum()) for before, after in pairwise(there)) > 20


def test_available_clients_detect_being_left_out(protocol: str) -> None:
    """A server that announces a round only to some clients loses the others in the next round."""
    kind, section, keys = PROTOCOLS[protocol]

    def some(self: Any, everyone: Any, message: Any) -> Any:
        return [(everyone[10:] if message.round == 1 else everyone, message)]

    run = Selecting(type("Leaving", (kind,), {"announcement_for": some})(section(**keys), POPULATION), POPULATION)
    for number in (1, 2):
        with contextlib.suppress(RoundAborted):
            run.select(number)
        refused = {} if number == 1 else dict.fromkeys(range(10), "lotto.round-gap-too-large")
        assert run.refusals() == refused


def test_a_round_gap_excludes_refinement() -> None:
    refine = Refinement(by=["latency"])
    assert ClientCentricParameters(refine=refine).round_gap is None
    assert ClientCentricParameters().round_gap == 1
    with pytest.raises(ValueError, match=naming("max_round_gap", 2, "refine")):
        ClientCentricParameters(refine=refine, max_round_gap=2).check(100)
    ClientCentricParameters(refine=refine, max_round_gap="none").check(100)


@pytest.mark.parametrize("gap", [0, -1, "some", 1.5, True])
def test_invalid_gaps_are_refused(gap: Any) -> None:
    keys = {"protocol": "lotto-client-centric", "max_round_gap": gap}
    with pytest.raises(Exception, match="max_round_gap"):
        validated({"selection": keys}, "here")


def test_the_server_centric_variant_announces_nothing() -> None:
    with pytest.raises(Exception, match="max_round_gap"):
        validated({"selection": {"protocol": "lotto-server-centric", "max_round_gap": 1}}, "here")
