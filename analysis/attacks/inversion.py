"""Gradient inversion: images from a gradient.

Geiping, Bauermeister, Droege, Moeller, Inverting Gradients - How easy is it to break privacy in federated learning?,
NeurIPS 2020, arXiv 2003.14053.

The attack searches for images with a gradient in the direction of the known one: 1 - cos(g(x), g) + lambda TV(x) is
minimised by Adam on the signs of its gradient, inside the range of pixels, from several random starts; the start with
the smallest cost wins. As in the paper the step is divided by ten after 3/8, 5/8 and 7/8 of the iterations.

An update is a gradient (times the learning rate) when a client takes one step on all its images (FedSGD). After more
steps it is a sum of gradients at different points: the attack still runs, and finds less.

On a run, least squares comes first (`analysis.attacks.reconstruction`). For clients that are always in the same sums it
gives only their mean update, which can be inverted in two ways. Alone: as if it were the client's own update, as in the
paper of Multi-RoundSecAgg (Fig. 11). Jointly: as the gradient of all their images, whose number the server knows; then
each original is compared with the most similar picture.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import cross_entropy

from analysis.attacks.reconstruction import errors, estimates, spanned, view
from analysis.attacks.victims import Victims
from analysis.style import COLUMN_INCHES, figure_text, house_style, save
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from workloads.models import vector
from workloads.models.registry import image_model
from workloads.training.classification import ImageClassification


@dataclass(frozen=True)
class Search:
    """Parameters of the search.

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
class RecoveredImages:
    """The images that an inversion found.

    Attributes:
        images: `(m, ...)` float32, as the model sees them.
        labels: `(m,)` int64.
        cost: cost of the best start.
        cosine: cosine of its gradient and the known one.
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    cost: float
    cosine: float


class InversionTarget:
    """A model of images with gradients that can be differentiated again.

    Args:
        name: name of a model in `workloads.models.registry`.
        shape: shape of an image, (height, width) or (height, width, 3).
        classes: number of labels.
        parameters: `(d,)` float32, the model.

    Raises:
        ExperimentError: if the model's vector holds more than parameters.
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

    def gradient(self, images: Tensor, labels: Tensor, *, differentiable: bool = False) -> Tensor:
        """Return the gradient of the mean cross-entropy.

        Args:
            images: `(m, ...)`.
            labels: `(m,)`.
            differentiable: whether the gradient can be differentiated again.

        Returns:
            `(d,)`.
        """
        loss = cross_entropy(self.network(images), labels)
        parts = torch.autograd.grad(loss, self._parameters, create_graph=differentiable)
        return torch.cat([part.reshape(-1) for part in parts])

    def labels_of(self, gradient: Tensor, count: int, images: Tensor) -> npt.NDArray[np.int64]:
        """Infer the labels behind a gradient, from that of the last layer's bias: mean probability minus share.

        Args:
            gradient: `(d,)`, to scale: the negative update over the learning rate.
            count: number of images in the mean.
            images: other images, for the mean probabilities of the model.

        Returns:
            `(count,)` sorted labels.
        """
        if self._parameters[-1].shape != (self.classes,):
            raise ExperimentError("workload.model: its last layer has no bias to infer labels from")
        with torch.no_grad():
            expected = self.network(images.to(self.device)).softmax(1).mean(0)
        left = count * (expected - gradient[-self.classes :])  # about the number of images of each label
        labels = []
        for _ in range(count):
            labels.append(int(left.argmax()))
            left[labels[-1]] -= 1
        return np.sort(np.array(labels, np.int64))


def invert(
    target: InversionTarget,
    gradient: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    low: float,
    high: float,
    search: Search,
    progress: Callable[[int], None] = lambda start: None,
) -> RecoveredImages:
    """Search for the images with given labels and the gradient most similar to a known one.

    Args:
        target: the model.
        gradient: `(d,)` the known gradient, of any scale.
        labels: `(m,)` labels of the images.
        low, high: range of a pixel as the model sees it.
        search: parameters of the search.
        progress: called with the number of finished starts.
    """
    direction = torch.tensor(np.asarray(gradient), dtype=torch.float32, device=target.device)
    direction = direction / direction.norm()
    targets = torch.tensor(labels, device=target.device)
    rng = torch.Generator().manual_seed(search.seed)
    best: RecoveredImages | None = None
    for start in range(search.starts):
        noise = torch.randn((len(labels), *target.shape), generator=rng)  # on the CPU: equal starts on all devices
        images = noise.clamp(low, high).to(target.device).requires_grad_()
        candidate = _descend(target, direction, targets, images, low, high, search)
        best = candidate if best is None or candidate.cost < best.cost else best
        progress(start + 1)
    assert best is not None
    return best


def _descend(
    target: InversionTarget, direction: Tensor, labels: Tensor, images: Tensor, low: float, high: float, search: Search
) -> RecoveredImages:
    descent = torch.optim.Adam([images], search.step)
    eighths = [search.iterations * eighth // 8 for eighth in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(descent, eighths, 0.1)
    for _ in range(search.iterations):
        cost, _ = _cost(target, direction, labels, images, search)
        (slope,) = torch.autograd.grad(cost, images)
        images.grad = slope.sign()  # as in the paper: Adam on the signs
        descent.step()
        schedule.step()
        with torch.no_grad():
            images.clamp_(low, high)
    cost, cosine = _cost(target, direction, labels, images, search)
    return RecoveredImages(
        images.detach().cpu().numpy(), labels.cpu().numpy(), float(cost.detach()), float(cosine.detach())
    )


def _cost(
    target: InversionTarget, direction: Tensor, labels: Tensor, images: Tensor, search: Search
) -> tuple[Tensor, Tensor]:
    gradient = target.gradient(images, labels, differentiable=True)
    cosine = gradient @ direction / gradient.norm().clamp_min(1e-12)  # a dead network has gradient 0
    varied = images.diff(dim=1).abs().mean() + images.diff(dim=2).abs().mean()
    return 1 - cosine + search.smoothness * varied, cosine


# -- measured on a run ------------------------------------------------------------------------------------------------


Images = npt.NDArray[np.floating]
_MOST_IMAGES = 64  # Geiping et al. find little in a gradient of more


@dataclass(frozen=True)
class Inversion:
    """The outcome of inverting one client's update.

    Attributes:
        client: the victim.
        group: `(g,)` clients that are in exactly the same sums as the victim, the victim included.
        error: error of the update that was inverted, as in (33).
        recovered: the matched pictures, pixels from 0 to 1: the victim's first, in the order of `originals`.
        originals: `(n, ...)` the victim's images, 0 to 1.
        mse: `(n,)` mean squared error of each matched picture.
        prior_mse: `(n,)` mean squared error of the mean held-out image, which needs no information on the client.
        true_labels: `(n,)` labels of the victim's images.
        steps: local steps behind the update; with 1 step it is a gradient.
    """

    client: int
    group: npt.NDArray[np.int64]
    error: float
    recovered: RecoveredImages
    originals: Images
    mse: npt.NDArray[np.float64]
    prior_mse: npt.NDArray[np.float64]
    true_labels: npt.NDArray[np.int64]
    steps: int

    @property
    def psnr(self) -> npt.NDArray[np.float64]:
        """`(n,)` peak signal-to-noise ratio in decibels, for pixels from 0 to 1."""
        return psnr(self.mse)


def psnr(mse: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the peak signal-to-noise ratio in decibels of pixels from 0 to 1; infinite for identical images.

    Example:
        >>> float(psnr(0.01))
        20.0
    """
    with np.errstate(divide="ignore"):
        return -10 * np.log10(np.asarray(mse, np.float64))


class Inverter:
    """Inverts updates out of one view of a run.

    Args:
        run: its records.
        first, last: rounds whose sums are solved; the pictures are searched at the model of the first completed one.

    Raises:
        ExperimentError: as `analysis.attacks.reconstruction.view`; or if the run does not train a built-in image model.
    """

    def __init__(self, run: RunRecords, first: int, last: int) -> None:
        self.victims = Victims(run)
        workload = self.victims.workload
        if not isinstance(workload, ImageClassification):
            raise ExperimentError(f"{run.path}: does not train a built-in image model; nothing to invert")
        self.data = data = workload.data
        self.view = view(run, first, last)
        self.estimates = estimates(self.view, self.victims.weights)
        held_out = data.held_out()[0]
        self.low, self.high = float(held_out.min()), float(held_out.max())
        self.held_out = held_out
        classes = data.label_counts().shape[1]
        self.target = InversionTarget(workload.model_name, tuple(held_out.shape[1:]), classes, self.view.model)

    def invert(self, client: int, search: Search, *, alone: bool = False) -> Inversion:
        """Search for the images of a client.

        Args:
            client: the victim.
            search: parameters of the search.
            alone: whether to take the recovered update for the client's own, even if it is a group's mean.

        Raises:
            ExperimentError: if the client is in no sum, or there are too many images.
        """
        place = np.flatnonzero(self.estimates.clients == client)
        if not len(place):
            raise ExperimentError(f"--client: {client} is in no sum of these rounds")
        columns = self.view.participation
        group = np.flatnonzero((columns == columns[:, [client]]).all(axis=0))
        if not spanned(columns, group):
            raise ExperimentError(
                f"--round: the sums of these rounds determine neither client {client}'s update nor that of the "
                f"{len(group)} clients always summed together; select one round, or more rounds"
            )
        counts = self.victims.workload.sample_counts
        number = int(counts[client] if alone else counts[group].sum())
        if number > _MOST_IMAGES:
            raise ExperimentError(
                f"--client: {number} images are behind this update; at most {_MOST_IMAGES} can be searched for"
            )
        update = self.estimates.updates[place[0]]
        section = self.victims.experiment.workload
        round_number = int(self.view.rounds[0])
        gradient = -update / section.learning_rate_in(round_number)  # exact for one local step
        as_tensor = torch.tensor(gradient, dtype=torch.float32, device=self.target.device)
        labels = self.target.labels_of(as_tensor, number, self.held_out)
        pictures = invert(self.target, gradient, labels, self.low, self.high, search)
        true_update = self.victims.workload.train(client, self.view.model, round_number).delta
        images, true_labels = self.data.shard(client)
        originals, candidates = self._pixels(images.numpy()), self._pixels(pictures.images)
        costs = ((originals[:, None] - candidates[None]) ** 2).mean(axis=tuple(range(2, originals.ndim + 1)))
        own, matched = linear_sum_assignment(costs)  # one to one: no picture counts for two originals
        rest = np.setdiff1d(np.arange(len(candidates)), matched)
        order = np.concatenate((matched, rest))
        prior = self._pixels(self.held_out.numpy().mean(axis=0))
        return Inversion(
            client=client,
            group=group,
            error=float(errors(update[None], true_update[None])[0]),
            recovered=RecoveredImages(candidates[order], pictures.labels[order], pictures.cost, pictures.cosine),
            originals=originals,
            mse=costs[own, matched],
            prior_mse=((originals - prior) ** 2).reshape(len(originals), -1).mean(axis=1),
            true_labels=true_labels.numpy(),
            steps=section.epochs * -(-int(counts[client]) // section.batch_size),
        )

    def _pixels(self, images: Images) -> Images:
        pixels: Images = (images - self.low) / (self.high - self.low)
        return pixels


def row(made: Inversion) -> dict[str, Any]:
    """Return the outcome as one flat object, for JSON."""
    finite = made.psnr[np.isfinite(made.psnr)]
    return {
        "client": made.client,
        "clients_in_the_update": len(made.group),
        "images": len(made.originals),
        "images_sought": len(made.recovered.images),
        "labels_found": " ".join(str(label) for label in np.sort(made.recovered.labels)),
        "labels_true": " ".join(str(label) for label in np.sort(made.true_labels)),
        "local_steps": made.steps,
        "update_error": made.error,
        "cosine": made.recovered.cosine,
        "mean_mse": float(made.mse.mean()),
        "mean_psnr": float(finite.mean()) if len(finite) else None,
        "prior_mse": float(made.prior_mse.mean()),
        "prior_psnr": float(psnr(made.prior_mse).mean()),
    }


def text(made: Inversion) -> str:
    """Return the outcome as text, ending in a line feed."""
    outcome = row(made)
    lines = [
        "client {client}: {images} image(s), {images_sought} searched; {clients_in_the_update} client(s) in the update",
        "labels           inferred {labels_found}, true {labels_true}",
        "update           relative error {update_error:.4g}, cosine with the images' gradient {cosine:.4f}",
        f"images           PSNR {made.psnr.mean():.2f} dB, MSE {{mean_mse:.4g}}",
        "mean image       PSNR {prior_psnr:.2f} dB, MSE {prior_mse:.4g} (baseline without any update)",
    ]
    if made.steps > 1:
        lines.append("note: the attack is weaker, because the update has {local_steps} local steps")
    return "\n".join([*lines, ""]).format_map(outcome)


def pictures(inversions: Sequence[tuple[str, Inversion]], path: Path) -> list[Path]:
    """Draw originals and recovered pictures side by side, with their PSNR (Fig. 11).

    Args:
        inversions: names and outcomes; one row of pairs each.
        path: of the figure, without suffix.

    Returns:
        Paths of the written files.
    """
    most = max(len(made.originals) for _, made in inversions)
    with house_style():
        figure, axes = plt.subplots(
            len(inversions),
            2 * most,
            squeeze=False,
            figsize=(max(COLUMN_INCHES, 1.2 * most), 0.95 * len(inversions) + 0.3),
        )
        for axis in axes.flat:
            axis.set_axis_off()
        for line, (name, made) in zip(axes, inversions, strict=True):
            for i, original in enumerate(made.originals):
                line[2 * i].set_title(figure_text(name) if i == 0 else "")
                line[2 * i + 1].set_title(f"{made.psnr[i]:.1f} dB", fontweight="normal")
                for axis, image in ((line[2 * i], original), (line[2 * i + 1], made.recovered.images[i])):
                    axis.imshow(np.clip(image, 0, 1), cmap="gray", vmin=0, vmax=1)
        figure.tight_layout(pad=0.3)
        paths = save(figure, path)
        plt.close(figure)
    return paths
