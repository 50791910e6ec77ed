"""Sums of clipped gradients, as DP-SGD needs (Abadi et al. 2016, arXiv 1607.00133, Algorithm 1).

Each sample's gradient, over all parameters together, is scaled down to norm C if it is longer; then the gradients are
summed.

Two exact methods exist. For networks of linear layers and convolutions, one backward pass gives the gradients of the
layers' outputs. A linear layer's gradient is the product of such a gradient with the layer's input, and its norm the
product of the two norms (Goodfellow 2015, arXiv 1510.01799); the weighted sum of these products is one matrix product.
Only the small gradients of convolutions are computed sample by sample. All other networks use torch.func.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.linalg import vector_norm
from torch.nn.functional import pad

from testbed.errors import ExperimentError
from workloads.models import vector

Losses = Callable[[Tensor, Tensor], Tensor]
"""Returns the (n,) losses of (n, ...) samples from their logits and labels."""

_Gradient = tuple[Tensor, Callable[[Tensor], Tensor]]
"""(n,) squared norms of a layer's gradients, and their sum with (n,) weights: the layer's weights, then its biases."""

_CHUNK_BYTES = 1 << 28  # largest size of the per-sample gradients in memory
_LARGEST_CHUNK = 256  # samples


def check(network: nn.Module, name: str) -> None:
    """Raise `ExperimentError` for a network without per-sample gradients that can be clipped.

    Args:
        network: any network, also on the meta device.
        name: the experiment's name for it.
    """
    if (module := vector.mixing_module(network)) is not None:
        raise ExperimentError(
            f"workload.model: {name} has {type(module).__name__}, which mixes the samples of a batch, so that single "
            "samples have no gradients to clip; choose a model without it"
        )
    if vector.declarations(network).sent_twice:
        raise ExperimentError(
            f"workload.model: {name} sends some parameters twice, so that a clipped gradient would be longer than the "
            "clip; choose another model"
        )


class ClippedGradients:
    """Clipped gradients of one network.

    Args:
        network: a network with memory that `check` accepts; its parameters are not changed.
        losses: returns the losses of single samples.
        direct: whether to use the faster method if the network allows it.
        layers_only: whether the network is known to use its parameters only by calling their layers, as all built-in
            networks do. For others, the two methods are compared on the first samples.
    """

    def __init__(self, network: nn.Module, losses: Losses, *, direct: bool = True, layers_only: bool = True) -> None:
        self._network = network
        self._losses = losses
        self._layers = [module for module in network.modules() if any(True for _ in module.parameters(recurse=False))]
        layer_parameters = sum(
            parameter.numel() for layer in self._layers for parameter in layer.parameters(recurse=False)
        )
        # A parameter shared by two layers counts twice in the sum above. Its gradient is a sum over both layers, and
        # the layers' norms do not add up to its norm.
        is_shared = layer_parameters != sum(parameter.numel() for parameter in network.parameters())
        self._unknown = not layers_only
        self._direct = direct and not is_shared and all(_is_supported(layer) for layer in self._layers)

    def sum(self, inputs: Tensor, labels: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
        """Return the sum over some samples.

        Args:
            inputs: (n, ...) as the network takes them, n >= 1.
            labels: (n,) or (n, positions) int64.
            clip: C, the largest norm of a sample's gradient; gradients with a norm that is not finite are left out.
                None: no
                clipping.

        Returns:
            (d,) float32, the sum in the order of ``network.parameters()``; and the (n,) losses.
        """
        total: Tensor | None = None
        losses = []
        for chunk, chunk_labels in zip(*(part.split(self._chunk) for part in (inputs, labels)), strict=True):
            added, chunk_losses = self._sum_of_chunk(chunk, chunk_labels, clip)
            total = added if total is None else total.double().add_(added)  # float64: rounding errors do not add up
            losses.append(chunk_losses)
        assert total is not None
        return total.to(added.dtype), torch.cat(losses)

    @property
    def each_at_once(self) -> int:
        """Suitable number of samples for one call of `each`."""
        size = sum(4 * parameter.numel() for parameter in self._network.parameters())
        return max(1, min(_LARGEST_CHUNK, _CHUNK_BYTES // max(1, size)))

    def each(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients one by one.

        Args:
            inputs, labels: as for `sum`.

        Returns:
            (n, d) float32, not clipped, in the order of ``network.parameters()``; and the (n,) losses.
        """
        every, losses = self._one_by_one(inputs, labels)
        return torch.cat([gradient.flatten(1) for gradient in every], dim=1), losses

    @property
    def _chunk(self) -> int:
        """Number of samples at a time."""
        # Linear layers of the direct method need no memory for per-sample gradients.
        made = [layer for layer in self._layers if not (self._direct and isinstance(layer, nn.Linear))]
        each = 4 * sum(parameter.numel() for layer in made for parameter in layer.parameters(recurse=False))
        return max(1, min(_LARGEST_CHUNK, _CHUNK_BYTES // max(1, each)))

    def _sum_of_chunk(self, inputs: Tensor, labels: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
        if self._direct and self._unknown:
            # Before the trial: `_is_the_same` calls this method.
            self._unknown = False
            # A user's `forward` may use weights outside of their layers, as in a penalty; only a trial shows that.
            self._direct = self._is_the_same(inputs[:2], labels[:2])
        if self._direct:
            captured, losses = self._outputs_gradients(inputs, labels)
            if captured is not None:
                return _weighted([_gradient(*capture) for capture in captured], clip), losses
            self._direct = False
        return self._by_torch_func(inputs, labels, clip)

    def _is_the_same(self, inputs: Tensor, labels: Tensor) -> bool:
        """Return whether both methods give the same result, without dropout."""
        was_training = self._network.training
        self._network.eval()
        try:
            direct, _ = self._sum_of_chunk(inputs, labels, None)
            other, _ = self._by_torch_func(inputs, labels, None)
        except (RuntimeError, ValueError):  # torch.func cannot
            return False
        finally:
            self._network.train(was_training)
        return torch.allclose(direct, other, rtol=1e-3, atol=1e-6)

    def _outputs_gradients(
        self, inputs: Tensor, labels: Tensor
    ) -> tuple[list[tuple[nn.Module, Tensor, Tensor]] | None, Tensor]:
        """Return every layer with its input and the gradient of its output, in the order of the parameters.

        None if a layer is not used exactly once, or not with one row for each sample: then a gradient has further
        terms.
        """
        uses_by_layer: dict[nn.Module, list[tuple[Tensor, GradientEdge]]] = {layer: [] for layer in self._layers}

        def remember(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            # The edge instead of the output, as an activation may write into the output.
            uses_by_layer[layer].append((inputs[0].detach(), get_gradient_edge(output)))

        hooks = [layer.register_forward_hook(remember) for layer in self._layers]
        try:
            losses = self._losses(self._network(inputs), labels)
        finally:
            for hook in hooks:
                hook.remove()
        # A second use, or several rows for each sample, adds terms to a sample's gradient that no hook shows.
        if any(len(uses) != 1 or len(uses[0][0]) != len(labels) for uses in uses_by_layer.values()):
            return None, losses.detach()
        once = [uses[0] for uses in uses_by_layer.values()]
        # One pass for all samples: row i is the gradient of sample i alone, as `check` refuses layers that mix samples.
        gradients = torch.autograd.grad(losses.sum(), [edge for _, edge in once])
        layer_gradients = [
            (layer, inputs, of) for layer, (inputs, _), of in zip(uses_by_layer, once, gradients, strict=True)
        ]
        return layer_gradients, losses.detach()

    def _by_torch_func(self, inputs: Tensor, labels: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
        """Return the sum from per-sample gradients: for any network, with more memory and several times the work."""
        every, losses = self._one_by_one(inputs, labels)
        return _weighted([_rows(gradient.flatten(1)) for gradient in every], clip), losses

    def _one_by_one(self, inputs: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the (n, ...) gradients of each parameter, and the (n,) losses."""
        parameters = {name: parameter.detach() for name, parameter in self._network.named_parameters()}

        def loss_of(parameters: dict[str, Tensor], sample: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            loss = self._losses(functional_call(self._network, parameters, (sample[None],)), label[None])[0]
            return loss, loss.detach()

        # "different": each sample has a dropout mask of its own, as in a batch.
        each = vmap(grad(loss_of, has_aux=True), in_dims=(None, 0, 0), randomness="different")
        every, losses = each(parameters, inputs, labels)
        return list(every.values()), losses


def _weighted(gradients: list[_Gradient], clip: float | None) -> Tensor:
    """Return the sum of all layers' gradients, (d,), each sample's scaled to norm `clip` if it is longer."""
    # The norm over all parameters together (Algorithm 1): squared norms of the layers add up.
    squared = torch.stack([norms for norms, _ in gradients]).sum(dim=0)
    if clip is None:
        weights = torch.ones_like(squared)
    else:
        # g / max(1, |g| / C). A gradient that is not finite counts as zero: no factor would bring it to norm C.
        weights = (1.0 / torch.clamp(squared.sqrt() / clip, min=1.0)).where(squared.isfinite(), 0.0)
    return torch.cat([weighted(weights) for _, weighted in gradients])


def _is_supported(layer: nn.Module) -> bool:
    """Return whether `_gradient` supports the layer."""
    # No subclasses: they may compute something else.
    if type(layer) is not nn.Linear and type(layer) is not nn.Conv2d:
        return False
    if not isinstance(layer.weight, nn.Parameter) or not isinstance(layer.bias, nn.Parameter | None):
        return False  # a parameter is frozen
    if isinstance(layer, nn.Linear):
        return True
    # `_of_convolution` pads with zeros and multiplies all channels at once.
    return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _gradient(layer: nn.Module, inputs: Tensor, output_gradient: Tensor) -> _Gradient:
    """Return a layer's gradients, from its input and the gradient of its output."""
    if isinstance(layer, nn.Conv2d):
        return _of_convolution(layer, inputs, output_gradient)
    assert isinstance(layer, nn.Linear)
    has_bias = layer.bias is not None
    if inputs.dim() > 2:  # several positions share the weights: the norm of a sum of products does not factor
        output_gradient, inputs = output_gradient.flatten(1, -2), inputs.flatten(1, -2)
        return _rows(_with_bias(torch.bmm(output_gradient.mT, inputs), output_gradient.sum(dim=1), has_bias))

    def weighted(weights: Tensor) -> Tensor:
        scaled = _masked(output_gradient, weights) * weights[:, None]
        return _with_bias((scaled.mT @ _masked(inputs, weights))[None], scaled.sum(dim=0)[None], has_bias)[0]

    # Goodfellow 2015: |g x^T|^2 = |g|^2 |x|^2; the bias has the gradient g, as if x had one more value of 1.
    return _squares(output_gradient) * (_squares(inputs) + has_bias), weighted


def _of_convolution(layer: nn.Conv2d, inputs: Tensor, output_gradient: Tensor) -> _Gradient:
    """Return each sample's gradient as a matrix product of the output's gradient and the input's patches.

    Patches are views of the padded image with the channels last, copied once; torch's unfold takes three times as long.
    """
    assert not isinstance(layer.padding, str)  # `_is_supported`
    (down, right), (kernel_h, kernel_w) = layer.padding, layer.kernel_size
    (step_h, step_w), (apart_h, apart_w) = layer.stride, layer.dilation
    image = inputs.permute(0, 2, 3, 1)
    image = pad(image, (0, 0, right, right, down, down)) if down or right else image.contiguous()
    output_gradient = output_gradient.permute(0, 2, 3, 1)
    samples, height, width, channels = output_gradient.shape
    each, row, column, channel = image.stride()
    patches = image.as_strided(
        (samples, height, width, kernel_h, kernel_w, image.shape[3]),
        (each, row * step_h, column * step_w, row * apart_h, column * apart_w, channel),
    ).reshape(samples, height * width, -1)
    outputs = output_gradient.reshape(samples, height * width, channels)
    kernels = torch.bmm(outputs.mT, patches)
    biases = outputs.sum(dim=1)
    squared = _squares(kernels.flatten(1)) + (_squares(biases) if layer.bias is not None else 0.0)

    def weighted(weights: Tensor) -> Tensor:
        kernel = weights @ _masked(kernels.flatten(1), weights)
        kernel = kernel.view(channels, kernel_h, kernel_w, -1).permute(0, 3, 1, 2).flatten()
        return torch.cat([kernel, weights @ _masked(biases, weights)]) if layer.bias is not None else kernel

    return squared, weighted


def _with_bias(weights: Tensor, biases: Tensor, has_bias: bool) -> Tensor:
    """Return a layer's gradients, (n, all), from (n, out, in) of the weights and (n, out) of the biases, if any."""
    return torch.cat([weights.flatten(1), biases], dim=1) if has_bias else weights.flatten(1)


def _rows(gradients: Tensor) -> _Gradient:
    """Return the `_Gradient` of (n, all) per-sample gradients."""
    return _squares(gradients), lambda weights: weights @ _masked(gradients, weights)


def _masked(rows: Tensor, weights: Tensor) -> Tensor:
    """Return rows, (n, all), with zeros where the (n,) weight is zero, as zero times infinity is NaN."""
    counts = weights > 0
    return rows if bool(counts.all()) else rows.where(counts[:, None], 0.0)


def _squares(rows: Tensor) -> Tensor:
    """Return the (n,) squared norms of (n, all) rows."""
    squares: Tensor = vector_norm(rows, dim=1).square()
    return squares
