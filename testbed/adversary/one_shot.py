"""Misbehaviours of the server, clients and committee members of `one-shot`.

A server that obtains sums over two sets of survivors has the difference of the sums. Members answer once, and only for
a set that U members have signed. With c accomplices among N members, which sign and sum any set, the attack needs 2 (U
- c) honest members, so c >= 2 U - N, more than the T that the protocol tolerates.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.adversary.misbehaviour import AggregationMisbehaviour, ClientMisbehaviour, MisbehaviourOptions
from testbed.adversary.victims import VICTIM_RECONSTRUCTED, VictimOptions, describe_recovery, draw_victim
from testbed.aggregation.kit.message_parts import RoundNotice, SignatureOf
from testbed.aggregation.one_shot.client import OneShotClient
from testbed.aggregation.one_shot.member import INCONSISTENT, OneShotMember
from testbed.aggregation.one_shot.messages import (
    OpenShares,
    Rejection,
    ShareFrom,
    SignSurvivors,
    SummedShares,
    SumShares,
)
from testbed.aggregation.one_shot.server import OneShot, OneShotRound
from testbed.arrays import Ids
from testbed.crypto.prime_field import Elements, elements_to_bytes, uniform
from testbed.crypto.share_test import ShareTest
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.parties.client import Role, StageTable, Transition, handles

# An honest member signs and sums once in a round; an accomplice answers from every stage.
_ALWAYS = {"new", "opened", "signed", "summed", "refused"}


class OneShotAccomplice(OneShotMember):
    """A member that signs and sums every set, as often as the server asks."""

    STAGES: ClassVar[StageTable] = OneShotMember.STAGES.extended(
        {
            OpenShares: Transition(
                sources=_ALWAYS, target="opened", refusal="one-shot.out-of-order", starts_round=True
            ),
            SignSurvivors: Transition(sources=_ALWAYS, target="signed", refusal="one-shot.out-of-order"),
            SumShares: Transition(sources=_ALWAYS, target="summed", refusal="one-shot.out-of-order"),
        }
    )

    def begin_service(self, message: OpenShares) -> None:
        """Accept any round, also repeatedly."""
        # As if it had not served yet: an honest member refuses a second service in a round.
        self.client.last_served = message.round - 1
        super().begin_service(message)

    def check_survivors(self, named: Sequence[int], notice: RoundNotice) -> None:
        """Accept any set."""

    def check_signatures_of(self, rows: list[SignatureOf]) -> None:
        """Accept a set without signatures."""


class ContradictCommittee(AggregationMisbehaviour, OneShot):
    """Tells some members that the victim has survived, the others that it dropped out; completes the round."""

    name: ClassVar[str] = "contradict-dropouts"
    applies_to: ClassVar[tuple[str, ...]] = ("one-shot",)
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions
    update_recovered = VICTIM_RECONSTRUCTED
    accomplice_roles = (OneShotAccomplice,)

    async def summed_key(self, state: OneShotRound) -> npt.NDArray[np.int64]:
        """Return the sum over all survivors; also recover the sum without the victim if enough members answer."""
        victim = draw_victim(self, ContradictCommittee, state.survivors, state.start)
        if victim is None:
            return await super().summed_key(state)
        needed = state.code.needed
        accomplices = np.intersect1d(state.members, sorted(self.dishonest))
        honest = np.setdiff1d(state.members, accomplices)
        # U - c honest members for each set: they sign once, the accomplices both.
        told_all = np.union1d(honest[: max(0, needed - len(accomplices))], accomplices)
        told_others = np.union1d(np.setdiff1d(state.members, told_all), accomplices)
        others = ids(state.survivors[state.survivors != victim])
        with_it, signed = await self._key(state, told_all, state.survivors)
        without, signed_without = await self._key(state, told_others, others)
        counted = f"victim {victim}: {signed} and {signed_without} of {needed} signatures with it and without it"
        self.record_attack(ContradictCommittee, await self._outcome(state, counted, with_it, others, without))
        if with_it is None:
            raise RoundAborted("below-threshold", counted)
        return with_it

    async def _key(self, state: OneShotRound, members: Ids, survivors: Ids) -> tuple[npt.NDArray[np.int64] | None, int]:
        """Return the sum of the survivors' keys (None: too few members sum it), and the number of signatures."""
        _, signatures = await self.signatures(state, members, survivors)
        _, shares = await self.summed_shares(state, ids(list(signatures)), signatures)
        if len(shares) < state.code.needed:
            return None, len(signatures)
        return self.decoded_key(state, shares, len(survivors)), len(signatures)

    async def _outcome(
        self,
        state: OneShotRound,
        counted: str,
        key: npt.NDArray[np.int64] | None,
        others: Ids,
        key_of_others: npt.NDArray[np.int64] | None,
    ) -> str:
        """Describe the result in one line."""
        if key is None or key_of_others is None:
            return f"{counted}; failed: too few sums"
        try:
            rest = self.without_mask(state, await state.uploads.total(others), key_of_others, len(others))
            update = await self.unmasked(state, key) - rest
        except RoundAborted as failed:
            return f"{counted}; failed: {failed.detail}"
        return describe_recovery(
            counted, update, elements_to_bytes(update.astype(np.uint32)), self.parameters.quantisation
        )


class DealOptions(MisbehaviourOptions):
    """Options of `deal-inconsistent-shares`."""

    holders: int | None = Field(
        None, ge=1, description="Number of members that receive a share that belongs to no key; default: all members"
    )


class DealOtherShares(ClientMisbehaviour, OneShotClient):
    """Seals shares that belong to no key, so that its mask could not be removed from the sum.

    All other content of its message is consistent with these shares.
    """

    name: ClassVar[str] = "deal-inconsistent-shares"
    applies_to: ClassVar[tuple[str, ...]] = ("one-shot",)
    extends: ClassVar[type[Role]] = OneShotClient
    Options: ClassVar[type[MisbehaviourOptions]] = DealOptions

    def rows(self, polynomials: Elements, members: tuple[int, ...], test: ShareTest) -> Elements:
        """Return uniform elements for the first members, and honest shares for the rest."""
        rows = super().rows(polynomials, members, test)
        if not self.attacks(self.round):
            return rows
        holders: int | None = self.context.options_of(DealOtherShares).holders
        count = len(members) if holders is None else min(holders, len(members))
        self.record_attack(DealOtherShares, f"{count} shares that belong to no key")
        # Uniform, as real shares look: only the test of the shares finds them, not their form.
        made_up = uniform(self.secret("other shares"), count * test.row_length).reshape(count, -1)
        return np.concatenate([made_up, rows[count:]])


class RejectShares(ClientMisbehaviour, OneShotMember):
    """Rejects, on the committee, the valid shares of all clients."""

    name: ClassVar[str] = "reject-shares"
    applies_to: ClassVar[tuple[str, ...]] = ("one-shot",)
    extends: ClassVar[type[Role]] = OneShotMember

    def rejected(self, shares: list[ShareFrom]) -> list[Rejection]:
        """Reject every client's share."""
        honest = super().rejected(shares)
        if not self.attacks(self.round):
            return honest
        self.record_attack(RejectShares, f"the shares of {len(shares)} clients")
        return [Rejection(share.client, INCONSISTENT) for share in shares]


class AnswerWrongSum(ClientMisbehaviour, OneShotMember):
    """Answers, on the committee, with another sum than that of the survivors' shares."""

    name: ClassVar[str] = "answer-wrong-sum"
    applies_to: ClassVar[tuple[str, ...]] = ("one-shot",)
    extends: ClassVar[type[Role]] = OneShotMember

    @handles(SumShares)
    def on_sum_shares(self, message: SumShares) -> SummedShares:
        """Answer with uniform elements."""
        answer = super().on_sum_shares(message)
        if not self.attacks(message.round):
            return answer
        length = self.test.code.piece_length
        self.record_attack(AnswerWrongSum, f"a sum of {length} elements that it has made up")
        return SummedShares(elements_to_bytes(uniform(self.secret("wrong sum"), length)))
