"""Lotto, server-centric variant (Jiang et al., arXiv 2401.02880, section 3.4): the server evaluates a PRF for all.

The number of a client is HMAC-SHA-256 of the round under the client's public key on the bulletin board, so that
everybody can recompute it. Cheaper for clients, but the server can predict future rounds.
"""

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crypto import prf
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import RoleSpec
from testbed.parties.pki import Directory
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.protocol import Lot, LottoClient, LottoParameters, ParticipantList, under_threshold
from testbed.selection.lotto.server import LottoServer

Bytes = npt.NDArray[np.uint8]


class ServerCentricParameters(LottoParameters):
    """The server selects with a public pseudo-random function; clients recompute."""

    stages: ClassVar[tuple[str, ...]] = (STAGE, "lotto/participants", "lotto/signatures")

    protocol: Literal["lotto-server-centric"] = "lotto-server-centric"


class ServerCentricClient(LottoClient):
    """Client side. The population n comes with the list, so only n_min guards it; all participants sign the same n."""

    parameters: ServerCentricParameters
    output_bytes: ClassVar[int] = 32

    def check_round(self, message: ParticipantList) -> None:
        """A round number can be used once."""
        self.take_pulse(message.round, None if message.beacon is None else message.beacon.pulse)
        self.use_round(message.round)

    def check_own(self, own: Lot) -> None:
        """The client's own number is recomputed like everybody's."""
        self.check_lot(own, self.environment.directory, self.client.last_round)

    def check_lot(self, lot: Lot, directory: Directory, round_number: int) -> None:
        """The number must be the PRF of the round under the client's key on the bulletin board."""
        meter("hmac")
        if prf.evaluate(directory.vrf_key(lot.client), self.evaluated(round_number)) != lot.output or lot.proof:
            raise Refusal("lotto.output-mismatch", f"client {lot.client}'s number is not the PRF of this round")


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
        await self.opened(round_)
        outputs = self.outputs(round_.directory, present, round_)
        candidates = present[below_threshold(outputs, self.parameters, self.population)]
        self.enough(candidates, round_)
        chosen = self.choose(candidates, round_)
        lots = [
            Lot(client, round_.directory.signing_key(client), outputs[row].tobytes(), b"")
            for client, row in zip(chosen.tolist(), np.searchsorted(present, chosen), strict=True)
        ]
        return await self.agree(lots, len(candidates), round_)

    def outputs(self, directory: Directory, clients: Ids, round_: SelectionRound) -> Bytes:
        """`(m, 32)` uint8: the PRF of this round for each client."""
        meter("hmac", len(clients))
        return prf.evaluate_many(directory.vrf[clients], self.evaluated(round_))


def below_threshold(outputs: Bytes, parameters: LottoParameters, population: int) -> npt.NDArray[np.bool_]:
    """`(m,)` bool: `under_threshold` for `(m, 32)` outputs; the leading 8 bytes decide, ties are compared in full."""
    factor = parameters.factor
    limit = -(-(factor.numerator * parameters.participants << 256) // (population * factor.denominator))
    if limit >> 256:
        return np.ones(len(outputs), np.bool_)
    leading = outputs[:, :8].copy().view(">u8")[:, 0].astype(np.uint64)
    below: npt.NDArray[np.bool_] = leading < np.uint64(limit >> 192)
    for row in np.flatnonzero(leading == np.uint64(limit >> 192)):
        below[row] = under_threshold(outputs[row].tobytes(), factor, parameters.participants, population)
    return below
