"""A malicious server of `verifiable-batch-partition`: which candidate batches it takes, what it tells of them.

The decisions are those of a malicious Lotto server, made for batches. What needs no batches (what it says about the
round, a client twice, forged signatures) is in the modules beside this one.
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
    """Any misbehaviour that is about batches."""

    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)


# -- residual removal: nobody can tell ---------------------------------------------------------------------------------


class KeepDishonestBatches(BatchMisbehaviour):
    """Takes the candidate batches with the most dishonest members: the worst that residual removal allows."""

    name: ClassVar[str] = "keep-dishonest-candidates"

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Those with the most; ties at random."""
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
    """Keeps a place for the batch with an honest member, one of whose members has taken part most often."""

    name: ClassVar[str] = ReserveMostSelected.name
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)
    candidate: ClassVar[str] = "batch"

    def target(self, victims: Ids, round_: SelectionRound) -> int:
        """By the member that has."""
        often = np.zeros(len(self.batches), np.int64)
        np.maximum.at(often, self.batches.of, round_.participations)
        return int(victims[np.argmax(often[victims])])


class OmitHonestBatches(OmitHonestCandidates, BatchMisbehaviour):
    """Leaves out batches without dishonest members, all but the victims'."""

    name: ClassVar[str] = OmitHonestCandidates.name
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)


# -- the population ----------------------------------------------------------------------------------------------------


class TellMembersApart(TakesEverySignature, BatchMisbehaviour):
    """Announces another population to every other client, and shows each a list with the population that it knows.

    Each accepts what it sees, but they sign different content.
    """

    name: ClassVar[str] = "tell-different-populations"
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)
    Options: ClassVar[type[MisbehaviourOptions]] = SmallerPopulationOptions

    def announcement_for(self, everyone: Ids, message: Announce) -> GroupMessages:
        """Who is told of which population."""
        if not self.attacking:
            return super().announcement_for(everyone, message)
        told = self._announced()
        self.record_attack(TellMembersApart, f"n = {told} to every other client, {message.population} else")
        return [(everyone[::2], message), (everyone[1::2], _replaced(message, population=told))]

    def list_for(self, participants: Ids, message: ParticipantList) -> GroupMessages:
        """To each the population that it was told of."""
        if not self.attacking:
            return super().list_for(participants, message)
        odd = participants % 2 == 1
        return [(participants[~odd], message), (participants[odd], _replaced(message, population=self._announced()))]

    def _announced(self) -> int:
        options: PopulationOptions = self.context.options_of(TellMembersApart)
        return options.announced(self.population, self)


# -- rows that are not what the protocol says --------------------------------------------------------------------------


class BatchStuffing(BatchMisbehaviour):
    """Puts batches with dishonest members, which were not drawn, in the places of all honest ones but the first."""

    def stuffed(self, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> list[ParticipantEntry]:
        """The list with as many such batches as there are; the victims' stays."""
        groups: dict[int, list[ParticipantEntry]] = {}
        for entry in entries:
            groups.setdefault(int(self.batches.of[entry.client]), []).append(entry)
        every = self.dishonest_members(np.arange(len(self.batches)))
        spare = [batch for batch in np.argsort(-every, kind="stable").tolist() if every[batch] and batch not in groups]
        honest = [batch for batch in groups if not every[batch]]
        for batch, ours in zip(honest[1:], spare, strict=False):
            members = self.members(ids([ours])).tolist()
            groups[batch] = self.made_up(members, groups[honest[0]], round_)
        return [entry for rows in groups.values() for entry in rows]

    def made_up(
        self, members: list[int], drawn: list[ParticipantEntry], round_: SelectionRound
    ) -> list[ParticipantEntry]:
        """The rows of a batch that was not drawn; `drawn` is one that was."""
        raise NotImplementedError


def _others(stuffed: Sequence[ParticipantEntry], entries: Sequence[ParticipantEntry]) -> bool:
    """Whether other clients are in the list than in the true one; there may be no batch to put in, or to replace."""
    return {entry.client for entry in stuffed} != {entry.client for entry in entries}


class ForgeBatch(BatchStuffing):
    """Makes up the numbers of a batch, and tries until its value is below the threshold; the proofs it cannot make."""

    name: ClassVar[str] = "forge-output"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        if self.attacking and _others(stuffed := self.stuffed(entries, round_), entries):
            self.record_attack(ForgeBatch, "made up the numbers of batches that were not drawn")
            entries = stuffed
        return await super().agree(entries, candidates, round_)

    def made_up(
        self, members: list[int], drawn: list[ParticipantEntry], round_: SelectionRound
    ) -> list[ParticipantEntry]:
        """Numbers that will do, and proofs of the right form: a real point, then whatever."""
        factor, s = self.parameters.factor, self.parameters.participants
        for tried in count():
            outputs = [tried.to_bytes(vrf.OUTPUT_BYTES, "big")] * len(members)
            value = batch_value(round_.experiment_id, round_.number, outputs)
            if under_threshold(value, factor, s, self.population):
                break
        board = round_.directory
        return [
            ParticipantEntry(client, board.signing_key(client), output, board.vrf_key(client) + bytes(48))
            for client, output in zip(members, outputs, strict=True)
        ]


class CopyBatch(BatchStuffing):
    """Gives the members of a batch that was not drawn the numbers and proofs of one that was."""

    name: ClassVar[str] = "copy-output"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        if self.attacking and _others(stuffed := self.stuffed(entries, round_), entries):
            self.record_attack(CopyBatch, "copied the rows of a batch to others")
            entries = stuffed
        return await super().agree(entries, candidates, round_)

    def made_up(
        self, members: list[int], drawn: list[ParticipantEntry], round_: SelectionRound
    ) -> list[ParticipantEntry]:
        """The rows of the other batch, in order, under these clients' own keys; the last one again where one lacks."""
        sources = [*drawn, drawn[-1]]
        return [
            _replaced(entry, client=client, registration_key=round_.directory.signing_key(client))
            for client, entry in zip(members, sources, strict=False)
        ]


class SplitBatch(BatchMisbehaviour):
    """Leaves a member out of a batch: a sum that, with the next one, would tell that member from the others."""

    name: ClassVar[str] = "split-batch"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        victim = next((entry for entry in entries if entry.client not in self.dishonest), None)
        if self.attacking and victim is not None:
            self.record_attack(SplitBatch, f"client {victim.client} is not in the list, its batch is")
            entries = [entry for entry in entries if entry is not victim]
        return await super().agree(entries, candidates, round_)


# -- telling participants apart ----------------------------------------------------------------------------------------


class ShowDifferentBatches(ShowDifferentLists, BatchMisbehaviour):
    """Shows two lists, each of K/T candidate batches that prove themselves, which differ by a batch."""

    name: ClassVar[str] = ShowDifferentLists.name
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)

    def halves(self, participants: Ids, rows: list[ParticipantEntry]) -> list[tuple[Ids, list[ParticipantEntry]]]:
        """Members of one half of the batches see a list without the last, the others one without the first."""
        of = self.batches.of
        shown = np.unique(of[participants])
        if len(shown) <= self.required:
            return []
        first = np.isin(of[participants], shown[: len(shown) // 2])
        return [
            (participants[first], [row for row in rows if of[row.client] != shown[-1]]),
            (participants[~first], [row for row in rows if of[row.client] != shown[0]]),
        ]
