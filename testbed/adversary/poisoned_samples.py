"""Dishonest clients that train on poisoned samples: their training is real, and so is the update.

- `flip-labels`: labels are changed (Tolpegin, Truex, Gursoy, Liu, Data Poisoning Attacks Against Federated Learning
  Systems, ESORICS 2020, arXiv 2007.08432: one into another; Fang, Cao, Jia, Gong, USENIX Security 2020, arXiv
  1911.11815, section 4: l into L - 1 - l).
- `backdoor`: some samples are given a trigger, a bright square in a corner, and the target as label (Gu,
  Dolan-Gavitt, Garg, BadNets, arXiv 1708.06733; in federated learning Bagdasaryan et al., arXiv 1807.00459, with 20
  of a batch of 64).

The success of such an attack is measured with the model's evaluation: the share of held-out samples of other labels
that the model classifies as the target (``attack_success`` of the rounds).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from testbed.adversary.misbehaviour import ClientMisbehaviour, MisbehaviourOptions
from testbed.errors import ExperimentError
from testbed.parties.client import Role
from testbed.training import Train, Trainer
from testbed.workload.contract import (
    InspectableWorkload,
    LabelledWorkload,
    LocalUpdate,
    ReplaceableSamplesWorkload,
    Samples,
    Workload,
)
from testbed.workload.section import WorkloadSection

Learn = Callable[[Workload, Train], LocalUpdate]


class PoisonedSamples(ClientMisbehaviour, Trainer):
    """Trains on changed samples."""

    applies_to: ClassVar[tuple[str, ...]] = ("train",)
    extends: ClassVar[type[Role]] = Trainer

    @classmethod
    @abstractmethod
    def poisoned(cls, samples: Samples, classes: int, options: Any) -> Samples:
        """Return the poisoned samples, as many as the honest ones.

        Args:
            samples: inputs and labels of the client.
            classes: number of labels.
            options: of the misbehaviour.
        """

    @classmethod
    def check_learning(cls, section: WorkloadSection) -> None:
        """Check that the workload trains on samples."""
        if section.training == "simulated":
            raise ExperimentError(
                f"adversary.clients: {cls.name} poisons samples, and workload.training: simulated uses no samples; set "
                "workload.training to real"
            )

    @classmethod
    def check_workload(cls, workload: Workload, options: Any) -> None:
        """Check that samples have replaceable labels, including the labels in the options."""
        if not isinstance(workload, ReplaceableSamplesWorkload) or not isinstance(workload, LabelledWorkload):
            raise ExperimentError(
                f"adversary.clients: {cls.name} needs a workload with replaceable samples; see "
                "ReplaceableSamplesWorkload in testbed/workload/contract.py"
            )
        classes = workload.label_counts().shape[1]
        if classes < 2:
            raise ExperimentError(f"adversary.clients: {cls.name} is for samples with one of several labels each")
        for key in ("source", "target"):
            label = getattr(options, key, None)
            if label is not None and label >= classes:
                raise ExperimentError(
                    f"adversary.clients: {cls.name}.{key}: {label} of {classes} labels, counted from 0"
                )

    def train_on_poisoned(
        self, kind: "type[PoisonedSamples]", learn: Learn, workload: Workload, message: Train
    ) -> LocalUpdate:
        """Train on samples poisoned by this kind.

        Args:
            kind: the misbehaviour.
            learn: honest training.
            workload: the workload.
            message: the question.
        """
        if not self.attacks(message.round):
            return learn(workload, message)
        assert isinstance(workload, ReplaceableSamplesWorkload)
        assert isinstance(workload, LabelledWorkload)
        options, classes = self.context.options_of(kind), workload.label_counts().shape[1]
        changed = 0

        def change(samples: Samples) -> Samples:
            nonlocal changed
            inputs, labels = kind.poisoned(samples, classes, options)
            changed = int((labels != samples[1]).sum())
            return inputs, labels

        self.client.prepared = None  # batched training of several clients used honest samples
        update = learn(workload.with_samples(change), message)
        self.record_attack(kind, f"{changed} of {update.samples} labels changed")
        return update


class LabelOptions(MisbehaviourOptions):
    """Options of `flip-labels`."""

    source: int | None = Field(None, ge=0, description="The label that is changed; none: all, l into L - 1 - l")
    target: int | None = Field(None, ge=0, description="The new label; required with source")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.source is None) != (self.target is None):
            raise ValueError("source: needs target:, and target: needs source:; give both, or neither")
        if self.source is not None and self.source == self.target:
            raise ValueError(f"target: {self.target} is the source; nothing would change")
        return self


class FlipLabels(PoisonedSamples):
    """Trains on samples with wrong labels."""

    name: ClassVar[str] = "flip-labels"
    Options: ClassVar[type[MisbehaviourOptions]] = LabelOptions

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Train on samples with wrong labels."""
        return self.train_on_poisoned(FlipLabels, super().learn, workload, message)

    @classmethod
    def poisoned(cls, samples: Samples, classes: int, options: Any) -> Samples:
        """Return the samples with changed labels."""
        inputs, labels = samples
        if options.source is None:
            return inputs, classes - 1 - labels
        return inputs, np.where(labels == options.source, options.target, labels)

    @classmethod
    def attacked_samples(cls, options: Any) -> Callable[[Samples], Samples] | None:
        """Return the source's samples, labelled as the target; None if all labels are flipped."""
        if options.source is None:
            return None
        return lambda samples: _taken_for(options.target, samples[0], samples[1] == options.source)


class BackdoorOptions(MisbehaviourOptions):
    """Options of `backdoor`: the trigger and its label."""

    target: int = Field(0, ge=0, description="The label that samples with the trigger are given")
    size: int = Field(2, ge=1, description="Side of the trigger [pixels], a square at the bottom right")
    share: float = Field(
        0.3125, gt=0, le=1, description="Share of the client's samples with the trigger (20 of 64 in the paper)"
    )


class Backdoor(PoisonedSamples):
    """Trains the model to classify every sample with the trigger as the target."""

    name: ClassVar[str] = "backdoor"
    Options: ClassVar[type[MisbehaviourOptions]] = BackdoorOptions

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Train on samples of which some have the trigger."""
        return self.train_on_poisoned(Backdoor, super().learn, workload, message)

    @classmethod
    def check_workload(cls, workload: Workload, options: Any) -> None:
        """Check that samples are images large enough for the trigger."""
        super().check_workload(workload, options)
        if isinstance(workload, InspectableWorkload):
            shape = workload.known_samples().shape[1:]
            if len(shape) < 2 or options.size > min(_sides(shape)):
                raise ExperimentError(
                    f"adversary.clients: {cls.name}.size: a trigger of {options.size} x {options.size} pixels in "
                    f"samples of {' x '.join(map(str, shape))}; use images, and a smaller trigger"
                )

    @classmethod
    def poisoned(cls, samples: Samples, classes: int, options: Any) -> Samples:
        """Return the samples; evenly spread samples have the trigger and the target as label."""
        inputs, labels = samples
        # Evenly spread without random draws: each batch has about the share, and every run the same samples.
        steps = np.floor(np.arange(len(labels) + 1) * options.share)
        chosen = np.diff(steps) > 0
        triggered = np.where(chosen.reshape(-1, *[1] * (inputs.ndim - 1)), add_trigger(inputs, options.size), inputs)
        return triggered, np.where(chosen, options.target, labels)

    @classmethod
    def attacked_samples(cls, options: Any) -> Callable[[Samples], Samples] | None:
        """Return the samples of other labels with the trigger, labelled as the target."""
        return lambda samples: _taken_for(
            options.target, add_trigger(samples[0], options.size), samples[1] != options.target
        )


def add_trigger(images: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return a copy of images with a square at the bottom right, as bright as the brightest pixel.

    Args:
        images: `(n, ...)`.
        size: side of the square [pixels].
    """
    marked = images.copy()
    if len(images):
        rows, columns = (slice(side - size, side) for side in _sides(images.shape[1:]))
        at = (slice(None), slice(None)) if _channels_first(images.shape[1:]) else (slice(None),)
        marked[(*at, rows, columns)] = images.max()
    return marked


def _taken_for(target: int, inputs: npt.NDArray[Any], chosen: npt.NDArray[np.bool_]) -> Samples:
    return inputs[chosen], np.full(int(chosen.sum()), target)


def _channels_first(shape: tuple[int, ...]) -> bool:
    # Photographs are (3, h, w), other colour images (h, w, 3).
    return len(shape) == 3 and shape[-1] not in (1, 3)


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return height and width of images (h, w), (h, w, channels) or (channels, h, w)."""
    return (shape[1], shape[2]) if _channels_first(shape) else (shape[0], shape[1])
