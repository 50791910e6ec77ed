"""Multiplicity: how many verdicts of many claims hold at once, not each by itself.

Each check of an estimate has an interval that covers the true value with a probability of 95%. Of many such checks some
are wrong. The correction of Bonferroni widens all intervals so that all of them together cover their true values with a
probability of 95% at least.

Source: Dunn (1961), Multiple comparisons among means, section 3.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from scipy.special import stdtrit

from analysis.reproduction.verdicts import Check, PaperClaim

_TAIL = 0.025
"""Probability beyond each end of a 95% interval."""


@dataclass(frozen=True)
class Multiplicity:
    """Verdicts of claims by themselves, and of all of them at once.

    Attributes:
        claims: number of claims with a verdict that rests on estimates.
        checks: number of their checks with an interval.
        decided: number of these checks with a verdict other than "partly".
        unchanged: number of claims that keep their verdict when all intervals hold at once.
        undecided: number of claims that become "partly" then.
    """

    claims: int
    checks: int
    decided: int
    unchanged: int
    undecided: int

    @property
    def expected_errors(self) -> float:
        """Upper limit of the expected number of checks that are decided wrongly.

        A decided check is wrong only if the true value is beyond the interval's end towards the band's edge: one tail.
        """
        return _TAIL * self.decided

    def sentence(self) -> str:
        """Return the numbers as a sentence."""
        return (
            f"{self.claims} verdicts rest on {self.checks} estimates with 95% intervals, of which {self.decided} are "
            f"decided: up to {self.expected_errors:.1f} of these are expected to be wrong by chance. With intervals "
            f"that hold all at once (Bonferroni), {self.unchanged} verdicts stay and {self.undecided} become 'partly'"
        )


def multiplicity(claims: Iterable[PaperClaim]) -> Multiplicity:
    """Compare the verdicts of claims with the verdicts that widened intervals give.

    The widening takes an interval for one of Student's t with as many degrees of freedom as the claim has seeds, less
    one; for intervals of other kinds (proportions, ratios) it is an approximation.

    Args:
        claims: claims, without those that count elsewhere.
    """
    estimated = [claim for claim in claims if not claim.counted_in and any(map(_is_estimate, claim.checks))]
    checks = [check for claim in estimated for check in claim.checks if _is_estimate(check)]
    wider = [
        replace(claim, checks=[_widened(check, claim.seeds, len(checks)) for check in claim.checks])
        for claim in estimated
    ]
    unchanged = sum(claim.verdict == other.verdict for claim, other in zip(estimated, wider, strict=True))
    decided = sum(check.verdict != "partly" for check in checks)
    return Multiplicity(len(estimated), len(checks), decided, unchanged, len(estimated) - unchanged)


def _is_estimate(check: Check) -> bool:
    """Return whether a check has a number with an interval of a positive, finite length."""
    return check.value is not None and math.isfinite(check.high - check.low) and check.low < check.high


def _widened(check: Check, seeds: int, checks: int) -> Check:
    """Return a check with its interval at the level that holds for `checks` intervals at once."""
    if not _is_estimate(check):
        return check
    assert check.value is not None
    factor = _factor(seeds, checks)
    return replace(
        check,
        low=check.value - factor * (check.value - check.low),
        high=check.value + factor * (check.high - check.value),
    )


def _factor(seeds: int, checks: int) -> float:
    """Return the ratio of the half-widths at the two levels."""
    freedom: float = seeds - 1 if seeds > 1 else math.inf
    at_once, alone = (float(stdtrit(freedom, 1 - tail)) for tail in (_TAIL / checks, _TAIL))
    return at_once / alone
