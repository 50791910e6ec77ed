"""Compressed float vectors: some of the elements (sparse), or all of them as small integers (levels).

On the wire a vector's first byte is its ring's width; compressed vectors have the number of their form there, which no
width uses. Sums treat them as float vectors (`Vector.part`).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import ProtocolError
from testbed.vectors.dense import Vector
from testbed.vectors.integers import INTEGERS, IntegerVector

# Forms are above every ring's width (1 to 64), so a header's first byte distinguishes them.
SPARSE = 128
"""Form of `SparseVector`."""
LEVELS = 129
"""Form of `LevelVector`."""
FORMS = (SPARSE, LEVELS, INTEGERS)

LEAST_BITS, MOST_BITS = 2, 16  # with 1 bit, s = 0: no level but zero
"""Bits of a `LevelVector`'s element."""

_COUNT_BYTES = 4  # a vector's length is below 2**32, so counts and buckets are, too


class SparseVector(Vector):
    """Float vector with few non-zero elements, stored as positions and values.

    On the wire: the number of elements (4 bytes, big-endian); their positions, each in as many bits as the last
    position needs, without gaps; their values, float32, little-endian.

    Args:
        places: (k,) unsigned or signed integers, ascending, below `length`.
        elements: (k,) float32.
        length: d, below 2**32.

    Raises:
        ValueError: the arrays have other types, shapes or values.
    """

    __slots__ = ("_elements", "_length", "_places")

    def __init__(self, places: npt.NDArray[Any], elements: npt.NDArray[Any], length: int) -> None:
        if places.ndim != 1 or places.shape != elements.shape or elements.dtype != np.float32:
            raise ValueError(
                f"places and float32 elements must have one shape (k,), not {places.shape} and {elements.shape}"
            )
        # Ascending: one encoding for each vector, and `part` searches by bisection.
        if len(places) and (places[0] < 0 or places[-1] >= length or (places[1:] <= places[:-1]).any()):
            raise ValueError(f"places must ascend, and be below {length}")
        self._places = places.astype(np.uint32)
        self._elements = elements
        self._length = length
        self._digest = None
        self.bits = SPARSE

    @property
    def values(self) -> npt.NDArray[Any]:
        """(d,) float32, computed at each access."""
        return self.part(0, self._length)

    def part(self, begin: int, end: int) -> npt.NDArray[Any]:
        first, last = np.searchsorted(self._places, [begin, end]).tolist()
        dense = np.zeros(max(0, min(end, self._length) - begin), np.float32)
        dense[self._places[first:last] - np.uint32(begin)] = self._elements[first:last]
        return dense

    def __len__(self) -> int:
        return self._length

    @property
    def packed_bytes(self) -> int:
        return _sparse_bytes(len(self._places), self._length)

    def pack(self) -> bytes:
        places = Vector(self._places, _place_bits(self._length)).pack()
        return len(self._places).to_bytes(_COUNT_BYTES, "big") + places + Vector(self._elements, 0).pack()

    @classmethod
    def unpack_form(cls, data: bytes, length: int) -> "SparseVector":
        """Decode the result of `pack`; raises `ProtocolError` for other data."""
        count = int.from_bytes(data[:_COUNT_BYTES], "big")
        if len(data) < _COUNT_BYTES or len(data) != _sparse_bytes(count, length):
            raise ProtocolError(f"a sparse vector of {count} of {length} elements does not have {len(data)} bytes")
        values_at = len(data) - 4 * count
        places = Vector.unpack(data[_COUNT_BYTES:values_at], _place_bits(length), count).values
        try:
            return cls(places, Vector.unpack(data[values_at:], 0, count).values, length)
        except ValueError as error:
            raise ProtocolError(f"not a sparse vector: {error}") from None


class LevelVector(Vector):
    """Float vector quantised to levels: element i is ``(levels[i] - s) / s * norms[i // bucket]``, s = 2**(bits-1) - 1.

    On the wire: bits of a level (1 byte); bucket (4 bytes, big-endian); the norms, float32, little-endian; the levels,
    without gaps.

    Args:
        levels: (d,) unsigned integers, at most 2 s.
        norms: (ceil(d / bucket),) float32.
        level_bits: 2 to 16.
        bucket: number of elements that share a norm, 1 to 2**32 - 1.

    Raises:
        ValueError: the arrays have other types, shapes or values.
    """

    __slots__ = ("_bucket", "_level_bits", "_levels", "_norms")

    def __init__(self, levels: npt.NDArray[Any], norms: npt.NDArray[np.float32], level_bits: int, bucket: int) -> None:
        if not LEAST_BITS <= level_bits <= MOST_BITS or bucket < 1:
            raise ValueError(f"a level must have {LEAST_BITS} to {MOST_BITS} bits, and a bucket at least 1 element")
        if norms.shape != (-(-len(levels) // bucket),) or norms.dtype != np.float32 or levels.dtype.kind != "u":
            raise ValueError(f"levels must be unsigned integers, with a float32 norm for each {bucket} of them")
        if int(levels.max(initial=0)) > 2 * largest_level(level_bits):
            raise ValueError(f"a level must be at most {2 * largest_level(level_bits)}")
        self._levels = levels
        self._norms = norms
        self._level_bits = level_bits
        self._bucket = bucket
        self._digest = None
        self.bits = LEVELS

    @property
    def values(self) -> npt.NDArray[Any]:
        """(d,) float32, computed at each access."""
        return self.part(0, len(self))

    def part(self, begin: int, end: int) -> npt.NDArray[Any]:
        most = largest_level(self._level_bits)
        # Exact: float32 represents all integers up to 2**24, and levels have at most 16 bits.
        levels = self._levels[begin:end].astype(np.float32)
        levels -= np.float32(most)
        buckets = np.arange(begin, begin + len(levels)) // self._bucket
        with np.errstate(invalid="ignore"):  # a norm may be infinite; the sum's code detects the resulting NaN
            levels *= (self._norms / np.float32(most))[buckets]
        return levels

    def __len__(self) -> int:
        return len(self._levels)

    @property
    def packed_bytes(self) -> int:
        return _levels_bytes(len(self), self._level_bits, self._bucket)

    def pack(self) -> bytes:
        header = self._level_bits.to_bytes(1, "big") + self._bucket.to_bytes(_COUNT_BYTES, "big")
        return header + Vector(self._norms, 0).pack() + Vector(self._levels, self._level_bits).pack()

    @classmethod
    def unpack_form(cls, data: bytes, length: int) -> "LevelVector":
        """Decode the result of `pack`; raises `ProtocolError` for other data."""
        begin = 1 + _COUNT_BYTES
        # Zeros for a truncated header: the next check refuses them.
        level_bits, bucket = (data[0], int.from_bytes(data[1:begin], "big")) if len(data) >= begin else (0, 0)
        fits = LEAST_BITS <= level_bits <= MOST_BITS and bucket > 0
        if not fits or len(data) != _levels_bytes(length, level_bits, bucket):
            raise ProtocolError(
                f"{length} levels of {level_bits} bits in buckets of {bucket} do not have {len(data)} bytes"
            )
        count = -(-length // bucket)
        levels_at = begin + 4 * count
        norms = Vector.unpack(data[begin:levels_at], 0, count).values
        levels = Vector.unpack(data[levels_at:], level_bits, length).values
        try:
            return cls(levels, norms, level_bits, bucket)
        except ValueError as error:
            raise ProtocolError(f"not a vector of levels: {error}") from None


def largest_level(level_bits: int) -> int:
    """Return s, so that the levels -s to s have `level_bits` bits.

    Example:
        >>> largest_level(8)
        127
    """
    # Symmetric around zero; the code 2**bits - 1 stays unused.
    return (1 << (level_bits - 1)) - 1


def unpacked(data: bytes, bits: int, length: int) -> Vector:
    """Return the vector, dense or compressed, that a header and packed elements describe.

    Args:
        data: the packed elements.
        bits: ring width, 0 for float32, or a form.
        length: number of elements.

    Raises:
        ProtocolError: the data do not fit the header.
    """
    if bits == SPARSE:
        return SparseVector.unpack_form(data, length)
    if bits == LEVELS:
        return LevelVector.unpack_form(data, length)
    if bits == INTEGERS:
        return IntegerVector.unpack_form(data, length)
    return Vector.unpack(data, bits, length)


def _place_bits(length: int) -> int:
    return max(1, (length - 1).bit_length())


def _sparse_bytes(count: int, length: int) -> int:
    return _COUNT_BYTES + -(-count * _place_bits(length) // 8) + 4 * count


def _levels_bytes(length: int, level_bits: int, bucket: int) -> int:
    return 1 + _COUNT_BYTES + 4 * -(-length // bucket) + -(-length * level_bits // 8)
