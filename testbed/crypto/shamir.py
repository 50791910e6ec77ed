"""Shamir's secret sharing (Communications of the ACM 22(11), 1979): t of n, secrets of 32 bytes.

Over the integers modulo the smallest prime above 2**256, so that every 32-byte secret is one field element. The
arithmetic is GMP's, in variable time: in an emulation no adversary can time it. Shares carry no proof: a wrong share
gives a wrong secret, which the protocol must detect (SecAgg's masks do not cancel, a public key does not match).
"""

import hmac
from collections.abc import Sequence
from math import prod
from operator import mul

import gmpy2
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from testbed.crypto import InvalidShares

SECRET_BYTES = 32
SHARE_BYTES = 33
ENTROPY_BYTES = 32
LARGEST_POINT = 2**32

PRIME = gmpy2.mpz(2**256 + 297)
"""The smallest prime above 2**256."""

_SECRET_BOUND = gmpy2.mpz(2**256)
_COEFFICIENT_BYTES = 64  # reduced modulo a 257-bit prime: no bias above 2**-255


def share(secret: bytes, threshold: int, points: Sequence[int], entropy: bytes) -> list[bytes]:
    """Split a secret: any ``threshold`` of the shares determine it, fewer reveal nothing.

    The polynomial's coefficients are an AES-256-CTR key stream, 64 bytes each, reduced.

    Args:
        secret: 32 bytes.
        threshold: t, from 1 to the number of points.
        points: n distinct integers from 1 to 2**32, one for each holder.
        entropy: 32 secret bytes.

    Returns:
        n shares of 33 bytes, big-endian, in the order of the points.

    Raises:
        InvalidShares: an argument is out of these ranges.

    Example:
        >>> shares = share(bytes(32), 2, [1, 2, 3], entropy=bytes(32))
        >>> reconstruct([1, 3], [shares[0], shares[2]], threshold=2) == bytes(32)
        True
    """
    check_dealing(secret, threshold, points, entropy)
    leading, *lower = coefficients(secret, threshold, entropy)[::-1]
    shares = []
    for point in points:
        value = leading
        for coefficient in lower:  # Horner; reduced at the end only: a point is one limb, values grow slowly
            value = value * point + coefficient
        shares.append((value % PRIME).to_bytes(SHARE_BYTES, "big"))
    return shares


def check_dealing(secret: bytes, threshold: int, points: Sequence[int], entropy: bytes) -> None:
    """Check the arguments of :func:`share`.

    Args:
        secret: as for :func:`share`.
        threshold: as for :func:`share`.
        points: as for :func:`share`.
        entropy: as for :func:`share`.

    Raises:
        InvalidShares: an argument is out of range.
    """
    if len(secret) != SECRET_BYTES or len(entropy) != ENTROPY_BYTES:
        raise InvalidShares(
            f"a secret has {SECRET_BYTES} bytes and its entropy {ENTROPY_BYTES}, got {len(secret)} and {len(entropy)}"
        )
    _check_points(points)
    if not 1 <= threshold <= len(points):
        raise InvalidShares(f"the threshold must be between 1 and the {len(points)} points, got {threshold}")


def reconstruct(points: Sequence[int], shares: Sequence[bytes], threshold: int) -> bytes:
    """Return the secret, 32 bytes, from the first ``threshold`` shares.

    Args:
        points: of the holders.
        shares: 33 bytes each, in the order of the points.
        threshold: t.

    Raises:
        InvalidShares: there are too few shares or not one for each point, or they do not give a 32-byte secret.

    Example:
        >>> shares = share(b"s" * 32, threshold=2, points=[1, 2, 3], entropy=bytes(32))
        >>> reconstruct([1, 3], [shares[0], shares[2]], threshold=2) == b"s" * 32
        True
    """
    if len(points) != len(shares):
        raise InvalidShares(f"{len(points)} points for {len(shares)} shares")
    if not 1 <= threshold <= len(shares):
        raise InvalidShares(f"{threshold} shares are needed, got {len(shares)}")
    _check_points(points)
    return LagrangeWeights(points[:threshold]).reconstruct(shares[:threshold])


class LagrangeWeights:
    """Weights that turn shares into the secret, computed once for many secrets shared to the same points.

    Attributes:
        points: the t points, in the order of the shares passed to :meth:`reconstruct`.
    """

    __slots__ = ("_weights", "points")

    def __init__(self, points: Sequence[int]) -> None:
        """Compute weights for interpolation at 0: the product over the other points x_j of x_j / (x_j - x_i).

        Args:
            points: exactly as many points as the threshold: t distinct integers from 1 to 2**32.

        Raises:
            InvalidShares: there is no point, two are equal, or one is out of range.
        """
        _check_points(points)
        self.points = tuple(points)
        product = gmpy2.mpz(1)
        for point in points:
            product = product * point % PRIME
        # Each distance here has the other sign: in all, that of (-1)**(t - 1).
        sign = -1 if len(points) % 2 == 0 else 1
        below = [own * distances for own, distances in zip(points, products_of_distances(points), strict=True)]
        self._weights = [sign * product * inverse % PRIME for inverse in inverses(below)]

    def reconstruct(self, shares: Sequence[bytes]) -> bytes:
        """Return the secret, 32 bytes, from one share for each point.

        Args:
            shares: t shares of 33 bytes, in the order of the points.

        Raises:
            InvalidShares: the numbers of shares and points differ, a share has the wrong length or is not below the
                prime, or the result is not a 32-byte value (then the shares belong to no secret).
        """
        if len(shares) != len(self._weights):
            raise InvalidShares(f"{len(self._weights)} shares are needed, one per point, got {len(shares)}")
        lengths = set(map(len, shares))
        if lengths != {SHARE_BYTES}:
            raise InvalidShares(f"a share is {SHARE_BYTES} bytes long, got {sorted(lengths)}")
        values = [gmpy2.mpz.from_bytes(encoding, "big") for encoding in shares]
        # Otherwise a share plus the prime would pass as a second encoding.
        if max(values) >= PRIME:
            raise InvalidShares("a share is not below the prime")
        secret: int = sum(map(mul, self._weights, values)) % PRIME
        if secret >= _SECRET_BOUND:
            raise InvalidShares("the shares give no 32-byte secret: they do not belong together")
        return secret.to_bytes(SECRET_BYTES, "big")


def products_of_distances(points: Sequence[int]) -> list[int]:
    """Return `(m,)` products of each point's distances to the other points (own - other), not reduced."""
    # Multiply as many distances as fit 63 bits in numpy, and only these products as long integers.
    exact = np.array([int(point) for point in points], np.int64)
    away = exact[:, None] - exact
    np.fill_diagonal(away, 1)
    together = max(1, 63 // int(np.abs(away).max()).bit_length())  # factors in one word
    factors = np.ones((len(exact), -(-len(exact) // together) * together), np.int64)
    factors[:, : len(exact)] = away
    return [prod(row) for row in factors.reshape(len(exact), -1, together).prod(axis=2).tolist()]


def inverses(numbers: Sequence[int]) -> list[int]:
    """Return the inverses modulo the prime, `(m,)`, at the cost of one inversion (Montgomery's trick)."""
    before = [gmpy2.mpz(1)]
    for number in numbers:
        before.append(before[-1] * number % PRIME)
    result = []
    inverse = gmpy2.invert(before.pop(), PRIME)
    for number in reversed(numbers):
        result.append(inverse * before.pop() % PRIME)
        inverse = inverse * number % PRIME
    return result[::-1]


def coefficients(secret: bytes, threshold: int, entropy: bytes) -> list[int]:
    """Return the coefficients of 1, x, x^2, ...: the secret, then t-1 uniform ones (modulo PRIME, up to 2**-255).

    Args:
        secret: 32 bytes.
        threshold: t.
        entropy: 32 secret bytes.
    """
    # The secret enters the key: otherwise, with one entropy, the shares of two secrets would reveal their difference.
    key = hmac.digest(entropy, b"testbed/shamir/v1" + threshold.to_bytes(8, "big") + secret, "sha256")
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(_COEFFICIENT_BYTES * (threshold - 1)))
    random = [
        gmpy2.mpz.from_bytes(stream[at : at + _COEFFICIENT_BYTES], "big") % PRIME
        for at in range(0, len(stream), _COEFFICIENT_BYTES)
    ]
    return [gmpy2.mpz.from_bytes(secret, "big"), *random]


def _check_points(points: Sequence[int]) -> None:
    if not points:
        raise InvalidShares("there are no points")
    if min(points) < 1 or max(points) > LARGEST_POINT:
        raise InvalidShares(f"points lie between 1 and {LARGEST_POINT}, got {min(points)} to {max(points)}")
    if len(set(points)) != len(points):
        raise InvalidShares("two shares are for the same point")
