"""Which question a client answers when: every stage once and in order, and nothing after a check that has failed.

Whoever could ask for a stage again, or go on after a refusal, could have both shares of a peer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from testbed.aggregation.secagg.dealt_shares import ProveShare
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    CheckSurvivors,
    MaskInput,
    ShareKeys,
    Unmask,
    UnmaskSurvivors,
)
from testbed.aggregation.secagg.noise import UnmaskAndRemove
from testbed.messages import Message


class State(Enum):
    """How far a client has come in its round."""

    IDLE = auto()
    ADVERTISED = auto()
    SHARED = auto()
    MASKED = auto()
    SIGNED = auto()
    REVEALED = auto()
    ENDED = auto()  # a check has failed, or is under way


@dataclass(frozen=True)
class Turn:
    """When a question may come.

    Attributes:
        after: the states in which it is answered; in all others the refusal is ``secagg.out-of-order``.
        then: the state after the answer, and `State.ENDED` after a refusal; None: as before, in either case.
    """

    after: frozenset[State]
    then: State | None


def turn(after: State, then: State | None) -> Turn:
    """One that comes after one state alone."""
    return Turn(frozenset({after}), then)


Turns = Mapping[type[Message], Turn]

TURNS: Turns = {
    AdvertiseKeys: turn(State.IDLE, State.ADVERTISED),
    ShareKeys: turn(State.ADVERTISED, State.SHARED),
    MaskInput: turn(State.SHARED, State.MASKED),
    CheckSurvivors: turn(State.MASKED, State.SIGNED),
    Unmask: turn(State.SIGNED, State.REVEALED),
    UnmaskAndRemove: turn(State.SIGNED, State.REVEALED),
    UnmaskSurvivors: turn(State.MASKED, State.REVEALED),
    ProveShare: turn(State.REVEALED, None),
}
