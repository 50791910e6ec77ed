"""The round beacon: its randomness decides the lots, and each round has one registered list."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from testbed.crypto.signatures import SigningKey
from testbed.crypto.sortition import under_threshold
from testbed.errors import ProtocolError, Refusal, RoundAborted
from testbed.messages import encode
from testbed.parties.round_beacon import (
    OpenRound,
    RegisterList,
    RoundBeacon,
    Signed,
    check_pulse,
    check_receipt,
    randomness_of,
)
from testbed.selection.lotto.messages import ParticipantList, selection_input
from testbed.selection.lotto.variants import (
    ClientCentricParameters,
    ClientCentricServer,
    ServerCentricParameters,
    ServerCentricServer,
)
from testbed.selection.verifiable_batch_partition import VerifiableBatchPartitionParameters, VerifiableBatchServer
from tests.messages_named import naming
from tests.selection.federations import Selecting

EXPERIMENT_ID = bytes(range(16))
POPULATION = 30
KEY = SigningKey.from_seed(bytes(32))
PROTOCOLS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "client-centric": (ClientCentricServer, ClientCentricParameters, {"participants": 5, "over_selection": 3.0}),
    "server-centric": (ServerCentricServer, ServerCentricParameters, {"participants": 5, "over_selection": 3.0}),
    "batches": (
        VerifiableBatchServer,
        VerifiableBatchPartitionParameters,
        {"participants": 4, "privacy": 2, "over_selection": 4.0},
    ),
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def server(name: str, beacon: str = "public", **decisions: Any) -> Any:
    kind, section, keys = PROTOCOLS[name]
    return type("Deciding", (kind,), decisions)(section(**keys, round_beacon=beacon), POPULATION)


# -- the party ------------------------------------------------------------------------------------------------------


def test_opening_a_round_closes_those_before_it() -> None:
    beacon = RoundBeacon(KEY, EXPERIMENT_ID)
    first = beacon.open(1)
    assert beacon.open(1) == first  # published: anybody may ask again
    third = beacon.open(3)
    assert third != first
    for late in (lambda: beacon.open(1), lambda: beacon.open(2), lambda: beacon.register(1, bytes([1]) * 32)):
        with pytest.raises(Refusal) as refusal:
            late()
        assert refusal.value.check == "beacon.round-closed"
    with pytest.raises(Refusal, match=naming("round 3")):
        beacon.register(4, bytes([1]) * 32)  # nor is one that has not begun


def test_a_round_has_one_list() -> None:
    beacon, lists = RoundBeacon(KEY, EXPERIMENT_ID), [bytes([n]) * 32 for n in (1, 2)]
    beacon.open(1)
    receipt = beacon.register(1, lists[0])
    assert beacon.register(1, lists[0]) == receipt
    with pytest.raises(Refusal) as refusal:
        beacon.register(1, lists[1])
    assert refusal.value.check == "beacon.second-list"
    beacon.open(2)
    assert beacon.register(2, lists[1]) != receipt


def test_its_state_is_all_that_it_needs() -> None:
    beacon = RoundBeacon(KEY, EXPERIMENT_ID)
    pulse = beacon.open(5)
    receipt = beacon.register(5, bytes([7]) * 32)
    resumed = RoundBeacon(KEY, EXPERIMENT_ID, beacon.state)
    assert resumed.open(5) == pulse
    assert resumed.register(5, bytes([7]) * 32) == receipt
    with pytest.raises(Refusal, match=naming("list", "round 5")):
        resumed.register(5, bytes([8]) * 32)
    with pytest.raises(Refusal, match=naming("round 4", "round 5")):
        resumed.open(4)


def test_its_signatures_are_bound_to_experiment_round_list_and_purpose() -> None:
    beacon, digest = RoundBeacon(KEY, EXPERIMENT_ID), bytes([7]) * 32
    pulse, receipt = beacon.open(1), beacon.register(1, digest)
    check_pulse(KEY.public, EXPERIMENT_ID, 1, pulse)
    check_receipt(KEY.public, EXPERIMENT_ID, 1, digest, receipt)
    other = SigningKey.from_seed(bytes([1]) * 32).public
    for key, experiment, number, signature in (
        (other, EXPERIMENT_ID, 1, pulse), (KEY.public, bytes(16), 1, pulse), (KEY.public, EXPERIMENT_ID, 2, pulse),
        (KEY.public, EXPERIMENT_ID, 1, receipt), (KEY.public, EXPERIMENT_ID, 1, None),
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            check_pulse(key, experiment, number, signature)
    for of, signature in ((bytes(32), receipt), (digest, pulse), (digest, None)):
        with pytest.raises(ProtocolError):
            check_receipt(KEY.public, EXPERIMENT_ID, 1, of, signature)
    assert len({randomness_of(pulse), randomness_of(receipt), pulse[:32]}) == 3


# -- in a protocol --------------------------------------------------------------------------------------------------


def test_honest_rounds(protocol: str) -> None:
    """They complete, cost the beacon's bytes and time besides, and draw others than without it."""
    runs = {beacon: Selecting(server(protocol, beacon), POPULATION) for beacon in ("none", "public")}
    chosen: dict[str, list[Any]] = {beacon: [] for beacon in runs}
    for number in range(1, 7):
        for beacon, run in runs.items():
            chosen[beacon].append(run.select(number).participants.tolist())
            assert run.refusals() == {}
            spent = (run.network.beacon_bytes_up, run.network.beacon_bytes_down)
            asked = len(encode(OpenRound(number))) + len(encode(RegisterList(number, bytes(32))))
            assert spent == ((0, 0) if beacon == "none" else (asked, 2 * len(encode(Signed(bytes(64))))))
    assert chosen["none"] != chosen["public"]
    assert runs["public"].network.now_s > runs["none"].network.now_s + 1.0  # two round trips of 0.1 s each time


def test_the_vrf_input_of_clients_includes_the_randomness() -> None:
    """The VRF's input includes the randomness: without it, other clients are selected."""
    run = Selecting(server("client-centric"), POPULATION)
    run.select(1)
    randomness = randomness_of(run.beacon.beacon.open(1))
    keys = [run.client(number).identity.vrf for number in range(POPULATION)]
    standing = [
        {
            number
            for number, key in enumerate(keys)
            if under_threshold(key.output(selection_input(EXPERIMENT_ID, 1, more)), Fraction(3), 5, POPULATION)
        }
        for more in (randomness, b"")
    ]
    assert run.last.candidates == len(standing[0])
    assert standing[0] != standing[1]


@pytest.mark.parametrize("pulse", ["none", "of another round", "made up"])
def test_a_round_that_the_beacon_has_not_opened(pulse: str, protocol: str) -> None:
    async def open_round(self: Any, round_: Any) -> Any:
        self._pulse = {"none": None, "of another round": RoundBeacon(run_key(), EXPERIMENT_ID).open(2)}.get(
            pulse, bytes([9]) * 64
        )
        return self._pulse

    run = Selecting(server(protocol, open_round=open_round), POPULATION)

    def run_key() -> SigningKey:
        return SigningKey.from_seed(run.randomness.secret("round beacon", 0, "signing key"))

    run.beacon.beacon.open(1)
    with pytest.raises(RoundAborted, match=r"lotto\.round-not-opened"):
        run.select(1)
    assert set(run.refusals().values()) == {"lotto.round-not-opened"}
    assert all(run.client(number).last_round == 0 for number in range(POPULATION))


@pytest.mark.parametrize("receipt", ["none", "of another list", "made up"])
def test_a_list_that_the_beacon_has_not_registered(receipt: str, protocol: str) -> None:
    async def register(self: Any, message: ParticipantList, round_: Any) -> ParticipantList:
        honest: Any = type(self).__mro__[1]
        true = await honest.register(self, message, round_)
        if receipt == "none":
            return msgspec.structs.replace(true, beacon=None if self.announces else msgspec.structs.replace(
                true.beacon, receipt=bytes(64)))  # fmt: skip
        if receipt == "of another list":
            return msgspec.structs.replace(true, participants=true.participants[::-1])
        return msgspec.structs.replace(true, beacon=msgspec.structs.replace(true.beacon, receipt=bytes([9]) * 64))

    run = Selecting(server(protocol, register=register), POPULATION)
    with pytest.raises(RoundAborted, match=r"lotto\.list-not-registered"):
        run.select(1)
    assert set(run.refusals().values()) == {"lotto.list-not-registered"}
    assert len(run.refusals()) == len(run.last.participants)


def test_an_earlier_round_cannot_be_opened_again(protocol: str) -> None:
    run = Selecting(server(protocol), POPULATION)
    run.select(1)
    run.select(2)
    with pytest.raises(Refusal) as refusal:
        run.select(1)
    assert refusal.value.check == "beacon.round-closed"
    assert ("beacon", "refusal") in [(event.party, event.kind) for event in run.network.events]
