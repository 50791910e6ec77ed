"""Parameters of `flamingo`: the section `aggregation` of an experiment."""

from typing import ClassVar, Literal

from pydantic import Field

from testbed.aggregation.flamingo.bound import CommitteeRequirements, Density, Labels, density
from testbed.aggregation.kit.parameters import (
    ClipKey,
    CommitteeParameters,
    LevelsBitsKey,
    MasksKey,
    PrgKey,
    QuantisedParameters,
    check_two_participants,
    mask_operation,
)
from testbed.aggregation.quantisation import Quantisation
from testbed.committee.messages import STAGE
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import committee_stages


class FlamingoParameters(CommitteeParameters, QuantisedParameters):
    """Sums that hide every single update; most clients send one message per round."""

    supports_symbolic_masks: ClassVar[bool] = True
    stages: ClassVar[tuple[str, ...]] = ("flamingo/report", "flamingo/cross-check", "flamingo/reconstruct")
    set_up_stages: ClassVar[tuple[str, ...]] = (
        "flamingo/set-up-deal",
        "flamingo/set-up-check",
        "flamingo/set-up-answer",
        "flamingo/set-up-finish",
    )
    further_stages: ClassVar[tuple[str, ...]] = (STAGE, *set_up_stages)
    occasional_stages: ClassVar[tuple[str, ...]] = further_stages
    protocol: Literal["flamingo"] = "flamingo"
    committee: CommitteeSection = Field(
        default_factory=CommitteeSection,
        description="The decryptors (the paper's D, of L = size). `threshold` of them must sign the labels, and the "
        "same number unmask a sum",
    )
    dishonest: float = Field(
        0.1, ge=0, lt=1, description="Largest fraction of dishonest participants (the paper's eta)"
    )
    dropouts: float = Field(
        0.1, ge=0, lt=1, description="Largest fraction of dropouts (the paper's delta); with more there is no sum"
    )
    labels: Labels = Field(
        "chosen",
        description="Clients that the server may label offline. chosen: any, after it has seen the graph (a malicious "
        "server); random: clients that dropped out by chance, as in the paper's Lemma 1 (an honest-but-curious server; "
        "a malicious server can then learn single updates)",
    )
    security: float = Field(
        40,
        ge=1,
        le=256,
        description="kappa: the server learns more than the sum of a round with probability at most 2**-kappa",
    )
    tries: float = Field(
        40,
        ge=0,
        le=128,
        description="The server can try 2**tries graphs (round numbers, lists of participants) before it takes one; "
        "counts where labels are chosen",
    )
    correctness: float = Field(
        20,
        ge=1,
        le=256,
        description="The committee refuses the labels of an honest server with probability at most 2**-correctness",
    )
    model_binding: Literal["masks", "none"] = Field(
        "masks",
        description="masks: masks depend on the training task, so that only masks of clients that were sent the same "
        "model cancel; none: they do not (to demonstrate the attack)",
    )
    bits: int = Field(32, ge=8, le=64, description="Ring width: sums are taken modulo 2**bits")
    levels_bits: LevelsBitsKey = 16
    clip: ClipKey = 1.0
    prg: PrgKey = "aes-256-ctr"
    masks: MasksKey = None

    @property
    def quantisation(self) -> Quantisation:
        """The mapping from updates to ring elements."""
        return Quantisation(self.clip, self.levels_bits, self.bits)

    @property
    def mask_operation(self) -> str:
        """Entry of the table of costs for one element of a mask."""
        return mask_operation(self.prg)

    @property
    def requirements(self) -> CommitteeRequirements:
        """Properties that the graph of a round must have."""
        return CommitteeRequirements(
            self.dishonest, self.dropouts, self.security, self.correctness, self.labels, self.tries
        )

    def density(self, participants: int) -> Density:
        """Return the density of the graph of this many participants."""
        return density(participants, self.requirements)

    def check(self, participants: int) -> None:
        """Check that at least two participants neither drop out nor are dishonest; raises `ValueError`."""
        check_two_participants(self, participants)
        dishonest, dropouts = self.requirements.counts(participants)
        if participants - dishonest - dropouts < 2:
            raise ValueError(
                f"dropouts: {dropouts} of {participants} participants may drop out and {dishonest} may be dishonest; "
                "at least 2 others must be left, so that their sum hides both updates; lower dropouts or dishonest"
            )

    def stages_of_round(self) -> tuple[str, ...]:
        return (*committee_stages(self.committee), *self.set_up_stages, *self.stages)
