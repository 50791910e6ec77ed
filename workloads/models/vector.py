"""A model as one vector of 32-bit floats, which a federation sends, averages and counts.

In this order: all parameters (in the order of ``module.parameters()``), the running means and variances of batch
normalisation (averaged as parameters are; counts of batches are left out), and parameters that the model sends a second
time (`FederatedModel.sent_twice`: tied parameters that the published size counts twice).
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
"""Modules with a scale, ``weight``, that is initially one."""


def xavier_uniform(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
    """Return initial weights of Glorot and Bengio 2010 with He et al.'s gain sqrt(2) for ReLU.

    Args:
        random: source of the weights.
        shape: their shape.
    """
    fan_sum = (shape[0] + shape[1]) * math.prod(shape[2:])
    return _uniform(random, shape, math.sqrt(2.0) * math.sqrt(6.0 / fan_sum))


def glorot_uniform(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
    """Return initial weights of Glorot and Bengio 2010, for matrices.

    Args:
        random: source of the weights.
        shape: their shape.
    """
    return _uniform(random, shape, math.sqrt(6.0 / (shape[0] + shape[1])))


def he_uniform(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
    """Return initial weights of He et al. 2015 (arXiv 1502.01852), scaled by the inputs of each output.

    Args:
        random: source of the weights.
        shape: their shape.
    """
    return _uniform(random, shape, math.sqrt(6.0 / math.prod(shape[1:])))


def _uniform(random: np.random.Generator, shape: torch.Size, bound: float) -> NDArray[np.float32]:
    # In float32 by numpy: the same numbers on every machine and with every version of torch.
    return (random.random(shape.numel(), dtype=np.float32) * 2 - 1) * np.float32(bound)


def embedding(rows: int, width: int) -> nn.Embedding:
    """Return an embedding table on torch's current device, without drawing initial values.

    Args:
        rows: number of rows.
        width: width of a row.
    """
    # The constructor would draw numbers, for which the meta device imports torch's compiler.
    table: nn.Embedding = nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)
    return table


class FederatedModel(nn.Module):
    """A network with declarations about its vector; other networks have the defaults of this class.

    Attributes:
        sent_twice: names of parameters that the vector holds again at its end.
    """

    sent_twice: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def initial_weights(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
        """Return the flat initial weights of one tensor of two or more dimensions."""
        return xavier_uniform(random, shape)


def declarations(network: nn.Module) -> FederatedModel | type[FederatedModel]:
    """Return the declarations about a network's vector: the network itself, or the defaults of `FederatedModel`.

    Raises:
        TypeError: another module has attributes of these names, which would have no effect.
    """
    if isinstance(network, FederatedModel):
        return network
    # On another class these names would be ignored silently.
    for name in ("sent_twice", "initial_weights", "draw"):  # "draw" is the former name of "initial_weights"
        if hasattr(network, name):
            raise TypeError(
                f"{type(network).__name__} has {name}, which has no effect: inherit from FederatedModel, and override "
                "sent_twice or initial_weights"
            )
    return FederatedModel


def leave_out_counts(module: nn.Module, name: str) -> None:
    """Remove the count of batches from a batch normalisation: it is an integer, and unused.

    Args:
        module: any module.
        name: the experiment's name for the network.

    Raises:
        ExperimentError: without a momentum the count is used.
    """
    if isinstance(module, nn.modules.batchnorm._NormBase) and module.num_batches_tracked is not None:
        if module.momentum is None:
            raise ExperimentError(
                f"workload.model: {name}: {type(module).__name__} with momentum=None averages over all batches so far, "
                "but a client has only its own; give it a momentum"
            )
        module.num_batches_tracked = None


def check_floats(network: nn.Module, name: str) -> None:
    """Check that the vector would hold only floats, and remove counts of batches.

    Args:
        network: the network; it is changed.
        name: the experiment's name for it.

    Raises:
        ExperimentError: a parameter or a buffer is not a float; or as `leave_out_counts`.
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
    """Return the first layer that mixes the samples of a batch or keeps statistics of them; None if there is none.

    These are batch normalisation and all modules with tensors that are not parameters.
    """
    for module in network.modules():
        # Buffers may hold statistics of batches under any name, so every module with buffers counts.
        if isinstance(module, nn.modules.batchnorm._BatchNorm) or next(module.buffers(recurse=False), None) is not None:
            return module
    return None


def _tensors(network: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Yield parameters, then running statistics: (module, name, tensor), each tensor once."""
    yielded: set[int] = set()
    for module, name, tensor in _uses(network):
        # By identity: tied parameters are one tensor, which is sent once.
        if id(tensor) not in yielded:
            yielded.add(id(tensor))
            yield module, name, tensor


def _uses(network: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Yield as `_tensors`, but a shared tensor once for each of its modules."""
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
    """Return the slices of the vector that a model sends twice: (original, copy)."""
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
    """Return, for each module with parameters, the slices of its parameters and running statistics in the vector."""
    places_by_module: dict[nn.Module, list[slice]] = {}
    start = 0
    for module, _, tensor in _tensors(network):
        places_by_module.setdefault(module, []).append(slice(start, start + tensor.numel()))
        start += tensor.numel()
    return list(places_by_module.values())


def dimension(network: nn.Module) -> int:
    """Return the length of a model's vector."""
    again = sum(module.get_parameter(name).numel() for module, name in _sent_twice(network))
    return sum(tensor.numel() for _, _, tensor in _tensors(network)) + again


def attach(network: nn.Module, flat: Tensor) -> None:
    """Turn a model's parameters and running statistics into views of a vector.

    Args:
        network: the model; it is changed.
        flat: (d,) float32.
    """
    start = 0
    placed: dict[int, Tensor] = {}
    uses = list(_uses(network))  # kept until the end, so that no two tensors have one identity
    for module, name, tensor in uses:  # to_empty would import sympy, 0.5 s in every process
        if id(tensor) not in placed:
            view = flat[start : start + tensor.numel()].view(tensor.shape)
            placed[id(tensor)] = nn.Parameter(view) if isinstance(tensor, nn.Parameter) else view
            start += tensor.numel()
        # Tied parameters get the same view, so that they stay tied.
        setattr(module, name, placed[id(tensor)])


def initial_vector(network: nn.Module, seed: int) -> NDArray[np.float32]:
    """Return the initial values of a model, (d,) float32, as a function of the shapes and the seed alone.

    Weights come from `FederatedModel.initial_weights`; scales of normalisation and running variances are one,
    parameters of PReLU have their constructor's value, and all others are zero. No generator of torch is used.

    Args:
        network: the model.
        seed: the experiment's seed.
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
