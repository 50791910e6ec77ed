"""The PKI: issued keys, and refused requests."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.crypto import vrf
from testbed.errors import ProtocolError, Refusal
from testbed.messages import decode, encode
from testbed.parties.pki import PKI, Identity, Registered, Registration
from testbed.randomness import Randomness
from tests.messages_named import naming

POPULATION = 5
# The points of small order on Curve25519 (RFC 7748, section 6.1 and 7), little-endian.
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 19 - 1).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
]
# Small-order and non-canonical points as Ed25519 keys (order 1, 2, 4, 8; y >= p).
BAD_SIGNING = [
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    bytes(32),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    (2**255 - 18).to_bytes(32, "little"),
    b"\xff" * 32,
]


@pytest.fixture
def pki() -> PKI:
    return PKI(POPULATION, Randomness(1))


def identity(client: int, seed: int = 1) -> Identity:
    return Identity(client, Randomness(seed))


def altered(number: int, seed: int = 1, **changes: Any) -> bytes:
    """A registration changed after it was signed."""
    request = decode(Registration, identity(number, seed).registration())
    return encode(msgspec.structs.replace(request, **changes))


def check_of(pki: PKI, request: bytes, sender: int = 0) -> str:
    with pytest.raises(Refusal) as refused:
        pki.register(request, sender)
    return refused.value.check


def test_a_client_gets_the_key_that_the_board_shows(pki: PKI) -> None:
    clients = [identity(client) for client in range(POPULATION)]
    for client, answer in zip(
        clients, pki.register_many([c.registration() for c in clients], np.arange(POPULATION)), strict=True
    ):
        client.accept(answer)
    board = pki.directory()
    assert board.registered.all()
    for client in clients:
        assert board.signing_key(client.client) == client.signing.public
        assert board.agreement[client.client].tobytes() == client.agreement.public
        assert client.vrf is not None
        output, proof = client.vrf.prove(b"alpha")
        assert vrf.verify(board.vrf_key(client.client), b"alpha", proof) == output
    assert len({row.tobytes() for row in board.vrf}) == POPULATION


def test_the_key_is_sealed_to_the_client_alone(pki: PKI) -> None:
    answer = pki.register(identity(0).registration(), 0)
    with pytest.raises(ProtocolError):
        identity(1).accept(answer)
    with pytest.raises(ProtocolError):
        identity(0, seed=2).accept(answer)


def test_a_key_that_is_not_the_announced_one_is_refused_by_the_client(pki: PKI) -> None:
    answer = decode(Registered, pki.register(identity(0).registration(), 0))
    with pytest.raises(Refusal) as refused:
        identity(0).accept(encode(msgspec.structs.replace(answer, vrf_public=bytes(32))))
    assert refused.value.check == "pki.key-mismatch"


def test_a_restarted_client_gets_the_same_key_and_cannot_grind_for_another() -> None:
    for randomness in (Randomness(1), Randomness(1, secrets_from_system=True)):
        pki = PKI(POPULATION, randomness)
        client = identity(2)
        keys = {decode(Registered, pki.register(client.registration(), 2)).vrf_public for _ in range(3)}
        assert len(keys) == 1
        client.accept(pki.register(client.registration(), 2))
        assert client.vrf is not None
        assert client.vrf.public == pki.directory().vrf_key(2)


def test_keys_from_the_system_are_not_those_of_the_seed() -> None:
    keys = {
        decode(Registered, PKI(POPULATION, randomness).register(identity(0).registration(), 0)).vrf_public
        for randomness in (Randomness(1), *(Randomness(1, secrets_from_system=True) for _ in range(2)))
    }
    assert len(keys) == 3


def test_registering_another_client_is_refused(pki: PKI) -> None:
    assert check_of(pki, identity(0).registration(), sender=1) == "pki.unauthorised-registration"
    assert check_of(pki, identity(0, seed=9).registration(), sender=1) == "pki.unauthorised-registration"
    # A request that another client has signed for its own number, under a changed number.
    assert check_of(pki, altered(1, client=0)) == "pki.unauthorised-registration"
    # A key that the requester does not have.
    assert check_of(pki, altered(0, signing_key=identity(1).signing.public)) == "pki.unauthorised-registration"
    assert check_of(pki, altered(0, agreement_key=identity(1).agreement.public)) == "pki.unauthorised-registration"
    assert check_of(pki, altered(0, signature=bytes(64))) == "pki.unauthorised-registration"
    assert not pki.directory().registered.any()


def test_a_host_can_register_only_the_clients_of_its_channels(pki: PKI) -> None:
    """A request's own claim does not count: if a host names another client, its whole batch is refused."""
    requests = [identity(client).registration() for client in (0, 2)]
    with pytest.raises(Refusal, match=naming("client 1", "client 2")):
        pki.register_many(requests, np.array([0, 1]))
    assert pki.directory().registered.tolist() == [True, *[False] * (POPULATION - 1)]
    with pytest.raises(ValueError, match="shorter"):
        pki.register_many(requests, np.array([0]))


def test_a_second_registration_with_another_key_is_refused_and_changes_nothing(pki: PKI) -> None:
    pki.register(identity(0).registration(), sender=0)
    before = [rows.copy() for rows in (pki.directory().signing, pki.directory().agreement, pki.directory().vrf)]
    assert check_of(pki, identity(0, seed=2).registration(), sender=0) == "pki.already-registered"
    for rows, were in zip(
        (pki.directory().signing, pki.directory().agreement, pki.directory().vrf), before, strict=True
    ):
        assert np.array_equal(rows, were)


@pytest.mark.parametrize("client", [POPULATION, POPULATION + 1, 2**40])
def test_outside_of_the_population_is_refused(pki: PKI, client: int) -> None:
    assert check_of(pki, identity(client).registration(), client) == "pki.unknown-client"


@pytest.mark.parametrize("key", BAD_SIGNING)
def test_signing_keys_of_small_order_or_not_canonical_are_refused(pki: PKI, key: bytes) -> None:
    assert check_of(pki, altered(0, signing_key=key)) == "pki.unauthorised-registration"


@pytest.mark.parametrize("key", LOW_ORDER)
def test_agreement_keys_of_small_order_are_refused(pki: PKI, key: bytes) -> None:
    class Weak(Identity):
        """Signs such a key."""

    weak = Weak(0, Randomness(1))
    weak.agreement = type("Key", (), {"public": key})()
    assert check_of(pki, weak.registration()) == "pki.invalid-agreement-key"
    assert not pki.directory().registered.any()
    pki.register(identity(0).registration(), 0)  # the number is not burnt


@given(st.binary(max_size=300))
@example(b"")
@example(encode(Registered(bytes(32), b"")))
@example(identity(0).registration()[:-1])
@example(identity(0).registration() + b"\x00")
def test_malformed_requests_are_refused(request: bytes) -> None:
    assert check_of(PKI(POPULATION, Randomness(1)), request) == "pki.malformed"


@given(position=st.integers(0, 170), bit=st.integers(0, 7))
def test_no_changed_request_registers_anybody(position: int, bit: int) -> None:
    request = bytearray(identity(0).registration())
    request[position % len(request)] ^= 1 << bit
    pki = PKI(POPULATION, Randomness(1))
    with pytest.raises(Refusal):
        pki.register(bytes(request), sender=0)
    assert not pki.directory().registered.any()


def test_the_board_refuses_to_speak_of_strangers(pki: PKI) -> None:
    pki.register(identity(3).registration(), 3)
    board = pki.directory()
    assert 3 in board
    for stranger in (0, -1, POPULATION, 2**40):
        assert stranger not in board
        for key_of in (board.signing_key, board.vrf_key):
            with pytest.raises(Refusal) as refused:
                key_of(stranger)
            assert refused.value.check == "pki.unknown-client"
