"""A Lotto client's checks of the round and the population, with the refusals by code.

Each malicious server is the honest server with one decision overridden.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from testbed.selection.lotto.messages import Announce, ListSignatures, ParticipantList
from testbed.selection.lotto.variants import ClientCentricServer, ServerCentricParameters
from tests.selection.federations import PARTICIPANTS, POPULATION, Selecting, malicious_server, refused_round
from tests.selection.lotto.malicious import CLIENT_CENTRIC, SERVER_CENTRIC, everybody, showing


def announcing(**changes: Any) -> Callable:
    """Return a server that sends all clients another announcement."""

    def announcement_for(self: Any, everyone: Any, message: Announce) -> Any:
        return [(everyone, replaced(message, **changes))]

    return announcement_for


def test_a_population_below_the_minimum_is_refused_when_it_is_announced() -> None:
    server = malicious_server(CLIENT_CENTRIC, announcement_for=announcing(population=POPULATION // 2 - 1))
    run = Selecting(server, POPULATION)
    _, refusals, detail = refused_round(run)
    assert refusals == everybody(range(POPULATION), "lotto.population-below-minimum")
    assert "40 clients refused" in detail
    # n_min itself is accepted.
    server = malicious_server(CLIENT_CENTRIC, announcement_for=announcing(population=POPULATION // 2))
    server.population = POPULATION // 2
    assert len(Selecting(server, POPULATION).select().participants) == PARTICIPANTS


def test_a_population_below_the_minimum_is_refused_in_the_list() -> None:
    server = malicious_server(
        SERVER_CENTRIC, list_for=showing(lambda self, m: replaced(m, population=POPULATION // 2 - 1))
    )
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == everybody(participants, "lotto.population-below-minimum")


def test_by_default_the_whole_population_is_the_minimum() -> None:
    server = malicious_server(SERVER_CENTRIC, list_for=showing(lambda self, m: replaced(m, population=POPULATION - 1)))
    server.parameters = ServerCentricParameters(participants=PARTICIPANTS, over_selection=3.0)
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == everybody(participants, "lotto.population-below-minimum")


@pytest.mark.parametrize("told", [POPULATION - 1, POPULATION + 1])
def test_another_population_in_the_list_than_announced_is_refused(told: int) -> None:
    server = malicious_server(CLIENT_CENTRIC, list_for=showing(lambda self, m: replaced(m, population=told)))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == everybody(participants, "lotto.population-mismatch")


def test_a_population_announced_differently_to_different_clients_is_refused() -> None:
    def announcement_for(self: Any, everyone: Any, message: Announce) -> Any:
        smaller = replaced(message, population=POPULATION - 10)
        return [(everyone[everyone % 2 == 0], message), (everyone[everyone % 2 == 1], smaller)]

    run = Selecting(malicious_server(CLIENT_CENTRIC, announcement_for=announcement_for), POPULATION)
    participants, refusals, _ = refused_round(run)
    assert refusals == everybody([client for client in participants if client % 2], "lotto.population-mismatch")
    assert 0 < len(refusals) < PARTICIPANTS


@pytest.mark.parametrize("changes", [{"participants": 6}, {"factor_numerator": 4}, {"factor_denominator": 2}])
def test_other_parameters_than_agreed_are_refused(changes: dict) -> None:
    run = Selecting(malicious_server(CLIENT_CENTRIC, announcement_for=announcing(**changes)), POPULATION)
    assert refused_round(run)[1] == everybody(range(POPULATION), "lotto.parameters-mismatch")


@pytest.mark.parametrize("earlier", [3, 2, 1])
def test_clients_that_received_an_announcement_refuse_its_number_again(earlier: int) -> None:
    run = Selecting(malicious_server(CLIENT_CENTRIC), POPULATION)
    run.select(3)
    assert refused_round(run, earlier)[1] == everybody(range(POPULATION), "lotto.round-reused")
    assert len(run.select(5).participants) == PARTICIPANTS  # a refused announcement counts as the fourth


def test_participants_refuse_a_used_round_number() -> None:
    run = Selecting(malicious_server(SERVER_CENTRIC), POPULATION)
    before = run.select(3).participants.tolist()
    participants, refusals, _ = refused_round(run, 3)
    assert participants == before  # public inputs: the same draw
    assert refusals == everybody(participants, "lotto.round-reused")


def test_a_resumed_client_refuses_earlier_rounds() -> None:
    run = Selecting(malicious_server(CLIENT_CENTRIC), POPULATION)
    for number in range(POPULATION):
        run.client(number).last_round = 7
    assert refused_round(run, 7)[1] == everybody(range(POPULATION), "lotto.round-reused")


def test_a_list_for_a_round_that_was_not_announced_is_refused() -> None:
    server = malicious_server(CLIENT_CENTRIC, list_for=showing(lambda self, m: replaced(m, round=m.round + 1)))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == everybody(participants, "lotto.unannounced-round")


def test_a_new_announcement_ends_the_earlier_agreement() -> None:
    async def select(self: Any, round_: Any) -> Any:
        """Announce the next round after an honest selection, and send the old signatures again."""
        kept: list[Any] = []

        def signatures_for(signers: Any, message: ListSignatures) -> Any:
            kept.append(message)
            return [(signers, message)]

        self.signatures_for = signatures_for
        chosen = await ClientCentricServer.select(self, round_)
        self.agreed = [run.client(client).agreed_participants is not None for client in chosen.participants.tolist()]
        factor = self.parameters.factor
        announcement = Announce(round_.number + 1, POPULATION, PARTICIPANTS, factor.numerator, factor.denominator)
        await round_.network.ask(chosen.participants, announcement)
        await round_.network.ask(chosen.participants, kept[0])
        return chosen

    run = Selecting(malicious_server(CLIENT_CENTRIC, select=select), POPULATION)
    participants = run.select().participants.tolist()
    assert run.protocol.agreed == [True] * PARTICIPANTS
    assert run.refusals() == everybody(participants, "lotto.no-list")
    assert all(run.client(client).agreed_participants is None for client in participants)


@pytest.mark.parametrize(("variant", "check"), [(CLIENT_CENTRIC, "second-list"), (SERVER_CENTRIC, "round-reused")])
def test_a_second_list_in_one_round_is_refused(variant: tuple, check: str) -> None:
    """Otherwise two honest clients could both sign two lists, and agree on different ones."""

    def list_for(self: Any, participants: Any, message: ParticipantList) -> Any:
        return [(participants, message), (participants, message)]

    participants, refusals, _ = refused_round(Selecting(malicious_server(variant, list_for=list_for), POPULATION))
    assert refusals == everybody(participants, f"lotto.{check}")
