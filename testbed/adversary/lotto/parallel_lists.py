"""A malicious Lotto server with several participant lists in one round.

Residual removal leaves candidates over. Instead of one list of s it makes as many as there are honest candidates for,
with its own candidates in each and every honest one in one at most; nobody sees more than one, and all who are in it
sign it. Each list then has a sum of its own (`parallel_sums`). What `show-different-lists` fails at does not arise: no
honest client's signature is needed in two lists. A beacon that registers one list a round rules it out.
"""

from typing import Annotated, ClassVar

import msgspec
import numpy as np
from pydantic import Field

from testbed.adversary.lotto.misbehaviour import ALL_LISTS, LottoMisbehaviour
from testbed.adversary.misbehaviour import MisbehaviourOptions
from testbed.arrays import Ids
from testbed.errors import Refusal, RoundAborted
from testbed.network.contract import ids, no_ids
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.messages import ListRegistration, ParticipantEntry, ParticipantList

LISTS = "parallel-lists: participants"
"""In the server's memory: the lists that were agreed on in this round, `(L, m)` int64, filled up with -1."""


class ListsOptions(MisbehaviourOptions):
    """How many."""

    lists: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Lists of a round at most; none: as many as there are honest candidates for"
    )


class ParallelLists(LottoMisbehaviour):
    """Makes several lists; where there are too few candidates for two, the round has one."""

    name: ClassVar[str] = "parallel-lists"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = ListsOptions
    _lists: list[Ids]
    _first: ListRegistration | None

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        self._lists, self._first = [], None
        round_.memory.pop(LISTS, None)
        return await super().select(round_)

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Everybody who is in one of the lists (of batches: every batch)."""
        if not self.attacking:
            return super().choose(candidates, round_)
        places, rng = self.wanted, round_.rng("residual removal")
        own = self.wholly_dishonest(candidates)
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
        """One list after the other; those that come about count."""
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
        rows = np.full((len(agreed), max(map(len, agreed))), -1, np.int64)
        for row, clients in zip(rows, agreed, strict=True):
            row[: len(clients)] = clients
        round_.memory[LISTS] = rows
        round_.participants = ids(np.unique(np.concatenate(agreed)))
        return Selection(round_.participants, candidates, ready)

    async def register(self, message: ParticipantList, round_: SelectionRound) -> ParticipantList:
        """A beacon registers the first list; with the others its receipt is shown as well."""
        try:
            known = await super().register(message, round_)
        except Refusal:
            return msgspec.structs.replace(message, beacon=self._first)
        self._first = known.beacon
        return known
