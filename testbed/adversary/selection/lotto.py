"""Base classes of misbehaviours of a Lotto server (arXiv 2401.02880, section 3.4), and its accomplices.

Accomplices answer, sign and agree without any check, so only the checks of honest clients stand against the server. In
rounds that are not attacked they behave honestly.
"""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.adversary.misbehaviour import SelectionMisbehaviour
from testbed.arrays import Ids
from testbed.parties.client import RoleSpec, handles
from testbed.parties.round_beacon import randomness_of
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.client import LottoClient
from testbed.selection.lotto.messages import (
    Agreed,
    ListSignature,
    ListSignatures,
    ParticipantList,
    SignedBy,
    list_content,
)
from testbed.selection.lotto.server import GroupMessages, LottoServer
from testbed.selection.verifiable_batch_partition import VerifiableBatchServer


class Accomplice(LottoClient):
    """Signs every list, however many the server shows, and agrees with all signatures.

    Attributes:
        shown: the last list; None: no list yet.
    """

    shown: ParticipantList | None = None

    def check_population(self, population: int) -> None:
        """Accept any population."""

    def take_pulse(self, number: int, pulse: bytes | None) -> None:
        """Accept any pulse."""
        self.randomness = b"" if pulse is None else randomness_of(pulse)

    def use_round(self, number: int) -> None:
        """Accept any round."""
        self.client.last_round = number
        self.client.agreed_participants = None
        self.progress.begin(number)

    @handles(ParticipantList)
    def on_list(self, message: ParticipantList) -> ListSignature:
        """Sign any list."""
        self.shown = message
        self.client.last_round = message.round
        return self.sign(list_content(self.environment.experiment_id, self.parameters, message))

    @handles(ListSignatures)
    def on_signatures(self, message: ListSignatures) -> Agreed:
        """Take part with all clients in the list, and in the other lists of this round."""
        rows = () if self.shown is None else self.shown.participants
        others = self.client.agreed_participants or {}
        # Lists add up: an accomplice is in several lists of one round, and an honest client in one.
        self.client.agreed_participants = others | {entry.client: entry.registration_key for entry in rows}
        return Agreed()


_MADE: dict[type[LottoClient], type[LottoClient]] = {}


def accomplice_of(role: type[LottoClient]) -> type[LottoClient]:
    """Return the role of an accomplice where honest clients play `role`; it claims and proves candidacy as they do."""
    if role not in _MADE:
        _MADE[role] = type(f"{role.__name__}Accomplice", (Accomplice, role), {})
    return _MADE[role]


CLIENT_CENTRIC, SERVER_CENTRIC = "lotto-client-centric", "lotto-server-centric"
VERIFIABLE_BATCHES = "verifiable-batch-partition"
ALL_LISTS = (CLIENT_CENTRIC, SERVER_CENTRIC, VERIFIABLE_BATCHES)


class LottoMisbehaviour(SelectionMisbehaviour, LottoServer):
    """Base class of misbehaviours of a Lotto server; its dishonest clients are accomplices, which check nothing.

    Candidates are clients or, in `verifiable-batch-partition`, batches of clients; the methods support both.
    """

    applies_to: ClassVar[tuple[str, ...]] = (CLIENT_CENTRIC, SERVER_CENTRIC)

    @property
    def roles(self) -> list[RoleSpec]:
        """The roles of the honest server, and the accomplices."""
        roles = super().roles
        accomplices = [
            RoleSpec(accomplice_of(spec.role), self.parameters, self.dishonest)
            for spec in roles
            if issubclass(spec.role, LottoClient)
        ]
        return [*roles, *accomplices]

    def ours(self, clients: Ids) -> Ids:
        """Return the dishonest clients among `clients`, in their order."""
        return clients[np.isin(clients, list(self.dishonest))]

    def others(self, clients: Ids) -> Ids:
        """Return the honest clients among `clients`, in their order."""
        return clients[~np.isin(clients, list(self.dishonest))]

    def dishonest_members(self, candidates: Ids) -> Ids:
        """Return the number of dishonest clients in each candidate, `(m,)`."""
        if isinstance(self, VerifiableBatchServer):
            of_each = np.bincount(self.batches.of[list(self.dishonest)], minlength=len(self.batches))
            counts: Ids = of_each[candidates]
            return counts
        return np.isin(candidates, list(self.dishonest)).astype(np.int64)

    def wholly_dishonest(self, candidates: Ids) -> npt.NDArray[np.bool_]:
        """Return whether all clients of each candidate are dishonest, `(m,)` bool."""
        whole: npt.NDArray[np.bool_] = self.dishonest_members(candidates) == (
            self.batches.sizes[candidates] if isinstance(self, VerifiableBatchServer) else 1
        )
        return whole


class TakesEverySignature(LottoMisbehaviour):
    """For servers that have shown different contents: accepts signatures over all of them."""

    def valid_signatures(
        self, answers: dict[int, Any], message: ParticipantList, round_: SelectionRound
    ) -> list[SignedBy]:
        """Accept every participant's signature, over any content."""
        return all_signatures(answers) if self.attacking else super().valid_signatures(answers, message, round_)

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """Send all signatures to all."""
        return [(signers, message)]


def all_signatures(answers: dict[int, Any]) -> list[SignedBy]:
    """Return every participant's signature without verification."""
    return [SignedBy(client, answers[client].signature) for client in sorted(answers)]
