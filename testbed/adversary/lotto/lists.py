"""A malicious Lotto server that lies about who takes part (arXiv 2401.02880, section 3.4).

Whom it takes from the candidates, what it writes into the participant list, which list and which signatures it shows
to whom.
"""

from collections.abc import Sequence
from typing import ClassVar, cast

import msgspec
import numpy as np
from pydantic import Field

from testbed.adversary.lotto.rounds import ALL_LISTS, LottoMisbehaviour, all_signatures
from testbed.adversary.misbehaviour import MisbehaviourOptions
from testbed.arrays import Ids
from testbed.crypto import prf, signatures, vrf
from testbed.network.contract import ids
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.candidacy import below_threshold, selection_input
from testbed.selection.lotto.client_centric import ClientCentricServer
from testbed.selection.lotto.messages import ListSignatures, ParticipantEntry, ParticipantList, SignedBy
from testbed.selection.lotto.server import GroupMessages
from testbed.selection.lotto.server_centric import ServerCentricParameters, ServerCentricServer

_replaced = msgspec.structs.replace


# -- residual removal: nobody can tell ------------------------------------------------------------------------------


class KeepDishonestCandidates(LottoMisbehaviour):
    """Removes honest candidates first: the worst that residual removal allows, and what Theorem 2 bounds."""

    name: ClassVar[str] = "keep-dishonest-candidates"

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Its own candidates, and honest ones for the places that are left."""
        if not self.attacking:
            return super().choose(candidates, round_)
        rng, s = round_.rng("residual removal"), self.parameters.participants
        ours = rng.permutation(self.ours(candidates))[:s]
        honest = rng.choice(self.others(candidates), s - len(ours), replace=False)
        self.record_attack(
            KeepDishonestCandidates,
            f"{len(ours)} of {s} participants are dishonest; honest ones of {len(candidates)} candidates were removed",
        )
        return np.sort(np.append(ours, honest))


class OmitOptions(MisbehaviourOptions):
    """How many honest clients are left."""

    keep: int = Field(1, ge=0, description="Honest candidates that are not omitted: the victims")


class OmitHonestCandidates(LottoMisbehaviour):
    """Leaves out the honest candidates, all but the victims; unless enough of its own stand, the list is too short."""

    name: ClassVar[str] = "omit-honest-candidates"
    Options: ClassVar[type[MisbehaviourOptions]] = OmitOptions

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Its own candidates and the victims, even if these are fewer than s."""
        if not self.attacking:
            return super().choose(candidates, round_)
        honest, s = self.others(candidates), self.parameters.participants
        kept = honest[: min(self.context.options_of(OmitHonestCandidates).keep, s)]
        chosen = np.append(kept, self.ours(candidates)[: s - len(kept)])
        left_out = len(honest) - len(kept)
        self.record_attack(
            OmitHonestCandidates, f"left out {left_out} of {len(honest)} honest candidates, {len(chosen)} of {s} remain"
        )
        return np.sort(chosen)


class ReserveMostSelected(LottoMisbehaviour):
    """Keeps a place for whom it wants to take part most often: the client that privacy over many rounds hangs on.

    In the server-centric variant that client is known beforehand: the server evaluates the public function for all
    rounds. Elsewhere, and where a beacon opens the rounds, the best it can do is to keep the candidate that has taken
    part most often so far.
    """

    name: ClassVar[str] = "reserve-most-selected"
    _predicted: int | None = None

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """The client that is to take part most often, if it stands, and others for the places that are left."""
        honest = self.others(candidates)
        if not self.attacking or not len(honest):
            return super().choose(candidates, round_)
        if isinstance(self, ServerCentricServer) and self.parameters.round_beacon == "none":
            if self._predicted is None:
                self._predicted = self._most_often_candidate(round_)
            target = self._predicted
        else:
            target = int(honest[np.argmax(round_.participations[honest])])
        if target not in candidates:
            return super().choose(candidates, round_)
        self.record_attack(ReserveMostSelected, f"kept a place for client {target}")
        others = candidates[candidates != target]
        rest = round_.rng("residual removal").choice(others, self.parameters.participants - 1, replace=False)
        return np.sort(np.append(rest, target))

    def _most_often_candidate(self, round_: SelectionRound) -> int:
        """The honest client whose public numbers are below the threshold most often in the experiment's rounds."""
        clients = self.others(np.flatnonzero(round_.directory.registered))
        keys = round_.directory.vrf[clients]
        often = np.zeros(len(clients), np.int64)
        for number in range(1, self.context.rounds + 1):
            outputs = prf.evaluate_many(keys, selection_input(round_.experiment_id, number))
            often += below_threshold(outputs, cast(ServerCentricParameters, self.parameters), self.population)
        return int(clients[np.argmax(often)])


# -- rows that are not what the protocol says ----------------------------------------------------------------------


class _Stuffing(LottoMisbehaviour):
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


class ForgeOutput(_Stuffing):
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


class CopyOutput(_Stuffing):
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


# -- telling participants apart -------------------------------------------------------------------------------------


class ShowDifferentLists(LottoMisbehaviour):
    """Shows two lists, each valid for those who see it, so that each half sums with whom the other does not know.

    Needs a candidate more than there are places; where there is none, the round goes on honestly.
    """

    name: ClassVar[str] = "show-different-lists"
    _shown: Sequence[tuple[Ids, frozenset[int]]] = ()

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """One more than there are places."""
        self._shown = ()
        chosen = super().choose(candidates, round_)
        spare = np.setdiff1d(candidates, chosen)
        return np.sort(np.append(chosen, spare[:1])) if self.attacking else chosen

    def list_for(self, participants: Ids, message: ParticipantList) -> GroupMessages:
        """To each half of the participants its list."""
        halves = self.halves(participants, message.participants) if self.attacking else []
        if not halves:
            return super().list_for(participants, message)
        self._shown = [(group, frozenset(row.client for row in shown)) for group, shown in halves]
        missing = [", ".join(str(client) for client in participants if client not in seen) for _, seen in self._shown]
        self.record_attack(ShowDifferentLists, f"two lists, without clients {' and '.join(missing)}")
        return [(group, _replaced(message, participants=shown)) for group, shown in halves]

    def halves(self, participants: Ids, rows: list[ParticipantEntry]) -> list[tuple[Ids, list[ParticipantEntry]]]:
        """One half sees a list without the last, the other half one without the first; nobody if none is too many."""
        if len(rows) <= self.parameters.participants:
            return []
        half = len(participants) // 2
        return [(participants[:half], rows[:-1]), (participants[half:], rows[1:])]

    def valid_signatures(
        self, answers: dict[int, object], message: ParticipantList, round_: SelectionRound
    ) -> list[SignedBy]:
        """Takes every signature: it knows what it has shown to whom."""
        return all_signatures(answers) if self._shown else super().valid_signatures(answers, message, round_)

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """To each half the signatures of those who stand in its list."""
        if not self._shown:
            return super().signatures_for(signers, message)
        return [
            (ids(np.intersect1d(group, signers)),
             _replaced(message, signatures=[row for row in message.signatures if row.client in listed]))
            for group, listed in self._shown
        ]  # fmt: skip


class ForgeSignatures(LottoMisbehaviour):
    """Replaces the signature of an honest participant by one of its own making."""

    name: ClassVar[str] = "forge-signatures"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """Everybody gets the forged one, whatever else is done to the signatures."""
        told = super().signatures_for(signers, message)
        return [(clients, self._forged(shown)) for clients, shown in told] if self.attacking else told

    def _forged(self, message: msgspec.Struct) -> ListSignatures:
        assert isinstance(message, ListSignatures)
        victim = next((row.client for row in message.signatures if row.client not in self.dishonest), None)
        if victim is None:
            return message
        forged = signatures.SigningKey.from_seed(bytes(32)).sign(b"testbed/adversary", victim.to_bytes(8, "big"))
        self.record_attack(ForgeSignatures, f"a signature in the name of client {victim}")
        rows = [_replaced(row, signature=forged) if row.client == victim else row for row in message.signatures]
        return _replaced(message, signatures=rows)
