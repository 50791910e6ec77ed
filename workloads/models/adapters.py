"""Low-rank adapters (LoRA).

Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang and Chen, LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022,
arXiv 2106.09685, section 4.1.

A linear layer's frozen weight W, (d, k), gets two factors: h = W x + alpha/r B A x, with A, (r, k), Gaussian at first
and B, (d, r), zero, so that the adapted model begins equal to the original. The paper does not fix A's deviation; here
it is 1 / sqrt(k), so that A x has about the magnitude of x.

Everything but the factors (and the modules in ``workload.adapters.trained``) is constant: it is not in the model's
vector, is stored once in each process, and is not sent. Normalisation layers with statistics of batches keep the
statistics of the frozen model.
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
_LISTED = 8  # largest number of names in a message
_Kind = TypeVar("_Kind", bound=nn.Module)


class LowRankLinear(nn.Module):
    """A linear layer with an adapter.

    Args:
        base: the frozen layer.
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
        # B = 0: the adapted model begins equal to the original (Hu et al. 2022, section 4.1).
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=place))

    @property
    def weight(self) -> Tensor:
        """(d, k) the adapted weight, for modules that read it instead of calling the layer."""
        return self.base.weight + self.scale * (self.up @ self.down)

    @property
    def bias(self) -> Tensor | None:
        """(d,) the bias of the layer."""
        return self.base.bias

    def forward(self, inputs: Tensor) -> Tensor:
        adapted: Tensor = self.base(inputs) + self.scale * linear(linear(inputs, self.down), self.up)
        return adapted


class AdaptedModel(OwnModel):
    """A model with adapters, built in or by peft; its other parts are constant.

    Attributes:
        frozen: number of constant parameters.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        frozen = sum(parameter.numel() for parameter in module.parameters() if not parameter.requires_grad)
        super().__init__(module, name)
        self.frozen = frozen
        self._fixed = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._NormBase)]
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all modules but normalisation, which keeps the statistics of the frozen model."""
        super().train(mode)
        for part in getattr(self, "_fixed", ()):
            # In training mode it would change the frozen statistics, which are not in the model's vector.
            part.training = False
        return self

    def _set_apart(self, part: nn.Module, name: str) -> None:
        super()._set_apart(part, name)
        for key, buffer in list(part._buffers.items()):
            if buffer is not None:
                del part._buffers[key]
                self._keep(part, key, buffer)


def adapted(module: nn.Module, adapters: Adapters, name: str, seed: int) -> AdaptedModel:
    """Return `module` with adapters, with all other parts frozen.

    Args:
        module: with memory, or on the meta device (for its shapes alone); it is changed.
        adapters: settings of the adapters.
        name: the experiment's name for the model.
        seed: the experiment's seed, which determines the initial factors.

    Raises:
        ExperimentError: a name that matches nothing in the model, or a rank above that of a layer.
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
        # A layer used in two places has one adapter, and its draws happen once.
        if id(layer) not in adapter_by_layer:
            adapter_by_layer[id(layer)] = _with_adapter(layer, path, adapters, name, random)
    for parent in list(module.modules()):
        for key, child in list(parent._modules.items()):
            # Not within an adapter: its `base` is the layer, and would become the adapter itself.
            if id(child) in adapter_by_layer and not isinstance(parent, LowRankLinear):
                parent._modules[key] = adapter_by_layer[id(child)]
    return AdaptedModel(module, name)


def own_model(section: WorkloadSection, seed: int) -> OwnModel:
    """Return the user-defined model that a section names, with its adapters; see `workloads.models.own`.

    Args:
        section: ``workload``.
        seed: the experiment's seed.

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
    """Return a built-in model on the meta device, with the adapters of a section.

    Args:
        network: the model; it is changed.
        section: ``workload``.
        name: the experiment's name for the model.
        seed: the experiment's seed.
        shapes: whether only shapes are needed; else a model with adapters gets memory and its initial values.

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
    model.channels_last = False  # built-in models choose the layout of images themselves
    return model


def charged_parameters(network: nn.Module) -> int:
    """Return the parameters charged per training example; see `PartlyFrozenWorkload.charged_parameters`.

    A parameter takes part in the forward pass, in the gradient of its layer's input and in its own gradient; the last
    is not computed if it is frozen.
    """
    frozen = network.frozen if isinstance(network, AdaptedModel) else 0
    # Forward pass and gradient of the input, without the third part: the parameter's own gradient.
    return vector.dimension(network) + -(-2 * frozen // 3)


def notes(network: nn.Module) -> list[str]:
    """Return notes on fine-tuning for the user; empty for other models."""
    if not isinstance(network, AdaptedModel):
        return []
    return [
        f"fine-tuning: {vector.dimension(network):,} parameters are trained and sent; {network.frozen:,} are frozen "
        f"and assumed to be on every client ({4 * network.frozen / 1e6:,.3g} MB that no round counts)"
    ]


def _base_vector(path: Path, dimension: int) -> NDArray[np.float32]:
    """Return the model of a run's checkpoint, (dimension,) float32; raises `ExperimentError` if there is none."""
    try:
        with Arrays(path) as stored:
            values = np.array(stored["model"], np.float32)
    except ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) else "no checkpoint of a run"
        raise ExperimentError(f"{_KEY}.base: {path}: {reason or error}") from None
    if values.shape != (dimension,):
        raise ExperimentError(
            f"{_KEY}.base: {path}: has {values.size:,} parameters, but the model {dimension:,}; name the checkpoint of "
            "a run with the same model and data, without adapters"
        )
    return values


def _with_adapter(
    layer: nn.Linear, path: str, adapters: Adapters, name: str, random: np.random.Generator
) -> LowRankLinear:
    if adapters.rank > min(layer.in_features, layer.out_features):
        raise ExperimentError(
            f"{_KEY}.rank: {adapters.rank} is above the rank of {path} of {name}, {layer.in_features} to "
            f"{layer.out_features}; lower it, or leave {path} out of targets (trained: [{path}] trains the whole layer)"
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
    """Return the modules of a kind that match the patterns, with their names; a pattern without a match is an error."""
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
