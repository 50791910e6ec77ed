"""Keys and checks that several protocols' parameters share, so that an experiment file reads alike with each."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.quantisation import Quantisation
from testbed.committee.parameters import CommitteeSection
from testbed.counts import rounded_up
from testbed.crypto.masks import Prg, is_installed
from testbed.extras import install_command


def _installed(prg: Prg) -> Prg:
    if not is_installed(prg):
        raise ValueError(f"{prg} needs aeg: {install_command('aegis')}")
    return prg


PrgKey = Annotated[
    Prg,
    Field(
        exclude_if=lambda prg: prg == "aes-256-ctr",
        description="Generator that expands a mask's seed; aegis-256x4 is several times as fast on CPUs with "
        "vectorised AES, and needs the extra aegis",
    ),
    AfterValidator(_installed),
]
MasksKey = Annotated[
    Literal["symbolic", "materialised"] | None,
    Field(
        description="How masks are emulated; no result depends on it. symbolic: as seeds that are expanded only if "
        "they do not cancel or are inspected; materialised: every mask is expanded and added. None: symbolic if "
        "time.compute is modelled and time.clock is virtual, else materialised",
    ),
]
LevelsBitsKey = Annotated[int, Field(ge=1, le=24, description="Bits per coordinate of an update before summing")]
ClipKey = Annotated[float, Field(gt=0, allow_inf_nan=False, description="Largest absolute value of a coordinate")]


def mask_operation(prg: Prg) -> str:
    """Return the entry of the table of costs for one element of a mask."""
    return "mask.element" if prg == "aes-256-ctr" else "mask.element.aegis"


def check_two_participants(parameters: AggregationParameters, participants: int) -> None:
    """Raise `ValueError` for a single participant.

    Args:
        parameters: the parameters of a protocol that hides updates in a sum.
        participants: number of participants of a round.
    """
    if participants < 2:
        raise ValueError(f"protocol: {parameters.protocol} needs at least 2 participants; the sum of one hides nothing")


class CommitteeParameters(AggregationParameters):
    """Parameters of a protocol in which a committee serves."""

    outsiders_check_batches: ClassVar[bool] = True

    if TYPE_CHECKING:  # a field of each subclass, in the order that experiment.yaml has

        @property
        def committee(self) -> CommitteeSection:
            """The committee's section."""

    @property
    def needs_sample_counts(self) -> bool:
        """Whether members are drawn in proportion to their announced samples."""
        return self.committee.weights == "samples"

    def check_population(self, population: int) -> None:
        """Raise `ValueError` if a population of this size cannot have such a committee."""
        self.committee.check(population)


class MinSurvivorsParameters(AggregationParameters):
    """Parameters of a protocol with clients that refuse sums over fewer than `min_survivors`."""

    if TYPE_CHECKING:  # a field of each subclass

        @property
        def min_survivors(self) -> int | float:
            """Clients that a sum must have: a number, or a fraction of the participants."""

    def fewest(self, participants: int) -> int:
        """Return the fewest clients that a sum among this many participants must have; a fraction is rounded up."""
        return max(2, rounded_up(self.min_survivors, participants))

    def fewest_survivors(self, participants: int) -> int:
        return self.fewest(participants)

    def check_min_survivors(self, participants: int) -> None:
        """Raise `ValueError` where the fewest clients of a sum are more than all participants."""
        if (fewest := self.fewest(participants)) > participants:
            raise ValueError(f"min_survivors: {fewest} of {participants} participants; allowed 2 to {participants}")


class QuantisedParameters(AggregationParameters):
    """Parameters of a protocol that sums quantised updates with their weights."""

    @property
    @abstractmethod
    def quantisation(self) -> Quantisation:
        """The mapping from updates to the elements that are summed."""

    def check_weights(self, participants: int, maximum_weight: int) -> None:
        """Raise `ExperimentError` unless the weighted sum fits the elements."""
        self.quantisation.check(participants, maximum_weight if self.weights == "samples" else 1)
