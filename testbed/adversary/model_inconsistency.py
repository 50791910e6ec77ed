"""A malicious server that sends clients other models than the one that is to be trained.

`send-different-models`: all but one victim are sent a model whose update the server knows (`crafted_models.silent`), so
that the sum is the victim's update. Secure aggregation hides the summands of what it is given; no accomplice is
needed. Clients that sign what they were sent (``aggregation.model_binding: signed``) refuse one another's keys.

`send-crafted-model`: everybody is sent the same model, from whose updates single samples can be read
(`crafted_models.imprint`). Nothing is inconsistent, so no binding helps; noise does.
"""

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from testbed.adversary import crafted_models
from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions, TrainingMisbehaviour
from testbed.adversary.secagg.reconstruction import ReconstructionOptions
from testbed.aggregation.secagg.messages import KeyAdvert
from testbed.aggregation.secagg.round import SecAggRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.errors import ExperimentError
from testbed.messages import Vector
from testbed.training.client import Train
from testbed.training.server import Asked, Broadcast, TrainingRound
from testbed.workload.contract import InspectableWorkload, Workload
from testbed.workload.section import WorkloadSection


class SendDifferentModels(TrainingMisbehaviour, Broadcast):
    """Sends the model to the victim and to accomplices, whose updates it is told, and a silent one to the others."""

    name: ClassVar[str] = "send-different-models"
    applies_to: ClassVar[tuple[str, ...]] = ("train",)
    Options: ClassVar[type[MisbehaviourOptions]] = ReconstructionOptions

    @classmethod
    def check_learning(cls, section: WorkloadSection) -> None:
        """See `Misbehaviour.check_learning`."""
        _check_gradients(cls.name, section)

    def questions_for(self, round_: TrainingRound, question: Train) -> Asked:
        """The victim's group first; where there is no honest client to attack, as the honest server."""
        asked = super().questions_for(round_, question)
        honest = [client for client in round_.trainers.tolist() if client not in self.dishonest]
        victim = self.context.options_of(SendDifferentModels).victim
        if victim is None and honest:
            victim = int(round_.randomness.generator("server", round_.number, "victim").choice(honest))
        if not self.attacking or victim not in honest:
            return asked
        shapes = None
        if isinstance(round_.workload, InspectableWorkload):
            shapes = round_.workload.parameter_shapes()
        others = np.array([client for client in honest if client != victim], np.int64)
        told = Vector(crafted_models.silent(len(question.model), shapes), 0)
        self.record_attack(
            SendDifferentModels, f"client {victim} was sent the model, {len(others)} others one that does not move"
        )
        return [(np.setdiff1d(round_.trainers, others), asked[0][1]), (others, Train(question.round, told))]


class PassOnAllKeys(AggregationMisbehaviour, SecAgg):
    """Passes on the keys of clients that were sent other models as well: the honest server would leave them out."""

    name: ClassVar[str] = "send-different-models"
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")
    Options: ClassVar[type[MisbehaviourOptions]] = ReconstructionOptions

    def usable_adverts(self, state: SecAggRound, adverts: dict[int, KeyAdvert]) -> dict[int, KeyAdvert]:
        """All of them."""
        return adverts if self.attacking else super().usable_adverts(state, adverts)


class ImprintOptions(MisbehaviourOptions):
    """How strongly."""

    gain: float = Field(
        4.0,
        gt=0,
        description="A step of length 1 moves the first layer by so many times a sample; times learning rate and the "
        "largest value of a sample it should stay below the aggregation's clip",
    )


class SendCraftedModel(TrainingMisbehaviour, Broadcast):
    """Sends everybody a model that its first layer's update gives samples away of."""

    name: ClassVar[str] = "send-crafted-model"
    applies_to: ClassVar[tuple[str, ...]] = ("train",)
    Options: ClassVar[type[MisbehaviourOptions]] = ImprintOptions

    @classmethod
    def check_learning(cls, section: WorkloadSection) -> None:
        """See `Misbehaviour.check_learning`."""
        _check_gradients(cls.name, section)
        layers = section.model == "mlp" or (section.model, section.dataset) == ("auto", "digits")
        if section.is_built_in and not layers:
            raise ExperimentError(
                f"adversary.server: {cls.name} needs a multilayer perceptron; set workload.model to mlp, not "
                f"{section.model}"
            )

    @classmethod
    def check_workload(cls, workload: Workload, options: MisbehaviourOptions) -> None:
        """See `Misbehaviour.check_workload`."""
        assert isinstance(options, ImprintOptions)
        imprint_of(inspectable(workload), 1, options.gain, 1)

    def questions_for(self, round_: TrainingRound, question: Train) -> Asked:
        """Everybody is asked to train the imprint."""
        if not self.attacking:
            return super().questions_for(round_, question)
        workload = round_.workload
        inspected = inspectable(workload)
        assert workload is not None  # or that would have been an error
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
    """`workload`; raises `ExperimentError` for one of which nothing is known."""
    if not isinstance(workload, InspectableWorkload):
        raise ExperimentError(
            "adversary.server: send-crafted-model needs a workload with parameter_shapes() and known_samples()"
        )
    return workload


def imprint_of(workload: InspectableWorkload, samples: int, gain: float, number: int) -> crafted_models.Imprint:
    """The imprint of a round for a sum over so many samples; raises `ExperimentError` where none can be made."""
    known = workload.known_samples()
    try:
        return crafted_models.imprint(
            workload.parameter_shapes(), known.reshape(len(known), math.prod(known.shape[1:])), samples, gain, number
        )
    except ValueError as error:
        raise ExperimentError(f"adversary.server: send-crafted-model {error}") from None
