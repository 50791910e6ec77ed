"""A malicious Lotto server that writes entries into the list which are not what the protocol says (arXiv 2401.02880,
section 3.4)."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from testbed.adversary.lotto.misbehaviour import ALL_LISTS, LottoMisbehaviour
from testbed.crypto import vrf
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.client_centric import ClientCentricServer
from testbed.selection.lotto.messages import ParticipantEntry

_replaced = msgspec.structs.replace


class ListStuffing(LottoMisbehaviour):
    """Puts its own clients, which were not drawn, in the places of all honest participants but one."""

    def stuffed(self, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> list[ParticipantEntry]:
        """The list with as many of the server's clients as there are; the victim stays."""
        listed = {entry.client for entry in entries}
        known = round_.directory.registered
        spare = [client for client in sorted(self.dishonest - listed) if client < len(known) and known[client]]
        honest = [entry for entry in entries if entry.client not in self.dishonest]
        replaced = {entry.client: client for entry, client in zip(honest[1:], spare, strict=False)}
        return [
            self.made_up(replaced[entry.client], entries, round_) if entry.client in replaced else entry
            for entry in entries
        ]

    def made_up(self, client: int, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> ParticipantEntry:
        """The row of a client that was not drawn."""
        raise NotImplementedError


class ForgeOutput(ListStuffing):
    """Makes up the number, and the proof, of its own clients that were not drawn."""

    name: ClassVar[str] = "forge-output"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        """See `LottoServer.agree`."""
        if self.attacking:
            true, entries = entries, self.stuffed(entries, round_)
            self.record_attack(ForgeOutput, f"made up {_changed(true, entries)} of {len(entries)} rows of the list")
        return await super().agree(entries, candidates, round_)

    def made_up(self, client: int, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> ParticipantEntry:
        """The smallest number, and a proof of the right form: a real point, then whatever."""
        key = round_.directory.signing_key(client)
        if not isinstance(self, ClientCentricServer):
            return ParticipantEntry(client, key, bytes(32), b"")
        return ParticipantEntry(client, key, bytes(vrf.OUTPUT_BYTES), round_.directory.vrf_key(client) + bytes(48))


class CopyOutput(ListStuffing):
    """Gives its own clients that were not drawn the number and the proof of a candidate that was."""

    name: ClassVar[str] = "copy-output"

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        """See `LottoServer.agree`."""
        if self.attacking:
            true, entries = entries, self.stuffed(entries, round_)
            self.record_attack(CopyOutput, f"copied one row to {_changed(true, entries)} others of {len(entries)}")
        return await super().agree(entries, candidates, round_)

    def made_up(self, client: int, entries: Sequence[ParticipantEntry], round_: SelectionRound) -> ParticipantEntry:
        """The first row, under this client's own key."""
        return _replaced(entries[0], client=client, registration_key=round_.directory.signing_key(client))


class ListTwice(LottoMisbehaviour):
    """Lists a client of its own twice, instead of an honest one: fewer to sum over than it looks."""

    name: ClassVar[str] = "list-twice"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS

    async def agree(self, entries: list[ParticipantEntry], candidates: int, round_: SelectionRound) -> Selection:
        """See `LottoServer.agree`."""
        if self.attacking:
            twice = next((entry for entry in entries if entry.client in self.dishonest), entries[0])
            *others, gone = [entry for entry in entries if entry is not twice]
            self.record_attack(ListTwice, f"client {twice.client} stands twice in the list, {gone.client} not at all")
            entries = [twice, twice, *others]
        return await super().agree(entries, candidates, round_)


def _changed(before: Sequence[ParticipantEntry], after: Sequence[ParticipantEntry]) -> int:
    return sum(one != other for one, other in zip(before, after, strict=True))
