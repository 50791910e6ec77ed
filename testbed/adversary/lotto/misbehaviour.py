"""What all misbehaviours of a malicious Lotto server share (arXiv 2401.02880, section 3.4)."""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.adversary.lotto.accomplices import accomplice_of
from testbed.adversary.misbehaviour import SelectionMisbehaviour
from testbed.arrays import Ids
from testbed.parties.client import RoleSpec
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.client import LottoClient
from testbed.selection.lotto.messages import ListSignatures, ParticipantList, SignedBy
from testbed.selection.lotto.server import GroupMessages, LottoServer
from testbed.selection.verifiable_batch_partition import VerifiableBatchServer

CLIENT_CENTRIC, SERVER_CENTRIC = "lotto-client-centric", "lotto-server-centric"
VERIFIABLE_BATCHES = "verifiable-batch-partition"
ALL_LISTS = (CLIENT_CENTRIC, SERVER_CENTRIC, VERIFIABLE_BATCHES)


class LottoMisbehaviour(SelectionMisbehaviour, LottoServer):
    """Any misbehaviour of a Lotto server: its dishonest clients are accomplices, who check nothing.

    Candidates are clients or, in `verifiable-batch-partition`, batches of them; both are asked for here.
    """

    applies_to: ClassVar[tuple[str, ...]] = (CLIENT_CENTRIC, SERVER_CENTRIC)

    @property
    def roles(self) -> list[RoleSpec]:
        """Those of the honest server, and the accomplices."""
        roles = super().roles
        accomplices = [
            RoleSpec(accomplice_of(spec.role), self.parameters, self.dishonest)
            for spec in roles
            if issubclass(spec.role, LottoClient)
        ]
        return [*roles, *accomplices]

    def ours(self, clients: Ids) -> Ids:
        """The dishonest ones among `clients`, in their order."""
        return clients[np.isin(clients, list(self.dishonest))]

    def others(self, clients: Ids) -> Ids:
        """The honest ones among `clients`, in their order."""
        return clients[~np.isin(clients, list(self.dishonest))]

    def dishonest_members(self, candidates: Ids) -> Ids:
        """`(m,)` how many of the clients of each candidate work for the server."""
        if isinstance(self, VerifiableBatchServer):
            of_each = np.bincount(self.batches.of[list(self.dishonest)], minlength=len(self.batches))
            found: Ids = of_each[candidates]
            return found
        return np.isin(candidates, list(self.dishonest)).astype(np.int64)

    def wholly_dishonest(self, candidates: Ids) -> npt.NDArray[np.bool_]:
        """`(m,)` whether all of the clients of each candidate do."""
        whole: npt.NDArray[np.bool_] = self.dishonest_members(candidates) == (
            self.batches.sizes[candidates] if isinstance(self, VerifiableBatchServer) else 1
        )
        return whole


class TakesEverySignature(LottoMisbehaviour):
    """For servers that have shown several contents: they know that the signatures are over different ones."""

    def valid_signatures(
        self, answers: dict[int, Any], message: ParticipantList, round_: SelectionRound
    ) -> list[SignedBy]:
        """Every participant's, whatever it has signed."""
        return all_signatures(answers) if self.attacking else super().valid_signatures(answers, message, round_)

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """Everybody gets all of them."""
        return [(signers, message)]


def all_signatures(answers: dict[int, Any]) -> list[SignedBy]:
    """Every participant's signature, whatever it has signed."""
    return [SignedBy(client, answers[client].signature) for client in sorted(answers)]
