"""Dot products of a long vector with random vectors of -1, 0 and 1.

Rothblum, Omri, Chen and Talwar, PINE: Efficient Verification of a Euclidean Norm Bound of a Secret-Shared Vector
(USENIX Security 2024, arXiv 2311.10237), figure 2.

An entry is two bits of a stream, a byte's lowest first: 00 is -1, 11 is 1, 01 and 10 are 0. So an entry is the number
of set bits minus one, and a product is that of the counts minus the sum of the vector.

Products are computed in float32, at BLAS speed.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

# A sum of 4,096 limbs of 11 bits, each at most doubled, is below 2**24: float32 is exact in any order of summation.
_LIMB = 11
_TOGETHER = 256  # bytes of each random vector at once, four entries to a byte: they fit a core's cache
_MASKS = (0x03, 0x0C, 0x30, 0xC0)
# A mask leaves the count at its place in the byte: these factors, exact in float32, move it to the lowest bits.
_SCALES = np.array([1, 1 / 4, 1 / 16, 1 / 64], np.float32)[:, None]


def ternary_products(vector: npt.NDArray[Any], bits: int, entries: bytes | bytearray, count: int) -> list[int]:
    """Return the products of a vector with random vectors, as integers.

    Args:
        vector: `(d,)` int64 or uint64.
        bits: bits of its elements, including the sign of int64.
        entries: of the random vectors, one after the other, each of ceil(d / 4) bytes.
        count: number of random vectors.

    Source:
        PINE, figure 2.
    """
    length = -(-len(vector) // 4)
    rows = np.frombuffer(entries, np.uint8, count * length).reshape(count, length)
    limbs = -(-bits // _LIMB)
    padded = np.zeros(4 * length, vector.dtype)
    padded[: len(vector)] = vector
    sums = np.zeros((count, limbs), np.int64)
    whole = np.zeros(limbs, np.int64)
    planes = np.empty((count, 4, _TOGETHER), np.float32)
    factors = np.empty((limbs, 4, _TOGETHER), np.float32)
    for first in range(0, length, _TOGETHER):
        some = rows[:, first : first + _TOGETHER]
        width = some.shape[1]
        if width < planes.shape[2]:
            # Contiguous again, so that the reshapes below copy nothing.
            planes, factors = planes[:, :, :width].copy(), factors[:, :, :width].copy()
        # The number of set bits of each pair, for four pairs of a byte at once.
        set_bits = some - ((some >> 1) & 0x55)
        for plane, mask in enumerate(_MASKS):
            planes[:, plane] = set_bits & np.uint8(mask)
        part = padded[4 * first : 4 * (first + width)].reshape(width, 4).T
        for limb in range(limbs):
            values = part >> vector.dtype.type(limb * _LIMB)
            # The highest limb keeps the sign.
            if limb < limbs - 1:
                values = values & vector.dtype.type((1 << _LIMB) - 1)
            whole[limb] += int(values.sum())
            np.multiply(values.astype(np.float32), _SCALES, out=factors[limb])
        sums += (planes.reshape(count, -1) @ factors.reshape(limbs, -1).T).astype(np.int64)
    return [
        # An entry is its number of set bits minus one: subtract the vector's sum once.
        sum((int(sums[row, limb]) - int(whole[limb])) << (limb * _LIMB) for limb in range(limbs))
        for row in range(count)
    ]
