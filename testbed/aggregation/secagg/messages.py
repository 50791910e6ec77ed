"""What the parties of `secagg` send each other, stage by stage, what they sign, and how shares are sealed.

A dealer's shares travel to their holder so that the holder can prove what it was dealt. Each kind of share is sealed
under a key of its own, derived from the key of the two clients. A holder that has revealed a share can reveal its key,
too: the server, which has passed the sealed shares on, then sees that this is the share that the dealer has sealed.
That says nothing of the other kinds, and nothing that was not revealed before. Nobody honest can be framed by it.
AES-GCM does not commit to its key where the sealer chooses the ciphertext; for a given one, with its tag of 128 bits, a
second key takes about 2**128 trials.

What it costs: 16 bytes more for each pair of clients, 32 with enforced noise, whose shares are a kind of their own.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, ClassVar

import msgspec

from testbed.aggregation.kit.message_parts import Many, ShareOf, SignatureOf
from testbed.aggregation.kit.sealing import content_key, open_once, seal_once
from testbed.crypto import OpeningFailed, memo
from testbed.crypto.encryption import TAG_BYTES
from testbed.crypto.shamir import SHARE_BYTES
from testbed.messages import ClientId, Count, Key32, Message, RoundNumber, Signature64, Vector, signed_content
from testbed.privacy.noise import MOST_TOLERATED

MASK_KEY, SELF_MASK, NOISE = 0, 1, 2
_DOMAIN = b"testbed/secagg/dealt-share/v1"


class ShareKey(Message, frozen=True):
    """What opens the one share that this client has revealed."""

    key: Key32


class ProveShare(Message, frozen=True):
    """The shares of this dealer's secret contradict each other: show that yours is what it has sealed for you."""

    stage: ClassVar[str] = "secagg/prove-share"
    Answer: ClassVar[type[Message] | None] = ShareKey

    round: RoundNumber
    dealer: ClientId
    kind: Annotated[int, msgspec.Meta(ge=MASK_KEY, le=SELF_MASK)]


def associated_data(round_number: int, dealer: int, holder: int, digest: bytes) -> bytes:
    """What sealed shares are bound to: they open for a holder that was shown the same keys as the dealer (`digest`)."""
    return signed_content(round_number, dealer, holder, digest)


def share_key(pair_key: bytes, dealer: int, holder: int, kind: int) -> bytes:
    """32 bytes: the key under which the dealer seals its share of one kind for the holder."""
    return content_key(pair_key, _DOMAIN, dealer, holder, kind)


def sealed_bytes(secrets: int) -> int:
    """How long the sealed shares of so many secrets are: mask key, self-mask seed, and those of the noise in one."""
    return secrets * SHARE_BYTES + min(secrets, 3) * TAG_BYTES


def seal_shares(pair_key: bytes, dealer: int, holder: int, shares: bytes, associated: bytes) -> bytes:
    """The dealer's shares for a holder, 33 bytes for each secret, sealed kind by kind."""
    sealed = b"".join([
        seal_once(share_key(pair_key, dealer, holder, kind), part, associated)
        for kind, part in enumerate(_parts(shares, SHARE_BYTES))
    ])  # fmt: skip
    memo.note_sealed(lambda: _sealed_as(pair_key, dealer, holder, sealed, associated), shares)
    return sealed


def open_shares(pair_key: bytes, dealer: int, holder: int, sealed: bytes, associated: bytes) -> bytes:
    """Inverse of `seal_shares`; raises `OpeningFailed`."""

    def opens() -> bytes:
        return b"".join([
            open_once(share_key(pair_key, dealer, holder, kind), part, associated)
            for kind, part in enumerate(_parts(sealed, SHARE_BYTES + TAG_BYTES))
        ])  # fmt: skip

    return memo.opened(lambda: _sealed_as(pair_key, dealer, holder, sealed, associated), opens)


def _sealed_as(pair_key: bytes, dealer: int, holder: int, sealed: bytes, associated: bytes) -> bytes:
    """32 bytes that stand for all that `open_shares` has."""
    return hashlib.sha256(
        b"%s%d %d %d " % (pair_key, dealer, holder, len(sealed)) + sealed + associated
    ).digest()  # fmt: skip


def open_share(key: bytes, sealed: bytes, kind: int, associated: bytes) -> bytes:
    """The share of one kind, given the key that its holder has shown; raises `OpeningFailed`."""
    parts = _parts(sealed, SHARE_BYTES + TAG_BYTES)
    if kind >= len(parts):
        raise OpeningFailed("no share of this kind was sealed")
    return open_once(key, parts[kind], associated)


def _parts(joined: bytes, size: int) -> list[bytes]:
    parts = [joined[:size], joined[size : 2 * size], joined[2 * size :]]
    return [part for part in parts if part]


KEYS_DOMAIN = b"testbed/secagg/advertised-keys/v2"
SURVIVORS_DOMAIN = b"testbed/secagg/survivors/v2"
_ADVERTS_DOMAIN = b"testbed/secagg/adverts/v2"
SealedShares = Annotated[
    bytes,
    msgspec.Meta(min_length=sealed_bytes(2), max_length=sealed_bytes(2 + MOST_TOLERATED)),
]
"""A share of 33 bytes of each secret: of two, and one for each removable component of the noise."""


def advert_content(round_number: int, client: int, sealing_key: bytes, mask_key: bytes, training: bytes) -> bytes:
    """What the signature on advertised keys covers, beside the domain and the experiment.

    `training` is the digest of what the client was asked to train (`training_digest`), empty with
    ``model_binding: none``. Each client verifies its peers' signatures with its own: it masks with those alone that
    were sent the same model. A server that sends all but one a model whose update it knows would else have the update
    of that one from the sum (Pasquini, Francati, Ateniese, CCS 2022, arXiv 2111.07380). It costs no byte on the wire.
    """
    return signed_content(round_number, client, sealing_key, mask_key, training)


def adverts_digest(
    round_number: int, participants: int, threshold: int, training: bytes, adverts: Iterable["AdvertOf"]
) -> bytes:
    """32 bytes that only clients have in common that were told the same s and t, trained the same and were shown the
    same keys (U1).

    Shares are sealed for them alone, and a signature on survivors counts for them alone. Without it a server that
    involves more than s clients could show each other ones, and the s of all thresholds would say nothing.
    """
    listed = sorted((advert.client, advert.sealing_key + advert.mask_key) for advert in adverts)
    clients, keys = [client for client, _ in listed], b"".join(keys for _, keys in listed)
    content = signed_content(round_number, participants, threshold, training, clients, keys)
    return hashlib.sha256(_ADVERTS_DOMAIN + content).digest()


def survivors_content(round_number: int, survivors: list[int], digest: bytes) -> bytes:
    """What a client signs that will unmask these survivors, among those that have its `digest` of the list of keys."""
    return signed_content(round_number, survivors, digest)


class KeyAdvert(Message, frozen=True):
    """A client's public keys for this round: one pair seals shares, the other agrees on masks; signed."""

    sealing_key: Key32
    mask_key: Key32
    signature: Signature64


class AdvertiseKeys(Message, frozen=True):
    """Aggregation begins; so many participants, so many must remain."""

    stage: ClassVar[str] = "secagg/advertise-keys"
    Answer: ClassVar[type[Message] | None] = KeyAdvert

    round: RoundNumber
    participants: Count
    threshold: Count


class AdvertOf(Message, frozen=True):
    """One client's advert, passed on."""

    client: ClientId
    sealing_key: Key32
    mask_key: Key32
    signature: Signature64


class SharesFor(Message, frozen=True):
    """One peer's sealed shares (to it, or from it)."""

    client: ClientId
    sealed: SealedShares


class SealedForPeers(Message, frozen=True):
    """A client's shares of its two secrets, sealed for each peer."""

    shares: Annotated[list[SharesFor], Many]


class ShareKeys(Message, frozen=True):
    """Everybody's advertised keys."""

    stage: ClassVar[str] = "secagg/share-keys"
    Answer: ClassVar[type[Message] | None] = SealedForPeers

    round: RoundNumber
    adverts: Annotated[list[AdvertOf], Many]


class Masked(Message, frozen=True):
    """The masked, quantised update."""

    input: Vector


class SealedFromPeers(Message, frozen=True):
    """The shares that this client's peers sealed for it; the senders are who has shared."""

    shares: Annotated[list[SharesFor], Many]


class MaskInput(Message, frozen=True):
    """Mask your update against those who have shared."""

    stage: ClassVar[str] = "secagg/masked-input"
    Answer: ClassVar[type[Message] | None] = Masked
    Private: ClassVar[type[Message] | None] = SealedFromPeers

    round: RoundNumber


class SurvivorsSignature(Message, frozen=True):
    """A client's signature on the set of survivors it was told."""

    signature: Signature64


class CheckSurvivors(Message, frozen=True):
    """Whose masked input has arrived."""

    stage: ClassVar[str] = "secagg/consistency"
    Answer: ClassVar[type[Message] | None] = SurvivorsSignature

    round: RoundNumber
    survivors: Annotated[list[ClientId], Many]


class RevealedShares(Message, frozen=True):
    """Shares of the mask keys of those who dropped out, and of the self-mask seeds of the survivors."""

    mask_keys: Annotated[list[ShareOf], Many]
    self_masks: Annotated[list[ShareOf], Many]


class Unmask(Message, frozen=True):
    """The signatures on the set of survivors; reveal the shares that it calls for."""

    stage: ClassVar[str] = "secagg/unmask"
    Answer: ClassVar[type[Message] | None] = RevealedShares

    round: RoundNumber
    signatures: Annotated[list[SignatureOf], Many]


class UnmaskSurvivors(Message, frozen=True):
    """Without signatures (``consistency: none``): who has survived; reveal the shares that this calls for."""

    stage: ClassVar[str] = "secagg/unmask-survivors"
    Answer: ClassVar[type[Message] | None] = RevealedShares

    round: RoundNumber
    survivors: Annotated[list[ClientId], Many]
