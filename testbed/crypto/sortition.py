"""Cryptographic sortition: who is drawn by a number that nobody can choose and everybody can verify.

The number beta of a party is what a verifiable random function or a PRF gives on a public input. It is drawn where
beta < a s m / n, with m = 2**(8 len(beta)) (Jiang et al., arXiv 2401.02880, section 3.4): of n parties, a s are
expected. With a weight w of a sum W of weights in the place of 1 of n, it is drawn with probability min(1, a s w / W):
call with `drawn` = s w and `among` = W.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from testbed.crypto import vrf

Bytes = npt.NDArray[np.uint8]


def under_threshold(output: bytes, factor: Fraction, drawn: int, among: int) -> bool:
    """Whether beta < a s m / n, with m = 2**(8 len(output)), compared in integers without rounding."""
    beta = int.from_bytes(output, "big")
    return beta * among * factor.denominator < factor.numerator * drawn << (8 * len(output))


def first_not_under(factor: Fraction, drawn: int, among: int, size: int) -> int:
    """The smallest number that is not `under_threshold`, where numbers have `size` bytes; it may have more itself."""
    return -(-(factor.numerator * drawn << (8 * size)) // (among * factor.denominator))


def below_threshold_mask(outputs: Bytes, factor: Fraction, drawn: int, among: int) -> npt.NDArray[np.bool_]:
    """`(m,)` bool: which of `(m, 32)` outputs are `under_threshold`.

    The leading 8 bytes decide; ties are compared in full.
    """
    limit = first_not_under(factor, drawn, among, 32)
    if limit >> 256:
        return np.ones(len(outputs), np.bool_)
    leading = outputs[:, :8].copy().view(">u8")[:, 0].astype(np.uint64)
    below: npt.NDArray[np.bool_] = leading < np.uint64(limit >> 192)
    for row in np.flatnonzero(leading == np.uint64(limit >> 192)):
        below[row] = under_threshold(outputs[row].tobytes(), factor, drawn, among)
    return below


def certainly_above_threshold(
    alpha: bytes, factor: Fraction, drawn: int, among: int
) -> Callable[[bytes, bytes], bool] | None:
    """A test of VRF keys, by seed and public key: are their numbers on `alpha` certain not to be `under_threshold`?

    It takes less than the number itself (`vrf.either_output`). None: everybody is drawn.
    """
    limit = first_not_under(factor, drawn, among, vrf.OUTPUT_BYTES)
    if limit >> (8 * vrf.OUTPUT_BYTES):
        return None
    least = limit.to_bytes(vrf.OUTPUT_BYTES, "big")

    def is_not_drawn(seed: bytes, public: bytes) -> bool:
        outputs = vrf.either_output(seed, public, alpha)
        return outputs is not None and min(outputs) >= least

    return is_not_drawn
