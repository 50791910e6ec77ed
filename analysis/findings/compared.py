"""The `Finding` type, the rows that the checks look at, and functions that the checks share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pandas as pd

from analysis.comparison.rows import ComparisonRow
from testbed.records import RunRecords
from testbed.records.vocabulary import DIVERGED

MOST = 5
"""Number of findings that are displayed at most."""


@dataclass(frozen=True)
class Finding:
    """A reason not to take a row of a table at face value.

    Attributes:
        code: identifies the kind of finding, e.g. ``waited-for-deadline``; its meaning never changes.
        text: one sentence with the numbers and their units, without the rows and the keys.
        rows: labels of the rows that the finding holds for, in the order of the table; empty: all rows.
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
        baselines: the baseline of each row, aligned with `rows`; None: the row has no baseline.
        targets: from `analysis.comparison.time_to_target.compare_targets`; None: the comparison has no targets.
    """

    rows: tuple[ComparisonRow, ...]
    baselines: tuple[ComparisonRow | None, ...]
    targets: pd.DataFrame | None = None
    _measures: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def labels(self, rows: Iterable[ComparisonRow]) -> tuple[str, ...]:
        """Return the labels of some rows, in the order of the table; empty when they are all rows."""
        among = {id(row) for row in rows}
        chosen = tuple(row.full_label for row in self.rows if id(row) in among)
        return () if len(chosen) == len(self.rows) else chosen

    def measured(self, measure: Callable[[RunRecords], Measured], run: RunRecords) -> Measured:
        """Return a measure of one run, computed once however many checks ask for it."""
        key = measure, id(run)  # the rows keep the runs alive, so that no id is reused
        if key not in self._measures:
            self._measures[key] = measure(run)
        value: Measured = self._measures[key]
        return value


Check = Callable[[ComparedRows], list[Finding]]
"""A function that looks for one kind of finding and merges it over the rows that it holds for."""


def diverged_rounds(run: RunRecords) -> list[int]:
    """Return the rounds in which a client's update was not finite.

    Checks leave these rounds out, because other failures in them follow from the update.
    """
    return sorted(set(diverged_events(run)["round"].tolist()))


def failed_rounds(run: RunRecords) -> pd.DataFrame:
    """Return the rounds that were skipped or aborted although all updates were finite."""
    rounds = run.rounds
    return rounds[rounds["outcome"].ne("completed") & ~rounds["round"].isin(diverged_rounds(run))]


def diverged_events(run: RunRecords) -> pd.DataFrame:
    """Return the refusals of clients that had an update that was not finite."""
    events = run.events
    return events[events["kind"].eq("refusal") & events["detail"].str.startswith(f"{DIVERGED}:")]


def span(values: Sequence[float], form: str) -> str:
    """Return the smallest and the largest value as text, e.g. ``9.8 to 11.2``; a single number if both read the same.

    Args:
        values: at least one number.
        form: a format for one number.

    Example:
        >>> span([9.81, 11.2], "{:.1f}"), span([2.0, 2.0], "{:.0f}")
        ('9.8 to 11.2', '2')
    """
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, e.g. ``1 round``, ``3 rounds``.

    Args:
        count: number of things.
        noun: in the singular; the plural adds an ``s``.

    Example:
        >>> counted(1, "round"), counted(3, "round")
        ('1 round', '3 rounds')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def seconds(value: float) -> str:
    """Return a time with its unit: milliseconds below a second.

    Example:
        >>> seconds(59.04), seconds(0.01), seconds(0.00042)
        ('59.0 s', '10 ms', '0.42 ms')
    """
    if value >= 1 or value == 0:
        return f"{value:,.1f} s"
    return f"{1000 * value:.0f} ms" if value >= 0.01 else f"{1000 * value:.2g} ms"
