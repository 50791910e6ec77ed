"""A public randomness beacon that opens rounds and registers their participant lists. It is not part of Lotto's paper.

It follows drand (drand.love; unchained mode). An independent party publishes a signature on each round's number when
the round is opened. The hash of the signature is randomness that was unpredictable before and is publicly verifiable.
It is part of the input of Lotto's VRF or PRF. A round is open until a later round is opened: only during that time does
the beacon sign the digest of one participant list for it. A server can therefore evaluate a round's lots only by
opening the round, and cannot return to an earlier round afterwards.

The beacon is assumed to be honest and available, and the server not to know its key. drand distributes that trust over
a committee with threshold BLS signatures; here one Ed25519 key stands for the committee's key. The server asks the
beacon, and passes its answers on to the clients in messages that they get anyway.
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
        saved = bytes(8 + _DIGEST_BYTES) if state is None else state.tobytes()
        self._open, self._digest = int.from_bytes(saved[:8], "big"), saved[8:]  # zeros: no list was registered

    @property
    def state(self) -> npt.NDArray[np.uint8]:
        """`(40,)` uint8: which round is open, and the digest of its list."""
        return np.frombuffer(self._open.to_bytes(8, "big") + self._digest, np.uint8).copy()

    def open(self, number: int) -> bytes:
        """Return the 64-byte pulse of round `number`; the open round may be requested again, as its pulse is public.

        Raises:
            Refusal: a later round has been opened.
        """
        # Stops a server that opens later rounds to see their lots, and then returns to a round with lots that suit it.
        if number < self._open:
            raise Refusal("beacon.round-closed", f"round {number}, and round {self._open} is open")
        if number > self._open:
            self._open, self._digest = number, bytes(_DIGEST_BYTES)
        # Ed25519 is deterministic: a round has one pulse, and nobody can choose among several.
        return self._key.sign(PULSE_DOMAIN, signed_content(self._experiment_id, number))

    def register(self, number: int, digest: bytes) -> bytes:
        """Return the 64-byte receipt for the one list of round `number`; the same list gets the same receipt again.

        Raises:
            Refusal: the round is not open, or has another list.
        """
        if number != self._open:
            raise Refusal("beacon.round-closed", f"a list of round {number}, and round {self._open} is open")
        # Stops a server that shows different participant lists to different clients.
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
        # First, as a refused request costs the same bytes and time.
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
    """Return the 32 bytes of randomness that a pulse gives."""
    # The hash of the signature, as in drand (there SHA-256): a signature itself is not uniform.
    return hashlib.sha512(_RANDOMNESS_DOMAIN + pulse).digest()[:32]


def check_pulse(beacon: bytes, experiment_id: bytes, number: int, pulse: bytes | None) -> None:
    """Check that a pulse is valid for a round.

    Args:
        beacon: 32 bytes, the beacon's public key.
        experiment_id: 16 bytes.
        number: the round.
        pulse: 64 bytes; None: the server sent none.

    Raises:
        ProtocolError: the pulse is missing or not valid.
    """
    meter("ed25519.verify")
    signatures.verify(beacon, PULSE_DOMAIN, signed_content(experiment_id, number), _required(pulse))


def check_receipt(beacon: bytes, experiment_id: bytes, number: int, digest: bytes, receipt: bytes | None) -> None:
    """Check that the beacon has registered a participant list for a round.

    Args:
        beacon: 32 bytes, the beacon's public key.
        experiment_id: 16 bytes.
        number: the round.
        digest: 32 bytes, digest of the participant list.
        receipt: 64 bytes; None: the server sent none.

    Raises:
        ProtocolError: the receipt is missing or not valid.
    """
    meter("ed25519.verify")
    signatures.verify(beacon, LIST_DOMAIN, signed_content(experiment_id, number, digest), _required(receipt))


def _required(signature: bytes | None) -> bytes:
    if signature is None:
        raise ProtocolError("nothing by the beacon")
    return signature
