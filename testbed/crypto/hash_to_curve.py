"""Hashing to edwards25519: the suite edwards25519_XMD:SHA-512_ELL2_NU_ of RFC 9380 (section 8.5).

Variable time: for public inputs only (a VRF's alpha and public key are public in every protocol here).
"""

from hashlib import sha512

import gmpy2

from testbed.crypto.edwards25519 import PRIME, SQRT_MINUS_ONE, clear_cofactor, encode

FIELD_ELEMENT_BYTES = 48
"""L of RFC 9380 section 8.5: 128 bits more than the prime has, so that reduction leaves no bias."""

MONTGOMERY_A = 486662
_SQUARE_ROOT_EXPONENT = (PRIME + 3) // 8
_ZERO_BLOCK = bytes(128)  # Z_pad: one input block of SHA-512


def _square_root(square: int) -> int:
    """The even square root of a square modulo PRIME (RFC 9380 appendix I.2; sgn0 of it is 0)."""
    root: int = gmpy2.powmod(square, _SQUARE_ROOT_EXPONENT, PRIME)
    if (root * root - square) % PRIME:
        root = root * SQRT_MINUS_ONE % PRIME
    return PRIME - root if root & 1 else root


_SCALE = _square_root(-MONTGOMERY_A - 2)
"""c1 of RFC 9380 appendix G.2.2: the even square root of -486664."""


def hash_to_field(message: bytes, domain: bytes) -> int:
    """One field element from a message (RFC 9380 section 5.2, with expand_message_xmd of section 5.3.1).

    One element takes 48 bytes, less than one SHA-512 output: of the expansion only b_0 and b_1 are needed.

    Args:
        message: any length.
        domain: the domain separation tag, at most 255 bytes.

    Raises:
        ValueError: if the tag is too long.
    """
    if len(domain) > 255:
        raise ValueError(f"a domain separation tag has at most 255 bytes, got {len(domain)}")
    domain = domain + bytes([len(domain)])
    first = sha512(_ZERO_BLOCK + message + FIELD_ELEMENT_BYTES.to_bytes(2, "big") + b"\x00" + domain).digest()
    uniform = sha512(first + b"\x01" + domain).digest()[:FIELD_ELEMENT_BYTES]
    element: int = gmpy2.mpz(int.from_bytes(uniform, "big")) % PRIME
    return element


def map_to_curve(u: int) -> tuple[int, int, int]:
    """Elligator 2 onto edwards25519, before the cofactor is cleared (RFC 9380 sections 6.7.1 and 6.8.2).

    Returns:
        Projective coordinates (x, y, z) of the point (x/z, y/z).
    """
    # On the Montgomery curve t^2 = s^3 + A s^2 + s. 1 + 2 u^2 is never 0: -1/2 is not a square modulo PRIME.
    s = -MONTGOMERY_A * gmpy2.invert(1 + 2 * u * u, PRIME) % PRIME
    t_squared = s * (s * s + MONTGOMERY_A * s + 1) % PRIME
    if gmpy2.legendre(t_squared, PRIME) >= 0:
        t = -_square_root(t_squared)  # the odd root
    else:
        s = -s - MONTGOMERY_A
        t = _square_root(s * (s * s + MONTGOMERY_A * s + 1) % PRIME)
    # On the Edwards curve (c s / t, (s - 1) / (s + 1)); the exceptional points go to the identity.
    z = t * (s + 1) % PRIME
    if z == 0:
        return gmpy2.mpz(0), gmpy2.mpz(1), gmpy2.mpz(1)
    return _SCALE * s * (s + 1) % PRIME, (s - 1) * t % PRIME, z


def encode_to_curve(message: bytes, domain: bytes) -> bytes:
    """A point of the prime-order subgroup from a message, 32 bytes (RFC 9380 section 3, encode_to_curve).

    Raises:
        ValueError: if ``domain`` has more than 255 bytes.
    """
    return encode(clear_cofactor(*map_to_curve(hash_to_field(message, domain))))
