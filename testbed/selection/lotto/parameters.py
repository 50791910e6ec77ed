"""Parameters of Lotto (Jiang et al., arXiv 2401.02880, section 3), and of protocols built on its parts.

`AgreedListParameters`: participants verify and sign their list. `AnnouncedParameters`: each round is also announced to
all clients. `LottoParameters`: both variants of Lotto, which can refine the population.
"""

from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from testbed.selection.contract import SelectionParameters
from testbed.selection.lotto.refinement import Refinement
from testbed.selection.supply import Supply

MOST_ROUNDS = 10_000_000


class AgreedListParameters(SelectionParameters):
    """Parameters of protocols with a participant list that participants verify and sign."""

    needs_rounds: ClassVar[str] = "participants are drawn, and verify one another, together"
    over_selection: float = Field(
        1.3,
        ge=1,
        le=100,
        description="Over-selection factor a (the paper's alpha): a*s candidates are expected",
    )
    min_population: int | None = Field(
        None,
        gt=0,
        description="n_min: clients refuse to take part in a smaller population (default: the smallest population that "
        "an honest server announces)",
    )
    round_beacon: Literal["none", "public"] = Field(
        "none",
        description="public: a randomness beacon opens each round; its output becomes part of the input of the VRF or "
        "PRF, so that no party knows outputs in advance, and it registers one participant list for each round. none: "
        "the paper's protocol",
    )
    beacon_latency_ms: float = Field(
        50.0, ge=0, le=1e6, description="One-way latency between server and beacon; asked twice in a round"
    )
    signatures: Literal["strict"] | Annotated[int, Field(gt=0)] = Field(
        "strict",
        description="Signatures on the list that a client requires: 'strict' (all s, as in the paper) or a number q; "
        "then up to s-q participants may drop out, or may have been shown another list",
    )

    def check(self, population: int) -> None:
        """Check that n_min does not exceed n, and the quorum not s."""
        super().check(population)
        if self.min_population is not None and self.min_population > population:
            raise ValueError(
                f"min_population: n_min = {self.min_population} of a population of {population}; at most {population}"
            )
        if self.signatures != "strict" and self.signatures > self.participants:
            raise ValueError(f"signatures: {self.signatures} of {self.participants} participants; at most all")

    @property
    def refinement(self) -> Refinement | None:
        """The rule that refines the population; None: no refinement."""
        return None

    def smallest_population(self, population: int) -> int:
        """Return the smallest n that an honest server may announce for this population."""
        return population if self.refinement is None else self.refinement.smallest(population)

    @property
    def uses_reported_losses(self) -> str:
        """The key `refine.by` if it contains `loss`; otherwise empty."""
        return "refine.by: loss" if self.refinement is not None and "loss" in self.refinement.by else ""

    @cached_property
    def factor(self) -> Fraction:
        """The over-selection factor as the exact decimal fraction written in the experiment."""
        return Fraction(str(self.over_selection))

    @property
    def terms(self) -> tuple[int | str, ...]:
        """The values that clients agreed to in advance and sign with every list: s and a."""
        return self.participants, self.factor.numerator, self.factor.denominator

    def quorum_of(self, listed: int) -> int:
        """Return the signatures that a client requires on a list with this many participants."""
        return listed if self.signatures == "strict" else self.signatures


class AnnouncedParameters(AgreedListParameters):
    """Parameters of protocols that announce a round to all clients."""

    max_round_gap: Annotated[int, Field(gt=0, le=MOST_ROUNDS)] | Literal["auto", "none"] | None = Field(
        "auto",
        description="G: a client refuses a round number more than G above the last announced round that reached it. "
        "'none' (or null): it accepts any later number, so a server that knows its own clients' outputs can announce "
        "only favourable rounds. 'auto': 1; with `refine` 'none', because announcements do not reach clients outside "
        "the refined population",
    )

    def check(self, population: int) -> None:
        """Check that `refine` and a number as round gap are not combined: the gap would refuse honest rounds."""
        super().check(population)
        if self.refinement is not None and isinstance(self.max_round_gap, int):
            raise ValueError(
                f"max_round_gap: {self.max_round_gap} with `refine`: announcements do not reach clients outside the "
                "refined population, which would refuse the next round as skipped; leave out one of the two"
            )

    @property
    def round_gap(self) -> int | None:
        """G; None: any later round number is accepted."""
        if self.max_round_gap == "auto":
            return 1 if self.refinement is None else None
        return self.max_round_gap if isinstance(self.max_round_gap, int) else None


class LottoParameters(AgreedListParameters):
    """Parameters of both variants."""

    refine: Refinement | None = Field(
        None, description="Population refinement (informed selection): draw only from the better clients"
    )

    def supply(self, population: int, online: float) -> Supply | None:
        """Return the need for s candidates: each client is drawn with probability a*s/n, available or not."""
        refined = max(1, self.smallest_population(population))
        share_of_clients = min(1.0, self.over_selection * self.participants / refined)
        keys = ("selection.over_selection", "selection.participants", "population", "availability")
        return Supply("candidates", self.participants, refined, online * share_of_clients, keys)

    def check(self, population: int) -> None:
        """Check that n_min and s do not exceed the smallest refined population."""
        super().check(population)
        smallest = self.smallest_population(population)
        if self.refine is not None and not smallest:
            most = self.refine.largest(population, max(self.participants, self.min_population or 0))
            raise ValueError(
                f"refine.exclude: {self.refine.exclude:g} by two metrics with or may leave nobody; at most {most:g}"
            )
        if self.min_population is not None and self.min_population > smallest:
            raise ValueError(
                f"min_population: n_min = {self.min_population}, and `refine` may leave {smallest} of {population} "
                f"clients; at most {smallest}, or a smaller refine.exclude"
            )
        if self.participants > smallest:
            raise ValueError(
                f"participants: {self.participants}, and `refine` may leave {smallest} of {population} clients; "
                f"at most {smallest}, or a smaller refine.exclude"
            )

    @property
    def refinement(self) -> Refinement | None:
        """The rule that refines the population; None: no refinement."""
        return self.refine
