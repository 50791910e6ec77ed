"""Sorted client numbers in few bytes, for their way between processes.

A stage that asks the whole population would carry 8 bytes for each of its clients to the hosts and back. An even range
(all clients of a host) is three numbers; any other set is a bit for each number of its span, where that is smaller.
"""

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids

Packed = Ids | tuple[int, int, int] | tuple[int, npt.NDArray[np.uint8]]

_FEW = 1000  # below, what can be saved is not worth looking


def packed(ids: Ids) -> Packed:
    """`(m,)` int64 ids as they travel; any array that is not strictly ascending travels as it is.

    Returns:
        (first, step, count) of an even range; (first, bits of the numbers from `first` on); or `ids`.
    """
    count = len(ids)
    if count < _FEW:
        return ids
    first, step, last = int(ids[0]), int(ids[1] - ids[0]), int(ids[-1])
    gaps = np.diff(ids)
    if step > 0 and last - first == step * (count - 1) and (gaps == step).all():
        return first, step, count
    span = last - first + 1
    if span > 32 * count or not (gaps > 0).all():
        return ids
    there = np.zeros(span, np.bool_)
    there[ids - first] = True
    return first, np.packbits(there)


def unpacked(parcel: Packed) -> Ids:
    """Inverse of `packed`."""
    if isinstance(parcel, np.ndarray):
        return parcel
    if len(parcel) == 3:
        first, step, count = parcel
        return np.arange(first, first + step * count, step, dtype=np.int64)
    first, bits = parcel
    return np.flatnonzero(np.unpackbits(bits)).astype(np.int64, copy=False) + first
