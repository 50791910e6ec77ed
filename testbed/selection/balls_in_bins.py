"""Balls in bins: each client belongs to one of b bins, thrown once, and takes part in the rounds of its bin alone.

Choquette-Choo, Ganesh, Haque, Steinke, Thakurta, Near Exact Privacy Amplification for Matrix Mechanisms, ICLR 2025,
arXiv 2410.06266, Definition 3.1; Chua et al., Balls-and-Bins Sampling for DP-SGD, AISTATS 2025, arXiv 2412.16802. There
a trusted server throws the samples of a data set, and nobody sees where they fall; here the balls are clients.

A client of bin i takes part in the rounds r = i mod b, where it is there. All rounds of a client are so many times b
apart, which it insists on (`testbed.parties.participation`): the pattern of (k, b)-participation.

**Against whom the throw helps.** The amplification of `analysis.bounds.balls_in_bins` holds against who sees the models
and does not know the bins. The server is not among those: it sees who takes part, whoever tosses the coins. Nor is
anybody who sees a client's traffic. Against them a client has what its rounds cost, without amplification, which is
what the privacy ledger says.

With everybody there in every round, the bins are the groups of `partition`: sums over rounds are sums over whole bins.
Nothing makes them so: a client that stays away is missing from its bin's sum, which the others are then in without it.
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.arrays import Ids
from testbed.parties.client import RoleSpec
from testbed.privacy.participation_pattern import ParticipationPattern
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import Selection, SelectionParameters, SelectionProtocol, SelectionRound, ending_with
from testbed.selection.own_coins import DecidingClient, decisions
from testbed.selection.supply import Supply


class BallsInBinsParameters(SelectionParameters):
    """Every client in one bin of b, thrown once; the available ones of the round's bin take part."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    needs_rounds: ClassVar[str] = "whose turn it is follows from the round's number"
    protocol: Literal["balls-in-bins"] = "balls-in-bins"
    bins: int = Field(
        gt=0,
        le=10_000_000,
        description="Bins (b): a client takes part in every b-th round; n/b clients are expected in each",
    )
    coins: Literal["server", "clients"] = Field(
        "server",
        description="Who throws. server: it draws the bins of all; clients: each for itself, and it says at check-in "
        "whether it takes part. The server sees who does either way",
    )

    def supply(self, population: int, online: float) -> Supply | None:
        """See `SelectionParameters.supply`; however few take part, the round goes on."""
        return None

    def expected_participants(self, population: int) -> float:
        """See `SelectionParameters.expected_participants`."""
        return population / self.bins

    def participation_pattern(self, rounds: int) -> ParticipationPattern:
        """See `SelectionParameters.participation_pattern`."""
        return ParticipationPattern(self.bins, fixed_cycle=True)

    def check(self, population: int) -> None:
        """How many take part follows from the bins."""
        if self.participants != type(self).model_fields["participants"].default:
            raise ValueError(
                f"participants: {self.participants}, and bins says how many take part, population / bins as expected; "
                "leave it out"
            )
        if 2 * self.bins > population:
            raise ValueError(
                f"bins: {self.bins} of a population of {population} leave fewer than 2 clients to each, of which no "
                f"sum hides anything; at most {population // 2}"
            )


class BinClient(DecidingClient):
    """A client that throws itself into a bin, once."""

    parameters: BallsInBinsParameters

    def decides(self, number: int) -> bool:
        """Whether the round is one of its bin's."""
        return number % self.parameters.bins == self._bin()

    def _bin(self) -> int:
        """Uniform but for 2^-230 or less. Keyed by the seed, it follows anew; else the client has to remember it."""
        randomness, client = self.environment.randomness, self.client.number
        participation = self.environment.participation
        known = None if participation is None else participation.log.bin(client)
        if known is not None:
            return known
        thrown = int.from_bytes(randomness.secret(client, 0, "check-in/bin"), "big") % self.parameters.bins
        if randomness.secrets_from_system and participation is not None:
            participation.log.thrown(client, thrown)
        return thrown


class BallsInBinsSelection(SelectionProtocol):
    """Server side."""

    parameters: BallsInBinsParameters
    stages = (STAGE,)

    @property
    def minimum_participants(self) -> int:
        """However few are in the bin; a sum of fewer than 2 hides nothing."""
        return 2

    @property
    def maximum_participants(self) -> int:
        """All may be in one bin."""
        return self.population

    @property
    def clients_decide(self) -> bool:
        """Whether each client has thrown itself."""
        return self.parameters.coins == "clients"

    @property
    def roles(self) -> list[RoleSpec]:
        """Clients say that they are there, and where they have thrown themselves, whether it is their turn."""
        return [RoleSpec(BinClient if self.clients_decide else CheckInRole, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        if self.clients_decide:
            present, turn = await decisions(round_)
        else:
            present = await check_in(round_)
            turn = present[self.bins(round_)[present] == round_.number % self.parameters.bins]
        with ending_with(len(present)):
            return Selection(self.choose(turn, present, round_), len(present), available=present)

    def choose(self, turn: Ids, present: Ids, round_: SelectionRound) -> Ids:
        """Of those `present` the participants, sorted: all whose `turn` it is; it may be that nobody's is."""
        return turn

    def bins(self, round_: SelectionRound) -> Ids:
        """`(n,)` the bin of each client, the same in every round: a draw that depends on the seed alone."""
        drawn = round_.randomness.generator("server", 0, "bins")
        return drawn.integers(0, self.parameters.bins, self.population, dtype=np.int64)
