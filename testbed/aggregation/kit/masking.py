"""Masked updates, as clients send them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.messages import Vector
from testbed.network.masked_vectors import Elements, MaskedVector, Masks


def masked_vector(elements: npt.NDArray[Any] | Elements, bits: int, masks: Masks, *, symbolic: bool) -> Vector:
    """Return elements under masks; read-only.

    Args:
        elements: `(d,)` of the ring.
        bits: of the ring.
        masks: to be added.
        symbolic: masks stay seeds until somebody looks (`Environment.symbolic_masks`).
    """
    if symbolic:
        return MaskedVector(elements, bits, masks)
    masked = np.asarray(elements)
    masks.add_to(masked, bits)
    masked.setflags(write=False)  # as symbolic masks are
    return Vector(masked, bits)
