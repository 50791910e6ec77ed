"""Parameters of `secagg-plus`: the section `aggregation` of an experiment."""

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from testbed.aggregation.batch_policy import BatchPolicy
from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.kit.parameters import check_two_participants
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg_plus.bound import (
    Neighbourhood,
    NeighbourhoodRequirements,
    described,
    failure_bits,
    smallest_neighbourhood,
    with_neighbours,
)
from testbed.batches import Batches


class SecAggPlusParameters(SecAggParameters):
    """Sums that hide every single update, with work per client that hardly grows with the number of participants."""

    removes_noise: ClassVar[bool] = False  # secrets are shared within neighbourhoods, which see few of the dropouts
    protocol: Literal["secagg-plus"] = "secagg-plus"  # type: ignore[assignment]  # another alternative, same fields
    threshold: int | None = Field(  # type: ignore[assignment]  # of a neighbourhood, and not a fraction
        None, gt=1, description="Holders that must remain, of k + 1 (t); none: the smallest that is safe"
    )
    consistency: Literal["signed"] = Field(  # the bound counts on signed survivors
        "signed", description="t of a client's holders sign the survivors before it unmasks; there is no other way here"
    )
    smallest_sum: None = Field(None, description="Has no effect here: `dropouts` says how many survive at least")

    @field_validator("smallest_sum", mode="before")
    @classmethod
    def _without_effect(cls, value: Any) -> Any:
        if value is not None:
            raise ValueError("has no effect with secagg-plus, where `dropouts` says how many survive; leave it out")
        return value

    neighbours: int | None = Field(
        None, gt=0, description="Neighbours of a client (k, even); none: the fewest that meet the requirements below"
    )
    dishonest: float = Field(
        0.1, ge=0, lt=1, description="Largest fraction of dishonest participants (the paper's gamma)"
    )
    dropouts: float = Field(
        0.1, ge=0, lt=1, description="Largest fraction of dropouts (the paper's delta); with more there is no sum"
    )
    security: float = Field(
        40, ge=1, le=256, description="sigma: the server learns more than the sum with at most 2**-sigma"
    )
    tries: float = Field(
        40,
        ge=0,
        le=128,
        description="The server can try 2**tries graphs (round numbers, lists of participants) before it takes one",
    )
    correctness: float = Field(20, ge=1, le=256, description="eta: there is no sum with at most 2**-eta")
    accept_weaker: bool = Field(
        False, description="Run with given neighbours and threshold though they do not meet the requirements"
    )

    @model_validator(mode="after")
    def _threshold_has_neighbours(self) -> "SecAggPlusParameters":
        if self.threshold is not None and self.neighbours is None:
            raise ValueError("threshold: goes with neighbours; leave out both to have them computed")
        return self

    def fewest_survivors(self, participants: int) -> int:
        """Return 1: the threshold counts neighbours, not participants."""
        return 1

    @property
    def requirements(self) -> NeighbourhoodRequirements:
        """Requirements on k and t."""
        return NeighbourhoodRequirements(self.dishonest, self.dropouts, self.security, self.correctness, self.tries)

    def neighbourhood(self, participants: int) -> Neighbourhood:
        """Return k and t for s participants; raises `ValueError` if no values are safe."""
        if self.neighbours is None:
            return smallest_neighbourhood(participants, self.requirements)
        if self.neighbours % 2 and self.neighbours < participants - 1:
            nearest = " or ".join(str(k) for k in (self.neighbours - 1, self.neighbours + 1) if k)
            raise ValueError(
                f"neighbours: k = {self.neighbours} is odd; half of them stand on either side: take {nearest}"
            )
        return with_neighbours(participants, self.neighbours, self.threshold, self.requirements)

    def threshold_for(self, participants: int) -> int:
        """Return t of a neighbourhood, for s participants."""
        return self.neighbourhood(participants).threshold

    def batch_policy(self, batches: Batches | None) -> BatchPolicy:
        """Return the rule for complete batches; `AtomicBatches` needs batch members to be neighbours."""
        return AggregationParameters.batch_policy(self, batches)

    def weakness(self, participants: int) -> str:
        """Describe in one line how neighbours and threshold miss the requirements; empty if they meet them."""
        chosen = self.neighbourhood(participants)
        bits = failure_bits(participants, chosen.neighbours, chosen.threshold, self.requirements)
        if self.neighbours is None or bits.meets(self.requirements):
            return ""
        return (
            f"k = {chosen.neighbours}, t = {chosen.threshold} of {participants} participants: {described(bits)}; "
            f"required 2^-{self.requirements.contradiction_bits:g}, 2^-{self.security + 1:g}, 2^-{self.correctness:g}"
        )

    def check(self, participants: int) -> None:
        """Check that 2t > k + 1, and the requirements unless `accept_weaker` is set; raises `ValueError`."""
        check_two_participants(self, participants)
        chosen = self.neighbourhood(participants)
        k, t = chosen.neighbours, chosen.threshold
        most = k + 1 if chosen.complete else k
        if not k + 1 < 2 * t <= 2 * most:
            raise ValueError(f"threshold: t = {t} of k = {k} neighbours; allowed {(k + 1) // 2 + 1} to {most}")
        weakness = self.weakness(participants)
        if weakness and not self.accept_weaker:
            raise ValueError(f"neighbours: {weakness}; leave out neighbours and threshold, or set accept_weaker: true")
