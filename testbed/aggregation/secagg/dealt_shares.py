"""How a dealer's shares travel to one of their holders, so that the holder can prove what it was dealt.

Each kind of share is sealed under a key of its own, derived from the key of the two clients. A holder that has
revealed a share can reveal its key, too: the server, which has passed the sealed shares on, then sees that this is the
share that the dealer has sealed. That says nothing of the other kinds, and nothing that was not revealed before. Nobody
honest can be framed by it. AES-GCM does not commit to its key where the sealer chooses the ciphertext; for a given one,
with its tag of 128 bits, a second key takes about 2**128 trials.

What it costs: 16 bytes more for each pair of clients, 32 with enforced noise, whose shares are a kind of their own.
"""

import hmac
from typing import Annotated, ClassVar

import msgspec

from testbed.crypto import encryption as sealing
from testbed.crypto.encryption import TAG_BYTES
from testbed.crypto.failures import OpeningFailed
from testbed.crypto.shamir import SHARE_BYTES
from testbed.messages import ClientId, Key32, Message, RoundNumber, signed_content

MASK_KEY, SELF_MASK, NOISE = 0, 1, 2
_DOMAIN = b"testbed/secagg/dealt-share/v1"
_NONCE = bytes(sealing.NONCE_BYTES)  # each key seals once


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
    return hmac.digest(pair_key, _DOMAIN + signed_content(dealer, holder, kind), "sha256")


def sealed_bytes(secrets: int) -> int:
    """How long the sealed shares of so many secrets are: mask key, self-mask seed, and those of the noise in one."""
    return secrets * SHARE_BYTES + min(secrets, 3) * TAG_BYTES


def seal_shares(pair_key: bytes, dealer: int, holder: int, shares: bytes, associated: bytes) -> bytes:
    """The dealer's shares for a holder, 33 bytes for each secret, sealed kind by kind."""
    return b"".join(
        sealing.seal(share_key(pair_key, dealer, holder, kind), _NONCE, part, associated)
        for kind, part in enumerate(_parts(shares, SHARE_BYTES))
    )


def open_shares(pair_key: bytes, dealer: int, holder: int, sealed: bytes, associated: bytes) -> bytes:
    """Inverse of `seal_shares`; raises `OpeningFailed`."""
    return b"".join(
        sealing.open_sealed(share_key(pair_key, dealer, holder, kind), _NONCE, part, associated)
        for kind, part in enumerate(_parts(sealed, SHARE_BYTES + TAG_BYTES))
    )


def open_share(key: bytes, sealed: bytes, kind: int, associated: bytes) -> bytes:
    """The share of one kind, given the key that its holder has shown; raises `OpeningFailed`."""
    parts = _parts(sealed, SHARE_BYTES + TAG_BYTES)
    if kind >= len(parts):
        raise OpeningFailed("no share of this kind was sealed")
    return sealing.open_sealed(key, _NONCE, parts[kind], associated)


def _parts(joined: bytes, size: int) -> list[bytes]:
    parts = [joined[:size], joined[size : 2 * size], joined[2 * size :]]
    return [part for part in parts if part]
