"""Verifiable secret sharing: Feldman, A Practical Scheme for Non-interactive Verifiable Secret Sharing, FOCS 1987, over
the scalars of edwards25519.

A dealer draws a polynomial f of degree t - 1 with f(0) = its secret, gives the holder at point x the share f(x), and
publishes the coefficients times the base point. Whoever has these commitments can tell whether a share is on the
polynomial, and knows every share times the base point. They hide a secret that is uniform, as discrete logarithms are
hard, and no other: a secret that can be guessed can be tried.

Several dealers' sharings add up: the sum of their shares at x lies on the sum of their polynomials, to which the sum of
their commitments belongs. With Lagrange weights instead of ones, t holders of shares who deal these again hand their
secret on to others, under another polynomial (Herzberg, Jarecki, Krawczyk, Yung, CRYPTO 1995; Desmedt, Jajodia 1997).

What touches a secret runs in libsodium, in constant time. Points, weights and commitments are public.
"""

import hmac
from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from testbed.crypto import InvalidKey, InvalidShares, edwards25519, require_length
from testbed.crypto.edwards25519 import ORDER, SCALAR_BYTES

LARGEST_POINT = 2**32

_WIDE_BYTES = 64  # reduced modulo a 253-bit number: no bias above 2**-259
_DOMAIN = b"testbed/feldman/v1"


def random_scalar(entropy: bytes) -> bytes:
    """32 bytes: a scalar that follows from 32 secret bytes, uniform but for 2**-259."""
    require_length(entropy, 32, "a scalar's entropy")
    return edwards25519.reduce_scalar(hmac.digest(entropy, _DOMAIN + b"/scalar", "sha512"))


def polynomial(secret: bytes, threshold: int, entropy: bytes) -> list[bytes]:
    """The `threshold` coefficients of 1, x, x^2, ...: the secret, then uniform ones.

    They are an AES-256-CTR key stream, 64 bytes each, reduced. Its key is derived from the entropy, the threshold and
    the secret, so that entropy that is used twice does not relate two secrets.

    Args:
        secret: a scalar, 32 bytes.
        threshold: t, at least 1.
        entropy: 32 secret bytes.
    """
    require_length(secret, SCALAR_BYTES, "a scalar")
    require_length(entropy, 32, "a polynomial's entropy")
    if threshold < 1:
        raise InvalidShares(f"the threshold must be at least 1, got {threshold}")
    key = hmac.digest(entropy, _DOMAIN + threshold.to_bytes(8, "big") + secret, "sha256")
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(_WIDE_BYTES * (threshold - 1)))
    wide = [stream[at : at + _WIDE_BYTES] for at in range(0, len(stream), _WIDE_BYTES)]
    return [secret, *map(edwards25519.reduce_scalar, wide)]


def commitments(coefficients: Sequence[bytes]) -> tuple[bytes, ...]:
    """The coefficients times the base point, 32 bytes each; raises `ValueError` if one is 0 (once in 2**252 times)."""
    return tuple(map(edwards25519.multiply_base, coefficients))


def share_at(coefficients: Sequence[bytes], point: int) -> bytes:
    """The share of the holder at this point, 32 bytes, in constant time; raises `InvalidShares` for no point."""
    x = _encoded(point)
    value = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = edwards25519.add_scalars(edwards25519.multiply_scalars(value, x), coefficient)
    return value


def committed_at(committed: Sequence[bytes], point: int) -> bytes:
    """The share of the holder at this point, times the base point, from the polynomial's commitments; 32 bytes.

    Raises:
        InvalidShares: a commitment is no point of prime order, or the result is the identity.
    """
    x = _encoded(point)
    value = committed[-1]
    try:
        for one in committed[-2::-1]:
            value = edwards25519.add(edwards25519.multiply(x, value), one)
        edwards25519.validate_key(value)
    except (ValueError, InvalidKey) as error:
        raise InvalidShares(f"commitments to no polynomial: {error}") from None
    return value


def is_share(share: bytes, committed: Sequence[bytes], point: int) -> bool:
    """Whether this is the share of the holder at this point, by the polynomial's commitments, in canonical form."""
    if int.from_bytes(share, "little") >= ORDER:
        return False
    try:
        return edwards25519.multiply_base(share) == committed_at(committed, point)
    except (ValueError, InvalidShares):
        return False


def lagrange_weights(points: Sequence[int]) -> list[int]:
    """What shares at these distinct points are multiplied with to sum up to the secret, below the group's order.

    The product over the other points x_j of x_j / (x_j - x_i).

    Raises:
        InvalidShares: there is no point, one is out of range, or two are equal.
    """
    if not points or len(set(points)) != len(points):
        raise InvalidShares("no points, or two shares at the same one")
    weights = []
    for own in map(_checked, points):
        above = below = 1
        for other in points:
            if other != own:
                above, below = above * other % ORDER, below * (other - own) % ORDER
        weights.append(above * pow(below, -1, ORDER) % ORDER)
    return weights


def weighted_points(points: Sequence[bytes], weights: Sequence[int] | None = None) -> bytes:
    """The sum of encoded points, each times its public weight (none: times 1); 32 bytes.

    Raises:
        InvalidShares: a point is not one of prime order, or two cancel.
    """
    try:
        if weights is not None:
            points = [
                edwards25519.multiply(weight.to_bytes(SCALAR_BYTES, "little"), point)
                for weight, point in zip(weights, points, strict=True)
            ]
        total = points[0]
        for point in points[1:]:
            total = edwards25519.add(total, point)
        edwards25519.validate_key(total)
    except (ValueError, InvalidKey) as error:
        raise InvalidShares(f"points that cannot be summed: {error}") from None
    return total


def weighted_shares(shares: Sequence[bytes], weights: Sequence[int] | None = None) -> bytes:
    """The sum of scalars, each times its public weight (none: times 1), 32 bytes, in constant time."""
    total = bytes(SCALAR_BYTES)
    for at, share in enumerate(shares):
        if weights is not None:
            share = edwards25519.multiply_scalars(share, weights[at].to_bytes(SCALAR_BYTES, "little"))
        total = edwards25519.add_scalars(total, share)
    return total


def weighted_commitments(
    dealings: Sequence[Sequence[bytes]], weights: Sequence[int] | None = None
) -> tuple[bytes, ...]:
    """The commitments to the weighted sum of several dealers' polynomials, whose commitments are as many each.

    Raises:
        InvalidShares: see `weighted_points`.
    """
    return tuple(weighted_points(column, weights) for column in zip(*dealings, strict=True))


def _checked(point: int) -> int:
    if not 1 <= point <= LARGEST_POINT:
        raise InvalidShares(f"points lie between 1 and {LARGEST_POINT}, got {point}")
    return point


def _encoded(point: int) -> bytes:
    return _checked(point).to_bytes(SCALAR_BYTES, "little")
