"""Cryptographic sortition: parties drawn by numbers that no party can choose and every party can verify.

The number beta of a party is the output of a verifiable random function or a PRF on a public input. The party is drawn
if beta < a s m / n, with m = 2**(8 len(beta)) (Jiang et al., arXiv 2401.02880, section 3.4): of n parties, a s are
expected. With weights, a party of weight w in a total of W is drawn with probability min(1, a s w / W): call with
`selected` = s w and `total` = W.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from testbed.crypto import vrf

Bytes = npt.NDArray[np.uint8]


def under_threshold(output: bytes, factor: Fraction, selected: int, total: int) -> bool:
    """Return whether beta < a s m / n with m = 2**(8 len(output)), compared in integers without rounding.

    Args:
        output: beta, big-endian.
        factor: over-selection factor a.
        selected: s, number of parties to draw (or s w).
        total: n, number of parties (or W).

    Example:
        >>> under_threshold(bytes([127]), Fraction(1), 1, 2)
        True
    """
    # Integers, because rounding near the threshold would let parties disagree on a draw.
    beta = int.from_bytes(output, "big")
    return beta * total * factor.denominator < factor.numerator * selected << (8 * len(output))


def smallest_not_under_threshold(factor: Fraction, selected: int, total: int, size: int) -> int:
    """Return the smallest number that is not under the threshold; it may need more than `size` bytes.

    Args:
        factor: over-selection factor a.
        selected: s.
        total: n.
        size: length of numbers [bytes].
    """
    return -(-(factor.numerator * selected << (8 * size)) // (total * factor.denominator))


def below_threshold_mask(outputs: Bytes, factor: Fraction, selected: int, total: int) -> npt.NDArray[np.bool_]:
    """Return which outputs are under the threshold.

    The leading 8 bytes decide; ties are compared in full.

    Args:
        outputs: `(m, 32)` uint8, big-endian numbers.
        factor: over-selection factor a.
        selected: s.
        total: n.

    Returns:
        `(m,)` bool.

    Example:
        >>> outputs = np.array([[0] * 32, [128] + [0] * 31], np.uint8)  # 0 and 1/2 of the largest output
        >>> below_threshold_mask(outputs, factor=Fraction(13, 10), selected=10, total=100).tolist()
        [True, False]
    """
    limit = smallest_not_under_threshold(factor, selected, total, 32)
    # The threshold is above every output: all parties are drawn.
    if limit >> 256:
        return np.ones(len(outputs), np.bool_)
    leading = outputs[:, :8].copy().view(">u8")[:, 0].astype(np.uint64)  # big-endian, like beta
    below: npt.NDArray[np.bool_] = leading < np.uint64(limit >> 192)
    for row in np.flatnonzero(leading == np.uint64(limit >> 192)):
        below[row] = under_threshold(outputs[row].tobytes(), factor, selected, total)
    return below


def certainly_above_threshold(
    alpha: bytes, factor: Fraction, selected: int, total: int
) -> Callable[[bytes, bytes], bool] | None:
    """Return a cheap test for VRF keys with numbers that are certainly not under the threshold.

    The test needs less work than the number itself (`vrf.either_output`).

    Args:
        alpha: the VRF's input.
        factor: over-selection factor a.
        selected: s.
        total: n.

    Returns:
        A predicate of seed and public key; None if all parties are drawn.
    """
    limit = smallest_not_under_threshold(factor, selected, total, vrf.OUTPUT_BYTES)
    if limit >> (8 * vrf.OUTPUT_BYTES):
        return None
    least = limit.to_bytes(vrf.OUTPUT_BYTES, "big")

    def is_not_drawn(seed: bytes, public: bytes) -> bool:
        outputs = vrf.either_output(seed, public, alpha)
        # Big-endian numbers of one length: bytes compare as numbers do.
        return outputs is not None and min(outputs) >= least

    return is_not_drawn
