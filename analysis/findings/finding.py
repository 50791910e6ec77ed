"""One finding about runs: a sentence with its numbers, the rows it is about and the keys to change."""

from dataclasses import dataclass

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
