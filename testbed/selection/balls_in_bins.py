"""Balls in bins: each client belongs to one of b bins and takes part only in the rounds of its bin.

Choquette-Choo, Ganesh, Haque, Steinke, Thakurta, Near Exact Privacy Amplification for Matrix Mechanisms, ICLR 2025,
arXiv 2410.06266, Definition 3.1; Chua et al., Balls-and-Bins Sampling for DP-SGD, AISTATS 2025, arXiv 2412.16802. In
these papers a trusted server assigns the samples of a data set secretly; here clients are assigned.

A client of bin i takes part in the rounds r = i mod b in which it is available. The distance between two rounds of a
client is always a multiple of b, and clients insist on it (`testbed.parties.participation`): the pattern of (k,
b)-participation.

The amplification of `analysis.bounds.balls_in_bins` holds against an adversary that sees the models and does not know
the bins. It does not hold against the server, which sees the participants whichever side assigns bins, nor against an
observer of a client's traffic; the privacy ledger states the loss without amplification.
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.arrays import Ids
from testbed.parties.client import RoleSpec
from testbed.privacy.participation_pattern import ParticipationPattern
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import (
    Selection,
    SelectionParameters,
    SelectionProtocol,
    SelectionRound,
    attach_selection_state,
)
from testbed.selection.own_coins import DecidingClient, ask_decisions
from testbed.selection.supply import Supply


class BallsInBinsParameters(SelectionParameters):
    """One bin of b for each client; the available clients of the round's bin take part."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    needs_rounds: ClassVar[str] = "the round number determines the participants"
    protocol: Literal["balls-in-bins"] = "balls-in-bins"
    bins: int = Field(
        gt=0,
        le=10_000_000,
        description="Bins (b): a client takes part in every b-th round; n/b clients are expected in each",
    )
    coins: Literal["server", "clients"] = Field(
        "server",
        description="The party that draws the bins. server: draws the bins of all clients; clients: each client draws "
        "its own bin, and tells the server at check-in whether it takes part. The server sees the participants either "
        "way",
    )

    def supply(self, population: int, online: float) -> Supply | None:
        """Return None: a round has no minimum number of participants."""
        return None

    def expected_participants(self, population: int) -> float:
        """Return the mean size of a bin, n/b."""
        return population / self.bins

    def participation_pattern(self, rounds: int) -> ParticipationPattern:
        """Return the pattern: a fixed cycle of b rounds."""
        return ParticipationPattern(self.bins, fixed_cycle=True)

    def check(self, population: int) -> None:
        """Check that `participants` is not set and that a bin has at least 2 clients."""
        if self.participants != type(self).model_fields["participants"].default:
            raise ValueError(
                f"participants: {self.participants} has no effect with bins, which gives population / bins "
                "participants on average; leave participants out"
            )
        if 2 * self.bins > population:
            raise ValueError(
                f"bins: {self.bins} bins for a population of {population} leave fewer than 2 clients in a bin, and a "
                f"sum of fewer than 2 updates hides nothing; at most {population // 2}"
            )


class BinClient(DecidingClient):
    """A client that draws its own bin, once."""

    parameters: BallsInBinsParameters

    def decides(self, number: int) -> bool:
        """Return whether the round belongs to the client's bin."""
        return number % self.parameters.bins == self._bin()

    def _bin(self) -> int:
        """Return the client's bin, uniform up to a bias of 2^-230."""
        randomness, client = self.environment.randomness, self.client.number
        participation = self.environment.participation
        stored = None if participation is None else participation.log.bin(client)
        if stored is not None:
            return stored
        drawn_bin = int.from_bytes(randomness.secret(client, 0, "check-in/bin"), "big") % self.parameters.bins
        # Without a seed, the next call would draw another bin; with a seed, it derives the same bin.
        if randomness.secrets_from_system and participation is not None:
            participation.log.thrown(client, drawn_bin)
        return drawn_bin


class BallsInBinsSelection(SelectionProtocol):
    """Server side."""

    parameters: BallsInBinsParameters
    stages = (STAGE,)

    @property
    def minimum_participants(self) -> int:
        """2: a bin may hold few clients, and a sum of fewer than 2 hides nothing."""
        return 2

    @property
    def maximum_participants(self) -> int:
        """The whole population, which may fall into one bin."""
        return self.population

    @property
    def clients_decide(self) -> bool:
        """Whether each client draws its own bin."""
        return self.parameters.coins == "clients"

    @property
    def roles(self) -> list[RoleSpec]:
        """The check-in role; if clients draw their bins, the role that also answers whether the client takes part."""
        return [RoleSpec(BinClient if self.clients_decide else CheckInRole, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """Check in, then choose the available clients of the round's bin."""
        if self.clients_decide:
            present, turn = await ask_decisions(round_)
        else:
            present = await check_in(round_)
            turn = present[self.bins(round_)[present] == round_.number % self.parameters.bins]
        with attach_selection_state(len(present)):
            return Selection(self.choose(turn, present, round_), len(present), available=present)

    def choose(self, turn: Ids, present: Ids, round_: SelectionRound) -> Ids:
        """Return the participants, sorted: all clients of the round's bin. The result may be empty.

        Args:
            turn: sorted available clients of the round's bin.
            present: sorted available clients.
            round_: the round.
        """
        # The protocol does not insist on whole bins: a client that stays away is missing from the sum of its bin.
        return turn

    def bins(self, round_: SelectionRound) -> Ids:
        """Return the bin of each client, `(n,)` int64. The draw depends on the seed alone, so all rounds agree."""
        # Round 0, so that all rounds draw the same bins.
        generator = round_.randomness.generator("server", 0, "bins")
        return generator.integers(0, self.parameters.bins, self.population, dtype=np.int64)
