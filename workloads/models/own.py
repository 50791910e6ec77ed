"""Models of the user's own: any torch module, as one vector.

The vector holds what is trained and what is averaged: the parameters that require a gradient, and buffers of floats
that the module's state has, such as batch normalisation's running statistics. Everything else is constant (frozen
parameters, tables of positions, masks): it is not sent, and is the same everywhere, since the module is made from the
experiment's seed in every process. The module's own initial values are kept: they are drawn by the seed, or are those
of a file that it reads.
"""

import inspect
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.plugins.classes import plugin_class
from testbed.workload.section import WorkloadSection
from workloads.determinism import Purpose, seeded_globals, stream
from workloads.models import vector
from workloads.models.vector import FederatedModel

_KEY = "workload.model"


class OwnModel(FederatedModel):
    """A module of the user's own, and what is constant in it.

    Args:
        module: with memory; it is changed.
        name: as the experiment names it.

    Attributes:
        channels_last: whether images, (n, channels, height, width), are laid out with the channels last, for which a
            CPU's convolutions are faster by a fifth; a module that asks for a ``view`` of them cannot be given them so.

    Raises:
        ExperimentError: it has a parameter that is no float, or nothing to train.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self.constants: list[tuple[nn.Module, str]] = []
        self.channels_last = True
        for path, parameter in (*module.named_parameters(), *module.named_buffers()):
            if isinstance(parameter, UninitializedParameter | UninitializedBuffer):
                raise ExperimentError(
                    f"{_KEY}: {name}: {path} has no size yet (a lazy layer); give the layer the size of what it takes"
                )
        for path, parameter in module.named_parameters():
            if not parameter.is_floating_point():
                raise ExperimentError(
                    f"{_KEY}: {name}: parameter {path} is {str(parameter.dtype).removeprefix('torch.')}; a model is "
                    "sent as floats, so make it a buffer if it is constant"
                )
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise ExperimentError(f"{_KEY}: {name} has no parameter that is trained")
        for part in list(module.modules()):
            self._set_apart(part, name)

    def _set_apart(self, part: nn.Module, name: str) -> None:
        """Make plain attributes of what is constant."""
        vector.leave_out_counts(part, name)
        for key, parameter in list(part._parameters.items()):
            if parameter is not None and not parameter.requires_grad:
                del part._parameters[key]
                self._keep(part, key, parameter.detach())
        for key, buffer in list(part._buffers.items()):
            if buffer is not None and (not buffer.is_floating_point() or key in part._non_persistent_buffers_set):
                del part._buffers[key]
                self._keep(part, key, buffer)

    def _keep(self, part: nn.Module, key: str, value: Tensor) -> None:
        part.__dict__[key] = value.to(torch.float32) if value.is_floating_point() else value
        self.constants.append((part, key))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.channels_last and inputs.dim() == 4:
            count, channels, height, width = inputs.shape
            # Of one channel both layouts are the same bytes; only the strides tell torch which kernels to use.
            turned = (
                inputs.reshape(count, height, width, 1) if channels == 1 else inputs.permute(0, 2, 3, 1).contiguous()
            )
            inputs = turned.permute(0, 3, 1, 2)
        outputs: Tensor = self.module(inputs)
        return outputs

    def to_device(self, device: torch.device) -> None:
        """Move what is constant; the rest is where its vector is."""
        for part, key in self.constants:
            part.__dict__[key] = part.__dict__[key].to(device)

    def constant_tensors(self) -> list[Tensor]:
        """What is constant, for who copies the model and leaves it where it is."""
        return [part.__dict__[key] for part, key in self.constants]

    def values(self) -> NDArray[np.float32]:
        """(d,) float32: parameters and running statistics as they are, in the vector's order."""
        tensors = {id(tensor): tensor for tensor in (*self.parameters(), *self.buffers())}
        parts = [tensor.detach().to("cpu", torch.float32).reshape(-1) for tensor in tensors.values()]
        vector: NDArray[np.float32] = torch.cat(parts).numpy()
        return vector


def module_of(section: WorkloadSection, seed: int) -> nn.Module:
    """The module that ``workload.model`` names, or that of ``workload.transformers``, with its initial values by the
    seed.

    Raises:
        ExperimentError: it is not there, does not take its options, or is no module. Its own errors are passed on.
    """
    if section.transformers is not None:
        from workloads.models import hugging_face  # here: nobody else takes the time to import it

        with seeded_globals(stream(seed, Purpose.OWN_MODEL)):
            return hugging_face.loaded(section.transformers)
    name = section.model
    factory, keywords = checked(section)
    with seeded_globals(stream(seed, Purpose.OWN_MODEL)):
        module = factory(**keywords)
    if not isinstance(module, nn.Module):
        raise ExperimentError(f"{_KEY}: {name} gave a {type(module).__name__}; a torch.nn.Module is needed")
    return module


def make(section: WorkloadSection, seed: int) -> OwnModel:
    """The same as one vector; raises `ExperimentError` also where it has nothing to send."""
    return OwnModel(module_of(section, seed), section.own_model)


def checked(section: WorkloadSection) -> tuple[Any, dict[str, Any]]:
    """What ``workload.model`` names, and the arguments of its call; raises `ExperimentError`."""
    name = section.model
    factory = plugin_class(name, _KEY)
    if isinstance(factory, nn.Module):
        raise ExperimentError(f"{_KEY}: {name} is a module; name its class, or a function that makes one")
    if inspect.isclass(factory) and not issubclass(factory, nn.Module):
        raise ExperimentError(f"{_KEY}: {name}: must be a torch.nn.Module, or a function that makes one")
    keywords = options.as_keywords(factory, name, "workload.model_options", section.model_options, 0, "Options")
    options.bind(factory, name, _KEY, (), keywords)
    return factory, keywords
