"""Vectors of integers, such as field elements. A protocol reduces their sum modulo its own modulus."""

from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.vectors.dense import WIDEST_RING, Vector

INTEGERS = 130
"""Form of `IntegerVector`, in place of a ring's width."""

_BITS = 32


class IntegerVector(Vector):
    """Integers below 2**32, four bytes each on the wire, little-endian. Sums are modulo 2**64, so they do not wrap.

    Args:
        values: (d,) uint32.

    Raises:
        ValueError: the array has another type or shape.
    """

    __slots__ = ()

    def __init__(self, values: npt.NDArray[Any]) -> None:
        if values.dtype != np.uint32:
            raise ValueError(f"values must be unsigned integers of {_BITS} bits, not {values.dtype}")
        # The base class checks by a ring's width; on the wire the vector has the number of its form instead.
        super().__init__(values, _BITS)
        self.bits = INTEGERS

    @property
    def is_float(self) -> bool:
        return False

    @property
    def sum_bits(self) -> int:
        # Wider than the elements: 2**32 summands of 32 bits fit, so the protocol can reduce the exact sum.
        return WIDEST_RING

    @property
    def packed_bytes(self) -> int:
        return self.values.itemsize * len(self)

    def pack(self) -> bytes:
        return self.values.astype("<u4", copy=False).tobytes()

    @classmethod
    def unpack_form(cls, data: bytes, length: int) -> "IntegerVector":
        """Decode the result of `pack`; raises `ProtocolError` for other data."""
        return cls(Vector.unpack(data, _BITS, length).values)
