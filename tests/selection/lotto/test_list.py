"""A Lotto client's checks of the participant list, with the refusals by code.

Each malicious server is the honest server with one decision overridden.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from testbed.crypto import prf, signatures
from testbed.network.contract import ids
from testbed.selection.lotto.messages import ParticipantEntry, ParticipantList, selection_input
from tests.selection.federations import PARTICIPANTS, POPULATION, Selecting, malicious_server, refused_round
from tests.selection.lotto.malicious import (
    CLIENT_CENTRIC,
    SERVER_CENTRIC,
    VARIANTS,
    everybody,
    one_more,
    showing,
    with_rows,
)


def changing_rows(rows: Callable[[list[ParticipantEntry]], list[ParticipantEntry]]) -> Callable:
    """Return a server that shows a list with other rows."""
    return showing(lambda self, message: with_rows(message, rows(message.participants)))


def others(clients: Sequence[int], one: int, own: str, check: str) -> dict[int, str]:
    """Return refusals: one client with `own`, the others with `check`."""
    return {client: own if client == one else check for client in clients}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_list_without_the_client_is_refused(variant: tuple) -> None:
    """An honest candidate replaces another: the list is valid, but not for the replaced client."""

    def list_for(self: Any, participants: Any, message: ParticipantList) -> Any:
        left_out, *rows = message.participants
        self.left_out = left_out.client
        return [(participants, with_rows(message, rows))]

    run = Selecting(malicious_server(variant, choose=one_more, list_for=list_for), POPULATION)
    assert refused_round(run)[1] == {run.protocol.left_out: "lotto.not-in-list"}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rows", [slice(0, -1), slice(0, 1), slice(0, 0)])
def test_a_shorter_list_is_refused(variant: tuple, rows: slice) -> None:
    server = malicious_server(variant, list_for=showing(lambda self, m: with_rows(m, m.participants[rows])))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == everybody(participants, "lotto.wrong-size")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_longer_list_is_refused(variant: tuple) -> None:
    participants, refusals, _ = refused_round(Selecting(malicious_server(variant, choose=one_more), POPULATION))
    assert len(participants) == PARTICIPANTS + 1
    assert refusals == everybody(participants, "lotto.wrong-size")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_client_that_is_listed_twice_is_refused(variant: tuple) -> None:
    for twice in (lambda rows: [rows[0], *rows[:-1]], lambda rows: [*rows, rows[0]]):
        server = malicious_server(variant, list_for=changing_rows(twice))
        participants, refusals, _ = refused_round(Selecting(server, POPULATION))
        assert refusals == everybody(participants, "lotto.duplicate-client")


def changing_the_first(**changes: Callable[[Any], Any]) -> Callable:
    """Return a server that shows a list with a changed first row."""

    def alter(self: Any, message: ParticipantList) -> ParticipantList:
        first, *rest = message.participants
        return with_rows(message, [replaced(first, **{key: of(first) for key, of in changes.items()}), *rest])

    return showing(alter)


def flipped(value: bytes, at: int) -> bytes:
    """Return the bytes with one bit changed."""
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


@pytest.mark.parametrize("variant", VARIANTS)
def test_another_registration_key_is_refused(variant: tuple) -> None:
    own_key = signatures.SigningKey.from_seed(bytes(32)).public
    server = malicious_server(variant, list_for=changing_the_first(registration_key=lambda entry: own_key))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == others(
        participants, participants[0], "lotto.own-entry-mismatch", "lotto.registration-key-mismatch"
    )


@pytest.mark.parametrize("at", [0, 40, 79])
def test_a_forged_proof_is_refused(at: int) -> None:
    server = malicious_server(CLIENT_CENTRIC, list_for=changing_the_first(proof=lambda entry: flipped(entry.proof, at)))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == others(participants, participants[0], "lotto.own-entry-mismatch", "lotto.invalid-proof")


@pytest.mark.parametrize("proof", [b"", bytes(80), bytes(79)])
def test_a_missing_proof_is_refused(proof: bytes) -> None:
    server = malicious_server(CLIENT_CENTRIC, list_for=changing_the_first(proof=lambda entry: proof))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == others(participants, participants[0], "lotto.own-entry-mismatch", "lotto.invalid-proof")


def test_a_number_that_contradicts_the_proof_is_refused() -> None:
    server = malicious_server(CLIENT_CENTRIC, list_for=changing_the_first(output=lambda entry: bytes(64)))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == others(participants, participants[0], "lotto.own-entry-mismatch", "lotto.output-mismatch")


@pytest.mark.parametrize("changes", [{"output": lambda entry: bytes(32)}, {"proof": lambda entry: b"?"}])
def test_a_number_that_is_not_the_prf_output_is_refused(changes: dict) -> None:
    server = malicious_server(SERVER_CENTRIC, list_for=changing_the_first(**changes))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    assert refusals == everybody(participants, "lotto.output-mismatch")


@pytest.mark.parametrize(("variant", "length"), [(CLIENT_CENTRIC, 32), (SERVER_CENTRIC, 64)])
def test_a_number_of_another_size_is_refused(variant: tuple, length: int) -> None:
    """The number is small for its size, so only the size is wrong."""
    server = malicious_server(variant, list_for=changing_the_first(output=lambda entry: bytes(length)))
    participants, refusals, _ = refused_round(Selecting(server, POPULATION))
    own = "lotto.own-entry-mismatch" if variant is CLIENT_CENTRIC else "lotto.output-mismatch"
    assert refusals == others(participants, participants[0], own, "lotto.above-threshold")


def with_accomplice(entry_of: Callable[[Any, int, Any], ParticipantEntry]) -> Callable:
    """Replace the last client of the list by a client that was not drawn."""

    def list_for(self: Any, participants: Any, message: ParticipantList) -> Any:
        *rows, _ = message.participants
        return [(ids([row.client for row in rows]), with_rows(message, [*rows, entry_of(self, message.round, rows)]))]

    return list_for


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_genuine_number_over_the_threshold_is_refused(variant: tuple) -> None:
    def genuine(self: Any, number: int, rows: list[ParticipantEntry]) -> ParticipantEntry:
        evaluated = selection_input(bytes(range(16)), number)
        for client in range(POPULATION):
            identity = run.client(client).identity
            if variant is CLIENT_CENTRIC:
                output, proof = identity.vrf.prove(evaluated)
            else:
                output, proof = prf.evaluate(identity.vrf.public, evaluated), b""
            if output[0] >= 128:  # over 3 s / n = 0.375
                return ParticipantEntry(client, identity.signing.public, output, proof)
        raise AssertionError

    run = Selecting(malicious_server(variant, list_for=with_accomplice(genuine)), POPULATION)
    participants, refusals, _ = refused_round(run)
    assert refusals == everybody(participants[:-1], "lotto.above-threshold")


@pytest.mark.parametrize(
    ("variant", "check"), [(CLIENT_CENTRIC, "lotto.invalid-proof"), (SERVER_CENTRIC, "lotto.output-mismatch")]
)
def test_a_copied_number_is_refused(variant: tuple, check: str) -> None:
    def copied(self: Any, number: int, rows: list[ParticipantEntry]) -> ParticipantEntry:
        accomplice = min(set(range(POPULATION)) - {row.client for row in rows})
        return replaced(rows[0], client=accomplice, registration_key=run.client(accomplice).identity.signing.public)

    run = Selecting(malicious_server(variant, list_for=with_accomplice(copied)), POPULATION)
    participants, refusals, _ = refused_round(run)
    assert refusals == everybody(participants[:-1], check)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("number", [POPULATION, 2**40])
def test_a_client_that_the_pki_does_not_know_is_refused(variant: tuple, number: int) -> None:
    def invented(self: Any, round_number: int, rows: list[ParticipantEntry]) -> ParticipantEntry:
        return replaced(rows[0], client=number)

    run = Selecting(malicious_server(variant, list_for=with_accomplice(invented)), POPULATION)
    participants, refusals, _ = refused_round(run)
    assert refusals == everybody(participants[:-1], "pki.unknown-client")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_proof_of_another_experiment_or_round_is_refused(variant: tuple) -> None:
    def of_another(experiment: bytes, step: int) -> Callable:
        def entry(self: Any, number: int, rows: list[ParticipantEntry]) -> ParticipantEntry:
            evaluated = selection_input(experiment, number + step)
            for client in sorted(set(range(POPULATION)) - {row.client for row in rows}):
                identity = run.client(client).identity
                if variant is CLIENT_CENTRIC:
                    output, proof = identity.vrf.prove(evaluated)
                else:
                    output, proof = prf.evaluate(identity.vrf.public, evaluated), b""
                if output[0] < 90:  # under 3 s / n = 0.375
                    return ParticipantEntry(client, identity.signing.public, output, proof)
            raise AssertionError

        return entry

    check = "lotto.invalid-proof" if variant is CLIENT_CENTRIC else "lotto.output-mismatch"
    for experiment, step in ((bytes(16), 0), (bytes(range(16)), 1)):
        run = Selecting(malicious_server(variant, list_for=with_accomplice(of_another(experiment, step))), POPULATION)
        participants, refusals, _ = refused_round(run)
        assert refusals == everybody(participants[:-1], check)
