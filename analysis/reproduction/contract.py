"""The contract of a reproduction: one table or figure of a paper, computed again and set beside the paper's values.

A module in a paper's folder defines a function from `ReproductionContext` to `ReproductionResult` and names it in a
tuple `REPRODUCTIONS`; a line in `catalogue.MODULES` makes it known to the command.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd

from analysis.reproduction.verdicts import PaperClaim
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

Scale = Literal["small", "real", "paper"]

ClaimsOf = Callable[[pd.DataFrame, int], Sequence[PaperClaim | None]]
"""A kept table and the number of seeds that the kept claims name -> the claims in their order; None: needs more."""


@dataclass(frozen=True)
class ReproductionContext:
    """What a reproduction works with.

    Attributes:
        scale: "small" finishes in minutes on two cores; "real" has the paper's data and model, and as many rounds and
            seeds as two cores do in hours; "paper" is the full experiment, for a cluster.
        out: existing directory for its runs and figures; what is finished there is not run again.
        run_experiment: runs an experiment (with or without a sweep) into a directory below `out`, resuming what is
            there, and returns the records of its points in the sweep's order.
        progress: shows one line to the person who waits.
        data: a folder with real data; None: reproductions use built-in or generated data.
        seeds: repetitions instead of the scale's own, for those that say `takes_seeds`.
    """

    scale: Scale
    out: Path
    run_experiment: Callable[[Experiment, Path], list[RunRecords]]
    progress: Callable[[str], None]
    data: Path | None = None
    seeds: int | None = None


@dataclass(frozen=True)
class Origin:
    """Of which code an outcome is, and what it took.

    Attributes:
        seconds: of all attempts together, from command to outcome.
        version: of the testbed.
        git_commit: of its checkout; None without one.
        processor, cpus: of the machine.
        ended: when, in UTC.
    """

    seconds: float = 0.0
    version: str = ""
    git_commit: str | None = None
    processor: str | None = None
    cpus: int | None = None
    ended: str = ""


@dataclass(frozen=True)
class ReproductionResult:
    """The outcome.

    Attributes:
        table: ours beside the paper's; columns of the paper's values end in ``(paper)``; empty if there is none.
        figures: files that were drawn, PNG and PDF.
        claims: the paper's statements and whether they hold here.
        remarks: what differs from the paper (scale, unstated inputs) and why.
    """

    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    figures: Sequence[Path] = ()
    claims: Sequence[PaperClaim] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Reproduction:
    """A table or figure that can be reproduced.

    Attributes:
        name: for the command, e.g. ``lotto-table2``.
        title: one line.
        source: paper and place in it.
        run: does the work.
        aliases: further names of the same: a table and the figure of the same runs are one reproduction.
        data_files: the real data that it can use, for people; empty when it needs none.
        scales: at which it can be made.
        takes_seeds: whether it heeds the context's `seeds`.
        claims_of: computes claims from the table alone, so that ``--verify`` can compute their numbers again from a
            kept table; None if every claim needs more than the table.
    """

    name: str
    title: str
    source: str
    run: Callable[[ReproductionContext], ReproductionResult]
    aliases: Sequence[str] = ()
    data_files: str = ""
    scales: Sequence[Scale] = ("small", "paper")
    takes_seeds: bool = False
    claims_of: ClaimsOf | None = None
