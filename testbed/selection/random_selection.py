"""Random selection and its variants: baselines that trust the server.

`random`: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, arXiv 1602.05629.
`weighted-random`, `bernoulli`: So et al., Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage in
Federated Learning, arXiv 2106.03328, section 3.3 and appendix H.
"""

from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.arrays import Ids
from testbed.emulation.traces.schedule import PARTICIPANT, Schedule
from testbed.errors import RoundSkipped, TraceError, excludes
from testbed.parties.client import RoleSpec
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


class RandomParameters(SelectionParameters):
    """K of the available clients, uniformly; the round is skipped if fewer than K are available.

    With `recorded`, the participants of the recorded round take part again, and nothing is drawn.
    """

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    draws_singly: ClassVar[Literal["uniformly", "least-drawn"] | None] = "uniformly"
    protocol: Literal["random"] = "random"
    recorded: Path | None = Field(
        None,
        description="A recorded schedule (`testbed trace record`): each round takes the available participants of the "
        "recorded round, at most `participants` of them",
    )

    def check_asynchronous(self) -> None:
        """Check that `recorded` is not set: a schedule consists of rounds."""
        if self.recorded is not None:
            raise excludes("asynchronous", "selection.recorded", "a schedule is of rounds")

    def supply(self, population: int, online: float) -> Supply | None:
        """Return the need for K available clients; None with `recorded`, where any number takes part."""
        return super().supply(population, online) if self.recorded is None else None


class WeightedRandomParameters(SelectionParameters):
    """K of the available clients with the fewest participations; ties break at random."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    draws_singly: ClassVar[Literal["uniformly", "least-drawn"] | None] = "least-drawn"
    protocol: Literal["weighted-random"] = "weighted-random"


class BernoulliParameters(SelectionParameters):
    """Each available client independently, with probability K / (N (1 - p)) or with `client_rate`.

    Either the server draws the participants, or every client decides for itself.
    """

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    needs_rounds: ClassVar[str] = "each client joins a round or not, by an independent coin toss"
    protocol: Literal["bernoulli"] = "bernoulli"
    client_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="The probability itself, instead of participants and assumed_unavailable (p of DP-SGD with random "
        "participation)",
    )
    assumed_unavailable: float = Field(
        0.0, ge=0, lt=1, description="The server's estimate of the mean probability p of being away"
    )
    coins: Literal["server", "clients"] = Field(
        "server",
        description="The party that tosses the coins. server: draws among the clients that have checked in; clients: "
        "each client tosses its own coin, tells the server at check-in whether it takes part (Algorithm 1 of random "
        "participation), and trains in no other round",
    )

    def supply(self, population: int, online: float) -> Supply | None:
        """Return None: a round has no minimum number of participants."""
        return None

    def expected_participants(self, population: int) -> float:
        """Return the mean number of participants if all clients are available."""
        return self.participants if self.client_rate is None else self.client_rate * population

    def check(self, population: int) -> None:
        """Check that the probability is set by one key only and does not exceed 1."""
        if self.client_rate is not None:
            values = dict(self)
            for key in ("participants", "assumed_unavailable"):
                if values[key] != type(self).model_fields[key].default:
                    raise ValueError(f"client_rate: excludes {key}, which sets it, too; leave out one of the two")
            return
        super().check(population)
        reachable = population * (1 - self.assumed_unavailable)
        if self.participants > reachable:
            most = int(reachable)
            advice = f"at most {most}, or a smaller assumed_unavailable" if most else "lower assumed_unavailable"
            raise ValueError(
                f"participants: {self.participants} of {reachable:g} clients expected to be available "
                f"(population * (1 - assumed_unavailable)); {advice}"
            )


class ServerChoice(SelectionProtocol):
    """Base class of protocols in which the server chooses freely among the available clients."""

    parameters: SelectionParameters
    stages = (STAGE,)

    @property
    def minimum_participants(self) -> int:
        """K: if fewer are available, the round is skipped."""
        return self.parameters.participants

    @property
    def roles(self) -> list[RoleSpec]:
        """The check-in role. Clients cannot verify anything."""
        return [RoleSpec(CheckInRole, self.parameters)]

    def enough(self, present: Ids) -> None:
        """Raise `RoundSkipped` if fewer than K clients are available.

        Args:
            present: sorted available clients.
        """
        if len(present) < self.parameters.participants:
            detail = f"{len(present)} available, {self.parameters.participants} wanted"
            raise RoundSkipped("too-few-available", detail, candidates=len(present))


class _AmongPresent(ServerChoice):
    """Base class of the baselines, which use only the set of available clients."""

    async def select(self, round_: SelectionRound) -> Selection:
        """Check in, then choose among the available clients."""
        present = await check_in(round_)
        with attach_selection_state(len(present)):
            return Selection(np.sort(self.choose(present, round_)), len(present), available=present)

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """Return the participants.

        Args:
            present: sorted available clients.
            round_: the round.
        """
        raise NotImplementedError


class RandomSelection(_AmongPresent):
    """Server side of `random`."""

    parameters: RandomParameters

    @property
    def minimum_participants(self) -> int:
        """K; with `recorded` 2, because a sum of fewer than 2 hides nothing."""
        return super().minimum_participants if self.parameters.recorded is None else 2

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """Draw K clients uniformly without replacement, or return the available recorded participants.

        Raises:
            RoundSkipped: fewer than K clients are available; or no recorded participant is available; or the recorded
                schedule has no participants in this round.
        """
        if self.parameters.recorded is not None:
            return self._recorded(present, round_.number)
        self.enough(present)
        return round_.rng("participants").choice(present, self.parameters.participants, replace=False)

    def check_files(self) -> None:
        """Read the recorded schedule, if there is one.

        Raises:
            TraceError: the schedule cannot be replayed in this experiment.
        """
        if self.parameters.recorded is not None:
            _ = self._schedule

    def _recorded(self, present: Ids, number: int) -> Ids:
        took_part = self._schedule.participants(number)
        if not len(took_part):
            raise RoundSkipped("nobody-recorded", f"no participants in round {number} of {self.parameters.recorded}")
        there = np.intersect1d(took_part, present)
        if not len(there):
            raise RoundSkipped("too-few-available", f"none of {len(took_part)} recorded participants is there")
        return there

    @cached_property
    def _schedule(self) -> Schedule:
        """Recorded schedule. Read on first use: processes that only host clients may not have the file."""
        path, most = self.parameters.recorded, self.parameters.participants
        assert path is not None
        schedule = Schedule.read(path)
        schedule.check_population(self.population)
        rounds, counts = np.unique(schedule.round[schedule.fate == PARTICIPANT], return_counts=True)
        if not len(rounds):
            raise TraceError(f"{path}: no round has participants; record a schedule with `testbed trace record`")
        if counts.max() > most:
            raise TraceError(
                f"{path}: round {rounds[counts.argmax()]} has {counts.max()} participants, and selection.participants "
                f"is {most}; set that to {counts.max()}"
            )
        return schedule


class WeightedRandomSelection(_AmongPresent):
    """Server side of `weighted-random`."""

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """Return the K clients with the fewest participations; ties break uniformly."""
        self.enough(present)
        # A stable sort of a random order breaks ties uniformly.
        shuffled = round_.rng("participants").permutation(present)
        order = np.argsort(round_.participations[shuffled], kind="stable")
        return shuffled[order[: self.parameters.participants]]


class BernoulliSelection(_AmongPresent):
    """Server side of `bernoulli`."""

    parameters: BernoulliParameters

    @property
    def minimum_participants(self) -> int:
        """2: any number may be drawn, and a sum of fewer than 2 hides nothing."""
        return 2

    @property
    def maximum_participants(self) -> int:
        """The whole population."""
        return self.population

    @property
    def client_rate(self) -> float:
        """The probability with which each available client is drawn."""
        if self.parameters.client_rate is not None:
            return self.parameters.client_rate
        return self.parameters.participants / (self.population * (1 - self.parameters.assumed_unavailable))

    @property
    def clients_decide(self) -> bool:
        """Whether each client tosses its own coin."""
        return self.parameters.coins == "clients"

    @property
    def roles(self) -> list[RoleSpec]:
        """The check-in role; if clients decide, the role that also answers whether the client takes part."""
        return [RoleSpec(DecidingClient, self.parameters)] if self.clients_decide else super().roles

    async def select(self, round_: SelectionRound) -> Selection:
        """Check in, then draw; if clients decide, ask for their decisions."""
        if not self.clients_decide:
            return await super().select(round_)
        present, willing = await ask_decisions(round_)
        return Selection(willing, len(present), available=present)

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """Draw each available client independently. The result may be empty."""
        return present[round_.rng("participants").random(len(present)) < self.client_rate]
