"""FedProx's proximal term.

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, Federated Optimization in Heterogeneous Networks, MLSys 2020, arXiv
1812.06127.

A client minimises F_k(w) + mu/2 |w - w^t|^2 (Algorithm 2), where w^t is the global model: each local step uses the
gradient of its batch plus mu (w - w^t). The reported loss is F_k alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class ProximalTerm:
    """Gradient of mu/2 |w - w^t|^2, added to the gradients of a batch.

    Args:
        parameters: w; their gradients are changed in place.
        strength: mu, above 0.
    """

    def __init__(self, parameters: Sequence[Tensor], strength: float) -> None:
        self._parameters = parameters
        self._strength = strength
        self._references = [torch.zeros_like(parameter) for parameter in parameters]
        # Preallocated: allocating in each step costs as much as the arithmetic.
        self._differences = [torch.zeros_like(parameter) for parameter in parameters]

    def begin(self) -> None:
        """Store the parameters as w^t."""
        with torch.no_grad():
            for reference, parameter in zip(self._references, self._parameters, strict=True):
                reference.copy_(parameter)

    def add(self) -> None:
        """Add the term to the gradients; parameters without a gradient stay unchanged."""
        with torch.no_grad():
            for reference, parameter, between in zip(
                self._references, self._parameters, self._differences, strict=True
            ):
                if parameter.grad is not None:
                    torch.sub(parameter, reference, out=between)
                    parameter.grad.add_(between, alpha=self._strength)


def add_pull(gradients: Tensor, parameters: Tensor, reference: Tensor, strength: float) -> None:
    """Add mu (w - w^t) to gradients, in place.

    Args:
        gradients: changed in place.
        parameters: w.
        reference: w^t, also one row for several rows of w.
        strength: mu.
    """
    gradients.add_(parameters - reference, alpha=strength)
