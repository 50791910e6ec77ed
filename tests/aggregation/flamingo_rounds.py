"""Small federations that sum by `flamingo`, several rounds one after the other, and where an honest one has got to."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testbed.aggregation.flamingo.messages import Certificate, CutEdge, SealedMemberState
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.server import Flamingo
from testbed.committee.parameters import CommitteeSection
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec
from tests.aggregation.federations import SmallFederation

DELTAS = np.random.default_rng(3).uniform(-1, 1, (9, 5))
MEMBERS = (1, 2, 4, 6, 7)
GONE = {0, 3}


def parameters_with(members: tuple[int, ...] = MEMBERS, threshold: int = 3, **more: Any) -> FlamingoParameters:
    """A committee of these; half of the participants may drop out."""
    section = CommitteeSection(selection="given", members=members, threshold=threshold)
    return FlamingoParameters(**{"committee": section, "dropouts": 0.5, "weights": "equal"} | more)


def federation(deltas: Any = DELTAS, parameters: Any = None, **more: Any) -> SmallFederation:
    """See `SmallFederation`."""
    return SmallFederation(deltas, parameters or parameters_with(), **{"protocol": Flamingo} | more)


def remembering(deltas: Any = DELTAS, parameters: Any = None, **more: Any) -> tuple[SmallFederation, dict[str, Any]]:
    """A federation, and the memory of its server."""
    return federation(deltas, parameters, **more), {}


def leave(small: SmallFederation, at: dict[str, set[int]]) -> None:
    """Set the clients that leave at each stage from now on."""
    small.network.availability.at = at  # type: ignore[attr-defined]


def played(small: SmallFederation, rounds: int, memory: dict[str, Any] | None = None) -> list[Any]:
    """Return the result of each round: an `Aggregate` or the `RoundAborted`."""
    kept = {} if memory is None else memory
    return [played_from(small, number, kept) for number in range(1, rounds + 1)]


def played_from(small: SmallFederation, number: int, memory: dict[str, Any]) -> Any:
    """Return the result of round `number`, with the memory of earlier rounds."""

    async def play() -> Any:
        start = await small.begin(number)
        start.memory = memory
        try:
            return await small.protocol.aggregate(start)
        except RoundAborted as ended:
            return ended
        finally:
            small.network.end_round()

    return asyncio.run(play())


def played_with(kind: Any, dishonest: set[int], **more: Any) -> tuple[Any, Any]:
    """Run one round in which some clients play another role and `GONE` leave; return federation and result."""
    parameters = parameters_with()
    roles = [RoleSpec(kind, parameters, frozenset(dishonest))]
    small = federation(parameters=parameters, roles=roles, **{"leaving": {"flamingo/report": GONE}} | more)
    (outcome,) = played(small, 1)
    return small, outcome


@dataclass
class Stand:
    """State of an honest round, and the questions that the server may ask next.

    Attributes:
        small: the federation.
        state: the server's state of the round.
        victim: the client that is asked.
    """

    small: SmallFederation
    state: Any
    victim: int
    others: dict[str, Any] = field(default_factory=dict)

    @property
    def listed(self) -> list[int]:
        return list(self.state.graph.listed)

    @property
    def online(self) -> list[int]:
        found: list[int] = self.state.online.tolist()
        return found

    @property
    def certificate(self) -> Certificate:
        found: Certificate = self.state.stored_service.certificate
        return found

    @property
    def states(self) -> dict[int, SealedMemberState]:
        return {row.member: SealedMemberState(row.sealed) for row in self.state.stored_service.states}

    @property
    def edges(self) -> list[CutEdge]:
        found: list[CutEdge] = self.small.protocol.cut_edges(self.state, self.state.online)
        return found

    async def ask(self, message: Any, private: Any = None) -> list[str]:
        """The checks with which the victim refuses."""
        told = None if private is None else {self.victim: private}
        replies = await self.small.network.ask(ids([self.victim]), message, private=told)
        assert len(replies) + len(replies.missing.refused) == 1
        return [refusal.check for refusal in replies.missing.refusals]


async def stand_before(stage: str, victim: int, small: SmallFederation, number: int = 1) -> Stand:
    """A round runs honestly until `stage` ("report", "cross-check", "reconstruct") is next."""
    protocol: Any = small.protocol
    start = await small.begin(number)
    stand = Stand(small, await protocol.begin(start), victim)
    if stage != "report":
        await protocol.report(stand.state)
    if stage == "reconstruct":
        await protocol.cross_check(stand.state)
    return stand
