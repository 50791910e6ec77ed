"""Feldman's verifiable secret sharing over the scalars of edwards25519.

Feldman, A Practical Scheme for Non-interactive Verifiable Secret Sharing, FOCS 1987. A dealer draws a polynomial f of
degree t - 1 with f(0) = its secret, gives the holder at point x the share f(x), and publishes the coefficients times
the base point. With these commitments every party can verify that a share lies on the polynomial, and can compute every
share times the base point. The commitments hide a uniform secret (discrete logarithms are hard). They do not hide a
secret that can be guessed.

Sharings add up: the sum of a holder's shares from several dealers lies on the sum of the polynomials, and the
commitments add up likewise. With Lagrange weights, t holders can share their shares again and so hand the secret to
other holders under another polynomial (Herzberg, Jarecki, Krawczyk, Yung, CRYPTO 1995; Desmedt, Jajodia 1997).

Operations on secrets run in libsodium, in constant time. Points, weights and commitments are public.
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
    """Return a scalar derived from 32 secret bytes, uniform up to 2**-259: 32 bytes."""
    require_length(entropy, 32, "a scalar's entropy")
    return edwards25519.reduce_scalar(hmac.digest(entropy, _DOMAIN + b"/scalar", "sha512"))


def polynomial(secret: bytes, threshold: int, entropy: bytes) -> list[bytes]:
    """Return the coefficients of 1, x, x^2, ...: the secret, then uniform coefficients.

    The uniform coefficients are an AES-256-CTR key stream, 64 bytes each, reduced.

    Args:
        secret: a scalar, 32 bytes.
        threshold: t, at least 1; the number of coefficients.
        entropy: 32 secret bytes.
    """
    require_length(secret, SCALAR_BYTES, "a scalar")
    require_length(entropy, 32, "a polynomial's entropy")
    if threshold < 1:
        raise InvalidShares(f"the threshold must be at least 1, got {threshold}")
    # The secret enters the key: otherwise, with one entropy, the shares of two secrets would reveal their difference.
    key = hmac.digest(entropy, _DOMAIN + threshold.to_bytes(8, "big") + secret, "sha256")
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(_WIDE_BYTES * (threshold - 1)))
    wide = [stream[at : at + _WIDE_BYTES] for at in range(0, len(stream), _WIDE_BYTES)]
    return [secret, *map(edwards25519.reduce_scalar, wide)]


def commitments(coefficients: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the coefficients times the base point, 32 bytes each.

    Raises:
        ValueError: a coefficient is 0 (probability 2**-252).
    """
    return tuple(map(edwards25519.multiply_base, coefficients))


def share_at(coefficients: Sequence[bytes], point: int) -> bytes:
    """Return the share of the holder at this point, 32 bytes, in constant time.

    Args:
        coefficients: of the polynomial, lowest first.
        point: of the holder, from 1 to 2**32.

    Raises:
        InvalidShares: the point is out of range.
    """
    x = _encoded(point)
    value = coefficients[-1]
    # Horner's rule, in constant time: the coefficients are secret.
    for coefficient in coefficients[-2::-1]:
        value = edwards25519.add_scalars(edwards25519.multiply_scalars(value, x), coefficient)
    return value


def committed_at(committed: Sequence[bytes], point: int) -> bytes:
    """Return the share of the holder at this point times the base point, 32 bytes.

    Args:
        committed: commitments to the polynomial.
        point: of the holder, from 1 to 2**32.

    Raises:
        InvalidShares: a commitment is no point of prime order, or the result is the identity.
    """
    x = _encoded(point)
    value = committed[-1]
    try:
        for commitment in committed[-2::-1]:
            value = edwards25519.add(edwards25519.multiply(x, value), commitment)
        # `add` accepts every point on the curve, so check the order of the last sum.
        edwards25519.validate_key(value)
    except (ValueError, InvalidKey) as error:
        raise InvalidShares(f"commitments to no polynomial: {error}") from None
    return value


def is_share(share: bytes, committed: Sequence[bytes], point: int) -> bool:
    """Return whether a share, in canonical form, fits the commitments.

    Args:
        share: 32 bytes.
        committed: commitments to the polynomial.
        point: of the holder.

    Example:
        >>> coefficients = polynomial(random_scalar(bytes(32)), threshold=2, entropy=bytes(31) + b"1")
        >>> committed = commitments(coefficients)
        >>> is_share(share_at(coefficients, point=3), committed, point=3)
        True
        >>> is_share(share_at(coefficients, point=3), committed, point=4)
        False
    """
    # share + ORDER would pass as a second encoding of the share.
    if int.from_bytes(share, "little") >= ORDER:
        return False
    try:
        return edwards25519.multiply_base(share) == committed_at(committed, point)
    except (ValueError, InvalidShares):
        return False


def lagrange_weights(points: Sequence[int]) -> list[int]:
    """Return the weights with which shares at these points sum to the secret, below the group's order.

    The weight of x_i is the product over the other points x_j of x_j / (x_j - x_i).

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
                # Variable time is fine: points are public.
                above, below = above * other % ORDER, below * (other - own) % ORDER
        weights.append(above * pow(below, -1, ORDER) % ORDER)
    return weights


def weighted_points(points: Sequence[bytes], weights: Sequence[int] | None = None) -> bytes:
    """Return the weighted sum of encoded points, 32 bytes.

    Args:
        points: 32 bytes each.
        weights: public weights; None: all 1.

    Raises:
        InvalidShares: a point is not of prime order, or two cancel.
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
        # Only this line checks the order of points without weights: `add` does not.
        edwards25519.validate_key(total)
    except (ValueError, InvalidKey) as error:
        raise InvalidShares(f"points that cannot be summed: {error}") from None
    return total


def weighted_shares(shares: Sequence[bytes], weights: Sequence[int] | None = None) -> bytes:
    """Return the weighted sum of scalars, 32 bytes, in constant time.

    Args:
        shares: 32 bytes each.
        weights: public weights; None: all 1.
    """
    total = bytes(SCALAR_BYTES)
    for at, share in enumerate(shares):
        if weights is not None:
            share = edwards25519.multiply_scalars(share, weights[at].to_bytes(SCALAR_BYTES, "little"))
        total = edwards25519.add_scalars(total, share)
    return total


def weighted_commitments(
    dealings: Sequence[Sequence[bytes]], weights: Sequence[int] | None = None
) -> tuple[bytes, ...]:
    """Return the commitments to the weighted sum of several dealers' polynomials.

    Args:
        dealings: commitments of each dealer, the same number of each.
        weights: public weights; None: all 1.

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
