"""A public randomness beacon that opens rounds, and registers their participant lists. In no paper of Lotto's.

In the spirit of drand (drand.love; its unchained mode): a party that nobody else controls publishes a signature on
each round's number when the round is opened; its hash is randomness that nobody knew before and everybody can verify.
It stands in what the VRF or PRF of Lotto is evaluated on. A round is open until a later one is: only then the beacon
signs the digest of one participant list for it. A server can therefore look at a round's lots only by opening it, and
nothing of an earlier round can begin any more then.

The beacon is assumed to be honest and available, and the server not to know its key. drand spreads that trust over a
committee, by threshold BLS signatures; here one Ed25519 key stands for the committee's. The server asks the beacon;
its answers go on to the clients in messages that they get anyway.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.crypto import signatures
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal
from testbed.messages import Digest32, Message, RoundNumber, Signature64, encode, signed_content
from testbed.network import Network

PULSE_DOMAIN = b"testbed/round-beacon/pulse/v1"
LIST_DOMAIN = b"testbed/round-beacon/list/v1"
_RANDOMNESS_DOMAIN = b"testbed/round-beacon/randomness/v1"
_DIGEST_BYTES = 32


class OpenRound(Message, frozen=True):
    """The server's request to open a round."""

    round: RoundNumber


class RegisterList(Message, frozen=True):
    """The server's request to register the digest of the participant list of the round that is open."""

    round: RoundNumber
    digest: Digest32


class Signed(Message, frozen=True):
    """The beacon's answer to either: its signature, over experiment, round and (of a list) digest."""

    signature: Signature64


class RoundBeacon:
    """The beacon's side.

    Args:
        key: its key pair.
        experiment_id: 16 bytes.
        state: `(40,)` uint8 as `state` gave it, of a run that is resumed; None: nothing was opened yet.
    """

    def __init__(
        self, key: signatures.SigningKey, experiment_id: bytes, state: npt.NDArray[np.uint8] | None = None
    ) -> None:
        self._key = key
        self._experiment_id = experiment_id
        kept = bytes(8 + _DIGEST_BYTES) if state is None else state.tobytes()
        self._open, self._digest = int.from_bytes(kept[:8], "big"), kept[8:]  # zeros: no list was registered

    @property
    def state(self) -> npt.NDArray[np.uint8]:
        """`(40,)` uint8: which round is open, and the digest of its list."""
        return np.frombuffer(self._open.to_bytes(8, "big") + self._digest, np.uint8).copy()

    def open(self, number: int) -> bytes:
        """The 64-byte pulse of round `number`; the round that is open may be asked for again, as it is public.

        Raises:
            Refusal: a later round has been opened.
        """
        if number < self._open:
            raise Refusal("beacon.round-closed", f"round {number}, and round {self._open} is open")
        if number > self._open:
            self._open, self._digest = number, bytes(_DIGEST_BYTES)
        return self._key.sign(PULSE_DOMAIN, signed_content(self._experiment_id, number))

    def register(self, number: int, digest: bytes) -> bytes:
        """The 64-byte receipt for the one list of round `number`; for the same list the same again.

        Raises:
            Refusal: the round is not open, or has another list.
        """
        if number != self._open:
            raise Refusal("beacon.round-closed", f"a list of round {number}, and round {self._open} is open")
        if self._digest not in (bytes(_DIGEST_BYTES), digest):
            raise Refusal("beacon.second-list", f"another list of round {number} is registered")
        self._digest = digest
        return self._key.sign(LIST_DOMAIN, signed_content(self._experiment_id, number, digest))


@dataclass(frozen=True)
class BeaconAccess:
    """The server's way to the beacon: every request costs its bytes and a round trip.

    Attributes:
        beacon: the party.
        network: the server's.
        latency_s: one way, seconds.
    """

    beacon: RoundBeacon
    network: Network
    latency_s: float

    async def open(self, number: int) -> bytes:
        await self._round_trip(OpenRound(number))
        return self._answered(lambda: self.beacon.open(number))

    async def register(self, number: int, digest: bytes) -> bytes:
        await self._round_trip(RegisterList(number, digest))
        return self._answered(lambda: self.beacon.register(number, digest))

    def _answered(self, answer: Callable[[], bytes]) -> bytes:
        try:
            return answer()
        except Refusal as refusal:
            self.network.record_event("beacon", "refusal", f"{refusal.check}: {refusal.detail}")
            raise

    async def _round_trip(self, request: Message) -> None:
        answer = len(encode(Signed(bytes(signatures.SIGNATURE_BYTES))))
        await self.network.consult_beacon(len(encode(request)), answer, 2 * self.latency_s)


def randomness_of(pulse: bytes) -> bytes:
    """The 32 bytes that a pulse gives."""
    return hashlib.sha512(_RANDOMNESS_DOMAIN + pulse).digest()[:32]


def check_pulse(beacon: bytes, experiment_id: bytes, number: int, pulse: bytes | None) -> None:
    """Raise `ProtocolError` unless `pulse` is the one of this round, by the beacon with this public key."""
    meter("ed25519.verify")
    signatures.verify(beacon, PULSE_DOMAIN, signed_content(experiment_id, number), _given(pulse))


def check_receipt(beacon: bytes, experiment_id: bytes, number: int, digest: bytes, receipt: bytes | None) -> None:
    """Raise `ProtocolError` unless the beacon has registered the list of this round that has `digest`."""
    meter("ed25519.verify")
    signatures.verify(beacon, LIST_DOMAIN, signed_content(experiment_id, number, digest), _given(receipt))


def _given(signature: bytes | None) -> bytes:
    if signature is None:
        raise ProtocolError("nothing by the beacon")
    return signature
