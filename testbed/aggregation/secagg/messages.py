"""Messages of `secagg`, stage by stage, the contents that clients sign, and the sealing of shares.

A dealer's shares travel to their holder so that the holder can prove which share it was dealt. Each kind of share is
sealed under its own key, derived from the key of the two clients. A holder that has revealed a share can reveal its
key, too: the server, which has passed on the sealed shares, then sees that the dealer has sealed this share. The key
reveals nothing about other kinds of shares, and nothing new about this one. An honest client cannot be framed: AES-GCM
does not commit to its key if the sealer chooses the ciphertext, but for a given ciphertext with its tag of 128 bits, a
second key takes about 2**128 trials.

Costs: 16 bytes more per pair of clients, or 32 with enforced noise: its shares are a kind of their own.
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
    """The key that opens the one share that this client has revealed."""

    key: Key32


class ProveShare(Message, frozen=True):
    """Question to a holder after contradictory shares: prove that the dealer has sealed your share for you."""

    stage: ClassVar[str] = "secagg/prove-share"
    Answer: ClassVar[type[Message] | None] = ShareKey

    round: RoundNumber
    dealer: ClientId
    kind: Annotated[int, msgspec.Meta(ge=MASK_KEY, le=SELF_MASK)]


def associated_data(round_number: int, dealer: int, holder: int, digest: bytes) -> bytes:
    """Return the associated data of sealed shares: they open only for a holder that was shown the same keys.

    Args:
        round_number: the round.
        dealer, holder: client numbers.
        digest: of the keys shown to the dealer.
    """
    return signed_content(round_number, dealer, holder, digest)


def share_key(pair_key: bytes, dealer: int, holder: int, kind: int) -> bytes:
    """Return the 32-byte key under which the dealer seals its share of one kind for the holder.

    Args:
        pair_key: 32 bytes that the two have agreed on.
        dealer, holder: client numbers.
        kind: `MASK_KEY`, `SELF_MASK` or `NOISE`.
    """
    return content_key(pair_key, _DOMAIN, dealer, holder, kind)


def sealed_bytes(secrets: int) -> int:
    """Return the length of the sealed shares of this many secrets: mask key, self-mask seed, and all noise together."""
    return secrets * SHARE_BYTES + min(secrets, 3) * TAG_BYTES


def seal_shares(pair_key: bytes, dealer: int, holder: int, shares: bytes, associated: bytes) -> bytes:
    """Seal the dealer's shares for a holder, kind by kind.

    Args:
        pair_key: 32 bytes that the two have agreed on.
        dealer, holder: client numbers.
        shares: 33 bytes per secret.
        associated: of `associated_data`.
    """
    sealed = b"".join([
        seal_once(share_key(pair_key, dealer, holder, kind), part, associated)
        for kind, part in enumerate(_parts(shares, SHARE_BYTES))
    ])  # fmt: skip
    memo.store_plaintext(lambda: _sealed_as(pair_key, dealer, holder, sealed, associated), shares)
    return sealed


def open_shares(pair_key: bytes, dealer: int, holder: int, sealed: bytes, associated: bytes) -> bytes:
    """Open shares that `seal_shares` has sealed; raises `OpeningFailed`.

    Args:
        pair_key, dealer, holder, associated: as in `seal_shares`.
        sealed: its result.
    """

    def opens() -> bytes:
        return b"".join([
            open_once(share_key(pair_key, dealer, holder, kind), part, associated)
            for kind, part in enumerate(_parts(sealed, SHARE_BYTES + TAG_BYTES))
        ])  # fmt: skip

    return memo.cached_opening(lambda: _sealed_as(pair_key, dealer, holder, sealed, associated), opens)


def _sealed_as(pair_key: bytes, dealer: int, holder: int, sealed: bytes, associated: bytes) -> bytes:
    """Return 32 bytes that identify all inputs of `open_shares`."""
    return hashlib.sha256(
        b"%s%d %d %d " % (pair_key, dealer, holder, len(sealed)) + sealed + associated
    ).digest()  # fmt: skip


def open_share(key: bytes, sealed: bytes, kind: int, associated: bytes) -> bytes:
    """Open the share of one kind with the key that its holder has revealed.

    Args:
        key: of `share_key`.
        sealed: result of `seal_shares`.
        kind: `MASK_KEY` or `SELF_MASK`.
        associated: of `associated_data`.

    Raises:
        OpeningFailed: the key does not open the share.
    """
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
"""One share of 33 bytes per secret: of the two secrets, and of each removable component of the noise."""


def advert_content(round_number: int, client: int, sealing_key: bytes, mask_key: bytes, training: bytes) -> bytes:
    """Return the content of the signature on advertised keys, beside the domain and the experiment.

    Args:
        round_number: the round.
        client: its number.
        sealing_key, mask_key: 32 bytes each.
        training: digest of the training task (`training_digest`), empty with ``model_binding: none``.
    """
    # A client verifies its peers' signatures with the digest of its own training task, so it masks only with clients
    # that were sent the same model. Otherwise a server could send all others a model with a known update, and get that
    # client's update from the sum (Pasquini, Francati, Ateniese, CCS 2022, arXiv 2111.07380).
    return signed_content(round_number, client, sealing_key, mask_key, training)


def adverts_digest(
    round_number: int, participants: int, threshold: int, training: bytes, adverts: Iterable["AdvertOf"]
) -> bytes:
    """Return 32 bytes that are equal only for clients with the same s, t and training task that saw the same keys (U1).


    Args:
        round_number: the round.
        participants: s.
        threshold: t.
        training: digest of the training task.
        adverts: the keys shown, in any order.
    """
    listed = sorted((advert.client, advert.sealing_key + advert.mask_key) for advert in adverts)
    clients, keys = [client for client, _ in listed], b"".join(keys for _, keys in listed)
    # Without s, t and the list, a server that involves more than s clients could show each client other keys, and
    # thresholds would not hold.
    content = signed_content(round_number, participants, threshold, training, clients, keys)
    return hashlib.sha256(_ADVERTS_DOMAIN + content).digest()


def survivors_content(round_number: int, survivors: list[int], digest: bytes) -> bytes:
    """Return the content that clients sign before they unmask these survivors.

    Args:
        round_number: the round.
        survivors: sorted client numbers.
        digest: of the list of keys (`adverts_digest`).
    """
    return signed_content(round_number, survivors, digest)


class KeyAdvert(Message, frozen=True):
    """A client's public keys for this round: one pair seals shares, the other agrees on masks; signed."""

    sealing_key: Key32
    mask_key: Key32
    signature: Signature64


class AdvertiseKeys(Message, frozen=True):
    """Question that begins the aggregation, with the number of participants and the threshold."""

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
    """A peer's sealed shares, to it or from it."""

    client: ClientId
    sealed: SealedShares


class SealedForPeers(Message, frozen=True):
    """A client's shares of its two secrets, sealed for each peer."""

    shares: Annotated[list[SharesFor], Many]


class ShareKeys(Message, frozen=True):
    """Question for sealed shares, with the advertised keys of all clients."""

    stage: ClassVar[str] = "secagg/share-keys"
    Answer: ClassVar[type[Message] | None] = SealedForPeers

    round: RoundNumber
    adverts: Annotated[list[AdvertOf], Many]


class Masked(Message, frozen=True):
    """The masked, quantised update."""

    input: Vector


class SealedFromPeers(Message, frozen=True):
    """The shares that peers have sealed for this client; the senders are the clients that have shared."""

    shares: Annotated[list[SharesFor], Many]


class MaskInput(Message, frozen=True):
    """Question for the update, masked against the clients that have shared."""

    stage: ClassVar[str] = "secagg/masked-input"
    Answer: ClassVar[type[Message] | None] = Masked
    Private: ClassVar[type[Message] | None] = SealedFromPeers

    round: RoundNumber


class SurvivorsSignature(Message, frozen=True):
    """A client's signature on the set of survivors that it was told."""

    signature: Signature64


class CheckSurvivors(Message, frozen=True):
    """Question for a signature on the survivors: the clients that have sent their masked input."""

    stage: ClassVar[str] = "secagg/consistency"
    Answer: ClassVar[type[Message] | None] = SurvivorsSignature

    round: RoundNumber
    survivors: Annotated[list[ClientId], Many]


class RevealedShares(Message, frozen=True):
    """Shares of the mask keys of dropouts, and of the self-mask seeds of survivors."""

    mask_keys: Annotated[list[ShareOf], Many]
    self_masks: Annotated[list[ShareOf], Many]


class Unmask(Message, frozen=True):
    """Question for the shares that the set of survivors requires, with the signatures on the set."""

    stage: ClassVar[str] = "secagg/unmask"
    Answer: ClassVar[type[Message] | None] = RevealedShares

    round: RoundNumber
    signatures: Annotated[list[SignatureOf], Many]


class UnmaskSurvivors(Message, frozen=True):
    """Question for the shares that the survivors require, without signatures (``consistency: none``)."""

    stage: ClassVar[str] = "secagg/unmask-survivors"
    Answer: ClassVar[type[Message] | None] = RevealedShares

    round: RoundNumber
    survivors: Annotated[list[ClientId], Many]
