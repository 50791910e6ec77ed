"""The randomised Hadamard rotation: random signs, then the Walsh-Hadamard transform.

It spreads an update evenly over all coordinates, so that none is much larger than the others and the sum fits a small
ring: Suresh, Yu, Kumar, McMahan, Distributed Mean Estimation with Limited Communication, arXiv 1611.00429, section 3.
The signs are public. They follow from the experiment's id and the round, so server and clients agree without a word.

The transform is one small matrix product for each group of five bits of the index, instead of one pass over the vector
for each bit. On integers it is exact as long as no sum of their absolute values exceeds 2**53, in whichever order the
products are summed: that is how the same update becomes the same bytes on every machine.
"""

import hashlib
from functools import lru_cache

import numpy as np

from testbed.arrays import Floats
from testbed.messages import signed_content
from testbed.privacy.mechanisms.keystream import words

_DOMAIN = b"testbed/privacy/rotation/v1"
_GROUP_BITS = 5
_COLUMNS = 256  # 32 x 32 x 256: a product that BLAS does not spread over threads, nor leaves the cache


def padded(dimension: int) -> int:
    """D, the smallest power of two that is at least d: what the rotation works on."""
    return 1 << (dimension - 1).bit_length()


def rotation_seed(experiment_id: bytes, round_number: int) -> bytes:
    """32 public bytes: what the signs of a round are made of."""
    return hashlib.sha256(_DOMAIN + signed_content(experiment_id, round_number)).digest()


def flip_signs(vector: Floats, seed: bytes) -> None:
    """Change the sign of every coordinate of `vector` `(D,)` whose bit in the seed's key stream is 1, in place."""
    for number, part in enumerate(words(seed, -(-len(vector) // 64))):
        flat = np.unpackbits(part.astype("<u8", copy=False).view(np.uint8), bitorder="little")
        begin = number * len(flat)
        target = vector[begin : begin + len(flat)]
        np.multiply(target, 1.0 - 2.0 * flat[: len(target)], out=target)


def hadamard(vector: Floats) -> Floats:
    """`(D,)` the Walsh-Hadamard transform of `vector` `(D,)`, in Sylvester's order and not normalised.

    Twice gives D times the vector. D must be a power of two.
    """
    length = len(vector)
    if length & (length - 1) or not length:
        raise ValueError(f"a power of two is needed, not {length} coordinates")
    bits = length.bit_length() - 1
    groups = -(-bits // _GROUP_BITS)
    buffers = (np.empty_like(vector), np.empty_like(vector))
    here, before = vector, 1
    for group in range(groups):
        size = 1 << (bits * (group + 1) // groups - bits * group // groups)
        after = length // (before * size)
        out = buffers[group % 2]
        if after == 1:
            shape: tuple[int, ...] = (-1, min(before, _COLUMNS), size)
            np.matmul(here.reshape(shape), _matrix(size), out=out.reshape(shape))
        else:
            shape = (before, size, -1, min(after, _COLUMNS))
            np.matmul(_matrix(size), here.reshape(shape).swapaxes(1, 2), out=out.reshape(shape).swapaxes(1, 2))
        here, before = out, before * size
    return here.copy() if here is vector else here


@lru_cache
def _matrix(size: int) -> Floats:
    """Sylvester's matrix of this size, read-only."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    matrix.setflags(write=False)
    return matrix
