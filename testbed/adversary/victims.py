"""The victim of a malicious server that attacks one client, and the record of a recovered update."""

import hashlib
import re
from collections.abc import Set
from typing import Any

import numpy.typing as npt
from pydantic import Field

from testbed.adversary.misbehaviour import MisbehaviourOptions, ServerMisbehaviour
from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.quantisation import Quantisation
from testbed.arrays import Ids
from testbed.errors import RoundAborted
from testbed.training import TrainingRound

VICTIM_RECONSTRUCTED = re.compile(r"^victim \d+\b.*\breconstructed\b")
"""Matches the record of an attack that recovered a single client's update (`Misbehaviour.update_recovered`)."""


class VictimOptions(MisbehaviourOptions):
    """Options of attacks on one client."""

    victim: int | None = Field(
        None, ge=0, description="The victim's number; none: an honest participant that the server draws in each round"
    )

    def check(self, population: int, dishonest: Set[int]) -> None:
        """Check that the victim is an honest client of the population."""
        if self.victim is None:
            return
        if self.victim >= population:
            raise ValueError(f"victim: client {self.victim} of a population of {population}, counted from 0")
        if self.victim in dishonest:
            raise ValueError(f"victim: client {self.victim} is dishonest; name one that is not listed there")


def draw_victim(
    server: ServerMisbehaviour, kind: type[ServerMisbehaviour], among: Ids, round_: AggregationRound | TrainingRound
) -> int | None:
    """Return the honest client that is attacked: the client that the experiment names, or the server's draw.

    Args:
        server: the malicious server.
        kind: the misbehaviour, with `VictimOptions`.
        among: clients, in an order that does not depend on the hosts.
        round_: the round, with the randomness of the draw.

    Returns:
        None where the round is not attacked, the named client is absent or no client is honest.
    """
    honest = [client for client in among.tolist() if client not in server.dishonest]
    named: int | None = server.context.options_of(kind).victim
    if named is not None:
        return named if server.attacking and named in honest else None
    if round_.randomness is None or not honest or not server.attacking:
        return None
    return int(round_.randomness.generator("server", round_.number, "victim").choice(honest))


def describe_recovery(
    counted: str, update: npt.NDArray[Any], encoded: bytes, quantisation: Quantisation, clients: int = 1
) -> str:
    """Return one line that reports a recovered update, or the reason of the failure.

    Args:
        counted: the beginning of the line.
        update: `(d+1,)` the quantised update, or the sum of several, with the weight as the last element.
        encoded: the same as bytes; the line has their SHA-256.
        quantisation: of the updates.
        clients: number of updates in the sum.
    """
    try:
        _, weight = quantisation.decode(update, clients)
    except RoundAborted as failed:
        return f"{counted}; failed: {failed.detail}"
    return f"{counted}; reconstructed, weight {weight}, sha256 {hashlib.sha256(encoded).hexdigest()}"
