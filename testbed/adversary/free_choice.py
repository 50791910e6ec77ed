"""A malicious server where it may choose as it likes: the baselines trust it and give clients nothing to check."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from testbed.adversary.misbehaviour import MisbehaviourOptions, SelectionMisbehaviour
from testbed.errors import RoundSkipped
from testbed.selection.check_in import check_in
from testbed.selection.contract import Selection, SelectionParameters, SelectionRound


class PreferenceOptions(MisbehaviourOptions):
    """What is left for others."""

    honest: int = Field(0, ge=0, description="Places that honest clients get all the same: somebody has to be a victim")


class PreferDishonest(SelectionMisbehaviour):
    """Takes its own clients first, and honest ones only for the places that are left."""

    Options: ClassVar[type[MisbehaviourOptions]] = PreferenceOptions

    name: ClassVar[str] = "prefer-dishonest"
    applies_to: ClassVar[tuple[str, ...]] = ("random", "weighted-random", "bernoulli", "partition", "batch-partition")
    parameters: SelectionParameters

    async def select(self, round_: SelectionRound) -> Selection:
        """K of those present; skipped when there are fewer. It keeps to no batches; of parts of them no sum is made."""
        if not self.attacking:
            return await super().select(round_)
        present, wanted = await check_in(round_), self.parameters.participants
        if len(present) < wanted:
            raise RoundSkipped("too-few-available", f"{len(present)} available, {wanted} wanted")
        rng = round_.rng("participants")
        dishonest = np.isin(present, list(self.dishonest))
        reserved = min(self.context.options_of(PreferDishonest).honest, wanted, int((~dishonest).sum()))
        ours = rng.permutation(present[dishonest])[: wanted - reserved]
        honest = rng.choice(present[~dishonest], wanted - len(ours), replace=False)
        self.record_attack(PreferDishonest, f"{len(ours)} of {wanted} participants are dishonest")
        return Selection(np.sort(np.append(ours, honest)), len(present))
