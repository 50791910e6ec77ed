"""A malicious server that sends clients other models than the trained one, built from the architecture.

`send-different-models`: all clients except one victim receive a model whose update the server knows in advance,
whatever the data (`silent`; Pasquini, Francati, Ateniese, Eluding Secure Aggregation in Federated Learning via Model
Inconsistency, CCS 2022, arXiv 2111.07380). So the sum is the victim's update. Secure aggregation hides the summands it
receives; the attack needs no accomplice. Clients that sign the received model (``aggregation.model_binding: signed``)
refuse each other's keys.

`send-crafted-model`: all clients receive the same model, whose updates reveal single samples in the first layer
(`imprint`; Fowl, Geiping, Czaja, Goldblum, Goldstein, Robbing the Fed, ICLR 2022, arXiv 2110.13057). The models are
consistent, so no binding helps; noise does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions, TrainingMisbehaviour
from testbed.adversary.victims import VictimOptions, draw_victim
from testbed.aggregation.lightsecagg.server import LightSecAgg
from testbed.aggregation.secagg.server import SecAgg
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.messages import Vector
from testbed.training import Broadcast, QuestionGroups, Train, TrainingRound
from testbed.workload.contract import InspectableWorkload, Workload
from testbed.workload.section import WorkloadSection

# -- the models --------------------------------------------------------------------------------------------------------


Shapes = Sequence[tuple[int, ...]]

_FAR = 2.0**40
"""Adjacent float32 values at this magnitude are 2**17 apart: a step of ordinary length does not change it."""
_QUIET = 1e-2  # largest change of a logit by the imprint


def silent(dimension: int, shapes: Shapes | None) -> npt.NDArray[np.float32]:
    """Return a model with a zero update for any data, `(d,)` float32.

    With hidden layers all parameters are 0: no sample activates a unit, and no error passes the last layer's weights.
    The last layer's biases would still move, so they are large enough that a step is lost in rounding; all are equal,
    so the classes are equally likely. Without hidden layers (``logistic``) all parameters are large. Factors of
    adapters are all 0: neither moves while the other is 0.

    Holds for units with f(0) = 0 (ReLU, GELU, tanh), weight decay 0 (otherwise the large parameters shrink) and steps
    far below 2**16.

    Args:
        dimension: d.
        shapes: of the parameters in the model's order; None: unknown, then all parameters are 0, and biases of the last
            layer move.
    """
    model = np.zeros(dimension, np.float32)
    if shapes is None:
        return model
    end = sum(math.prod(shape) for shape in shapes)
    # Logistic regression has no hidden layer to silence: its own weights must not move.
    if len(shapes) <= 2 and sum(len(shape) > 1 for shape in shapes) < 2:  # the two factors of one adapter are zero
        model[:end] = _FAR
    # The last layer's biases alone: all other updates are zero.
    elif len(shapes[-2]) == 2 and shapes[-1] == shapes[-2][:1]:
        model[end - shapes[-1][0] : end] = _FAR
    return model


@dataclass(frozen=True)
class Imprint:
    """A multilayer perceptron whose first layer sorts samples into bins by a linear measurement.

    Row i of the first layer is active for samples with a measurement above threshold i. Each sample moves all rows that
    it activates equally, by a multiple of itself, and their biases by the same multiple. So the difference of two
    adjacent rows' updates, divided by the difference of their biases' updates, is the sample between their thresholds,
    if there is exactly one: in one client's update as well as in a sum over many.

    Attributes:
        model: `(d,)` float32.
        rows: rows of the first layer.
        pixels: inputs of the first layer.
    """

    model: npt.NDArray[np.float32]
    rows: int
    pixels: int

    def samples_in(self, total: Floats) -> Floats:
        """Return the content of each nonempty bin, `(b, pixels)`: a sample, or a mixture; b is at most `rows` - 1.

        Args:
            total: `(d,)` a sum of updates, each of one step on all samples of a client, times any weights.
        """
        weights = total[: self.rows * self.pixels].reshape(self.rows, self.pixels)
        biases = total[self.rows * self.pixels : self.rows * (self.pixels + 1)]
        # A sample above both thresholds moves both rows alike and cancels; only the samples between them are left.
        inside, moved = weights[:-1] - weights[1:], biases[:-1] - biases[1:]
        filled = moved != 0
        contents: Floats = inside[filled] / moved[filled, None]
        return contents


def imprint(shapes: Shapes, public_samples: npt.NDArray[Any], samples: int, gain: float, number: int) -> Imprint:
    """Return the imprint model for a sum over `samples` samples.

    Args:
        shapes: (out, in), (out,) of each of two or more dense layers with ReLU between them.
        public_samples: `(m, pixels)` samples of the same distribution that the server has.
        samples: number of samples in the sum; each bin should hold one. With more samples than bins the bins lie around
            the median.
        gain: a step of length 1 moves the first layer by this multiple of a sample.
        number: of the round; each round sorts samples differently, and isolates others.

    Raises:
        ValueError: the layers do not fit, or there are no samples to place the thresholds (one line).
    """
    _check(shapes, public_samples)
    layers = list(zip(shapes[::2], shapes[1::2], strict=True))
    (rows, pixels), classes = layers[0][0], layers[-1][0][0]
    # A random projection: the mean, which the paper's authors take, is the same for many images of few grey levels.
    measure = np.random.default_rng(number).normal(0, 1 / math.sqrt(pixels), pixels)
    numbers = public_samples.astype(np.float64) @ measure
    spread = float(np.ptp(numbers))
    # About one sample in each bin: with more samples than bins, only the middle part of the distribution is covered.
    covered = min(1.0, (rows - 1) / max(samples, 1))
    edges = np.quantile(numbers, 0.5 + covered * np.linspace(-0.5, 0.5, rows))
    if covered == 1.0:  # some samples lie outside the range of the server's samples
        edges[0], edges[-1] = edges[0] - spread, edges[-1] + spread
    sign = np.where(np.arange(classes) % 2, 1.0, -1.0)
    widths = [out for (out, _), _ in layers[:-1]]  # of hidden layers
    # Hidden layers after the first take means and add 1, so that they are active and pass on their input.
    passed = math.prod(after / before for before, after in pairwise(widths))
    # The later layers scale the error on its way back: divide by it, so that the first layer moves by `gain`.
    slope = gain / passed
    # Small weights: the imprint must not change the logits, or the samples' steps would differ.
    small = _QUIET / (gain * rows * (3 * spread + 1e-9))
    parts: list[npt.NDArray[Any]] = [np.tile(small * measure, rows), -small * edges]
    for before, after in pairwise(widths):
        parts += [np.full(after * before, 1 / before), np.ones(after)]
    # The biases undo the ones that hidden layers add: all classes are equally likely, so each sample has an error.
    parts += [np.repeat(sign * slope, widths[-1]), -sign * slope * widths[-1] * (len(widths) - 1)]
    return Imprint(np.concatenate(parts).astype(np.float32), rows, pixels)


def _check(shapes: Shapes, public_samples: npt.NDArray[Any]) -> None:
    weights, biases = shapes[::2], shapes[1::2]
    dense = len(weights) == len(biases) >= 2 and all(
        len(weight) == 2 and bias == (weight[0],) for weight, bias in zip(weights, biases, strict=True)
    )
    if not dense or any(after[1] != before[0] for before, after in pairwise(weights)):
        raise ValueError("needs a multilayer perceptron, two or more dense layers (workload.model: mlp)")
    if public_samples.ndim != 2 or public_samples.shape[1] != weights[0][1] or not len(public_samples):
        raise ValueError(f"needs samples of {weights[0][1]} values that the server knows")


# -- malicious servers -------------------------------------------------------------------------------------------------


class SendDifferentModels(TrainingMisbehaviour, Broadcast):
    """Sends the true model to the victim and to accomplices, and a silent model to all others.

    Accomplices reveal their updates to the server.
    """

    name: ClassVar[str] = "send-different-models"
    applies_to: ClassVar[tuple[str, ...]] = ("train",)
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    @classmethod
    def check_learning(cls, section: WorkloadSection) -> None:
        """Check that the workload computes gradients."""
        _check_gradients(cls.name, section)

    def questions_for(self, round_: TrainingRound, question: Train) -> QuestionGroups:
        """Ask the victim's group first; if no honest client can be attacked, ask as the honest server does."""
        honest_questions = super().questions_for(round_, question)
        victim = draw_victim(self, SendDifferentModels, round_.trainers, round_)
        if victim is None:
            return honest_questions
        shapes = None
        if isinstance(round_.workload, InspectableWorkload):
            shapes = round_.workload.parameter_shapes()
        # Accomplices get the true model, too: the server knows their updates anyway.
        others = round_.trainers[~np.isin(round_.trainers, [victim, *self.dishonest])]
        silent_model = Vector(silent(len(question.model), shapes), 0)
        self.record_attack(
            SendDifferentModels, f"client {victim} was sent the model, {len(others)} others one that does not move"
        )
        return [
            # First: the aggregation is bound to the first group's model, so the victim's signature fits.
            (np.setdiff1d(round_.trainers, others), honest_questions[0][1]),
            (others, Train(question.round, silent_model)),
        ]


class _PassesOnAllKeys(AggregationMisbehaviour):
    """Passes on the keys of clients that received other models, which an honest server would leave out."""

    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    def usable_adverts(self, state: Any, adverts: dict[int, Any]) -> dict[int, Any]:
        """Return all adverts."""
        if self.attacking:
            return adverts
        usable: dict[int, Any] = super().usable_adverts(state, adverts)  # type: ignore[misc]
        return usable


class PassOnAllKeys(_PassesOnAllKeys, SecAgg):
    """The attack on SecAgg servers."""

    name: ClassVar[str] = "send-different-models"
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")


class PassOnAllCodingKeys(_PassesOnAllKeys, LightSecAgg):
    """The attack on LightSecAgg servers."""

    name: ClassVar[str] = "send-different-models"
    applies_to: ClassVar[tuple[str, ...]] = ("lightsecagg",)


class ImprintOptions(MisbehaviourOptions):
    """Options of `send-crafted-model`."""

    gain: float = Field(
        4.0,
        gt=0,
        description="A step of length 1 moves the first layer by this multiple of a sample; times learning rate and "
        "the largest value of a sample it should stay below the aggregation's clip",
    )


class SendCraftedModel(TrainingMisbehaviour, Broadcast):
    """Sends all clients a model that reveals samples in the update of its first layer."""

    name: ClassVar[str] = "send-crafted-model"
    applies_to: ClassVar[tuple[str, ...]] = ("train",)
    Options: ClassVar[type[MisbehaviourOptions]] = ImprintOptions

    @classmethod
    def check_learning(cls, section: WorkloadSection) -> None:
        """Check that the workload computes gradients of a multilayer perceptron."""
        _check_gradients(cls.name, section)
        if section.adapters is not None:
            raise ExperimentError(f"adversary.server: {cls.name} sets whole layers; leave out workload.adapters")
        layers = section.model == "mlp" or (section.model, section.dataset) == ("auto", "digits")
        if section.is_built_in and not layers:
            raise ExperimentError(
                f"adversary.server: {cls.name} needs a multilayer perceptron; set workload.model to mlp, not "
                f"{section.model}"
            )

    @classmethod
    def check_workload(cls, workload: Workload, options: MisbehaviourOptions) -> None:
        """Check that an imprint can be built for the workload."""
        assert isinstance(options, ImprintOptions)
        imprint_of(inspectable(workload), 1, options.gain, 1)

    def questions_for(self, round_: TrainingRound, question: Train) -> QuestionGroups:
        """Ask all clients to train the imprint."""
        if not self.attacking:
            return super().questions_for(round_, question)
        workload = round_.workload
        inspected = inspectable(workload)
        assert workload is not None  # None raises in `inspectable`
        samples = int(workload.sample_counts[round_.trainers].sum())
        made = imprint_of(inspected, samples, self.context.options_of(SendCraftedModel).gain, round_.number)
        self.record_attack(
            SendCraftedModel, f"{made.rows - 1} bins for {samples} samples of {len(round_.trainers)} clients"
        )
        return super().questions_for(round_, Train(question.round, Vector(made.model, 0)))


def _check_gradients(name: str, section: WorkloadSection) -> None:
    if section.is_built_in and section.training != "real":
        raise ExperimentError(f"adversary.server: {name} needs gradients; set workload.training to real")


def inspectable(workload: Workload | None) -> InspectableWorkload:
    """Return `workload` if its parameters and samples can be inspected; otherwise raise `ExperimentError`."""
    if not isinstance(workload, InspectableWorkload):
        raise ExperimentError(
            "adversary.server: send-crafted-model needs a workload with parameter_shapes() and known_samples()"
        )
    return workload


def imprint_of(workload: InspectableWorkload, samples: int, gain: float, number: int) -> Imprint:
    """Return the imprint of a round.

    Args:
        workload: with shapes of the parameters and samples.
        samples: number of samples in the sum.
        gain: see `imprint`.
        number: of the round.

    Raises:
        ExperimentError: no imprint can be built.
    """
    public_samples = workload.known_samples()
    try:
        return imprint(
            workload.parameter_shapes(),
            public_samples.reshape(len(public_samples), math.prod(public_samples.shape[1:])),
            samples,
            gain,
            number,
        )
    except ValueError as error:
        raise ExperimentError(f"adversary.server: send-crafted-model {error}") from None
