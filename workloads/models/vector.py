"""A model as one vector of 32-bit floats: what a federation sends, averages and counts.

In this order: all parameters (as ``module.parameters()`` gives them), the running means and variances of batch
normalisation (they are averaged as parameters are; counts of batches are left out), and what a model sends a second
time (`FederatedModel.sent_twice`: tied parameters that the published figure counts twice).
"""

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from testbed.errors import ExperimentError
from workloads.determinism import Purpose, stream

_NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""What has a scale, ``weight``, which is one at first, whatever its dimensions."""


def xavier_uniform(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
    """Glorot and Bengio 2010 with He et al.'s gain sqrt(2) for ReLU."""
    fan_sum = (shape[0] + shape[1]) * math.prod(shape[2:])
    return _uniform(random, shape, math.sqrt(2.0) * math.sqrt(6.0 / fan_sum))


def glorot_uniform(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
    """Glorot and Bengio 2010, of matrices."""
    return _uniform(random, shape, math.sqrt(6.0 / (shape[0] + shape[1])))


def he_uniform(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
    """He et al. 2015 (arXiv 1502.01852), by the inputs of each output."""
    return _uniform(random, shape, math.sqrt(6.0 / math.prod(shape[1:])))


def _uniform(random: np.random.Generator, shape: torch.Size, bound: float) -> NDArray[np.float32]:
    return (random.random(shape.numel(), dtype=np.float32) * 2 - 1) * np.float32(bound)


def embedding(rows: int, width: int) -> nn.Embedding:
    """A table of so many rows, on whatever device torch makes tensors."""
    # Not the constructor: it would draw numbers, for which the meta device imports torch's compiler.
    table: nn.Embedding = nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)
    return table


class FederatedModel(nn.Module):
    """A network that says more of its vector than its parameters do; any other one has the defaults here.

    Attributes:
        sent_twice: names of parameters that the vector holds again at its end.
    """

    sent_twice: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def initial_weights(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
        """Initial weights of one tensor of two or more dimensions, flat."""
        return xavier_uniform(random, shape)


def declarations(network: nn.Module) -> FederatedModel | type[FederatedModel]:
    """What says more of a network's vector: the network itself, or the defaults of `FederatedModel`.

    Raises `TypeError` for any other module that has attributes of these names: they would be without effect.
    """
    if isinstance(network, FederatedModel):
        return network
    for name in ("sent_twice", "initial_weights", "draw"):  # the last was a name for the second
        if hasattr(network, name):
            raise TypeError(
                f"{type(network).__name__} has {name}, which has no effect: inherit from FederatedModel, and override "
                "sent_twice or initial_weights"
            )
    return FederatedModel


def leave_out_counts(module: nn.Module, name: str) -> None:
    """Take the count of batches out of a batch normalisation: it is no float, and nothing reads it.

    Args:
        module: any.
        name: what the experiment calls the network.

    Raises:
        ExperimentError: without a momentum the count is read.
    """
    if isinstance(module, nn.modules.batchnorm._NormBase) and module.num_batches_tracked is not None:
        if module.momentum is None:
            raise ExperimentError(
                f"workload.model: {name}: {type(module).__name__} with momentum=None averages over all batches it has "
                "seen, which no client has; give it a momentum"
            )
        module.num_batches_tracked = None


def check_floats(network: nn.Module, name: str) -> None:
    """See that all that the vector would hold is floats; counts of batches are left out from here on.

    Raises:
        ExperimentError: a parameter, or a buffer, that is none; or see `leave_out_counts`.
    """
    for module in network.modules():
        leave_out_counts(module, name)
    for kind, tensors in (("parameter", network.named_parameters()), ("buffer", network.named_buffers())):
        for path, tensor in tensors:
            if not tensor.is_floating_point():
                raise ExperimentError(
                    f"workload.model: {name}: {kind} {path} is {str(tensor.dtype).removeprefix('torch.')}; a model is "
                    "sent as floats, so make it a plain attribute if it is constant"
                )


def mixing_module(network: nn.Module) -> nn.Module | None:
    """The first layer that mixes the samples of a batch or keeps statistics of them, or None: batch normalisation, and
    whatever else has tensors that are not its parameters.
    """
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) or next(module.buffers(recurse=False), None) is not None:
            return module
    return None


def _tensors(network: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Parameters, then running statistics: (module, name, tensor), each once."""
    yielded: set[int] = set()
    for module, name, tensor in _uses(network):
        if id(tensor) not in yielded:
            yielded.add(id(tensor))
            yield module, name, tensor


def _uses(network: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """As `_tensors`; one that several modules share is there for each of them."""
    for module in network.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            yield module, name, parameter
    for module in network.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            yield module, name, buffer


def _sent_twice(network: nn.Module) -> list[tuple[nn.Module, str]]:
    names = (full.rpartition(".") for full in declarations(network).sent_twice)
    return [(network.get_submodule(owner), name) for owner, _, name in names]


def copies(network: nn.Module) -> list[tuple[slice, slice]]:
    """(where it is, where it is again) in the vector, for all that a model sends twice."""
    places, start = {}, 0
    for module, name, tensor in _tensors(network):
        places[module, name] = slice(start, start + tensor.numel())
        start += tensor.numel()
    pairs = []
    for key in _sent_twice(network):
        size = places[key].stop - places[key].start
        pairs.append((places[key], slice(start, start + size)))
        start += size
    return pairs


def layers(network: nn.Module) -> list[list[slice]]:
    """Of each module with parameters of its own, where these and its running statistics are in the vector."""
    places_by_module: dict[nn.Module, list[slice]] = {}
    start = 0
    for module, _, tensor in _tensors(network):
        places_by_module.setdefault(module, []).append(slice(start, start + tensor.numel()))
        start += tensor.numel()
    return list(places_by_module.values())


def dimension(network: nn.Module) -> int:
    """The length of a model's vector."""
    again = sum(module.get_parameter(name).numel() for module, name in _sent_twice(network))
    return sum(tensor.numel() for _, _, tensor in _tensors(network)) + again


def attach(network: nn.Module, flat: Tensor) -> None:
    """Make a model's parameters and running statistics views into `flat`, (d,) float32."""
    start = 0
    placed: dict[int, Tensor] = {}
    uses = list(_uses(network))  # kept until the end, so that no two tensors have one identity
    for module, name, tensor in uses:  # not to_empty: that imports sympy, half a second in every process
        if id(tensor) not in placed:
            view = flat[start : start + tensor.numel()].view(tensor.shape)
            placed[id(tensor)] = nn.Parameter(view) if isinstance(tensor, nn.Parameter) else view
            start += tensor.numel()
        setattr(module, name, placed[id(tensor)])


def initial_vector(network: nn.Module, seed: int) -> NDArray[np.float32]:
    """(d,) float32 initial values: `FederatedModel.initial_weights` for weights, one for the scales of normalisation
    and for running variances, what it was made with for a PReLU, zero for all else. A function of the shapes and the
    seed alone: no generator of torch is used.
    """
    weights = declarations(network).initial_weights
    random, parts = stream(seed, Purpose.WEIGHTS), []
    for module, name, tensor in _tensors(network):
        if isinstance(module, _NORMALISATIONS):
            is_scale = name in ("weight", "running_var")
            parts.append((np.ones if is_scale else np.zeros)(tensor.numel(), dtype=np.float32))
        elif isinstance(module, nn.PReLU):
            parts.append(np.full(tensor.numel(), module.init, dtype=np.float32))
        elif tensor.dim() < 2:
            parts.append(np.zeros(tensor.numel(), dtype=np.float32))
        else:
            parts.append(weights(random, tensor.shape))
    values = np.concatenate(parts)
    return np.concatenate([values, *(values[there] for there, _ in copies(network))])
