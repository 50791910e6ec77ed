"""Sealing of contents from one client to another, under keys that each seal once, so that the server can pass them on.

Two clients have a pair key, for one round or for all rounds. The key for one content is derived from it. The parts that
name the content (sender, receiver, round) differ for any two contents, so no nonce is sent.
"""

from testbed.crypto import encryption, prf
from testbed.messages import signed_content

_NONCE = bytes(encryption.NONCE_BYTES)  # each key seals once


def content_key(pair_key: bytes, domain: bytes, *parts: object) -> bytes:
    """Return the 32-byte key for one content.

    Args:
        pair_key: 32 bytes that dealer and holder have agreed on.
        domain: of the protocol, for contents of this kind.
        parts: values that distinguish the content from all others under this pair key and domain.
    """
    return prf.evaluate(pair_key, domain + signed_content(*parts))


def seal_once(key: bytes, content: bytes, associated: bytes) -> bytes:
    """Seal a content under its own key; the result is 16 bytes longer.

    Args:
        key: 32 bytes, of `content_key`.
        content: to be sealed.
        associated: the content opens with the same one alone.
    """
    return encryption.seal(key, _NONCE, content, associated)


def open_once(key: bytes, sealed: bytes | memoryview, associated: bytes) -> bytes:
    """Open a content that `seal_once` has sealed; raises `OpeningFailed`.

    Args:
        key, associated: as in `seal_once`.
        sealed: its result.
    """
    return encryption.open_sealed(key, _NONCE, sealed, associated)
