"""The group edwards25519 (RFC 7748 section 4.1, RFC 8032 section 5.1) and hashing to it.

The hash is the suite edwards25519_XMD:SHA-512_ELL2_NU_ of RFC 9380 (section 8.5). Two kinds of arithmetic are kept
apart:

- operations on a **secret scalar** run in libsodium, in constant time, on encoded points;
- field arithmetic with GMP, in variable time, is for **public** points only (hash-to-curve, clearing the cofactor).

libsodium multiplies only points of the prime-order subgroup other than the identity, in canonical encoding, and refuses
scalars that are 0. This makes no difference for honest keys and proofs; for forged ones it is stricter than the RFCs.
"""

from hashlib import sha512

import gmpy2
from nacl import bindings, exceptions

from testbed.crypto import InvalidKey
from testbed.errors import InstallationError

POINT_BYTES = 32
SCALAR_BYTES = 32

PRIME = gmpy2.mpz(2**255 - 19)
ORDER = 2**252 + 27742317777372353535851937790883648493
"""The prime order of the base point; the group has 8 times as many points."""

D = -121665 * gmpy2.invert(121666, PRIME) % PRIME
"""The curve is -x^2 + y^2 = 1 + D x^2 y^2."""

SQRT_MINUS_ONE = gmpy2.powmod(2, (PRIME - 1) // 4, PRIME)

_INSTALL = "pip install 'pynacl>=1.6.2' (a libsodium of the system's own must be 1.0.21 or newer)"
_SQUARE_ROOT_EXPONENT = (PRIME - 5) // 8
_LOW_255_BITS = 2**255 - 1

Point = tuple[int, int]
"""Affine coordinates (x, y), each in [0, PRIME)."""


def decode(encoded: bytes) -> Point | None:
    """Return the public point of an encoding, or None if it encodes no point (RFC 8032 section 5.1.3).

    Only the canonical encoding of a point is accepted.
    """
    if len(encoded) != POINT_BYTES:
        return None
    value = int.from_bytes(encoded, "little")
    sign = value >> 255
    y = gmpy2.mpz(value & _LOW_255_BITS)
    # Not canonical: the point would have two encodings.
    if y >= PRIME:
        return None
    y_squared = y * y % PRIME
    u = (y_squared - 1) % PRIME
    v = (D * y_squared + 1) % PRIME
    v_cubed = v * v * v % PRIME
    # (u / v)**((p + 3) / 8) without an inversion (RFC 8032 section 5.1.3, step 2).
    x = u * v_cubed * gmpy2.powmod(u * v_cubed * v_cubed * v, _SQUARE_ROOT_EXPONENT, PRIME) % PRIME
    square = v * x * x % PRIME
    if square != u:
        # The candidate is a root of u / v or of -u / v; the factor sqrt(-1) mends the second case (step 3).
        if square + u != PRIME:
            return None
        x = x * SQRT_MINUS_ONE % PRIME
    if x & 1 != sign:
        # 0 has no negative, so its sign bit must be 0 (step 4).
        if x == 0:
            return None
        x = PRIME - x
    return x, y


def encode(point: Point) -> bytes:
    """Return the 32 bytes of a public point: y, little-endian, with x's parity as top bit (RFC 8032 section 5.1.2)."""
    x, y = point
    return int(y | (x & 1) << 255).to_bytes(POINT_BYTES, "little")


def clear_cofactor(x: int, y: int, z: int = 1) -> Point:
    """Return 8 times the public point (x/z : y/z), always in the prime-order subgroup (RFC 9380 section 7).

    Args:
        x: projective coordinate modulo PRIME.
        y: projective coordinate modulo PRIME.
        z: projective coordinate modulo PRIME, not 0.
    """
    for _ in range(3):  # dbl-2008-bbjlp with a = -1; complete, as the curve's addition law is
        x_squared = x * x % PRIME
        y_squared = y * y % PRIME
        cross = (x + y) * (x + y) - x_squared - y_squared
        f = y_squared - x_squared
        j = (f - 2 * z * z) % PRIME
        x, y, z = cross * j % PRIME, -f * (x_squared + y_squared) % PRIME, f * j % PRIME
    inverse = gmpy2.invert(z, PRIME)
    return x * inverse % PRIME, y * inverse % PRIME


def multiply(scalar: bytes, point: bytes) -> bytes:
    """Return scalar * point, in constant time.

    Args:
        scalar: 32 bytes, little-endian, need not be reduced; the top bit is ignored.
        point: canonical encoding of a point of prime order.

    Raises:
        ValueError: the point is not of prime order, or the scalar is 0 modulo ORDER.
    """
    try:
        # Without clamping, which would change the scalar: shares of scalars must still add up.
        product: bytes = bindings.crypto_scalarmult_ed25519_noclamp(scalar, point)
    except exceptions.CryptoError:
        raise ValueError("not the canonical encoding of a point of prime order, or multiplied by 0") from None
    return product


def multiply_base(scalar: bytes) -> bytes:
    """Return scalar * B for the base point B, in constant time.

    Raises:
        ValueError: the scalar is 0 modulo ORDER.

    Example:
        >>> two, three = ((scalar).to_bytes(32, "little") for scalar in (2, 3))
        >>> add(multiply_base(two), multiply_base(three)) == multiply_base((5).to_bytes(32, "little"))
        True
    """
    try:
        product: bytes = bindings.crypto_scalarmult_ed25519_base_noclamp(scalar)
    except exceptions.CryptoError:
        raise ValueError("the base point was multiplied by 0") from None
    return product


def add(left: bytes, right: bytes) -> bytes:
    """Return left + right.

    Args:
        left: encoded point on the curve.
        right: encoded point on the curve.

    Raises:
        ValueError: an argument is no encoded point.
    """
    try:
        total: bytes = bindings.crypto_core_ed25519_add(left, right)
    except exceptions.CryptoError:
        raise ValueError("not an encoded point on edwards25519") from None
    return total


def subtract(left: bytes, right: bytes) -> bytes:
    """Return left - right.

    Args:
        left: encoded point on the curve.
        right: encoded point on the curve.
    """
    difference: bytes = bindings.crypto_core_ed25519_sub(left, right)
    return difference


def reduce_scalar(wide: bytes) -> bytes:
    """Return a 64-byte little-endian integer modulo ORDER, 32 bytes, in constant time."""
    reduced: bytes = bindings.crypto_core_ed25519_scalar_reduce(wide)
    return reduced


def multiply_scalars(left: bytes, right: bytes) -> bytes:
    """Return left * right modulo ORDER, in constant time.

    Args:
        left: scalar, 32 bytes.
        right: scalar, 32 bytes.
    """
    product: bytes = bindings.crypto_core_ed25519_scalar_mul(left, right)
    return product


def add_scalars(left: bytes, right: bytes) -> bytes:
    """Return left + right modulo ORDER, in constant time.

    Args:
        left: scalar, 32 bytes.
        right: scalar, 32 bytes.
    """
    total: bytes = bindings.crypto_core_ed25519_scalar_add(left, right)
    return total


def validate_key(public: bytes) -> None:
    """Accept a public key only if it is the canonical encoding of a point of prime order.

    This is RFC 9381 section 5.4.5 (not of small order) and more: the sum of a point of prime order and a point of small
    order is refused, too. No honest key is such a sum.

    Raises:
        InvalidKey: the key is anything else.
    """
    if len(public) != POINT_BYTES:
        raise InvalidKey(f"a public key is {POINT_BYTES} bytes long, got {len(public)}")
    if not bindings.crypto_core_ed25519_is_valid_point(public):
        raise InvalidKey("the public key is not a canonically encoded point of prime order on edwards25519")


def check_libsodium() -> None:
    """Check that the installed libsodium refuses the sum of the base point and the point of order 2.

    Raises:
        InstallationError: libsodium accepts it as a point of prime order. Two public keys, or two VRF proofs, could
            then stand for one.
    """
    unit = (1).to_bytes(SCALAR_BYTES, "little")
    base = multiply_base(unit)
    x, y = decode(base) or (0, 1)
    # Before 2025-12-31 (PyNaCl before 1.6.2) libsodium accepted this point (CVE-2025-69277).
    mixed = encode((PRIME - x, PRIME - y))  # (x, y) + (0, -1) = (-x, -y)
    try:
        validate_key(base)
    except InvalidKey:
        raise InstallationError(f"libsodium refuses the base point of edwards25519; {_INSTALL}") from None
    for refuses in (lambda: validate_key(mixed), lambda: multiply(unit, mixed)):
        try:
            refuses()
        except (InvalidKey, ValueError):
            continue
        raise InstallationError(
            f"the installed libsodium accepts points that are not of prime order (CVE-2025-69277); {_INSTALL}"
        )


FIELD_ELEMENT_BYTES = 48
"""L of RFC 9380 section 8.5: 128 bits more than the prime has, so that reduction leaves no bias."""

MONTGOMERY_A = 486662
_A24 = (MONTGOMERY_A + 2) // 4
_EVEN_ROOT_EXPONENT = (PRIME + 3) // 8
_ZERO_BLOCK = bytes(128)  # Z_pad: one input block of SHA-512


def _square_root(square: int) -> int:
    """Return the even square root of a square modulo PRIME (RFC 9380 appendix I.2; its sgn0 is 0)."""
    root: int = gmpy2.powmod(square, _EVEN_ROOT_EXPONENT, PRIME)
    if (root * root - square) % PRIME:
        root = root * SQRT_MINUS_ONE % PRIME
    return PRIME - root if root & 1 else root


_SCALE = _square_root(-MONTGOMERY_A - 2)
"""c1 of RFC 9380 appendix G.2.2: the even square root of -486664."""


def hash_to_field(message: bytes, domain: bytes) -> int:
    """Return one field element from a message (RFC 9380 section 5.2, with expand_message_xmd of section 5.3.1).

    One element takes 48 bytes, less than one SHA-512 output, so the expansion needs only b_0 and b_1.

    Args:
        message: any length.
        domain: the domain separation tag, at most 255 bytes.

    Raises:
        ValueError: the tag is too long.
    """
    if len(domain) > 255:
        raise ValueError(f"a domain separation tag has at most 255 bytes, got {len(domain)}")
    # DST_prime, then b_0 and b_1 of RFC 9380 section 5.3.1.
    domain = domain + bytes([len(domain)])
    first = sha512(_ZERO_BLOCK + message + FIELD_ELEMENT_BYTES.to_bytes(2, "big") + b"\x00" + domain).digest()
    uniform = sha512(first + b"\x01" + domain).digest()[:FIELD_ELEMENT_BYTES]
    element: int = gmpy2.mpz(int.from_bytes(uniform, "big")) % PRIME
    return element


def map_to_curve(u: int) -> tuple[int, int, int]:
    """Map a field element onto edwards25519 by Elligator 2 (RFC 9380 sections 6.7.1 and 6.8.2).

    The cofactor is not cleared.

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


def montgomery_u(u: int) -> int:
    """Return the first coordinate of Elligator 2 onto curve25519 (RFC 9380 section 6.7.1); needs no square root."""
    s: int = -MONTGOMERY_A * gmpy2.invert(1 + 2 * u * u, PRIME) % PRIME
    if gmpy2.legendre(s * (s * s + MONTGOMERY_A * s + 1) % PRIME, PRIME) >= 0:
        return s
    return -s - MONTGOMERY_A


def double_u(u: int, times: int) -> bytes | None:
    """Return the first coordinate of 2**times P, 32 bytes (RFC 7748 section 5); None for the point at infinity.

    Args:
        u: first coordinate of a public point P on curve25519.
        times: number of doublings.
    """
    x, z = u, gmpy2.mpz(1)
    for _ in range(times):
        # Variable time is fine here: P is public.
        square, other = (x + z) * (x + z), (x - z) * (x - z)
        difference = square - other
        x, z = square * other % PRIME, difference * (other + _A24 * difference) % PRIME
    if z == 0:
        return None
    return int(x * gmpy2.invert(z, PRIME) % PRIME).to_bytes(POINT_BYTES, "little")


def multiply_u(scalar: bytes, u: bytes) -> bytes | None:
    """Return X25519 of RFC 7748 in constant time: the first coordinate of scalar * P, the scalar clamped.

    P and -P have the same first coordinate, and so have the products.

    Args:
        scalar: 32 secret bytes.
        u: first coordinate of P.

    Returns:
        32 bytes; None if the coordinate is 0.
    """
    try:
        product: bytes = bindings.crypto_scalarmult(scalar, u)
    except exceptions.CryptoError:
        return None
    return product


def edwards_pair(u: bytes) -> tuple[bytes, bytes] | None:
    """Return the two encoded points on edwards25519 with this coordinate on curve25519 (RFC 7748 section 4.1).

    None where the map is not defined.
    """
    coordinate = gmpy2.mpz(int.from_bytes(u, "little"))
    if (coordinate + 1) % PRIME == 0:
        return None
    # The birational map of RFC 7748 section 4.1 determines y, but not the sign of x.
    y = int((coordinate - 1) * gmpy2.invert(coordinate + 1, PRIME) % PRIME)
    return y.to_bytes(POINT_BYTES, "little"), (y | 1 << 255).to_bytes(POINT_BYTES, "little")


def encode_to_curve(message: bytes, domain: bytes) -> bytes:
    """Hash a message to a point of the prime-order subgroup, 32 bytes (RFC 9380 section 3, encode_to_curve).

    Args:
        message: any length.
        domain: the domain separation tag, at most 255 bytes.

    Raises:
        ValueError: ``domain`` has more than 255 bytes.
    """
    return encode(clear_cofactor(*map_to_curve(hash_to_field(message, domain))))


# At import: a run with a defective libsodium would accept two keys, or two proofs, as one.
check_libsodium()
