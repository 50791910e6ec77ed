"""Cryptographic primitives of the protocols, one module for each primitive; this module has their errors.

All errors are :class:`testbed.errors.ProtocolError`: the party that receives an invalid value refuses it and continues.
Messages name the mistake and never contain a secret.
"""

from testbed.errors import ProtocolError


class InvalidKey(ProtocolError):
    """A public key, secret key or seed that must not be used: wrong length, not canonical, or of small order."""


class InvalidProof(ProtocolError):
    """A proof that does not verify: of a VRF output, or of the validity of a shared measurement."""


class InvalidSignature(ProtocolError):
    """A signature that does not verify."""


class OpeningFailed(ProtocolError):
    """A sealed message that cannot be opened: changed in transit, sealed for another party, or not sealed."""


class InvalidShares(ProtocolError):
    """Shares that determine no secret: too few, of the wrong size, out of range, or two at one point."""


def require_length(value: bytes, length: int, name: str) -> None:
    """Refuse key material of the wrong length.

    Args:
        value: key material.
        length: required length [bytes].
        name: name of the value, for the message.

    Raises:
        InvalidKey: ``value`` is not ``length`` bytes long; the message never shows the value.
    """
    if len(value) != length:
        raise InvalidKey(f"{name} is {length} bytes long, got {len(value)}")
