"""Shamir's secret sharing of many secrets to the same holders: the same shares as `shamir.share`, faster.

The powers of the points are computed once; the shares of a secret are then one product of a vector and a matrix modulo
the prime, in exact double arithmetic.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import gmpy2
import numpy as np
import numpy.typing as npt

from testbed.crypto.shamir import PRIME, SHARE_BYTES, check_dealing, coefficients, share

LARGEST_MATRIX = 1 << 24
"""Limit of the matrix of powers, in elements of 8 bytes; above it, shares are computed one by one."""
TOGETHER = 4
"""Secrets for each product: the powers are read from memory once for all of them."""

_LIMB = 22  # bits
_LIMBS = 12  # 264 bits hold a number below the prime, in 33 bytes
_MASK = (1 << _LIMB) - 1
# 2**9 products of two limbs: their sum stays below 2**53, so doubles are exact in any order of summation.
_EXACT = 1 << (53 - 2 * _LIMB)
_ABOVE = 297  # the prime is 2**256 + 297
_FOLD = _ABOVE << 8  # 2**264 is -_FOLD modulo the prime
_TOP = 256 - _LIMB * (_LIMBS - 1)  # bits of the highest limb that are below 2**256

Words = npt.NDArray[np.int64]


def share_each(secrets: Sequence[tuple[bytes, bytes]], threshold: int, points: Sequence[int]) -> list[list[bytes]]:
    """Return the shares of each secret, computed one by one by `shamir.share`.

    Args:
        secrets: secret and entropy of each, 32 bytes.
        threshold: t.
        points: n distinct integers from 1 to 2**32, one for each holder.

    Returns:
        For each secret, n shares of 33 bytes.

    Raises:
        InvalidShares: see `shamir.share`.
    """
    return [share(secret, threshold, points, entropy) for secret, entropy in secrets]


def share_to_many(secrets: Sequence[tuple[bytes, bytes]], threshold: int, points: Sequence[int]) -> list[list[bytes]]:
    """Return the same shares as `share_each`, faster from the second call with the same points on.

    Args:
        secrets: secret and entropy of each, 32 bytes.
        threshold: t.
        points: n distinct integers from 1 to 2**32, one for each holder.

    Raises:
        InvalidShares: see `shamir.share`.

    Example:
        >>> from testbed.crypto.shamir import reconstruct
        >>> shares = share_to_many([(b"a" * 32, bytes(32)), (b"b" * 32, bytes(32))], threshold=2, points=[1, 2, 3])
        >>> reconstruct([1, 3], [shares[1][0], shares[1][2]], threshold=2) == b"b" * 32
        True
    """
    if threshold * len(points) * _LIMBS > LARGEST_MATRIX:
        return share_each(secrets, threshold, points)
    for secret, entropy in secrets:
        check_dealing(secret, threshold, points, entropy)
    powers = _powers(tuple(points), threshold)
    dealt = []
    for first in range(0, len(secrets), TOGETHER):
        some = secrets[first : first + TOGETHER]
        joined = canonical(_evaluated(some, threshold, powers))
        shares = [joined[at : at + SHARE_BYTES] for at in range(0, len(joined), SHARE_BYTES)]
        dealt += [shares[begin : begin + len(points)] for begin in range(0, len(shares), len(points))]
    return dealt


def _evaluated(secrets: Sequence[tuple[bytes, bytes]], threshold: int, powers: npt.NDArray[np.float64]) -> Words:
    """Return the shares of k secrets as `canonical` takes them: `(24, k n)`, shares of a secret together."""
    count = len(secrets)
    numbers = [number for secret, entropy in secrets for number in coefficients(secret, threshold, entropy)]
    factors = limbs(numbers).reshape(count, threshold, _LIMBS).transpose(2, 0, 1).reshape(-1, threshold)
    columns = np.zeros((2 * _LIMBS, count * powers.shape[1] // _LIMBS), np.int64)
    # int64 collects the parts: a double would round the sum of more products.
    for begin in range(0, threshold, _EXACT):
        part = slice(begin, begin + _EXACT)
        products = (factors[:, part] @ powers[part]).reshape(_LIMBS, count, _LIMBS, -1)
        for low, of_limb in enumerate(products):
            columns[low : low + _LIMBS] += of_limb.swapaxes(0, 1).astype(np.int64).reshape(_LIMBS, -1)
    return columns


# Two entries only: a matrix takes up to 128 MiB (`LARGEST_MATRIX`).
@lru_cache(maxsize=2)
def _powers(points: tuple[int, ...], threshold: int) -> npt.NDArray[np.float64]:
    """Return the limbs of the n points' powers from exponent 0 on, `(threshold, 12 n)`, lowest limbs first."""
    powers = np.empty((threshold, _LIMBS, len(points)))
    bases = [gmpy2.mpz(point) for point in points]
    row = [gmpy2.mpz(1)] * len(points)
    for exponent in range(threshold):
        powers[exponent] = limbs(row).T
        row = [power * base % PRIME for power, base in zip(row, bases, strict=True)]
    return powers.reshape(threshold, -1)


def limbs(numbers: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return the limbs of n numbers below 2**264, lowest first: `(n, 12)` float64."""
    fours = np.zeros((len(numbers), 3, 16), np.uint8)  # four limbs are 11 bytes
    whole = b"".join([number.to_bytes(SHARE_BYTES, "little") for number in numbers])
    fours[:, :, :11] = np.frombuffer(whole, np.uint8).reshape(-1, 3, 11)
    words = fours.view("<u8")
    low, high = words[..., 0], words[..., 1]
    cut = [low, low >> _LIMB, low >> (2 * _LIMB) | high << (64 - 2 * _LIMB), high >> (3 * _LIMB - 64)]
    result: npt.NDArray[np.float64] = (np.stack(cut, axis=-1) & _MASK).reshape(-1, _LIMBS).astype(np.float64)
    return result


def canonical(columns: Words) -> bytes:
    """Return n numbers modulo the prime, 33 bytes each, big-endian.

    Args:
        columns: `(24, n)` limbs, each below 2**60; number = sum of row i times 2**(22 i), below 2**528. Overwritten.
    """
    _carry(columns)
    number = columns[:_LIMBS]
    # All rows are below 2**22 now, so these products stay within 2**39.
    number -= _FOLD * columns[_LIMBS:]
    for _ in range(2):  # after the first pass only a few bits lie above 2**264
        over = _carry(number)
        number[0] -= _FOLD * over
    number[-1] += _carry(number) << _LIMB
    # The bits above 2**256 estimate the quotient by the prime: it may be too large for a positive number and too small
    # for a negative number. The next two lines correct both.
    _subtract_prime(number, number[-1] >> _TOP)
    _subtract_prime(number, np.where(number[-1] < 0, -1, 0))
    _subtract_prime(number, _is_at_least_prime(number).astype(np.int64))
    words = number.astype(np.uint64).reshape(3, 4, -1)
    fours = np.empty((number.shape[1], 3, 2), "<u8")
    fours[..., 0] = (words[:, 0] | words[:, 1] << _LIMB | words[:, 2] << (2 * _LIMB)).T
    fours[..., 1] = (words[:, 2] >> (64 - 2 * _LIMB) | words[:, 3] << (3 * _LIMB - 64)).T
    little = fours.view(np.uint8)[..., :11].reshape(-1, SHARE_BYTES)
    # Big-endian, as `shamir.share` encodes shares.
    return little[:, ::-1].tobytes()


def _carry(columns: Words) -> Words:
    """Bring each row into 0 to 2**22, in place; return the carry out of the top row, `(n,)`, which may be negative."""
    over = np.zeros(columns.shape[1], np.int64)
    for row in columns:
        row += over
        # An arithmetic shift rounds down, so the rest of a negative row is positive.
        over = row >> _LIMB
        row &= _MASK
    return over


def _subtract_prime(number: Words, times: Words) -> None:
    """Subtract the prime `(n,)` times from `(12, n)` numbers, in place; the highest limb keeps sign and excess."""
    number[-1] -= times << _TOP
    number[0] -= _ABOVE * times
    number[-1] += _carry(number[:-1])


def _is_at_least_prime(number: Words) -> npt.NDArray[np.bool_]:
    # The prime is 2**256 + 297: the limbs between the highest and the lowest limb are zero.
    above = number[-1] >= 1 << _TOP
    exactly = (number[-1] == 1 << _TOP) & ~number[1:-1].any(axis=0)
    result: npt.NDArray[np.bool_] = above & ~(exactly & (number[0] < _ABOVE))
    return result
