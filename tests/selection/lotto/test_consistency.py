"""A Lotto client's checks of other clients' signatures, with the refusals by code.

Each malicious server is the honest server with one decision overridden.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replaced

from testbed.selection.lotto.messages import ListSignatures, ParticipantList, SignedBy
from tests.selection.federations import PARTICIPANTS, POPULATION, Selecting, malicious_server, refused_round
from tests.selection.lotto.malicious import VARIANTS, everybody, one_more, with_rows


def flipped(value: bytes, at: int) -> bytes:
    """Return the bytes with one bit changed."""
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


def two_lists(self: Any, participants: Any, message: ParticipantList) -> Any:
    """Return one list without the last row and one without the first; each is valid for its recipients."""
    rows = message.participants
    half = len(rows) // 2
    return [
        (participants[:half], with_rows(message, rows[:-1])),
        (participants[half:], with_rows(message, rows[1:])),
    ]


def unverified(self: Any, answers: dict[int, Any], message: ParticipantList, round_: Any) -> list[SignedBy]:
    """Accept every signature: the server knows which list each client has seen."""
    return [SignedBy(client, answers[client].signature) for client in sorted(answers)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_different_lists_to_different_participants_are_refused(variant: tuple) -> None:
    def signatures_for(self: Any, signers: Any, message: ListSignatures) -> Any:
        """Send each group the signatures of the clients on its own list."""
        half = len(signers) // 2
        return [
            (signers[:half], replaced(message, signatures=message.signatures[:-1])),
            (signers[half:], replaced(message, signatures=message.signatures[1:])),
        ]

    decisions = {
        "choose": one_more,
        "list_for": two_lists,
        "signatures_for": signatures_for,
        "valid_signatures": unverified,
    }
    participants, refusals, _ = refused_round(Selecting(malicious_server(variant, **decisions), POPULATION))
    assert refusals == everybody(participants, "lotto.inconsistent-lists")


@pytest.mark.parametrize("variant", VARIANTS)
def test_signatures_of_clients_that_are_not_in_the_list_are_refused(variant: tuple) -> None:
    run = Selecting(
        malicious_server(variant, choose=one_more, list_for=two_lists, valid_signatures=unverified), POPULATION
    )
    participants, refusals, _ = refused_round(run)
    assert refusals == everybody(participants, "lotto.unexpected-signature")


def sending(alter: Callable[[Any, list[SignedBy]], list[SignedBy]]) -> Callable:
    """Return a server that sends all clients altered signatures."""

    def signatures_for(self: Any, signers: Any, message: ListSignatures) -> Any:
        return [(signers, replaced(message, signatures=alter(self, message.signatures)))]

    return signatures_for


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("alter", "check"),
    [
        (lambda self, rows: rows[1:], "too-few-signatures"),
        (lambda self, rows: [], "too-few-signatures"),
        (lambda self, rows: [*rows, rows[0]], "unexpected-signature"),
        (lambda self, rows: [*rows[:-1], replaced(rows[-1], client=POPULATION)], "unexpected-signature"),
        (lambda self, rows: [replaced(rows[0], signature=bytes(64)), *rows[1:]], "inconsistent-lists"),
        (lambda self, rows: [replaced(rows[0], signature=flipped(rows[0].signature, 0)), *rows[1:]],
         "inconsistent-lists"),
        (lambda self, rows: [replaced(rows[0], signature=rows[1].signature), *rows[1:]], "inconsistent-lists"),
    ],
)  # fmt: skip
def test_wrong_signatures_are_refused(variant: tuple, alter: Callable, check: str) -> None:
    participants, refusals, _ = refused_round(
        Selecting(malicious_server(variant, signatures_for=sending(alter)), POPULATION)
    )
    assert refusals == everybody(participants, f"lotto.{check}")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("later", [0, 1])
def test_signatures_for_a_list_that_was_not_shown_are_refused(variant: tuple, later: int) -> None:
    """For clients without a list, and for another round than the list's."""

    def signatures_for(self: Any, signers: Any, message: ListSignatures) -> Any:
        stranger = np.setdiff1d(np.arange(POPULATION), signers)[:1]
        return [(signers if later else stranger, replaced(message, round=message.round + later))]

    run = Selecting(malicious_server(variant, signatures_for=signatures_for), POPULATION)
    participants, refusals, _ = refused_round(run)
    asked = participants if later else [client for client in range(POPULATION) if client not in participants][:1]
    assert refusals == everybody(asked, "lotto.no-list")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_quorum_still_refuses_two_lists_without_a_majority_behind_one(variant: tuple) -> None:
    def signatures_for(self: Any, signers: Any, message: ListSignatures) -> Any:
        """Send each group the signatures of clients with the same list."""
        half = len(signers) // 2
        return [
            (signers[:half], replaced(message, signatures=message.signatures[:half])),
            (signers[half:], replaced(message, signatures=message.signatures[half:])),
        ]

    decisions = {
        "choose": one_more,
        "list_for": two_lists,
        "signatures_for": signatures_for,
        "valid_signatures": unverified,
    }
    server = malicious_server(variant, **decisions)
    server.parameters = with_parameters(server.parameters, signatures=PARTICIPANTS - 1)
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == everybody(participants, "lotto.too-few-signatures")


def with_parameters(parameters: Any, **changes: Any) -> Any:
    """Return the parameters with some changed."""
    return type(parameters).model_validate(parameters.model_dump() | changes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_a_quorum_one_refusal_does_not_end_the_round(variant: tuple) -> None:
    def list_for(self: Any, participants: Any, message: ParticipantList) -> Any:
        return [(participants[:1], with_rows(message, message.participants[1:])), (participants[1:], message)]

    server = malicious_server(variant, list_for=list_for)
    server.parameters = with_parameters(server.parameters, signatures=PARTICIPANTS - 1)
    run = Selecting(server, POPULATION)
    chosen = run.select()
    assert run.refusals() == {int(chosen.participants[0]): "lotto.wrong-size"}
    assert chosen.ready.tolist() == chosen.participants[1:].tolist()
    assert run.client(int(chosen.participants[0])).agreed_participants is None


def test_the_honest_server_leaves_out_unregistered_candidates() -> None:
    for variant in VARIANTS:
        run = Selecting(malicious_server(variant), POPULATION)
        run.environment.directory.registered[::2] = False
        chosen = run.select()
        assert (chosen.participants % 2 == 1).all()
        assert not run.network.events
