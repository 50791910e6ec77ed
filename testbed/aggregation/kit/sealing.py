"""Seal what one client has for another under keys that each seal once, so that the server can pass it on.

Two clients have a pair key, for one round or for all. A key for one content is derived from it: the parts that name the
content (who, for whom, in which round) differ wherever a second content could. So no nonce is sent.
"""

from testbed.crypto import encryption, prf
from testbed.messages import signed_content

_NONCE = bytes(encryption.NONCE_BYTES)  # each key seals once


def content_key(pair_key: bytes, domain: bytes, *parts: object) -> bytes:
    """Return the 32 bytes of the key for one content.

    Args:
        pair_key: 32 bytes that dealer and holder have agreed on.
        domain: of the protocol, for contents of this kind.
        parts: that tell the content from every other one under this pair key and domain.
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
    """Inverse of `seal_once`; raises `OpeningFailed`."""
    return encryption.open_sealed(key, _NONCE, sealed, associated)
