"""Misbehaviours of the server and the assisting nodes of `e-seafl`.

A client knows all masks of its update, and each assisting node one of them. A server that colludes with all nodes
recovers every update. With one honest node it recovers one sum per round, over clients that have signed the round and
at least `min_survivors` of them. An assisting node that adds a value to its sum of masks moves the model by that value.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from testbed.adversary.misbehaviour import (
    AggregationMisbehaviour,
    ClientMisbehaviour,
    MisbehaviourOptions,
)
from testbed.adversary.pine import WrongSumOptions
from testbed.adversary.victims import VICTIM_RECONSTRUCTED, VictimOptions, describe_recovery, draw_victim
from testbed.aggregation.e_seafl.assisting_node import AssistingNode
from testbed.aggregation.e_seafl.messages import SumMasks
from testbed.aggregation.e_seafl.server import ESeafl, ESeaflRound
from testbed.aggregation.kit.message_parts import RoundNotice
from testbed.arrays import Ids
from testbed.crypto.masks import mask
from testbed.errors import ProtocolError, RoundAborted
from testbed.messages import Vector
from testbed.network.contract import ids
from testbed.parties.client import Role, StageTable, Transition

_E_SEAFL = ("e-seafl",)


class NodeAccomplice(AssistingNode):
    """An assisting node that sums masks for the server as often, and over as few clients, as the server asks."""

    STAGES: ClassVar[StageTable] = AssistingNode.STAGES.extended(
        {
            SumMasks: Transition(
                sources={"new", "summed"}, target="summed", refusal="e-seafl.out-of-order", starts_round=True
            )
        }
    )

    def check_not_served(self, round_number: int) -> None:
        """Serve again."""

    def check_survivors(self, named: Sequence[int], notice: RoundNotice) -> None:
        """Accept any survivors."""

    def check_signatures_of(self, message: SumMasks, context: bytes) -> None:
        """Accept survivors that have signed something else."""


class AnswerWrongMasks(ClientMisbehaviour, AssistingNode):
    """Answer, as an assisting node, with another sum of masks than its own."""

    name: ClassVar[str] = "answer-wrong-sum"
    applies_to: ClassVar[tuple[str, ...]] = _E_SEAFL
    extends: ClassVar[type[Role]] = AssistingNode
    Options: ClassVar[type[MisbehaviourOptions]] = WrongSumOptions

    def summed_masks(self, message: SumMasks, context: bytes) -> Vector:
        """Return uniform elements, or its own sum less the error that the experiment asks for."""
        honest = super().summed_masks(message, context)
        if not self.attacks(self.round):
            return honest
        by = self.context.options_of(AnswerWrongMasks).by
        if by is None:
            self.record_attack(AnswerWrongMasks, f"a sum of {len(honest)} elements that it has made up")
            return Vector(mask(self.secret("wrong sum"), len(honest), honest.bits), honest.bits)
        self.record_attack(AnswerWrongMasks, f"a sum of masks with {by:g} less in each coordinate")
        quantisation = self.parameters.quantisation
        wrong = honest.values.copy()
        added = round(by * quantisation.highest / (2 * quantisation.clip)) % quantisation.modulus
        # Not the last element, which sums the weights. A smaller sum of masks leaves the model larger by `by`.
        wrong[:-1] -= wrong.dtype.type(added)
        return Vector(wrong & wrong.dtype.type(quantisation.modulus - 1), honest.bits)


class ContradictNodes(AggregationMisbehaviour, ESeafl):
    """Ask the nodes for the masks of all survivors, and then of all but the victim; the round is completed."""

    name: ClassVar[str] = "contradict-dropouts"
    applies_to: ClassVar[tuple[str, ...]] = _E_SEAFL
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions
    update_recovered = VICTIM_RECONSTRUCTED
    accomplice_roles = (NodeAccomplice,)

    async def summed_masks(self, state: ESeaflRound, survivors: Ids) -> npt.NDArray[np.unsignedinteger]:
        """Ask for a second sum without the victim; the difference of the two sums is the victim's masks."""
        masks = await super().summed_masks(state, survivors)
        victim = draw_victim(self, ContradictNodes, survivors, state.start)
        if victim is not None:
            self.record_attack(ContradictNodes, await self._outcome(state, masks, survivors, victim))
        return masks

    async def _outcome(
        self, state: ESeaflRound, masks: npt.NDArray[np.unsignedinteger], survivors: Ids, victim: int
    ) -> str:
        try:
            others = await super().summed_masks(state, survivors[survivors != victim])
        except RoundAborted as refused:
            return f"victim {victim}: failed: {refused.detail}"
        # Unsigned subtraction wraps modulo the word, and so modulo the ring, too.
        update = await self.unmasked(state, masks - others, ids([victim]))
        return describe_recovery(f"victim {victim}", update, update.tobytes(), self.parameters.quantisation)


class ShrinkSurvivors(AggregationMisbehaviour, ESeafl):
    """Ask the nodes for the masks of the victim and the accomplices alone."""

    name: ClassVar[str] = "shrink-the-sum"
    applies_to: ClassVar[tuple[str, ...]] = _E_SEAFL
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    def choose_survivors(self, state: ESeaflRound) -> Ids:
        """Return the victim, and the clients with updates that the server can subtract."""
        honest = super().choose_survivors(state)
        victim = draw_victim(self, ShrinkSurvivors, honest, state.start)
        if victim is None:
            return honest
        few = ids([victim, *sorted(self.dishonest & set(honest.tolist()))])
        self.record_attack(ShrinkSurvivors, f"asked for the sum of client {victim} and {len(few) - 1} accomplices")
        return few


class PassOnAllInputs(AggregationMisbehaviour, ESeafl):
    """Pass on the signatures of clients that were sent another model, which an honest server leaves out."""

    name: ClassVar[str] = "send-different-models"
    applies_to: ClassVar[tuple[str, ...]] = _E_SEAFL
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    def check_signature(self, state: ESeaflRound, client: int, context: bytes, signature: bytes) -> None:
        """Accept any signature."""
        try:
            super().check_signature(state, client, context, signature)
        except ProtocolError:
            if not self.attacking:
                raise
