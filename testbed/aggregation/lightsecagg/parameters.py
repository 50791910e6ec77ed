"""Parameters of `lightsecagg`: the section `aggregation` of an experiment."""

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
        """Limit of a sum, for a message; no key of the experiment changes it."""
        return "the field of lightsecagg has 32"


class LightSecAggParameters(QuantisedParameters):
    """Sums that hide every single update from an honest-but-curious server, with one question to the survivors."""

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
        "participants; the closer to U, the longer the coded pieces",
    )
    levels_bits: LevelsBitsKey = 16
    clip: ClipKey = 1.0
    model_binding: Literal["signed", "none"] = Field(
        "signed",
        description="signed: clients sign the training task with their keys, so that a sum only has clients that were "
        "sent the same model; none: they do not (to demonstrate the attack)",
    )

    @property
    def quantisation(self) -> Quantisation:
        """The mapping from updates to elements of the field."""
        return FieldQuantisation(self.clip, self.levels_bits)

    def threshold_for(self, participants: int) -> int:
        """Return U for this many participants; a fraction is rounded up."""
        return rounded_up(self.threshold, participants)

    def max_colluders_for(self, participants: int) -> int:
        """Return T for this many participants; a fraction is rounded down."""
        return rounded_down(self.max_colluders, participants)

    def fewest_survivors(self, participants: int) -> int:
        return self.threshold_for(participants)

    def check(self, participants: int) -> None:
        """Check T < U <= N and U >= 2; raises `ValueError`."""
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
        """Check that each client is a non-zero point of the field (at 0 a coded piece would be a piece of the mask)."""
        if population >= PRIME:
            raise ValueError(
                f"protocol: lightsecagg supports up to {PRIME - 1} clients, not {population}; lower population, or set "
                "aggregation.protocol to secagg"
            )
