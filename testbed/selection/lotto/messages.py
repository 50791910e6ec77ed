"""Lotto's messages in the order of the protocol, the signed content, and the input of VRF or PRF.

The threshold that makes a client a candidate is `testbed.crypto.sortition.under_threshold`.
"""

from hashlib import sha256
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from testbed.crypto import memo
from testbed.crypto.sortition import Bytes, below_threshold_mask
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError
from testbed.messages import ClientId, Count, Key32, Message, RoundNumber, Signature64, signed_content
from testbed.selection.lotto.parameters import AgreedListParameters

LIST_DOMAIN = b"testbed/lotto/participant-list/v1"
MAXIMUM_PARTICIPANTS = 100_000
Term = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]  # numerator or denominator of a float's shortest decimal


# -- stage 1: the server announces the round, candidates claim their candidacy ----------------------------------------


class Candidacy(Message, frozen=True):
    """The client's number, its proof, or both; empty if the client only acknowledges."""

    output: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)] | None = None
    proof: Annotated[bytes, msgspec.Meta(min_length=80, max_length=80)] | None = None


class Announce(Message, frozen=True):
    """Announcement of a round: its number, n, s, and the over-selection factor a as a fraction."""

    stage: ClassVar[str] = "lotto/announce"
    Answer: ClassVar[type[Message] | None] = Candidacy
    announces: ClassVar[bool] = True

    round: RoundNumber
    population: Count
    participants: Count
    factor_numerator: Term
    factor_denominator: Term
    pulse: Signature64 | None = None


# -- stage 2: participants verify and sign their list ------------------------------------------------------------------


class ParticipantEntry(Message, frozen=True):
    """One row of a participant list: the client, its registration key, its number and the proof."""

    client: ClientId
    registration_key: Key32
    output: Annotated[bytes, msgspec.Meta(min_length=32, max_length=64)]
    proof: Annotated[bytes, msgspec.Meta(max_length=80)]


class ListRegistration(Message, frozen=True):
    """The beacon's receipt for this list, and its pulse if the round was not announced before."""

    receipt: Signature64
    pulse: Signature64 | None = None


class ListSignature(Message, frozen=True):
    """The client's signature on a verified list."""

    signature: Signature64


class ParticipantList(Message, frozen=True):
    """The outcome of selection as the server reports it."""

    stage: ClassVar[str] = "lotto/participants"
    Answer: ClassVar[type[Message] | None] = ListSignature

    round: RoundNumber
    population: Count
    participants: Annotated[list[ParticipantEntry], msgspec.Meta(max_length=MAXIMUM_PARTICIPANTS)]
    beacon: ListRegistration | None = None


# -- stage 3: participants see each other's signatures -----------------------------------------------------------------


class Agreed(Message, frozen=True):
    """The client has verified enough signatures and takes part."""


class SignedBy(Message, frozen=True):
    """One signature and its signer."""

    client: ClientId
    signature: Signature64


class ListSignatures(Message, frozen=True):
    """The participants' signatures on the list, forwarded by the server."""

    stage: ClassVar[str] = "lotto/signatures"
    Answer: ClassVar[type[Message] | None] = Agreed

    round: RoundNumber
    signatures: Annotated[list[SignedBy], msgspec.Meta(max_length=MAXIMUM_PARTICIPANTS)]


# -- signed and registered content -------------------------------------------------------------------------------------


def list_content(experiment_id: bytes, parameters: AgreedListParameters, message: ParticipantList) -> bytes:
    """Return the canonical bytes of the experiment and (r, n, s, a, P), which participants sign.

    Args:
        experiment_id: 16 bytes.
        parameters: agreed s and a.
        message: the list.
    """
    # The experiment's identifier is signed, too: a signature must not hold in another run.
    rows = [[entry.client, entry.registration_key, entry.output, entry.proof] for entry in message.participants]
    return signed_content(experiment_id, message.round, message.population, *parameters.terms, rows)


def list_digest(content: bytes) -> bytes:
    """Return the digest that the beacon registers for a list with this content, 32 bytes."""
    return sha256(b"testbed/lotto/participant-list-digest/v1" + content).digest()


# -- candidates: beta < a s m / n (section 3.4) ------------------------------------------------------------------------
# A client's number beta is the output of a verifiable random function (client-centric) or a PRF (server-centric) for
# the round: no party can choose beta, and every party can verify it.


def selection_input(experiment_id: bytes, round_number: int, randomness: bytes = b"") -> bytes:
    """Return the input of VRF or PRF: domain tag, experiment, round and, with a beacon, its randomness.

    Args:
        experiment_id: 16 bytes.
        round_number: from 1.
        randomness: the beacon's randomness; empty without a beacon.
    """
    # Parts of fixed length, so two rounds never share an input.
    return b"testbed/lotto/selection/v1" + experiment_id + round_number.to_bytes(8, "big") + randomness


def below_threshold(outputs: Bytes, parameters: AgreedListParameters, population: int) -> npt.NDArray[np.bool_]:
    """Return which outputs make their clients candidates.

    Args:
        outputs: `(m, 32)` uint8.
        parameters: agreed s and a.
        population: announced number of clients n.

    Returns:
        `(m,)` bool.
    """
    return below_threshold_mask(outputs, parameters.factor, parameters.participants, population)


def verify_claim(claim: Candidacy, key: bytes, vrf_input: bytes) -> bool:
    """Return whether the claim's proof is valid for this key and input and gives the claimed number.

    Args:
        claim: number and proof.
        key: VRF public key, 32 bytes.
        vrf_input: from `selection_input`.
    """
    if claim.output is None or claim.proof is None:
        return False
    meter("vrf.verify")
    try:
        return memo.verify_output(key, vrf_input, claim.proof) == claim.output
    except ProtocolError:
        return False
