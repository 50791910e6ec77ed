"""Findings, the rows in which they are looked for, and what the checks share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pandas as pd

from analysis.comparison.rows import ComparisonRow
from testbed.records import RunRecords
from testbed.records.vocabulary import DIVERGED

MOST = 5
"""Findings that are shown at most."""


@dataclass(frozen=True)
class Finding:
    """A reason not to take a row of a table at face value.

    Attributes:
        code: identifies the kind of finding, e.g. ``waited-for-deadline``; never changes its meaning.
        text: one sentence with the numbers and their units, without the rows and the keys.
        rows: labels of the rows that it holds for, in the order of the table; empty: of all rows.
        keys: dotted keys of the experiment to change, the most useful first, e.g. ``time.deadline_s``.
    """

    code: str
    text: str
    rows: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


Measured = TypeVar("Measured")


@dataclass(frozen=True)
class ComparedRows:
    """The rows of one comparison.

    Attributes:
        rows: in the order of the table.
        baselines: the baseline of each row, aligned; None where it has none.
        targets: from `analysis.comparison.time_to_target.compare_targets`; None: there is no such table.
    """

    rows: tuple[ComparisonRow, ...]
    baselines: tuple[ComparisonRow | None, ...]
    targets: pd.DataFrame | None = None
    _measures: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def labels(self, rows: Iterable[ComparisonRow]) -> tuple[str, ...]:
        """The labels of some rows, in the order of the table; empty where these are all of them."""
        among = {id(row) for row in rows}
        chosen = tuple(row.full_label for row in self.rows if id(row) in among)
        return () if len(chosen) == len(self.rows) else chosen

    def measured(self, measure: Callable[[RunRecords], Measured], run: RunRecords) -> Measured:
        """A measure of one of their runs; each is taken once, whichever checks want it."""
        key = measure, id(run)
        if key not in self._measures:
            self._measures[key] = measure(run)
        taken: Measured = self._measures[key]
        return taken


Check = Callable[[ComparedRows], list[Finding]]
"""Looks for one kind of finding, and merges it over the rows that it holds for."""


def diverged_rounds(run: RunRecords) -> list[int]:
    """The rounds in which a client's update was not finite: whatever else went wrong in them follows from that."""
    return sorted(set(diverged_events(run)["round"].tolist()))


def failed_rounds(run: RunRecords) -> pd.DataFrame:
    """The rounds that were skipped or aborted, of those whose clients all had finite updates."""
    rounds = run.rounds
    return rounds[rounds["outcome"].ne("completed") & ~rounds["round"].isin(diverged_rounds(run))]


def diverged_events(run: RunRecords) -> pd.DataFrame:
    """The refusals of clients whose update was not finite."""
    events = run.events
    return events[events["kind"].eq("refusal") & events["detail"].str.startswith(f"{DIVERGED}:")]


def span(values: Sequence[float], form: str) -> str:
    """The smallest and the largest value, e.g. ``9.8 to 11.2``; one of them where they look the same.

    Example:
        >>> span([9.81, 11.2], "{:.1f}"), span([2.0, 2.0], "{:.0f}")
        ('9.8 to 11.2', '2')
    """
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def counted(count: int, noun: str) -> str:
    """E.g. ``1 round``, ``3 rounds``.

    Example:
        >>> counted(1, "round"), counted(3, "round")
        ('1 round', '3 rounds')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def seconds(value: float) -> str:
    """A time with its unit: milliseconds below a second.

    Example:
        >>> seconds(59.04), seconds(0.01), seconds(0.00042)
        ('59.0 s', '10 ms', '0.42 ms')
    """
    if value >= 1 or value == 0:
        return f"{value:,.1f} s"
    return f"{1000 * value:.0f} ms" if value >= 0.01 else f"{1000 * value:.2g} ms"
