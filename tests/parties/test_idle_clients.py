"""Registered clients that nobody has asked yet: their secrets are kept, their key pairs made when they are needed."""

import tracemalloc

import numpy as np
import pytest

from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.errors import Refusal
from testbed.parties import host as hosts_module
from testbed.parties.client import Environment
from testbed.parties.host import Host, LocalHosts
from testbed.parties.host_assignment import owned_by
from testbed.parties.pki import PKI, SECRETS_BYTES, Directory, Identity
from testbed.randomness import Randomness
from tests.messages_named import naming

POPULATION = 30

COMPUTES_KEYS_ANEW = True  # keys that are kept for other tests would count as the clients'


def environment(randomness: Randomness) -> Environment:
    return Environment(
        population=POPULATION,
        randomness=randomness,
        compute=ComputeModel(False, REFERENCE_COSTS),
        directory=Directory.empty(0),
    )


def keys(identity: Identity) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Everything that others can see of an identity, and a use of each secret key."""
    assert identity.vrf is not None
    return (
        identity.signing.public, identity.agreement.public, identity.signing.sign(b"d", b"content"),
        identity.agreement.agree(PEER.agreement.public, b"purpose"), identity.vrf.prove(b"alpha")[1],
    )  # fmt: skip


PEER = Identity(99, Randomness(5))


@pytest.mark.parametrize("from_system", [False, True])
def test_a_restored_identity_is_the_one_that_was_registered(from_system: bool) -> None:
    randomness = Randomness(7, secrets_from_system=from_system)
    registered = Identity(3, randomness)
    registered.accept(PKI(POPULATION, randomness).register(registered.registration(), 3))
    assert len(registered.secrets) == SECRETS_BYTES
    assert keys(Identity.restored(3, registered.secrets)) == keys(registered)


@pytest.mark.parametrize("from_system", [False, True])
def test_a_hosts_clients_have_the_identities_that_the_board_shows(from_system: bool) -> None:
    randomness = Randomness(7, secrets_from_system=from_system)
    host = Host(owned_by(1, 3, POPULATION), environment(randomness), [])
    early = host.client(4)
    assert early.identity is None
    pki = PKI(POPULATION, randomness)
    for first in (0, 4, 8):
        host.accept_registrations(pki.register_many(host.registrations(first, 4), host.numbers[first : first + 4]))
    board = pki.directory()
    assert np.flatnonzero(board.registered).tolist() == host.numbers.tolist()
    for number in host.numbers.tolist():
        identity = host.client(number).identity
        assert identity is not None
        assert identity.vrf is not None
        assert identity.signing.public == board.signing_key(number)
        assert identity.agreement.public == board.agreement[number].tobytes()
        assert identity.vrf.public == board.vrf_key(number)
    assert host.client(4) is early
    again = host.registrations()  # the same keys, also when they were drawn by the operating system
    host.accept_registrations(pki.register_many(again, host.numbers))
    assert np.array_equal(pki.directory().vrf, board.vrf)


def test_a_request_that_is_repeated_before_the_answer_has_the_same_keys() -> None:
    host = Host(np.arange(3), environment(Randomness(1, secrets_from_system=True)), [])
    assert host.registrations() == host.registrations()
    with pytest.raises(ValueError, match="shorter"):
        host.accept_registrations([])


def test_in_a_run_a_client_cannot_register_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Identity.registration
    monkeypatch.setattr(
        Identity, "registration", lambda self: own(Identity(9, Randomness(2)) if self.client == 4 else self)
    )
    hosts = LocalHosts(POPULATION, environment(Randomness(2)), [], hosts=2)
    with pytest.raises(Refusal, match=naming("client 4", "client 9")) as refused:
        hosts.register(PKI(POPULATION, Randomness(2)))
    assert refused.value.check == "pki.unauthorised-registration"


def test_registering_by_parts_gives_the_same_board(monkeypatch: pytest.MonkeyPatch) -> None:
    boards = []
    for at_once in (1, 7, 1000):
        monkeypatch.setattr(hosts_module, "REGISTERED_AT_ONCE", at_once)
        hosts = LocalHosts(POPULATION, environment(Randomness(2)), [], hosts=2)
        hosts.register(PKI(POPULATION, Randomness(2)))
        boards.append(hosts.environment.directory)
    for board in boards:
        assert board.registered.all()
        for rows in ("signing", "agreement", "vrf"):
            assert np.array_equal(getattr(board, rows), getattr(boards[0], rows))


def test_an_idle_client_takes_a_few_hundred_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "REGISTERED_AT_ONCE", 100)
    population, randomness = 2000, Randomness(3)
    shared = Environment(
        population=population,
        randomness=randomness,
        compute=ComputeModel(False, REFERENCE_COSTS),
        directory=Directory.empty(0),
    )
    LocalHosts(10, environment(randomness), []).register(PKI(10, randomness))  # imports, caches
    tracemalloc.start()
    try:
        hosts, pki = LocalHosts(population, shared, []), PKI(population, randomness)
        hosts.register(pki)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / population < 350  # 97 at the host, 129 at the PKI; key pairs as objects take 1,400 and more
    assert hosts.hosts[0].client(1234).identity is not None
