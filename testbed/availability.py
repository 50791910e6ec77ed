"""Who is reachable when, and who drops out where.

An availability model answers two questions for arrays of clients: `reachable` (is the client there when a stage
begins?) and `drops` (does it leave during this stage, before its answer is complete?). A client that has gone stays
away for the rest of the round; the network remembers that.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.links import LIST, NUMBER, EitherForm, NotEmpty, cycled
from testbed.randomness import Randomness

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Probability = Annotated[float, Field(ge=0, le=1)]
Probabilities = Annotated[Annotated[Probability, NUMBER] | Annotated[list[Probability], NotEmpty, LIST], EitherForm]


class DropOut(BaseModel):
    """Clients that leave in the middle of a round."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rate: Probabilities = Field(
        0.0, description="Probability that a client leaves during a round it takes part in; a list is cycled"
    )
    stage: str = Field(
        "random",
        description="Stage in which it leaves, e.g. 'secagg/masked-input'; 'random': any stage after selection",
    )


class AvailabilitySection(BaseModel):
    """The experiment's `availability` section."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Literal["always", "bernoulli"] = Field(
        "always",
        description="'bernoulli': each client is unavailable in a round with probability `unavailable`",
    )
    unavailable: Probabilities = Field(
        0.0,
        description="Probability p of being away at the start of a round; a list is cycled, e.g. [0.1, 0.3, 0.5]",
    )
    dropout: DropOut = Field(default_factory=DropOut, description="Clients that leave during the round")

    @model_validator(mode="after")
    def _only_what_the_model_reads(self) -> "AvailabilitySection":
        if self.model == "always" and self.unavailable not in (0, 0.0):
            raise ValueError("`unavailable` has an effect only with `model: bernoulli`; set that or remove it")
        return self


class Availability(Protocol):
    """What the network asks about clients; all answers are `(m,)` bool, aligned with `clients`."""

    def reachable(self, round_number: int, now_s: float, clients: Ids) -> Mask:
        """Who is reachable at virtual time `now_s` in this round."""

    def drops(self, round_number: int, stage: str, clients: Ids) -> Mask:
        """Who leaves during this stage of this round, before its answer is complete."""


class RoundwiseAvailability:
    """Availability drawn anew for each round (models `always` and `bernoulli`), and drop-out at one stage.

    Args:
        section: the experiment's section.
        population: number of clients n.
        stages_after_selection: stages among which a random drop-out chooses.
        randomness: the experiment's.
    """

    def __init__(
        self,
        section: AvailabilitySection,
        population: int,
        stages_after_selection: Sequence[str],
        randomness: Randomness,
    ) -> None:
        self._always = section.model == "always"
        self._unavailable = cycled(section.unavailable, population)
        self._rate = cycled(section.dropout.rate, population)
        self._stage = section.dropout.stage
        self._stages = list(stages_after_selection)
        self._population = population
        self._randomness = randomness
        self._drawn_for: int | None = None

    def _draw(self, round_number: int) -> None:
        """One draw per client and round, for everybody, so that no client's fate depends on who is asked."""
        if self._drawn_for == round_number:
            return
        n = self._population
        self._present = np.ones(n, np.bool_)
        if not self._always:
            draw = self._randomness.generator("availability", round_number, "present").random(n)
            self._present = draw >= self._unavailable
        generator = self._randomness.generator("availability", round_number, "dropout")
        leaves = generator.random(n) < self._rate
        where = generator.integers(0, max(1, len(self._stages)), n)
        self._leaves_in = np.where(leaves, where, -1)
        self._drawn_for = round_number

    def reachable(self, round_number: int, now_s: float, clients: Ids) -> Mask:
        """See `Availability.reachable`."""
        self._draw(round_number)
        return self._present[clients]

    def drops(self, round_number: int, stage: str, clients: Ids) -> Mask:
        """See `Availability.drops`."""
        self._draw(round_number)
        if self._stage != "random":
            return (self._leaves_in[clients] >= 0) & (stage == self._stage)
        if stage not in self._stages:
            return np.zeros(len(clients), np.bool_)
        return self._leaves_in[clients] == self._stages.index(stage)
