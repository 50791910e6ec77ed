"""A malicious Lotto server that shows different lists to different participants (arXiv 2401.02880, section 3.4)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from testbed.adversary.lotto.misbehaviour import LottoMisbehaviour, all_signatures
from testbed.arrays import Ids
from testbed.network.contract import ids
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.messages import ListSignatures, ParticipantEntry, ParticipantList, SignedBy
from testbed.selection.lotto.server import GroupMessages

_replaced = msgspec.structs.replace


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
        self, answers: dict[int, Any], message: ParticipantList, round_: SelectionRound
    ) -> list[SignedBy]:
        """Takes every signature: it knows what it has shown to whom."""
        return all_signatures(answers) if self._shown else super().valid_signatures(answers, message, round_)

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """To each half the signatures of those who stand in its list."""
        if not self._shown:
            return super().signatures_for(signers, message)
        return [
            (ids(np.intersect1d(group, signers)), self._signed_by(listed, message)) for group, listed in self._shown
        ]

    def _signed_by(self, listed: frozenset[int], message: ListSignatures) -> ListSignatures:
        return _replaced(message, signatures=[row for row in message.signatures if row.client in listed])
