"""The experiment's section `aggregation` for `flamingo`."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.flamingo.bound import Density, Labels, Requirements, density
from testbed.aggregation.kit.batch_policy import BatchPolicy, CompleteBatches
from testbed.aggregation.kit.quantisation import Quantisation
from testbed.batches import Batches
from testbed.committee.messages import STAGE
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import committee_stages
from testbed.crypto.masks import Prg, is_installed
from testbed.extras import install_command


class FlamingoParameters(AggregationParameters):
    """Sums that hide every single update, for which most clients send one message."""

    keeps_masks: ClassVar[bool] = True
    stages: ClassVar[tuple[str, ...]] = ("flamingo/report", "flamingo/cross-check", "flamingo/reconstruct")
    set_up_stages: ClassVar[tuple[str, ...]] = (
        "flamingo/set-up-deal",
        "flamingo/set-up-check",
        "flamingo/set-up-answer",
        "flamingo/set-up-finish",
    )
    further_stages: ClassVar[tuple[str, ...]] = (STAGE, *set_up_stages)
    protocol: Literal["flamingo"] = "flamingo"
    committee: CommitteeSection = Field(
        default_factory=CommitteeSection,
        description="The decryptors (the paper's D, of L = size): with `threshold` of them the server unmasks a sum, "
        "and so many must be told the same",
    )
    dishonest: float = Field(
        0.1, ge=0, lt=1, description="Largest fraction of dishonest participants (the paper's eta)"
    )
    dropouts: float = Field(
        0.1, ge=0, lt=1, description="Largest fraction that drops out (the paper's delta); with more there is no sum"
    )
    labels: Labels = Field(
        "chosen",
        description="Which clients the server may label offline. chosen: any, after it has seen the graph (a malicious "
        "server); random: those that dropped out by chance, as in the paper's Lemma 1 (an honest-but-curious server; a "
        "malicious one then has single updates)",
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
        description="Do masks follow from what clients were asked to train, so that those cancel alone of clients that "
        "were sent the same model (masks), or not (none; to show that attack)?",
    )
    bits: int = Field(32, ge=8, le=64, description="Ring width: sums are taken modulo 2**bits")
    levels_bits: int = Field(16, ge=1, le=24, description="Bits per coordinate of an update before summing")
    clip: float = Field(1.0, gt=0, allow_inf_nan=False, description="Largest absolute value of a coordinate")
    prg: Prg = Field(
        "aes-256-ctr",
        exclude_if=lambda prg: prg == "aes-256-ctr",
        description="What expands a mask's seed; aegis-256x4 is several times as fast on CPUs with vectorised AES, and "
        "needs the extra aegis",
    )
    masks: Literal["symbolic", "materialised"] | None = Field(
        None,
        description="How masks are emulated; no result depends on it. symbolic: as seeds, expanded where they do not "
        "cancel or somebody looks; materialised: every one is expanded and added. None: symbolic where time is "
        "modelled (time.compute) and the clock virtual, else materialised",
    )

    @field_validator("prg")
    @classmethod
    def _is_installed(cls, prg: Prg) -> Prg:
        if not is_installed(prg):
            raise ValueError(f"{prg} needs aeg: {install_command('aegis')}")
        return prg

    @property
    def quantisation(self) -> Quantisation:
        """How updates become ring elements."""
        return Quantisation(self.clip, self.levels_bits, self.bits)

    @property
    def mask_operation(self) -> str:
        """What one element of a mask costs, in the table of costs."""
        return "mask.element" if self.prg == "aes-256-ctr" else "mask.element.aegis"

    @property
    def requirements(self) -> Requirements:
        """Properties that the graph of a round must have."""
        return Requirements(self.dishonest, self.dropouts, self.security, self.correctness, self.labels, self.tries)

    def density(self, participants: int) -> Density:
        """How dense a graph of so many participants is."""
        return density(participants, self.requirements)

    def batch_policy(self, batches: Batches | None) -> BatchPolicy:
        """Who may be summed with whom."""
        atomic = self.atomic_batches(batches)
        return BatchPolicy() if atomic is None else CompleteBatches(atomic)

    def check(self, participants: int) -> None:
        """Two must survive, one of them honest."""
        if participants < 2:
            raise ValueError("protocol: flamingo needs at least 2 participants; the sum of one hides nothing")
        dishonest, dropouts = self.requirements.counts(participants)
        if participants - dishonest - dropouts < 2:
            raise ValueError(
                f"dropouts: of {participants} participants {dropouts} may drop out and {dishonest} be dishonest; at "
                "least 2 others must be left, whose sum hides both; lower dropouts or dishonest"
            )

    def stages_of_round(self) -> tuple[str, ...]:
        """See `AggregationParameters.stages_of_round`."""
        return (*committee_stages(self.committee), *self.set_up_stages, *self.stages)

    @property
    def draws_by_samples(self) -> bool:
        """See `AggregationParameters.draws_by_samples`."""
        return self.committee.weights == "samples"

    def check_population(self, population: int) -> None:
        """The committee must be one that so many clients can have."""
        self.committee.check(population)

    def check_weights(self, participants: int, maximum_weight: int) -> None:
        """The weighted sum must fit the ring."""
        self.quantisation.check(participants, maximum_weight if self.weights == "samples" else 1)
