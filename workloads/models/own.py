"""User-defined models: any torch module, as one vector.

The vector holds the parameters that require a gradient, which are trained, and the persistent float buffers, such as
batch normalisation's running statistics, which are averaged. Everything else is constant (frozen parameters, tables of
positions, masks): it is not sent, and is the same in every process, as the module is constructed from the experiment's
seed. The module keeps its own initial values, drawn from this seed or read from a file.
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
    """A user-defined module, with its constants set apart.

    Args:
        module: with memory; it is changed.
        name: the experiment's name for it.

    Attributes:
        channels_last: whether images, (n, channels, height, width), are passed in channels-last layout, in which a
            CPU's convolutions are faster by a fifth; a module that takes a ``view`` of them needs the other layout.

    Raises:
        ExperimentError: it has a parameter that is not a float, or nothing to train.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self.constants: list[tuple[nn.Module, str]] = []
        self.channels_last = True
        for path, parameter in (*module.named_parameters(), *module.named_buffers()):
            if isinstance(parameter, UninitializedParameter | UninitializedBuffer):
                raise ExperimentError(
                    f"{_KEY}: {name}: {path} has no size yet (a lazy layer); give the layer the size of its inputs"
                )
        for path, parameter in module.named_parameters():
            if not parameter.is_floating_point():
                raise ExperimentError(
                    f"{_KEY}: {name}: parameter {path} is {str(parameter.dtype).removeprefix('torch.')}; a model is "
                    "sent as floats, so make it a buffer if it is constant"
                )
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise ExperimentError(f"{_KEY}: {name} has no parameter to train; let one require a gradient")
        for part in list(module.modules()):
            self._set_apart(part, name)

    def _set_apart(self, part: nn.Module, name: str) -> None:
        """Turn constants into plain attributes."""
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
        # Past torch's `__setattr__`, which would register a parameter or a buffer again.
        part.__dict__[key] = value.to(torch.float32) if value.is_floating_point() else value
        self.constants.append((part, key))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.channels_last and inputs.dim() == 4:
            count, channels, height, width = inputs.shape
            # With one channel both layouts are the same bytes; only the strides tell torch which kernels to use.
            turned = (
                inputs.reshape(count, height, width, 1) if channels == 1 else inputs.permute(0, 2, 3, 1).contiguous()
            )
            inputs = turned.permute(0, 3, 1, 2)
        outputs: Tensor = self.module(inputs)
        return outputs

    def to_device(self, device: torch.device) -> None:
        """Move the constants to a device; the rest is on the device of its vector."""
        for part, key in self.constants:
            part.__dict__[key] = part.__dict__[key].to(device)

    def constant_tensors(self) -> list[Tensor]:
        """Return the constants, for copies of the model that share them."""
        return [part.__dict__[key] for part, key in self.constants]

    def values(self) -> NDArray[np.float32]:
        """Return the present parameters and running statistics, (d,) float32, in the vector's order."""
        # By identity: tied parameters are sent once.
        tensors = {id(tensor): tensor for tensor in (*self.parameters(), *self.buffers())}
        parts = [tensor.detach().to("cpu", torch.float32).reshape(-1) for tensor in tensors.values()]
        vector: NDArray[np.float32] = torch.cat(parts).numpy()
        return vector


def module_of(section: WorkloadSection, seed: int) -> nn.Module:
    """Return the module that ``workload.model`` or ``workload.transformers`` names, with initial values from the seed.

    Args:
        section: ``workload``.
        seed: the experiment's seed.

    Raises:
        ExperimentError: it does not exist, does not take its options, or is not a module. Its own errors are passed on.
    """
    if section.transformers is not None:
        from workloads.models import hugging_face  # slow import

        with seeded_globals(stream(seed, Purpose.OWN_MODEL)):
            return hugging_face.loaded(section.transformers)
    name = section.model
    factory, keywords = checked(section)
    with seeded_globals(stream(seed, Purpose.OWN_MODEL)):
        module = factory(**keywords)
    if not isinstance(module, nn.Module):
        raise ExperimentError(f"{_KEY}: {name} returned a {type(module).__name__}; return a torch.nn.Module")
    return module


def make(section: WorkloadSection, seed: int) -> OwnModel:
    """Return the model of `module_of` as one vector; raises `ExperimentError` also if it has nothing to send.

    Args:
        section: ``workload``.
        seed: the experiment's seed.
    """
    return OwnModel(module_of(section, seed), section.own_model)


def checked(section: WorkloadSection) -> tuple[Any, dict[str, Any]]:
    """Return the object that ``workload.model`` names, and the arguments of its call; raises `ExperimentError`."""
    name = section.model
    factory = plugin_class(name, _KEY)
    if isinstance(factory, nn.Module):
        raise ExperimentError(f"{_KEY}: {name} is a module; name its class, or a function that returns one")
    if inspect.isclass(factory) and not issubclass(factory, nn.Module):
        raise ExperimentError(f"{_KEY}: {name}: must be a torch.nn.Module, or a function that returns one")
    keywords = options.as_keywords(factory, name, "workload.model_options", section.model_options, 0, "Options")
    options.bind(factory, name, _KEY, (), keywords)
    return factory, keywords
