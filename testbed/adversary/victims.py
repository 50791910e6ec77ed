"""Whom a malicious server attacks, where that is one client; and what it says once it has that client's update."""

import hashlib
from collections.abc import Iterable, Set
from typing import Any

import numpy.typing as npt
from pydantic import Field

from testbed.adversary.misbehaviour import MisbehaviourOptions
from testbed.aggregation.quantisation import Quantisation
from testbed.errors import RoundAborted
from testbed.randomness import Randomness


class VictimOptions(MisbehaviourOptions):
    """Whom to attack."""

    victim: int | None = Field(
        None, ge=0, description="The victim's number; none: an honest participant that the server draws in each round"
    )

    def check(self, population: int, dishonest: Set[int]) -> None:
        """See `MisbehaviourOptions.check`: a victim is one of the clients, and honest."""
        if self.victim is None:
            return
        if self.victim >= population:
            raise ValueError(f"victim: client {self.victim} of a population of {population}, counted from 0")
        if self.victim in dishonest:
            raise ValueError(f"victim: client {self.victim} is dishonest; name one that is not listed there")


def drawn_victim(
    named: int | None, among: Iterable[int], dishonest: Set[int], randomness: Randomness | None, round_number: int
) -> int | None:
    """One of these clients that is honest: the named one, or the server's draw; None: it, or every such one, is absent.

    Args:
        named: by the experiment; None: the server draws.
        among: clients, in an order that does not depend on the hosts.
        dishonest: the server's accomplices.
        randomness: for the draw; None: nobody is drawn.
        round_number: of the draw.
    """
    honest = [client for client in among if client not in dishonest]
    if named is not None:
        return named if named in honest else None
    if randomness is None or not honest:
        return None
    return int(randomness.generator("server", round_number, "victim").choice(honest))


def recovery_told(
    counted: str, update: npt.NDArray[Any], encoded: bytes, quantisation: Quantisation, clients: int = 1
) -> str:
    """One line of an update that a server has, or of what it has instead.

    Args:
        counted: the beginning of the line.
        update: `(d+1,)` the quantised update, or the sum of several, with the weight as the last element.
        encoded: the same as bytes, of which the line has the SHA-256.
        quantisation: the updates'.
        clients: the number of updates in it.
    """
    try:
        _, weight = quantisation.decode(update, clients)
    except RoundAborted as failed:
        return f"{counted}; failed: {failed.detail}"
    return f"{counted}; reconstructed, weight {weight}, sha256 {hashlib.sha256(encoded).hexdigest()}"
