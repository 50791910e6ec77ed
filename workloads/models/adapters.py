"""Low-rank adapters: Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang and Chen, LoRA: Low-Rank Adaptation of Large Language
Models, ICLR 2022, arXiv 2106.09685, section 4.1.

A linear layer's frozen weight W, (d, k), gets two factors: h = W x + alpha/r B A x, with A, (r, k), Gaussian at first
and B, (d, r), zero, so that the adapted model begins as the given one. The paper leaves A's deviation open; here it is
1 / sqrt(k), so that A x is about as large as x.

Everything but the factors (and what ``workload.adapters.trained`` names) is constant: it is not in the model's vector,
lies once in each process, and is not sent. Normalisation that keeps statistics of batches works with those that it has.
"""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear

from testbed.errors import ExperimentError
from testbed.records.arrays import ERRORS, Arrays
from testbed.workload.adapters import Adapters
from testbed.workload.section import WorkloadSection
from workloads.determinism import Purpose, stream
from workloads.models import own, vector
from workloads.models.own import OwnModel

_KEY = "workload.adapters"
_LISTED = 8  # names in a message
_Kind = TypeVar("_Kind", bound=nn.Module)


class LowRankLinear(nn.Module):
    """A linear layer with an adapter.

    Args:
        base: frozen.
        rank: r.
        scale: alpha / r.

    Attributes:
        down: A.
        up: B.
    """

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base = base
        self.in_features, self.out_features = base.in_features, base.out_features
        self.scale = scale
        place = base.weight.device
        self.down = nn.Parameter(torch.empty(rank, base.in_features, device=place))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=place))

    @property
    def weight(self) -> Tensor:
        """`(d, k)` the adapted weight, for modules that read it instead of calling the layer."""
        return self.base.weight + self.scale * (self.up @ self.down)

    @property
    def bias(self) -> Tensor | None:
        """`(d,)` the layer's."""
        return self.base.bias

    def forward(self, inputs: Tensor) -> Tensor:
        adapted: Tensor = self.base(inputs) + self.scale * linear(linear(inputs, self.down), self.up)
        return adapted


class AdaptedModel(OwnModel):
    """A model with adapters, ours or peft's, as one that has constants.

    Attributes:
        frozen: number of parameters that are constant.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        frozen = sum(parameter.numel() for parameter in module.parameters() if not parameter.requires_grad)
        super().__init__(module, name)
        self.frozen = frozen
        self._fixed = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._NormBase)]
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """As for any module; normalisation goes on with the statistics of the frozen model."""
        super().train(mode)
        for part in getattr(self, "_fixed", ()):
            part.training = False
        return self

    def _set_apart(self, part: nn.Module, name: str) -> None:
        super()._set_apart(part, name)
        for key, buffer in list(part._buffers.items()):
            if buffer is not None:
                del part._buffers[key]
                self._keep(part, key, buffer)


def adapted(module: nn.Module, adapters: Adapters, name: str, seed: int) -> AdaptedModel:
    """`module` with adapters, everything else in it frozen.

    Args:
        module: with memory, or on the meta device (for its shapes alone); it is changed.
        adapters: which.
        name: of the model, as the experiment has it.
        seed: the experiment's; the first factors follow from it.

    Raises:
        ExperimentError: a name that fits nothing in the model, or a rank above a layer's own.
    """
    whole = [part for _, part in _named(module, adapters.trained, nn.Module, "trained", name)]
    trained_modules = {id(inner) for part in whole for inner in part.modules()}
    targets = [
        target
        for target in _named(module, adapters.targets, nn.Linear, "targets", name)
        if id(target[1]) not in trained_modules
    ]
    if not targets:
        raise ExperimentError(f"{_KEY}.targets: {name} has no torch.nn.Linear layer outside of trained")
    module.requires_grad_(False)
    for part in whole:
        part.requires_grad_(True)
    adapter_by_layer: dict[int, LowRankLinear] = {}
    random = stream(seed, Purpose.ADAPTERS)
    for path, layer in targets:
        if id(layer) not in adapter_by_layer:
            adapter_by_layer[id(layer)] = _with_adapter(layer, path, adapters, name, random)
    for parent in list(module.modules()):
        for key, child in list(parent._modules.items()):
            if id(child) in adapter_by_layer and not isinstance(parent, LowRankLinear):
                parent._modules[key] = adapter_by_layer[id(child)]
    return AdaptedModel(module, name)


def own_model(section: WorkloadSection, seed: int) -> OwnModel:
    """The model of the user's own that a section names, with adapters where it has some; see `workloads.models.own`.

    Raises:
        ExperimentError: as `adapted` and `own.module_of`.
    """
    adapters, name = section.adapters, section.own_model
    module = own.module_of(section, seed)
    if adapters is None:
        is_fine_tuned = section.transformers is not None and section.transformers.lora
        return (AdaptedModel if is_fine_tuned else OwnModel)(module, name)
    if adapters.base is not None:
        whole = OwnModel(module, name)
        vector.attach(whole, torch.from_numpy(_base_vector(adapters.base, vector.dimension(whole))))
    return adapted(module, adapters, name, seed)


def built_in_model(network: nn.Module, section: WorkloadSection, name: str, seed: int, *, shapes: bool) -> nn.Module:
    """A built-in model on the meta device, with adapters where a section has some.

    Args:
        network: it is changed.
        section: the workload's.
        name: of the model.
        seed: the experiment's.
        shapes: only these are wanted; else one with adapters is given memory: its base's values, or its own first ones.

    Raises:
        ExperimentError: as `adapted`.
    """
    adapters = section.adapters
    if adapters is None:
        return network
    if not shapes:
        size = vector.dimension(network)
        values = vector.initial_vector(network, seed) if adapters.base is None else _base_vector(adapters.base, size)
        vector.attach(network, torch.from_numpy(values))
    model = adapted(network, adapters, name, seed)
    model.channels_last = False  # it is given images as it takes them
    return model


def charged_parameters(network: nn.Module) -> int:
    """What one training example is charged for, in parameters: see `PartlyFrozenWorkload.charged_parameters`.

    A parameter takes part in the forward pass, in the gradient of its layer's input and in its own; the last of the
    three is not computed where it is frozen.
    """
    frozen = network.frozen if isinstance(network, AdaptedModel) else 0
    return vector.dimension(network) + -(-2 * frozen // 3)


def notes(network: nn.Module) -> list[str]:
    """What whoever runs it should know: a line, or nothing."""
    if not isinstance(network, AdaptedModel):
        return []
    return [
        f"fine-tuning: {vector.dimension(network):,} parameters are trained and sent; {network.frozen:,} are frozen "
        f"and taken to be on every client ({4 * network.frozen / 1e6:,.3g} MB that no round counts)"
    ]


def _base_vector(path: Path, dimension: int) -> NDArray[np.float32]:
    """`(dimension,)` float32: the model of a run's checkpoint; raises `ExperimentError` where there is none so long."""
    try:
        with Arrays(path) as stored:
            values = np.array(stored["model"], np.float32)
    except ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) else "no checkpoint of a run"
        raise ExperimentError(f"{_KEY}.base: {path}: {reason or error}") from None
    if values.shape != (dimension,):
        raise ExperimentError(
            f"{_KEY}.base: {path}: has {values.size:,} parameters, the model {dimension:,}; take the checkpoint of a "
            "run with the same model and data, without adapters"
        )
    return values


def _with_adapter(
    layer: nn.Linear, path: str, adapters: Adapters, name: str, random: np.random.Generator
) -> LowRankLinear:
    if adapters.rank > min(layer.in_features, layer.out_features):
        raise ExperimentError(
            f"{_KEY}.rank: {adapters.rank} is above that of {path} of {name}, {layer.in_features} to "
            f"{layer.out_features}; lower it, or leave {path} out of targets (trained: [{path}] trains it whole)"
        )
    adapter = LowRankLinear(layer, adapters.rank, adapters.scale)
    if not adapter.down.is_meta:
        weights = (
            random.standard_normal(tuple(adapter.down.shape), dtype=np.float32) / np.float32(layer.in_features) ** 0.5
        )
        with torch.no_grad():
            adapter.down.copy_(torch.from_numpy(weights))
    return adapter


def _named(
    module: nn.Module, patterns: tuple[str, ...], kind: type[_Kind], key: str, name: str
) -> list[tuple[str, _Kind]]:
    """The modules of this kind that a pattern fits, with their names; a pattern that fits none is an error."""
    candidates = [(path, part) for path, part in module.named_modules() if path and isinstance(part, kind)]
    chosen = set()
    for pattern in patterns:
        fitting = {path for path, _ in candidates if _fits(path, pattern)}
        if not fitting:
            listed = ", ".join(path for path, _ in candidates[:_LISTED]) + (
                ", ..." if len(candidates) > _LISTED else ""
            )
            kind_name = "torch.nn.Linear layer" if kind is nn.Linear else "module"
            raise ExperimentError(f"{_KEY}.{key}: {pattern} is no {kind_name} of {name}; it has {listed or 'none'}")
        chosen |= fitting
    return [(path, part) for path, part in candidates if path in chosen]


def _fits(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path.rpartition(".")[2], pattern)
