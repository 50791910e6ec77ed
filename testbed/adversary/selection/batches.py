"""A malicious server of `verifiable-batch-partition`: its choice of candidate batches, and its claims about them.

The misbehaviours are those of a malicious Lotto server, adapted to batches. Misbehaviours that do not depend on batches
(about rounds, duplicate clients, forged signatures) are in the other modules of this package.
"""

from collections.abc import Sequence
from itertools import count
from typing import ClassVar

import msgspec
import numpy as np

from testbed.adversary.misbehaviour import MisbehaviourOptions
from testbed.adversary.selection.candidates import (
    OmitHonestCandidates,
    PopulationOptions,
    ReserveMostSelected,
    SmallerPopulationOptions,
)
from testbed.adversary.selection.lists import ShowDifferentLists
from testbed.adversary.selection.lotto import VERIFIABLE_BATCHES, LottoMisbehaviour, TakesEverySignature
from testbed.arrays import Ids
from testbed.crypto import vrf
from testbed.crypto.sortition import under_threshold
from testbed.network.contract import ids
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.messages import Announce, ParticipantEntry, ParticipantList
from testbed.selection.lotto.server import GroupMessages
from testbed.selection.verifiable_batch_partition import VerifiableBatchServer, batch_value

_replaced = msgspec.structs.replace


class BatchMisbehaviour(LottoMisbehaviour, VerifiableBatchServer):
    """Base class of misbehaviours that concern batches."""

    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)


# -- residual removal: clients cannot detect ---------------------------------------------------------------------------


class KeepDishonestBatches(BatchMisbehaviour):
    """Chooses the candidate batches with the most dishonest members: the worst case of residual removal."""

    name: ClassVar[str] = "keep-dishonest-candidates"

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Return the batches with the most dishonest members; ties break at random."""
        if not self.attacking:
            return super().choose(candidates, round_)
        mixed = round_.rng("residual removal").permutation(candidates)
        chosen = mixed[np.argsort(-self.dishonest_members(mixed), kind="stable")][: self.required]
        dishonest, of = int(self.dishonest_members(chosen).sum()), len(self.members(chosen))
        self.record_attack(
            KeepDishonestBatches, f"{dishonest} of {of} participants are dishonest; {len(candidates)} candidate batches"
        )
        return np.sort(chosen)


class ReserveMostSelectedBatch(ReserveMostSelected, BatchMisbehaviour):
    """Reserves a place for the batch, with an honest member, that contains the most selected client."""

    name: ClassVar[str] = ReserveMostSelected.name
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)
    candidate: ClassVar[str] = "batch"

    def target(self, victims: Ids, round_: SelectionRound) -> int:
        """Return the batch with the most selected member."""
        # `maximum.at` handles repeated indices: a batch's value is that of its most selected member.
        often = np.zeros(len(self.batches), np.int64)
        np.maximum.at(often, self.batches.of, round_.participations)
        return int(victims[np.argmax(often[victims])])


class OmitHonestBatches(OmitHonestCandidates, BatchMisbehaviour):
    """Leaves out batches without dishonest members, except the victims' batches."""

    name: ClassVar[str] = OmitHonestCandidates.name
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)


# -- the population ----------------------------------------------------------------------------------------------------


class TellMembersApart(TakesEverySignature, BatchMisbehaviour):
    """Announces another population to every other client, and shows each client a list with that population.

    Each client accepts its list, but they sign different content.
    """

    name: ClassVar[str] = "tell-different-populations"
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)
    Options: ClassVar[type[MisbehaviourOptions]] = SmallerPopulationOptions

    def announcement_for(self, everyone: Ids, message: Announce) -> GroupMessages:
        """Announce another population to every other client."""
        if not self.attacking:
            return super().announcement_for(everyone, message)
        announced = self._announced()
        self.record_attack(TellMembersApart, f"n = {announced} to every other client, {message.population} else")
        return [(everyone[::2], message), (everyone[1::2], _replaced(message, population=announced))]

    def list_for(self, participants: Ids, message: ParticipantList) -> GroupMessages:
        """Show each client the population that it was told."""
        if not self.attacking:
            return super().list_for(participants, message)
        odd = participants % 2 == 1
        return [(participants[~odd], message), (participants[odd], _replaced(message, population=self._announced()))]

    def _announced(self) -> int:
        options: PopulationOptions = self.context.options_of(TellMembersApart)
        return options.announced(self.population, self)


# -- forged rows -------------------------------------------------------------------------------------------------------


class BatchStuffing(BatchMisbehaviour):
    """Replaces all honest batches but the first by batches with dishonest members that were not drawn."""

    def stuffed(self, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> list[ParticipantEntry]:
        """Return the list with as many such batches as exist; the victims' batch stays.

        Args:
            entries: the honest list.
            round_: the round.
        """
        groups: dict[int, list[ParticipantEntry]] = {}
        for entry in entries:
            groups.setdefault(int(self.batches.of[entry.client]), []).append(entry)
        every = self.dishonest_members(np.arange(len(self.batches)))
        spare = [batch for batch in np.argsort(-every, kind="stable").tolist() if every[batch] and batch not in groups]
        # The first honest batch stays: it has the victims.
        honest = [batch for batch in groups if not every[batch]]
        for batch, ours in zip(honest[1:], spare, strict=False):
            members = self.members(ids([ours])).tolist()
            groups[batch] = self.made_up(members, groups[honest[0]], round_)
        return [entry for rows in groups.values() for entry in rows]

    def made_up(
        self, members: list[int], drawn_rows: list[ParticipantEntry], round_: SelectionRound
    ) -> list[ParticipantEntry]:
        """Return forged rows of a batch that was not drawn.

        Args:
            members: of the batch.
            drawn_rows: rows of a batch that was drawn.
            round_: the round.
        """
        raise NotImplementedError


def _others(stuffed: Sequence[ParticipantEntry], entries: Sequence[ParticipantEntry]) -> bool:
    """Return whether the stuffed list has other clients; there may be no batch to add, or to replace."""
    return {entry.client for entry in stuffed} != {entry.client for entry in entries}


class ForgeBatch(BatchStuffing):
    """Forges the numbers of a batch until its value is below the threshold; it cannot forge the proofs."""

    name: ClassVar[str] = "forge-output"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        if self.attacking and _others(stuffed := self.stuffed(entries, round_), entries):
            self.record_attack(ForgeBatch, "made up the numbers of batches that were not drawn")
            entries = stuffed
        return await super().agree(entries, candidates, round_)

    def made_up(
        self, members: list[int], drawn_rows: list[ParticipantEntry], round_: SelectionRound
    ) -> list[ParticipantEntry]:
        """Return suitable numbers, and proofs of valid form: a real point followed by zeros."""
        factor, s = self.parameters.factor, self.parameters.participants
        for tried in count():
            outputs = [tried.to_bytes(vrf.OUTPUT_BYTES, "big")] * len(members)
            # Unproven numbers can be ground until the batch is below the threshold; the VRF proofs stop this.
            value = batch_value(round_.experiment_id, round_.number, outputs)
            if under_threshold(value, factor, s, self.population):
                break
        board = round_.directory
        return [
            ParticipantEntry(client, board.signing_key(client), output, board.vrf_key(client) + bytes(48))
            for client, output in zip(members, outputs, strict=True)
        ]


class CopyBatch(BatchStuffing):
    """Gives the members of a batch that was not drawn the numbers and proofs of a drawn batch."""

    name: ClassVar[str] = "copy-output"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        if self.attacking and _others(stuffed := self.stuffed(entries, round_), entries):
            self.record_attack(CopyBatch, "copied the rows of a batch to others")
            entries = stuffed
        return await super().agree(entries, candidates, round_)

    def made_up(
        self, members: list[int], drawn_rows: list[ParticipantEntry], round_: SelectionRound
    ) -> list[ParticipantEntry]:
        """Return the rows of the drawn batch in order, under these clients' own keys; repeat the last row if needed."""
        sources = [*drawn_rows, drawn_rows[-1]]
        return [
            _replaced(entry, client=client, registration_key=round_.directory.signing_key(client))
            for client, entry in zip(members, sources, strict=False)
        ]


class SplitBatch(BatchMisbehaviour):
    """Leaves a member out of a batch: the sum, compared with the next one, would reveal that member's update."""

    name: ClassVar[str] = "split-batch"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        victim = next((entry for entry in entries if entry.client not in self.dishonest), None)
        if self.attacking and victim is not None:
            self.record_attack(SplitBatch, f"client {victim.client} is not in the list, its batch is")
            entries = [entry for entry in entries if entry is not victim]
        return await super().agree(entries, candidates, round_)


# -- different lists for different participants ------------------------------------------------------------------------


class ShowDifferentBatches(ShowDifferentLists, BatchMisbehaviour):
    """Shows two lists that differ by one batch, each of K/T proven candidate batches."""

    name: ClassVar[str] = ShowDifferentLists.name
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)

    def halves(self, participants: Ids, rows: list[ParticipantEntry]) -> list[tuple[Ids, list[ParticipantEntry]]]:
        """Return a list without the last batch for one half, and one without the first batch for the other half."""
        of = self.batches.of
        shown = np.unique(of[participants])
        if len(shown) <= self.required:
            return []
        first = np.isin(of[participants], shown[: len(shown) // 2])
        return [
            (participants[first], [row for row in rows if of[row.client] != shown[-1]]),
            (participants[~first], [row for row in rows if of[row.client] != shown[0]]),
        ]
