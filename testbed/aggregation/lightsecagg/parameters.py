"""The experiment's section `aggregation` for `lightsecagg`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from testbed.aggregation.kit.parameters import ClipKey, LevelsBitsKey, QuantisedParameters, check_two_participants
from testbed.aggregation.quantisation import Quantisation
from testbed.counts import rounded_down, rounded_up
from testbed.crypto.prime_field import PRIME


@dataclass(frozen=True)
class FieldQuantisation(Quantisation):
    """Quantisation into the integers modulo the prime of `testbed.crypto.prime_field`, of 32 bits."""

    most_bits: ClassVar[int] = 0
    bits: int = 32

    @property
    def modulus(self) -> int:
        """The prime."""
        return PRIME

    @property
    def limit(self) -> str:
        """The field, which no key of the experiment changes."""
        return "the field of lightsecagg has 32"


class LightSecAggParameters(QuantisedParameters):
    """Sums that hide every single update from a server that follows the protocol, with one question to survivors."""

    stages: ClassVar[tuple[str, ...]] = (
        "lightsecagg/advertise-keys",
        "lightsecagg/share-masks",
        "lightsecagg/masked-input",
        "lightsecagg/sum-pieces",
    )
    protocol: Literal["lightsecagg"] = "lightsecagg"
    threshold: int | float = Field(
        0.7,
        gt=0,
        allow_inf_nan=False,
        description="Clients that must remain: a number U, or a fraction of the participants",
    )
    max_colluders: int | float = Field(
        0.5,
        ge=0,
        allow_inf_nan=False,
        description="Clients that learn nothing together with the server: a number T below U, or a fraction of the "
        "participants; the nearer to U, the longer the coded pieces",
    )
    levels_bits: LevelsBitsKey = 16
    clip: ClipKey = 1.0
    model_binding: Literal["signed", "none"] = Field(
        "signed",
        description="Do clients sign what they were asked to train with their keys, so that only those go into one sum "
        "that were sent the same model (signed), or not (none; to show that attack)?",
    )

    @property
    def quantisation(self) -> Quantisation:
        """How updates become elements of the field."""
        return FieldQuantisation(self.clip, self.levels_bits)

    def threshold_for(self, participants: int) -> int:
        """U for so many participants; a fraction is rounded up."""
        return rounded_up(self.threshold, participants)

    def max_colluders_for(self, participants: int) -> int:
        """T for so many participants; a fraction is rounded down."""
        return rounded_down(self.max_colluders, participants)

    def fewest_survivors(self, participants: int) -> int:
        return self.threshold_for(participants)

    def check(self, participants: int) -> None:
        """T < U <= N, and U at least 2."""
        check_two_participants(self, participants)
        needed, private = self.threshold_for(participants), self.max_colluders_for(participants)
        if not 2 <= needed <= participants:
            raise ValueError(
                f"threshold: U = {needed} of {participants} participants; allowed 2 to {participants} (or a fraction)"
            )
        if private >= needed:
            raise ValueError(
                f"max_colluders: T = {private} of {participants} participants; allowed 0 to {needed - 1}, below the "
                f"threshold U = {needed}"
            )

    def check_population(self, population: int) -> None:
        """Each client is a point of the field, and 0 is none: there a coded piece would be a piece of the mask."""
        if population >= PRIME:
            raise ValueError(
                f"protocol: lightsecagg tells up to {PRIME - 1} clients apart, not {population}; set population to "
                "fewer, or aggregation.protocol to secagg"
            )
