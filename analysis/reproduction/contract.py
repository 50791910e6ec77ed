"""What a reproduction is: one table or figure of a paper, made again, with the paper's values beside ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd

from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

Scale = Literal["small", "paper"]


@dataclass(frozen=True)
class Bench:
    """What a reproduction works with.

    Attributes:
        scale: "small" finishes in minutes on two cores; "paper" is the whole thing, for a cluster.
        out: directory for its runs and figures; what is finished there is not run again.
        run: runs an experiment (with or without a sweep) into a directory below `out`, resuming what is there, and
            returns the records of its points in the sweep's order.
        note: says one line to the person who waits.
        data: a folder with real data; None: reproductions take data that are built in or generated.
    """

    scale: Scale
    out: Path
    run: Callable[[Experiment, Path], list[RunRecords]]
    note: Callable[[str], None]
    data: Path | None = None


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, held against what was measured.

    Attributes:
        claim: what the paper says, with its number.
        measured: what we found, with its number (and interval, where it is an estimate).
        agrees: yes, no, or partly; None where this scale cannot tell.
    """

    claim: str
    measured: str
    agrees: Literal["yes", "no", "partly"] | None


@dataclass(frozen=True)
class Reproduced:
    """The outcome.

    Attributes:
        table: ours beside the paper's; columns of the paper's values end in ``(paper)``; empty when all is a figure.
        figures: files that were drawn, PNG and PDF.
        claims: the paper's statements and whether they hold here.
        remarks: what differs from the paper (scale, unstated inputs) and why.
    """

    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    figures: Sequence[Path] = ()
    claims: Sequence[Claim] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Reproduction:
    """A table or figure that can be made again.

    Attributes:
        name: for the command, e.g. ``lotto-table2``.
        title: one line.
        source: paper and place in it.
        make: does the work.
        also: other names of the same: a table and the figure of the same runs are one reproduction.
        reads: the real data that it can use, for people; empty when it needs none.
    """

    name: str
    title: str
    source: str
    make: Callable[[Bench], Reproduced]
    also: Sequence[str] = ()
    reads: str = ""
