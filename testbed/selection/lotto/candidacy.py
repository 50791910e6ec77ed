"""Who is a candidate: beta < a s m / n (Lotto, arXiv 2401.02880, section 3.4), and how that is shown.

A client's number beta is what a verifiable random function (client-centric) or a PRF (server-centric) gives for the
round: nobody can choose it, and everybody can verify it.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from testbed.crypto import vrf
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError
from testbed.selection.lotto.messages import Candidacy
from testbed.selection.lotto.parameters import AgreedListParameters

Bytes = npt.NDArray[np.uint8]


def selection_input(experiment_id: bytes, round_number: int, randomness: bytes = b"") -> bytes:
    """What the VRF or PRF is evaluated on: domain tag, experiment, round, and (if there is a beacon) its randomness."""
    return b"testbed/lotto/selection/v1" + experiment_id + round_number.to_bytes(8, "big") + randomness


def under_threshold(output: bytes, factor: Fraction, participants: int, population: int) -> bool:
    """Whether beta < a s m / n, with m = 2**(8 len(output)), compared in integers without rounding."""
    beta = int.from_bytes(output, "big")
    return beta * population * factor.denominator < factor.numerator * participants << (8 * len(output))


def which_under_threshold(outputs: Bytes, parameters: AgreedListParameters, population: int) -> npt.NDArray[np.bool_]:
    """`(m,)` bool: which of `(m, 32)` outputs are `under_threshold`.

    The leading 8 bytes decide; ties are compared in full.
    """
    factor = parameters.factor
    limit = -(-(factor.numerator * parameters.participants << 256) // (population * factor.denominator))
    if limit >> 256:
        return np.ones(len(outputs), np.bool_)
    leading = outputs[:, :8].copy().view(">u8")[:, 0].astype(np.uint64)
    below: npt.NDArray[np.bool_] = leading < np.uint64(limit >> 192)
    for row in np.flatnonzero(leading == np.uint64(limit >> 192)):
        below[row] = under_threshold(outputs[row].tobytes(), factor, parameters.participants, population)
    return below


def proves(claim: Candidacy, key: bytes, vrf_input: bytes) -> bool:
    """Whether a claim's proof is valid under a VRF key for this input, and its number the one that it proves."""
    if claim.output is None or claim.proof is None:
        return False
    meter("vrf.verify")
    try:
        return vrf.verify(key, vrf_input, claim.proof) == claim.output
    except ProtocolError:
        return False
