"""The gradient term of SCAFFOLD and FedDyn (`testbed.workload.drift_correction`): a vector added to each gradient."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class LinearTerm:
    """Gradient of <term, w>, added to the gradients of a batch.

    Args:
        parameters: w; their gradients are changed in place.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._term = torch.zeros(sum(parameter.numel() for parameter in parameters), device=parameters[0].device)
        # Views of one vector: a new term is one copy, for any number of layers.
        parts = self._term.split([parameter.numel() for parameter in parameters])
        self._parts = [part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)]

    def begin(self, term: NDArray[np.float32] | None) -> None:
        """Set the term, (p,) in the order of the parameters; None: zeros."""
        if term is None:
            self._term.zero_()
        else:
            self._term.copy_(torch.from_numpy(np.ascontiguousarray(term, np.float32)))

    def add(self) -> None:
        """Add the term to the gradients; parameters without a gradient stay unchanged."""
        with torch.no_grad():
            for part, parameter in zip(self._parts, self._parameters, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(part)
