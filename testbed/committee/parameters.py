"""Section `committee` of aggregation protocols with a committee."""

from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from testbed.counts import rounded_up

MOST_MEMBERS = 10_000
OVER_SELECTION = 1.5
CommitteeSelection = Literal["public-seed", "given", "lotto-client-centric", "lotto-server-centric"]


class CommitteeSection(BaseModel):
    """Selection, size, threshold and service of the committee."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    selection: CommitteeSelection = Field(
        "public-seed",
        description="public-seed: every party computes the committee from 32 bytes that are drawn after registration "
        "has closed (by a beacon that the server does not control). given: the clients of `members`. "
        "lotto-client-centric: clients draw themselves by a VRF, and prove it. lotto-server-centric: clients are drawn "
        "by a PRF under their public keys, which every party recomputes",
    )
    size: int | None = Field(
        None, ge=2, le=MOST_MEMBERS, description="Members; with `given`, as many as `members` has (the default)"
    )
    threshold: int | float | None = Field(  # in this order 12 is written as 12, not as 12.0, a fraction
        None,
        gt=0,
        allow_inf_nan=False,
        description="Members that must answer: a number, or a fraction of the committee; fewer members learn nothing; "
        "none: two thirds of the committee, rounded up (40 of 60)",
    )
    members: tuple[int, ...] | None = Field(None, description="With `selection: given`: the clients' numbers")
    over_selection: float | None = Field(
        None,
        ge=1,
        le=100,
        description="With lotto-*: over-selection factor a. On average a times `size` clients are drawn, of which the "
        f"server takes `size` that answer; none: {OVER_SELECTION}",
    )
    weights: Literal["equal", "samples"] = Field(
        "equal",
        description="With lotto-*: samples: a client is drawn in proportion to the training samples that it has "
        "announced when it registered",
    )
    serves_rounds: int | None = Field(
        None, ge=1, description="Rounds after which another committee is drawn; none: it serves to the end"
    )

    @property
    def members_planned(self) -> int:
        """Members of a committee of this experiment."""
        if self.members is not None:
            return len(self.members)
        return 60 if self.size is None else self.size

    @property
    def by_sortition(self) -> bool:
        """Whether each client has a number that decides whether it may serve."""
        return self.selection in ("lotto-client-centric", "lotto-server-centric")

    @cached_property
    def factor(self) -> Fraction:
        """Over-selection factor a, as the exact decimal fraction that the experiment says."""
        return Fraction(str(OVER_SELECTION if self.over_selection is None else self.over_selection))

    def threshold_for(self, members: int) -> int:
        """Return the number of members that must answer; a fraction is rounded up, the default is two thirds."""
        configured = self.threshold
        if configured is None:
            return ceil(Fraction(2 * members, 3))
        return rounded_up(configured, members)

    def first_round_of(self, round_number: int) -> int:
        """Return the round (from 1) in which the service of the committee of `round_number` began."""
        if self.serves_rounds is None:
            return 1
        return round_number - (round_number - 1) % self.serves_rounds

    def check(self, population: int) -> None:
        """Raise `ValueError` (one line: key, allowed values) for a committee that this population cannot have."""
        if (self.selection == "given") != (self.members is not None):
            raise ValueError("committee.members: required with `selection: given`, and only allowed there")
        if self.members is not None:
            self._check_members(self.members, population)
        self._check_sortition(population)
        planned = self.members_planned
        if planned > population:
            raise ValueError(f"committee.size: {planned} members of a population of {population}; at most {population}")
        self.check_threshold()

    def check_threshold(self) -> None:
        """Raise `ValueError` (one line) unless the threshold is above half of the members, and at most all of them."""
        planned = self.members_planned
        needed = self.threshold_for(planned)
        if not planned < 2 * needed <= 2 * planned:
            raise ValueError(
                f"committee.threshold: {needed} of {planned} members; allowed {planned // 2 + 1} to {planned} (or a "
                "fraction), so that no two disjoint groups of members are both large enough"
            )

    def _check_sortition(self, population: int) -> None:
        if not self.by_sortition:
            for key in ("over_selection", "weights"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f"committee.{key}: needs `selection: lotto-client-centric` or -server-centric")
        elif self.members_planned <= population <= self.factor * self.members_planned:
            raise ValueError(
                f"committee.over_selection: {float(self.factor):g} times {self.members_planned} members of a "
                f"population of {population}: all clients would be drawn, and the server could choose; allowed below "
                f"{population / self.members_planned:g}, or another `selection`"
            )

    def _check_members(self, members: tuple[int, ...], population: int) -> None:
        if self.size is not None and self.size != len(members):
            raise ValueError(f"committee.size: {self.size}, but `members` has {len(members)}; leave committee.size out")
        if len(set(members)) != len(members) or len(members) < 2:
            raise ValueError(f"committee.members: {list(members)}; must be two or more different clients")
        if outside := [client for client in members if not 0 <= client < population]:
            raise ValueError(f"committee.members: {outside[0]} is not a client; allowed 0 to {population - 1}")
