"""The cryptographic primitives that the protocols are built from, one module per primitive; here, what they raise when
a value that came from someone else does not hold.

All are :class:`testbed.errors.ProtocolError`: the party that receives such a value refuses it and goes on.
Messages name what was wrong and never contain a secret.
"""

from testbed.errors import ProtocolError


class InvalidKey(ProtocolError):
    """A public key, secret key or seed that must not be used: wrong length, not canonical, of small order."""


class InvalidProof(ProtocolError):
    """A proof that does not verify: of a VRF, or that a shared measurement is valid."""


class InvalidSignature(ProtocolError):
    """A signature that does not verify."""


class OpeningFailed(ProtocolError):
    """A sealed message that does not open: changed on the way, for someone else, or not sealed at all."""


class InvalidShares(ProtocolError):
    """Shares that determine no secret: too few, of the wrong size, out of range, or two at one point."""


def require_length(value: bytes, length: int, what: str) -> None:
    """Refuse key material of the wrong length.

    Raises:
        InvalidKey: if ``value`` is not ``length`` bytes long; the message never shows the value.
    """
    if len(value) != length:
        raise InvalidKey(f"{what} is {length} bytes long, got {len(value)}")
