"""Pictures out of a gradient: Geiping, Bauermeister, Droege, Moeller, Inverting Gradients - How easy is it to break
privacy in federated learning?, NeurIPS 2020, arXiv 2003.14053.

The images sought are those whose gradient points where the known one does: 1 - cos(g(x), g) + lambda TV(x) is
minimised by Adam on the signs of its gradient, inside the range of pixels, from several random starts; the start with
the smallest cost wins. As in the paper the step is divided by ten after 3/8, 5/8 and 7/8 of the iterations.

An update is a gradient (times the learning rate) when a client takes one step on all its images (FedSGD). After more
steps it is a sum of gradients at different points: the attack still runs, and finds less.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from testbed.errors import ExperimentError
from workloads.models import vector
from workloads.models.registry import image_model


@dataclass(frozen=True)
class Search:
    """How long, and for what, is searched.

    Attributes:
        iterations: steps of each start.
        starts: random starts.
        step: of Adam, before it is divided, in units of the pixels that the model sees.
        smoothness: lambda, weight of the total variation.
        seed: of the starts.
    """

    iterations: int = 1000
    starts: int = 4
    step: float = 0.1
    smoothness: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """What the gradient gave away.

    Attributes:
        images: `(m, ...)` float32, as the model sees them.
        labels: `(m,)` int64.
        cost: of the best start.
        cosine: of its gradient and the known one.
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    cost: float
    cosine: float


class Target:
    """A model of images whose gradients can be differentiated once more.

    Args:
        name: of `workloads.models.registry`; raises `ExperimentError` for one whose vector holds more than
        parameters. shape: of an image, (height, width) or (height, width, 3). classes: number of labels. parameters:
        `(d,)` float32, the model.
    """

    def __init__(self, name: str, shape: tuple[int, ...], classes: int, parameters: npt.NDArray[np.float32]) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.shape, self.classes = shape, classes
        self.network = image_model(name, shape[0], shape[1], classes, 3 if len(shape) == 3 else 1)
        if sum(p.numel() for p in self.network.parameters()) != vector.dimension(self.network):
            raise ExperimentError(f"workload.model: {name} has running statistics; invert cnn, mlp, logistic or lenet")
        flat = torch.tensor(parameters, device=self.device)
        vector.attach(self.network, flat)
        self.network.eval()
        self._parameters = list(self.network.parameters())

    def gradient(self, images: Tensor, labels: Tensor, *, again: bool = False) -> Tensor:
        """`(d,)` of the mean cross-entropy; with `again` it can be differentiated."""
        loss = cross_entropy(self.network(images), labels)
        parts = torch.autograd.grad(loss, self._parameters, create_graph=again)
        return torch.cat([part.reshape(-1) for part in parts])

    def labels_of(self, gradient: Tensor, count: int, images: Tensor) -> npt.NDArray[np.int64]:
        """`(count,)` the labels behind a gradient, from that of the last layer's bias: mean probability minus share.

        Args:
            gradient: `(d,)`, with its scale: the update over the learning rate, negative.
            count: how many images it is a mean over.
            images: others, for the probabilities that the model gives on average.
        """
        if self._parameters[-1].shape != (self.classes,):
            raise ExperimentError("workload.model: its last layer has no bias to infer labels from")
        with torch.no_grad():
            expected = self.network(images.to(self.device)).softmax(1).mean(0)
        left = count * (expected - gradient[-self.classes :])
        labels = []
        for _ in range(count):
            labels.append(int(left.argmax()))
            left[labels[-1]] -= 1
        return np.sort(np.array(labels, np.int64))


def invert(
    target: Target,
    gradient: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    low: float,
    high: float,
    search: Search,
    progress: Callable[[int], None] = lambda start: None,
) -> Found:
    """The images with these labels whose gradient is most like `gradient`, `(d,)` of any scale.

    Args:
        target: the model.
        gradient: what is known.
        labels: `(m,)`, how many images and of what.
        low, high: range of a pixel as the model sees it.
        search: how.
        progress: told which start ended.
    """
    known = torch.tensor(np.asarray(gradient), dtype=torch.float32, device=target.device)
    known = known / known.norm()
    wanted = torch.tensor(labels, device=target.device)
    rng = torch.Generator().manual_seed(search.seed)
    best: Found | None = None
    for start in range(search.starts):
        noise = torch.randn((len(labels), *target.shape), generator=rng)
        images = noise.clamp(low, high).to(target.device).requires_grad_()
        found = _descend(target, known, wanted, images, low, high, search)
        best = found if best is None or found.cost < best.cost else best
        progress(start + 1)
    assert best is not None
    return best


def _descend(
    target: Target, known: Tensor, labels: Tensor, images: Tensor, low: float, high: float, search: Search
) -> Found:
    descent = torch.optim.Adam([images], search.step)
    eighths = [search.iterations * eighth // 8 for eighth in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(descent, eighths, 0.1)
    for _ in range(search.iterations):
        cost, _ = _cost(target, known, labels, images, search)
        (slope,) = torch.autograd.grad(cost, images)
        images.grad = slope.sign()
        descent.step()
        schedule.step()
        with torch.no_grad():
            images.clamp_(low, high)
    cost, cosine = _cost(target, known, labels, images, search)
    return Found(images.detach().cpu().numpy(), labels.cpu().numpy(), float(cost.detach()), float(cosine.detach()))


def _cost(target: Target, known: Tensor, labels: Tensor, images: Tensor, search: Search) -> tuple[Tensor, Tensor]:
    gradient = target.gradient(images, labels, again=True)
    cosine = gradient @ known / gradient.norm().clamp_min(1e-12)
    varied = images.diff(dim=1).abs().mean() + images.diff(dim=2).abs().mean()
    return 1 - cosine + search.smoothness * varied, cosine
