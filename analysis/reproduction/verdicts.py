"""Verdicts: what a paper says against what was measured, decided by arithmetic on kept numbers.

A claim is a list of checks. A check is a number of ours, with its interval where it is an estimate, and the band that
the statement allows, with the margin that the reproduction states. The verdict follows from them and is never written
down by hand; `testbed reproduce --verify` computes it again from kept results.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.statistics import Interval

Verdict = Literal["agrees", "partly", "disagrees", "undetermined", "not run"]
VERDICTS: tuple[Verdict, ...] = ("agrees", "partly", "disagrees", "undetermined", "not run")


@dataclass(frozen=True)
class Check:
    """One number against its band.

    Attributes:
        what: which number, with its unit.
        value: ours; None: it was not measured at this scale.
        low, high: ends of its 95% interval; the value itself where it is no estimate.
        least, most: the band, ends included unless `strict`; infinite where the statement has no such end.
        strict: the ends of the band do not belong to it.
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
        """Agrees: the whole interval is in the band; disagrees: none of it is; else partly, as chance may decide."""
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
        """The band, for a person."""
        if self.least == self.most:
            return f"= {_short(self.least)}"
        if math.isinf(self.least):
            return f"{'<' if self.strict else '≤'} {_short(self.most)}"
        if math.isinf(self.most):
            return f"{'>' if self.strict else '≥'} {_short(self.least)}"
        return f"{_short(self.least)} to {_short(self.most)}"

    def as_data(self) -> dict[str, Any]:
        """Plain data for JSON: an infinite end is null."""
        return {
            "what": self.what, "value": self.value, "low": _finite(self.low), "high": _finite(self.high),
            "least": _finite(self.least), "most": _finite(self.most), "strict": self.strict,
        }  # fmt: skip

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> "Check":
        """What `as_data` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        value = None if data["value"] is None else float(data["value"])
        low, high = _or(data["low"], -math.inf), _or(data["high"], math.inf)
        least, most = _or(data["least"], -math.inf), _or(data["most"], math.inf)
        if any(map(math.isnan, (low, high, least, most))) or not (low <= high and least <= most):
            raise ValueError("an interval's ends are not in order")
        return cls(str(data["what"]), value, low, high, least, most, bool(data["strict"]))


Number = float | Interval | None
"""What is checked: an exact number, an estimate with its half-width, or nothing that was measured."""


def within(what: str, number: Number, paper: float, margin: float) -> Check:
    """The paper's number, give or take `margin`: the two-sided check of a published value."""
    return between(what, number, paper - margin, paper + margin)


def within_factor(what: str, number: Number, paper: float, factor: float) -> Check:
    """The paper's positive number, at most `factor` times smaller or larger."""
    return between(what, number, paper / factor, paper * factor)


def between(what: str, number: Number, least: float = -math.inf, most: float = math.inf) -> Check:
    """From `least` to `most`, both included."""
    return Check(what, *_ends(number), least, most)


def equal(what: str, number: Number, paper: float) -> Check:
    """Exactly the paper's number: for counts and bounds that are computed."""
    return between(what, number, paper, paper)


def above(what: str, number: Number, bound: float = 0.0) -> Check:
    """More than `bound`: for orders (who is better)."""
    return Check(what, *_ends(number), bound, math.inf, strict=True)


def below(what: str, number: Number, bound: float) -> Check:
    """Less than `bound`."""
    return Check(what, *_ends(number), -math.inf, bound, strict=True)


def true(what: str, holds: object) -> Check:
    """A statement that is a yes or a no by itself, as 1 or 0."""
    return equal(what, float(bool(holds)), 1.0)


@dataclass(frozen=True)
class PaperClaim:
    """One statement of the paper, compared with what was measured.

    Attributes:
        claim: what the paper says, with its number.
        measured: what we found, in words and numbers.
        checks: from which the verdict follows.
        undetermined: the input that the paper leaves open and that would decide; there are no checks then.
        seeds: of how many runs that differ in nothing else the intervals are; 0: nothing is drawn, or by itself.
        counted_in: the reproduction of the same runs under which this claim counts; it is shown here and not counted.
    """

    claim: str
    measured: str
    checks: Sequence[Check] = ()
    undetermined: str = ""
    seeds: int = 0
    counted_in: str = ""

    def __post_init__(self) -> None:
        """A claim that cannot be decided must not have checks: they would decide it.

        Raises:
            ValueError: it has both.
        """
        if self.undetermined and self.checks:
            raise ValueError(f"{self.claim}: undetermined, and yet checked")

    @property
    def verdict(self) -> Verdict:
        """All checks agree, or all disagree, or partly; not run: none could be checked at this scale."""
        if self.undetermined:
            return "undetermined"
        verdicts = {check.verdict for check in self.checks} or {"not run"}
        return verdicts.pop() if len(verdicts) == 1 else "partly"

    @property
    def judged(self) -> str:
        """How it was decided, for a person: the bands of its checks, each once; or what is left open."""
        if self.undetermined:
            return f"open: {self.undetermined}"
        return "; ".join(dict.fromkeys(f"{check.what} {check.band}" for check in self.checks))

    def as_data(self) -> dict[str, Any]:
        """Plain data for JSON, the verdict included."""
        return {
            "claim": self.claim, "measured": self.measured, "verdict": self.verdict,
            "checks": [check.as_data() for check in self.checks], "undetermined": self.undetermined,
            "seeds": self.seeds, "counted_in": self.counted_in,
        }  # fmt: skip

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> "PaperClaim":
        """What `as_data` wrote; its verdict is not read, but computed.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        checks = tuple(Check.of_data(check) for check in data["checks"])
        return cls(
            str(data["claim"]), str(data["measured"]), checks, str(data["undetermined"]), int(data["seeds"]),
            str(data["counted_in"]),
        )  # fmt: skip


def plus_minus(interval: Interval, form: str) -> str:
    """Return an interval as "mean ± half-width"; of a single run the half-width is infinite.

    Args:
        interval: of values that are there.
        form: how both numbers are written, as in an f-string, such as ``.2f``; a sign is for the mean alone.
    """
    half = math.inf if interval.half_width is None else interval.half_width
    return f"{interval.mean:{form}} ± {half:{form.lstrip('+')}}"


def counts(claims: Sequence[PaperClaim]) -> dict[Verdict, int]:
    """How many of each verdict, in the order of `VERDICTS`; a claim that counts elsewhere is left out."""
    verdicts = [claim.verdict for claim in claims if not claim.counted_in]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def total(each: Iterable[Mapping[Verdict, int]]) -> dict[Verdict, int]:
    """The sum of several `counts`."""
    counted = list(each)
    return {verdict: sum(counts_of_result[verdict] for counts_of_result in counted) for verdict in VERDICTS}


def _ends(number: Number) -> tuple[float | None, float, float]:
    """Value, low and high; the interval of a single run has no ends, and reaches everywhere."""
    if isinstance(number, Interval):
        if number.mean is None:
            return None, -math.inf, math.inf
        half = math.inf if number.half_width is None else number.half_width
        return number.mean, number.mean - half, number.mean + half
    if number is None or math.isnan(number):
        return None, -math.inf, math.inf
    if math.isinf(number):
        raise ValueError("an infinite number is not checked against a band; say what it stands for with `true`")
    return float(number), float(number), float(number)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _or(number: Any, otherwise: float) -> float:
    return otherwise if number is None else float(number)


def _short(number: float) -> str:
    """Four figures; counts in full, where the last figure decides."""
    return f"{number:.0f}" if number == round(number) and abs(number) < 1e6 else f"{number:.4g}"
