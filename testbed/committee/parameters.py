"""The section `committee` of an aggregation protocol that has one."""

from fractions import Fraction
from math import ceil
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_MEMBERS = 10_000


class CommitteeSection(BaseModel):
    """Who serves on the committee, how many of them must answer, and for how long they serve."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    selection: Literal["public-seed", "given"] = Field(
        "public-seed",
        description="public-seed: drawn from what everybody knows (a randomness beacon is assumed that the server does "
        "not control). given: the clients of `members`",
    )
    size: int | None = Field(
        None, ge=2, le=MOST_MEMBERS, description="Members; with `given`, as many as `members` has (the default)"
    )
    threshold: float | int = Field(
        0.6667,
        gt=0,
        allow_inf_nan=False,
        description="Members that must answer: a number, or a fraction of the committee; fewer of them learn nothing",
    )
    members: tuple[int, ...] | None = Field(None, description="With `selection: given`: the clients' numbers")
    serves_rounds: int | None = Field(
        None, ge=1, description="Rounds after which another committee is drawn; none: it serves to the end"
    )

    @property
    def members_planned(self) -> int:
        """Members of a committee of this experiment."""
        if self.members is not None:
            return len(self.members)
        return 60 if self.size is None else self.size

    def threshold_for(self, members: int) -> int:
        """How many of so many members must answer; a fraction is rounded up."""
        given = self.threshold
        return given if isinstance(given, int) else ceil(Fraction(str(given)) * members)

    def first_round_of(self, round_number: int) -> int:
        """The round (from 1) with which the service of the committee of `round_number` began."""
        if self.serves_rounds is None:
            return 1
        return round_number - (round_number - 1) % self.serves_rounds

    def check(self, population: int) -> None:
        """Raise `ValueError` (one line: key, what is allowed) for a committee that this population cannot have."""
        if (self.selection == "given") != (self.members is not None):
            raise ValueError("committee.members: goes with `selection: given`, and only with it")
        if self.members is not None:
            self._check_members(self.members, population)
        planned = self.members_planned
        if planned > population:
            raise ValueError(f"committee.size: {planned} members of a population of {population}; at most {population}")
        needed = self.threshold_for(planned)
        if not planned < 2 * needed <= 2 * planned:
            raise ValueError(
                f"committee.threshold: {needed} of {planned} members; allowed {planned // 2 + 1} to {planned} (or a "
                "fraction), so that two disjoint groups of them never both suffice"
            )

    def _check_members(self, members: tuple[int, ...], population: int) -> None:
        if self.size is not None and self.size != len(members):
            raise ValueError(f"committee.size: {self.size}, and `members` has {len(members)}; leave one of the two out")
        if len(set(members)) != len(members) or len(members) < 2:
            raise ValueError("committee.members: two or more different clients")
        if outside := [client for client in members if not 0 <= client < population]:
            raise ValueError(f"committee.members: {outside[0]} is no client; allowed 0 to {population - 1}")
