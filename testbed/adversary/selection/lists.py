"""A malicious Lotto server that cheats with the participant list and its signatures (arXiv 2401.02880, section 3.4).

It writes forged entries into the list, shows different lists to different participants, makes several lists in one
round, or signs in another party's name.

Several lists (`parallel-lists`): residual removal discards candidates. Instead of one list of s the server makes as
many lists as there are honest candidates for, with its own candidates in each list and every honest candidate in at
most one. Each client sees one list, and all members of a list sign it. Each list then has its own sum
(`testbed.adversary.secagg.parallel_sums`). The obstacle of `show-different-lists` does not arise: no honest client's
signature is needed in two lists. A beacon that registers one list for each round prevents the attack.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from pydantic import Field

from testbed.adversary.misbehaviour import MisbehaviourOptions
from testbed.adversary.selection.lotto import ALL_LISTS, LottoMisbehaviour, all_signatures
from testbed.arrays import Ids
from testbed.crypto import signatures, vrf
from testbed.errors import Refusal, RoundAborted
from testbed.memory import ArrayName
from testbed.network.contract import ids, no_ids
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.messages import (
    ListRegistration,
    ListSignatures,
    ParticipantEntry,
    ParticipantList,
    SignedBy,
)
from testbed.selection.lotto.server import GroupMessages
from testbed.selection.lotto.variants import ClientCentricServer

# -- forged entries ----------------------------------------------------------------------------------------------------


_replaced = msgspec.structs.replace


class ListStuffing(LottoMisbehaviour):
    """Replaces all honest participants but one by its own clients that were not drawn."""

    def stuffed(self, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> list[ParticipantEntry]:
        """Return the list with as many of the server's clients as exist; the victim stays.

        Args:
            entries: the honest list.
            round_: the round.
        """
        listed = {entry.client for entry in entries}
        registered = round_.directory.registered
        spare = [
            client for client in sorted(self.dishonest - listed) if client < len(registered) and registered[client]
        ]
        honest = [entry for entry in entries if entry.client not in self.dishonest]
        # From the second honest participant on: the first is the victim.
        replaced = {entry.client: client for entry, client in zip(honest[1:], spare, strict=False)}
        return [
            self.made_up(replaced[entry.client], entries, round_) if entry.client in replaced else entry
            for entry in entries
        ]

    def made_up(self, client: int, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> ParticipantEntry:
        """Return the forged row of a client that was not drawn.

        Args:
            client: the client.
            entries: the honest list.
            round_: the round.
        """
        raise NotImplementedError


class ForgeOutput(ListStuffing):
    """Forges the number and the proof of its own clients that were not drawn."""

    name: ClassVar[str] = "forge-output"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        if self.attacking:
            true, entries = entries, self.stuffed(entries, round_)
            self.record_attack(ForgeOutput, f"made up {_changed(true, entries)} of {len(entries)} rows of the list")
        return await super().agree(entries, candidates, round_)

    def made_up(self, client: int, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> ParticipantEntry:
        """Return the smallest number, and a proof of valid form: a real point followed by zeros."""
        key = round_.directory.signing_key(client)
        if not isinstance(self, ClientCentricServer):
            return ParticipantEntry(client, key, bytes(32), b"")
        return ParticipantEntry(client, key, bytes(vrf.OUTPUT_BYTES), round_.directory.vrf_key(client) + bytes(48))


class CopyOutput(ListStuffing):
    """Gives its own clients that were not drawn the number and the proof of a drawn candidate."""

    name: ClassVar[str] = "copy-output"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        if self.attacking:
            true, entries = entries, self.stuffed(entries, round_)
            self.record_attack(CopyOutput, f"copied one row to {_changed(true, entries)} others of {len(entries)}")
        return await super().agree(entries, candidates, round_)

    def made_up(self, client: int, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> ParticipantEntry:
        """Return the first row under this client's own key."""
        return _replaced(entries[0], client=client, registration_key=round_.directory.signing_key(client))


class ListTwice(LottoMisbehaviour):
    """Lists one of its own clients twice, instead of an honest client: the sum has fewer clients than it seems."""

    name: ClassVar[str] = "list-twice"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        if self.attacking:
            twice = next((entry for entry in entries if entry.client in self.dishonest), entries[0])
            *others, gone = [entry for entry in entries if entry is not twice]
            self.record_attack(ListTwice, f"client {twice.client} stands twice in the list, {gone.client} not at all")
            entries = [twice, twice, *others]
        return await super().agree(entries, candidates, round_)


def _changed(before: Sequence[ParticipantEntry], after: Sequence[ParticipantEntry]) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


# -- different lists for different participants ------------------------------------------------------------------------


class ShowDifferentLists(LottoMisbehaviour):
    """Shows two lists, each valid for its recipients, so that each half sums with a client unknown to the other half.

    Needs one more candidate than there are places; otherwise the round is honest.
    """

    name: ClassVar[str] = "show-different-lists"
    _shown: Sequence[tuple[Ids, frozenset[int]]] = ()

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Choose one more candidate than there are places."""
        self._shown = ()
        chosen = super().choose(candidates, round_)
        spare = np.setdiff1d(candidates, chosen)
        return np.sort(np.append(chosen, spare[:1])) if self.attacking else chosen

    def list_for(self, participants: Ids, message: ParticipantList) -> GroupMessages:
        """Show each half of the participants its list."""
        halves = self.halves(participants, message.participants) if self.attacking else []
        if not halves:
            return super().list_for(participants, message)
        self._shown = [(group, frozenset(row.client for row in shown)) for group, shown in halves]
        missing = [", ".join(str(client) for client in participants if client not in half) for _, half in self._shown]
        self.record_attack(ShowDifferentLists, f"two lists, without clients {' and '.join(missing)}")
        return [(group, _replaced(message, participants=shown)) for group, shown in halves]

    def halves(self, participants: Ids, rows: list[ParticipantEntry]) -> list[tuple[Ids, list[ParticipantEntry]]]:
        """Return a list without the last client for one half, and a list without the first client for the other half.

        Args:
            participants: sorted clients.
            rows: of the whole list.

        Returns:
            Empty if no client is too many.
        """
        if len(rows) <= self.parameters.participants:
            return []
        half = len(participants) // 2
        return [(participants[:half], rows[:-1]), (participants[half:], rows[1:])]

    def valid_signatures(
        self, answers: dict[int, Any], message: ParticipantList, round_: SelectionRound
    ) -> list[SignedBy]:
        """Accept every signature: the server knows which list each client has seen."""
        return all_signatures(answers) if self._shown else super().valid_signatures(answers, message, round_)

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """Send each half the signatures of the clients in its list."""
        if not self._shown:
            return super().signatures_for(signers, message)
        return [
            (ids(np.intersect1d(group, signers)), self._signed_by(listed, message)) for group, listed in self._shown
        ]

    def _signed_by(self, listed: frozenset[int], message: ListSignatures) -> ListSignatures:
        return _replaced(message, signatures=[row for row in message.signatures if row.client in listed])


# -- several lists in one round ----------------------------------------------------------------------------------------


LISTS = ArrayName("parallel-lists: participants")
"""`(L, m)` int64: the lists agreed on in this round, padded with -1."""


class ListsOptions(MisbehaviourOptions):
    """Options of `parallel-lists`."""

    lists: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Largest number of lists in a round; none: as many as there are honest candidates for"
    )


class ParallelLists(LottoMisbehaviour):
    """Makes several lists; if there are too few candidates for two, the round has one list."""

    name: ClassVar[str] = "parallel-lists"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = ListsOptions
    _lists: list[Ids]
    _first: ListRegistration | None

    async def select(self, round_: SelectionRound) -> Selection:
        self._lists, self._first = [], None
        round_.memory.pop(LISTS, None)
        return await super().select(round_)

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Return all candidates that are in one of the lists (with batches: all batches)."""
        if not self.attacking:
            return super().choose(candidates, round_)
        places, rng = self.required, round_.rng("residual removal")
        own = self.wholly_dishonest(candidates)
        # At least one place for an honest client in each list.
        ours, honest = rng.permutation(candidates[own])[: places - 1], rng.permutation(candidates[~own])
        each = places - len(ours)
        most: int | None = self.context.options_of(ParallelLists).lists
        count = len(honest) // each if most is None else min(most, len(honest) // each)
        if count < 2:
            return super().choose(candidates, round_)
        groups = honest[: count * each].reshape(count, each)
        self._lists = [self.members(np.sort(np.append(ours, group))) for group in groups]
        return np.sort(np.append(ours, groups.ravel()))

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        """Agree on one list after the other; the successful lists count."""
        if not self._lists:
            return await super().agree(entries, candidates, round_)
        of, ready, agreed, end = {entry.client: entry for entry in entries}, no_ids(), [], None
        for clients in self._lists:
            try:
                chosen = await super().agree([of[client] for client in clients.tolist()], candidates, round_)
            except RoundAborted as failed:
                end = failed
                continue
            agreed.append(clients)
            ready = np.union1d(ready, chosen.participants if chosen.ready is None else chosen.ready)
        of_each = ", ".join(str(len(self.others(clients))) for clients in self._lists)
        ours = len(self.ours(self._lists[0]))
        self.record_attack(
            ParallelLists,
            f"{len(self._lists)} lists in one round, with the same {ours} of its clients and {of_each} honest ones; "
            f"{len(agreed)} agreed on",
        )
        if not agreed:
            assert end is not None
            raise end
        # Checkpoints hold rectangular arrays of numbers: -1 is no client.
        rows = np.full((len(agreed), max(map(len, agreed))), -1, np.int64)
        for row, clients in zip(rows, agreed, strict=True):
            row[: len(clients)] = clients
        round_.memory[LISTS] = rows
        return Selection(ids(np.unique(np.concatenate(agreed))), candidates, ready)

    async def register(self, message: ParticipantList, round_: SelectionRound) -> ParticipantList:
        """Register the first list at the beacon; show its receipt with the other lists, too."""
        try:
            registered = await super().register(message, round_)
        except Refusal:
            # The beacon registers one list for each round; with the first list's receipt, clients refuse.
            return msgspec.structs.replace(message, beacon=self._first)
        self._first = registered.beacon
        return registered


# -- signatures --------------------------------------------------------------------------------------------------------


class ForgeSignatures(LottoMisbehaviour):
    """Replaces the signature of an honest participant by a forged signature."""

    name: ClassVar[str] = "forge-signatures"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """Send the forged signature to all, in addition to other changes of the signatures."""
        groups = super().signatures_for(signers, message)
        return [(clients, self._forged(shown)) for clients, shown in groups] if self.attacking else groups

    def _forged(self, message: msgspec.Struct) -> ListSignatures:
        assert isinstance(message, ListSignatures)
        victim = next((row.client for row in message.signatures if row.client not in self.dishonest), None)
        if victim is None:
            return message
        forged = signatures.SigningKey.from_seed(bytes(32)).sign(b"testbed/adversary", victim.to_bytes(8, "big"))
        self.record_attack(ForgeSignatures, f"a signature in the name of client {victim}")
        rows = [_replaced(row, signature=forged) if row.client == victim else row for row in message.signatures]
        return _replaced(message, signatures=rows)
