"""Keys that are made when somebody looks are those of a board on which everybody has registered."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.parties.client import Environment
from testbed.parties.derived_keys import DerivedKeys
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI, Directory, Identity
from testbed.randomness import Randomness
from tests.thoroughness import examples

POPULATION = 40
COLUMNS = ("signing", "agreement", "vrf")


def registered(randomness: Randomness) -> LocalHosts:
    """The long way."""
    environment = Environment(
        population=POPULATION,
        randomness=randomness,
        compute=ComputeModel(False, REFERENCE_COSTS),
        directory=Directory.empty(0),
    )
    hosts = LocalHosts(POPULATION, environment, [], hosts=3)
    hosts.register(PKI(POPULATION, randomness))
    return hosts


def test_the_board_is_the_one_that_registering_gives() -> None:
    randomness = Randomness(7, context=b"an experiment")
    long = registered(randomness).environment.directory
    short = Directory.derived(POPULATION, Randomness(7, context=b"an experiment"))
    assert short.registered.all()
    for name in COLUMNS:
        assert getattr(short, name).tobytes() == getattr(long, name).tobytes()
        assert np.array_equal(np.asarray(getattr(short, name)), getattr(long, name))
    for client in (0, 17, POPULATION - 1):
        assert client in short
        assert short.signing_key(client) == long.signing_key(client)
        assert short.vrf_key(client) == long.vrf_key(client)
    assert POPULATION not in short


def test_an_identity_is_the_one_that_registering_gives() -> None:
    randomness = Randomness(8)
    hosts = registered(randomness)
    for number in range(0, POPULATION, 7):
        long, short = hosts.hosts[number % 3].client(number).identity, Identity.derived(number, randomness)
        assert long is not None
        assert long.vrf is not None
        assert short.vrf is not None
        assert short.secrets == long.secrets
        assert short.signing.sign(b"d", b"content") == long.signing.sign(b"d", b"content")
        assert short.agreement.public == long.agreement.public
        assert short.vrf.prove(b"alpha") == long.vrf.prove(b"alpha")


wanted = st.one_of(
    st.integers(-POPULATION, POPULATION - 1),
    st.lists(st.integers(0, POPULATION - 1), max_size=POPULATION).map(lambda chosen: np.array(chosen, np.int64)),
    st.builds(slice, st.none() | st.integers(0, POPULATION), st.none() | st.integers(0, POPULATION), st.just(3)),
    st.lists(st.booleans(), min_size=POPULATION, max_size=POPULATION).map(np.array),
)
BOARD = Directory.derived(POPULATION, Randomness(1)).vrf[:]


@settings(max_examples=examples(60))
@given(st.lists(wanted, max_size=4))
def test_a_column_is_read_like_an_array(reads: list[Any]) -> None:
    keys = DerivedKeys(POPULATION, Randomness(1), "vrf")
    for clients in reads:
        assert np.array_equal(keys[clients], BOARD[clients])
    assert keys.shape == BOARD.shape
    assert len(keys) == POPULATION


def test_only_keys_that_are_read_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    derived = Randomness.identity_secret

    def counted(self: Randomness, party: Any, subject: int, purpose: str) -> bytes:
        made.append(subject if party == "pki" else party)
        return derived(self, party, subject, purpose)

    monkeypatch.setattr(Randomness, "identity_secret", counted)
    board = Directory.derived(10**7, Randomness(1))
    for _ in range(3):
        board.vrf_key(9_999_999)
        board.signing_key(5)
    assert made == [9_999_999, 5]


def test_a_board_travels_as_the_seed() -> None:
    board = Directory.derived(POPULATION, Randomness(1))
    assert board.vrf[:].tobytes() == BOARD.tobytes()
    assert len(pickle.dumps(board.vrf)) < 1000
    assert copy.copy(board.vrf)[3].tobytes() == BOARD[3].tobytes()


def test_keys_of_the_operating_system_are_not_derived() -> None:
    with pytest.raises(ValueError, match="operating system"):
        Directory.derived(POPULATION, Randomness(1, secrets_from_system=True))
