"""The contract of a search for a least sum: its results and its method."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from testbed.aggregation.contract import AggregationParameters
from testbed.engine.registry import aggregation_protocol

FAILED = "FAILED"
"""The beginning of the words of an execution that did not give the sum that was found."""

Method = Literal["exact", "exact for one set of survivors", "greedy"]


@dataclass(frozen=True)
class Result:
    """The least sum that a server has in one setting.

    Attributes:
        protocol: the aggregation's name.
        setting: its numbers, in words.
        stated: honest clients that each sum has at least, as the protocol states; 0: nothing is stated. Of a control:
            the statement for one accomplice fewer, or with the mend.
        found: honest clients in the smallest sum that the search has found; None: it has found no choice with a sum.
        tried: choices of the server (of a solver: nodes of branch and bound) that were looked at.
        method: exact, if there is proof that no choice of the model gives a smaller sum.
        executed: the outcome with real parties, in words; empty: not executed.
        is_control: whether a smaller sum than stated for fewer accomplices (or with a mend) has to be found.
    """

    protocol: str
    setting: str
    stated: int
    found: int | None
    tried: int
    method: Method
    executed: str = ""
    is_control: bool = False

    @property
    def is_below(self) -> bool:
        """Whether the server has less than is stated."""
        return self.found is not None and self.found < self.stated

    @property
    def is_new(self) -> bool:
        """Whether something that is stated is false, or an execution did not give the sum that was found."""
        return (self.is_below and not self.is_control) or self.executed.startswith(FAILED)

    @property
    def line(self) -> str:
        """For a person."""
        stated = f"{self.stated} stated" if self.stated else "nothing stated"
        if self.is_control:
            stated = f"control (with {self.stated} nothing would be broken{'' if self.is_below else ': NOT FOUND'})"
        found = "none found" if self.found is None else f"{self.found} found"
        below = ", BELOW WHAT IS STATED" if self.is_new else ""
        executed = f"executed: {self.executed}" if self.executed else "not executed"
        how = f"{self.method}, {self.tried} choices; {executed}"
        return f"{self.protocol}, {self.setting}: least sum {stated}, {found}{below}; {how}"


class LeastSums(ABC):
    """The server's choices under one protocol, against the least sum that the protocol states.

    Attributes:
        protocol: its name in an experiment.
    """

    protocol: ClassVar[str]

    @abstractmethod
    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """Search each setting.

        Args:
            budget: 1 in the checks; a budget of n tries n times as many choices, and larger settings.
            seed: of the accomplices and of random choices.
        """


def stated_colluders(parameters: AggregationParameters, participants: int) -> int:
    """The most dishonest participants for which the protocol states a least sum."""
    guarantees: Any = aggregation_protocol(parameters).guarantees(participants)
    return int(guarantees.max_colluders)


def stated_least(parameters: AggregationParameters, participants: int, accomplices: int) -> int:
    """The fewest honest clients in a sum that a malicious server has, as the protocol states it; 0: it states nothing.

    Args:
        parameters: of the protocol.
        participants: of the round.
        accomplices: dishonest participants.
    """
    guarantees: Any = aggregation_protocol(parameters).guarantees(participants)
    if accomplices > guarantees.max_colluders:
        return 0
    return int(min(guarantees.min_sum_size, guarantees.min_partition_size)) - accomplices
