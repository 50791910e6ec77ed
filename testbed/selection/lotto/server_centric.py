"""Lotto, server-centric variant (Jiang et al., arXiv 2401.02880, section 3.4): the server evaluates a PRF for all.

The number of a client is HMAC-SHA-256 of the round under the client's public key on the bulletin board, so that
everybody can recompute it. Cheaper for clients, but the server can predict future rounds.
"""

from typing import ClassVar, Literal

import numpy as np

from testbed.arrays import Ids
from testbed.crypto import prf
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import RoleSpec
from testbed.parties.pki import Directory
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.candidacy import Bytes, which_under_threshold
from testbed.selection.lotto.client import LottoClient
from testbed.selection.lotto.messages import ParticipantEntry, ParticipantList
from testbed.selection.lotto.parameters import LottoParameters
from testbed.selection.lotto.server import LottoServer


class ServerCentricParameters(LottoParameters):
    """The server selects with a public pseudo-random function; clients recompute."""

    stages: ClassVar[tuple[str, ...]] = (STAGE, "lotto/participants", "lotto/signatures")

    protocol: Literal["lotto-server-centric"] = "lotto-server-centric"


class ServerCentricClient(LottoClient):
    """Client side. The population n comes with the list, so only n_min guards it; all participants sign the same n."""

    parameters: ServerCentricParameters
    output_bytes: ClassVar[int] = 32

    def check_round(self, message: ParticipantList) -> None:
        """The list announces its round, whose number can be used once."""
        self.take_pulse(message.round, None if message.beacon is None else message.beacon.pulse)
        self.use_round(message.round)

    def check_own_entry(self, entry: ParticipantEntry) -> None:
        """The client's own number is recomputed like everybody's."""
        self.check_entry(entry, self.environment.directory, self.client.last_round)

    def check_entry(self, entry: ParticipantEntry, directory: Directory, round_number: int) -> None:
        """The number must be the PRF of the round under the client's key on the bulletin board."""
        meter("hmac")
        output = prf.evaluate(directory.vrf_key(entry.client), self.selection_input(round_number))
        if output != entry.output or entry.proof:
            raise Refusal("lotto.output-mismatch", f"client {entry.client}'s number is not the PRF of this round")


class ServerCentricServer(LottoServer):
    """Server side."""

    parameters: ServerCentricParameters
    announces: ClassVar[bool] = False
    stages = ServerCentricParameters.stages

    @property
    def roles(self) -> list[RoleSpec]:
        """See `SelectionProtocol.roles`."""
        return [RoleSpec(CheckInRole, self.parameters), RoleSpec(ServerCentricClient, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        present = await check_in(round_, self.pool(round_))
        present = present[round_.directory.registered[present]]
        await self.open_round(round_)
        outputs = self.outputs(round_.directory, present, round_)
        candidates = present[which_under_threshold(outputs, self.parameters, self.population)]
        self.require_candidates(candidates, round_)
        chosen = self.choose(candidates, round_)
        entries = [
            ParticipantEntry(client, round_.directory.signing_key(client), outputs[row].tobytes(), b"")
            for client, row in zip(chosen.tolist(), np.searchsorted(present, chosen), strict=True)
        ]
        return await self.agree(entries, len(candidates), round_)

    def outputs(self, directory: Directory, clients: Ids, round_: SelectionRound) -> Bytes:
        """`(m, 32)` uint8: the PRF of this round for each client."""
        meter("hmac", len(clients))
        return prf.evaluate_many(directory.vrf[clients], self.selection_input(round_))
