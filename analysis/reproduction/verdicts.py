"""Verdicts on a paper's claims, decided by arithmetic on kept numbers.

A claim is a list of checks. A check compares one of our numbers, with its interval where the number is an estimate,
with the band that the paper's statement allows, including the margin of the reproduction. The verdict follows from the
checks. Nobody writes a verdict by hand: `testbed reproduce --verify` recomputes all of them from kept results.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from analysis.statistics import Interval

Verdict = Literal["agrees", "partly", "disagrees", "undetermined", "not run"]
VERDICTS: tuple[Verdict, ...] = ("agrees", "partly", "disagrees", "undetermined", "not run")


@dataclass(frozen=True)
class Check:
    """One number and the band that it is compared with.

    Attributes:
        what: name of the number, with its unit.
        value: our number; None if the number was not measured at this scale.
        low: lower end of the 95% interval; the value itself if the value is not an estimate.
        high: upper end of the 95% interval.
        least: lower end of the band; minus infinity if the statement has no lower limit.
        most: upper end of the band; infinity if the statement has no upper limit.
        strict: whether the band excludes its own ends.
    """

    what: str
    value: float | None
    low: float
    high: float
    least: float = -math.inf
    most: float = math.inf
    strict: bool = False

    @property
    def verdict(self) -> Verdict:
        """Verdict by interval and band.

        "agrees": the whole interval is in the band. "disagrees": no part of the interval is in the band. "partly": a
        part is, so that chance may decide.
        """
        if self.value is None:
            return "not run"
        if self._holds(self.low) and self._holds(self.high):
            return "agrees"
        outside = self.high <= self.least or self.low >= self.most if self.strict else False
        return "disagrees" if outside or self.high < self.least or self.low > self.most else "partly"

    def _holds(self, number: float) -> bool:
        return self.least < number < self.most if self.strict else self.least <= number <= self.most

    @property
    def band(self) -> str:
        """Band as text."""
        if self.least == self.most:
            return f"= {_short(self.least)}"
        if math.isinf(self.least):
            return f"{'<' if self.strict else '≤'} {_short(self.most)}"
        if math.isinf(self.most):
            return f"{'>' if self.strict else '≥'} {_short(self.least)}"
        return f"{_short(self.least)} to {_short(self.most)}"

    def as_data(self) -> dict[str, Any]:
        """Return plain data for JSON, with null for an infinite end."""
        return {
            "what": self.what, "value": self.value, "low": _finite(self.low), "high": _finite(self.high),
            "least": _finite(self.least), "most": _finite(self.most), "strict": self.strict,
        }  # fmt: skip

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> "Check":
        """Return the check that `as_data` wrote.

        Raises:
            KeyError, TypeError, ValueError: the data are not those of a check.
        """
        value = None if data["value"] is None else float(data["value"])
        low, high = _or(data["low"], -math.inf), _or(data["high"], math.inf)
        least, most = _or(data["least"], -math.inf), _or(data["most"], math.inf)
        if any(map(math.isnan, (low, high, least, most))) or not (low <= high and least <= most):
            raise ValueError("an interval's ends are not in order")
        return cls(str(data["what"]), value, low, high, least, most, bool(data["strict"]))


Number = float | Interval | None
"""Number of a check: exact, an estimate with its half-width, or None for a number that was not measured."""


def within(quantity: str, number: Number, paper: float, margin: float) -> Check:
    """Check that a number is the paper's, give or take a margin: the two-sided check of a published value.

    Args:
        quantity: name of the number, with its unit.
        number: our number.
        paper: the paper's number.
        margin: distance from the paper's number that still agrees, in the number's unit.

    Example:
        >>> within("accuracy [%]", 64.1, 65.0, 2.0).verdict
        'agrees'
    """
    return between(quantity, number, paper - margin, paper + margin)


def within_factor(quantity: str, number: Number, paper: float, factor: float) -> Check:
    """Check that a number is at most `factor` times smaller or larger than the paper's.

    Args:
        quantity: name of the number, with its unit.
        number: our number.
        paper: the paper's number, positive.
        factor: 1 or more.
    """
    return between(quantity, number, paper / factor, paper * factor)


def between(quantity: str, number: Number, least: float = -math.inf, most: float = math.inf) -> Check:
    """Check that a number is between two limits, limits included.

    Args:
        quantity: name of the number, with its unit.
        number: our number.
        least: lower limit.
        most: upper limit.
    """
    return Check(quantity, *_ends(number), least, most)


def equal(quantity: str, number: Number, paper: float) -> Check:
    """Check that a number is exactly the paper's, for counts and for bounds that are computed.

    Args:
        quantity: name of the number, with its unit.
        number: our number.
        paper: the paper's number.
    """
    return between(quantity, number, paper, paper)


def above(quantity: str, number: Number, bound: float = 0.0) -> Check:
    """Check that a number is above a bound, for orderings such as "A has a higher accuracy than B".

    Args:
        quantity: name of the number, with its unit.
        number: our number.
        bound: lower limit, excluded.
    """
    return Check(quantity, *_ends(number), bound, math.inf, strict=True)


def below(quantity: str, number: Number, bound: float) -> Check:
    """Check that a number is below a bound.

    Args:
        quantity: name of the number, with its unit.
        number: our number.
        bound: upper limit, excluded.
    """
    return Check(quantity, *_ends(number), -math.inf, bound, strict=True)


def true(quantity: str, holds: object) -> Check:
    """Check a statement that is true or false by itself, as 1 or 0.

    Args:
        quantity: the statement.
        holds: any value; its truth decides.
    """
    return equal(quantity, float(bool(holds)), 1.0)


Reason = Literal["", "length", "data", "censored", "not implemented"]
"""Reason for a number that was not measured."""


@dataclass(frozen=True)
class PaperClaim:
    """One statement of a paper, compared with our measurements.

    Attributes:
        claim: the paper's statement, with its number.
        measured: our result, in words and numbers.
        checks: checks from which the verdict follows.
        undetermined: input that the paper does not state and that would decide the claim; the claim then has no checks.
        seeds: number of runs behind the intervals, which differ in their seeds alone; 0 without random numbers.
        counted_in: reproduction of the same runs under which this claim counts; here it is shown and not counted.
        not_run: reason why a check has no number: ``length``, the runs take longer than this scale allows; ``data``,
            the data are not at hand; ``censored``, runs ended before the event that the number times; ``not
            implemented``, the paper's variant is missing.
        uses_data: whether the claim depends on the data set. A claim on guarantees, bytes or formulas does not.
    """

    claim: str
    measured: str
    checks: Sequence[Check] = ()
    undetermined: str = ""
    seeds: int = 0
    counted_in: str = ""
    not_run: Reason = ""
    uses_data: bool = True

    def __post_init__(self) -> None:
        """Refuse checks in an undetermined claim, since they would decide it.

        Raises:
            ValueError: the claim is undetermined and has checks.
        """
        if self.undetermined and self.checks:
            raise ValueError(f"{self.claim}: an undetermined claim must not have checks")

    @property
    def verdict(self) -> Verdict:
        """Verdict of all checks together: "partly" if they differ, "not run" if none was measured at this scale."""
        if self.undetermined:
            return "undetermined"
        verdicts = {check.verdict for check in self.checks} or {"not run"}  # a claim without checks is unmeasured
        return verdicts.pop() if len(verdicts) == 1 else "partly"

    @property
    def judged(self) -> str:
        """Basis of the verdict as text: the bands of the checks, each once, or the input that is missing."""
        if self.undetermined:
            return f"open: {self.undetermined}"
        return "; ".join(dict.fromkeys(f"{check.what} {check.band}" for check in self.checks))

    def as_data(self) -> dict[str, Any]:
        """Return plain data for JSON, with the verdict."""
        return {
            "claim": self.claim, "measured": self.measured, "verdict": self.verdict,
            "checks": [check.as_data() for check in self.checks], "undetermined": self.undetermined,
            "seeds": self.seeds, "counted_in": self.counted_in, "not_run": self.not_run, "uses_data": self.uses_data,
        }  # fmt: skip

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> "PaperClaim":
        """Return the claim that `as_data` wrote; its verdict is computed, not read.

        Raises:
            KeyError, TypeError, ValueError: the data are not those of a claim.
        """
        checks = tuple(Check.of_data(check) for check in data["checks"])
        return cls(
            str(data["claim"]), str(data["measured"]), checks, str(data["undetermined"]), int(data["seeds"]),
            str(data["counted_in"]), _reason(data.get("not_run", "")), bool(data.get("uses_data", True)),
        )  # fmt: skip


def plus_minus(interval: Interval, form: str) -> str:
    """Return an interval as "mean ± half-width"; the half-width of a single run is infinite.

    Args:
        interval: interval with a mean.
        form: format of both numbers, as in an f-string, such as ``.2f``; a sign applies to the mean alone.

    Example:
        >>> plus_minus(Interval(1.5, 0.25), "+.1f")
        '+1.5 ± 0.2'
    """
    half = math.inf if interval.half_width is None else interval.half_width
    return f"{interval.mean:{form}} ± {half:{form.lstrip('+')}}"


def counts(claims: Sequence[PaperClaim]) -> dict[Verdict, int]:
    """Count the claims of each verdict, in the order of `VERDICTS`, without claims that count elsewhere."""
    verdicts = [claim.verdict for claim in claims if not claim.counted_in]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def total(each: Iterable[Mapping[Verdict, int]]) -> dict[Verdict, int]:
    """Return the sum of several `counts`."""
    counted = list(each)
    return {verdict: sum(counts_of_result[verdict] for counts_of_result in counted) for verdict in VERDICTS}


def _ends(number: Number) -> tuple[float | None, float, float]:
    """Return value, low and high; the interval of a single run reaches from minus infinity to infinity."""
    if isinstance(number, Interval):
        if number.mean is None:
            return None, -math.inf, math.inf
        half = math.inf if number.half_width is None else number.half_width
        return number.mean, number.mean - half, number.mean + half
    if number is None or math.isnan(number):
        return None, -math.inf, math.inf
    if math.isinf(number):
        raise ValueError("an infinite number cannot be checked against a band; check its meaning with `true`")
    return float(number), float(number), float(number)


def _reason(text: str) -> Reason:
    for reason in get_args(Reason):
        if text == reason:
            return cast(Reason, reason)
    raise ValueError(f"{text!r}: no reason for a number that was not measured")


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _or(number: Any, otherwise: float) -> float:
    return otherwise if number is None else float(number)


def _short(number: float) -> str:
    """Return four significant figures; whole numbers below a million in full, since their last digit may decide."""
    return f"{number:.0f}" if number == round(number) and abs(number) < 1e6 else f"{number:.4g}"
