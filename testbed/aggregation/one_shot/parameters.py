"""Parameters of `one-shot`: the section `aggregation` of an experiment."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from testbed.aggregation.kit.parameters import (
    ClipKey,
    CommitteeParameters,
    LevelsBitsKey,
    MinSurvivorsParameters,
    QuantisedParameters,
    check_two_participants,
)
from testbed.aggregation.quantisation import Quantisation
from testbed.committee.messages import STAGE
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import committee_stages
from testbed.counts import rounded_down
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.negacyclic_ntt import DEGREE
from testbed.crypto.packed_sums import MOST_WIDTH, Packing


@dataclass(frozen=True)
class PackedQuantisation(Quantisation):
    """Quantisation into elements of which several are packed into a coefficient."""

    most_bits: ClassVar[int] = MOST_WIDTH

    @property
    def limit(self) -> str:
        """Limit of a sum, for a message."""
        return f"a sum's coordinate has {self.bits}"


class OneShotParameters(CommitteeParameters, MinSurvivorsParameters, QuantisedParameters):
    """Sums that hide every single update; clients send one message, and a committee unmasks the sum."""

    stages: ClassVar[tuple[str, ...]] = (
        "one-shot/masked-input", "one-shot/open-shares", "one-shot/sign-survivors", "one-shot/sum-shares",
    )  # fmt: skip
    further_stages: ClassVar[tuple[str, ...]] = (STAGE,)
    occasional_stages: ClassVar[tuple[str, ...]] = (STAGE,)
    protocol: Literal["one-shot"] = "one-shot"
    committee: CommitteeSection = Field(
        default_factory=lambda: CommitteeSection(), description="Committee to which keys are shared, and which unmasks"
    )
    max_colluders: int | float = Field(
        0.3333,
        gt=0,
        allow_inf_nan=False,
        description="Committee members that learn nothing together with the server: a number T, or a fraction of the "
        "committee; the closer to its threshold, the longer the shares",
    )
    min_survivors: int | float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="Clients that a sum must have, or the committee refuses: a number, or a fraction of the "
        "participants",
    )
    bits: int = Field(
        31, ge=8, le=MOST_WIDTH, description="Bits of a sum's coordinate; up to 27, three of them share a coefficient"
    )
    levels_bits: LevelsBitsKey = 16
    clip: ClipKey = 1.0
    model_binding: Literal["signed", "none"] = Field(
        "signed",
        description="signed: shares are bound to the client's training task, so that a sum only has clients that were "
        "sent the same model; none: they are not (to demonstrate the attack)",
    )

    @property
    def quantisation(self) -> Quantisation:
        """The mapping from updates to elements before packing."""
        return PackedQuantisation(self.clip, self.levels_bits, self.bits)

    @property
    def packing(self) -> Packing:
        """The packing of elements into the coefficients of the ring."""
        return Packing(self.bits)

    def code_for(self, members: int) -> MaskCode:
        """Return the code by which keys are shared to a committee of this size.

        Args:
            members: M.

        Raises:
            ValueError: the numbers are not safe (one line).
        """
        needed, private = self.committee.threshold_for(members), rounded_down(self.max_colluders, members)
        # Two sets of U signers have 2 U - M members in common. If T of them could sign both, the server would get two
        # sums.
        most = min(needed - 1, 2 * needed - members - 1)
        if not 1 <= private <= most or needed > members:
            allowed = f"allowed 1 to {most}" if most >= 1 else "no number is safe"
            raise ValueError(
                f"max_colluders: T = {private} of {members} members, with threshold {needed}; {allowed} (T must be "
                f"below {needed}, and low enough that no two sets can both be signed); see committee.threshold"
            )
        return MaskCode(DEGREE, needed, private)

    def check(self, participants: int) -> None:
        """Check the committee's numbers, the smallest sum, and the room for errors; raises `ValueError`."""
        self.committee.check_threshold()
        self.code_for(self.committee.members_planned)
        check_two_participants(self, participants)
        self.check_min_survivors(participants)
        most = self.packing.most_clients
        if participants > most:
            wider = [width for width in range(self.bits, MOST_WIDTH + 1) if Packing(width).most_clients >= participants]
            advice = f"set {wider[0]}" if wider else "lower selection.participants"
            raise ValueError(
                f"bits: {self.bits} bits have room for the errors of {most} clients, not of {participants}; {advice}"
            )

    def stages_of_round(self) -> tuple[str, ...]:
        return (*committee_stages(self.committee), *self.stages)
