"""Contract of a reproduction: one table or figure of a paper, computed again and compared with the paper's values.

A reproduction has two steps. `measure` runs experiments or computes curves, and returns `Measurements`: tables with one
row for each run, seed or computed point. `conclude` makes table, claims and remarks from measurements alone. The
measurements are stored beside the result, so that `testbed reproduce --verify` repeats the second step, and compares.

A module in a paper's folder lists its reproductions in a tuple `REPRODUCTIONS`. An entry in `catalogue.MODULES` makes
them available to `testbed reproduce`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from analysis.reproduction.verdicts import PaperClaim
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

Scale = Literal["small", "real", "paper"]

DataKind = Literal["paper", "stand-in", "none"]
"""Data of a measurement: the paper's data set, data in its place (another data set, or generated data), or none, as for
formulas and for protocols without training."""


@dataclass(frozen=True)
class ReproductionContext:
    """Inputs of a reproduction.

    Attributes:
        scale: "small" finishes in minutes on two cores; "real" has the paper's data and model, with as many rounds and
            seeds as two cores finish in hours; "paper" is the full experiment, for a cluster.
        out: existing directory for runs and figures; finished runs in it are reused.
        run_experiment: function that runs an experiment (with or without a sweep) in a directory below `out`, resumes
            unfinished runs, and returns the records of the points in the sweep's order.
        progress: function that shows one line of progress to the user.
        data: folder with real data; None: reproductions use built-in or generated data.
        seeds: number of repetitions that replaces the scale's, for reproductions with `takes_seeds`.
    """

    scale: Scale
    out: Path
    run_experiment: Callable[[Experiment, Path], list[RunRecords]]
    progress: Callable[[str], None]
    data: Path | None = None
    seeds: int | None = None


@dataclass(frozen=True)
class Origin:
    """Version, machine and duration behind a result.

    Attributes:
        seconds: wall-clock seconds of all attempts together, from command to result.
        version: version of the testbed.
        git_commit: commit of the testbed's checkout; None without a checkout.
        processor: processor of the machine.
        cpus: number of processors of the machine.
        ended: end of the last attempt, in UTC.
    """

    seconds: float = 0.0
    version: str = ""
    git_commit: str | None = None
    processor: str | None = None
    cpus: int | None = None
    ended: str = ""


@dataclass(frozen=True)
class Setting:
    """Setting of measurements, in plain data.

    Attributes:
        data_kind: whose data the measurements used.
        data: name of the data, such as ``UCI digits, 1,437 samples``; empty without data.
        seeds: seeds of the repetitions; empty for measurements without random numbers.
        sizes: numbers that describe the experiment, such as population, participants and rounds.
        differs: differences from the paper's experiment in scale, data and rounds, one short line each.
        choices: further inputs of `conclude`, such as the chosen learning rates.
    """

    data_kind: DataKind
    data: str = ""
    seeds: Sequence[int] = ()
    sizes: Mapping[str, float] = field(default_factory=dict)
    differs: Sequence[str] = ()
    choices: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurements:
    """Measured numbers of a reproduction.

    Attributes:
        setting: setting of the measurements.
        tables: by name, tables with one row for each run, seed or computed point. Cells are text, numbers or empty.
        figures: files of the figures, PNG and PDF; they are drawn while the runs are at hand, and are not stored.
    """

    setting: Setting
    tables: Mapping[str, pd.DataFrame]
    figures: Sequence[Path] = ()


@dataclass(frozen=True)
class ReproductionResult:
    """Result of a reproduction.

    Attributes:
        table: our values beside the paper's; columns of the paper's values end in ``(paper)``. Empty without a table.
        figures: files of the figures, PNG and PDF.
        claims: statements of the paper, compared with our measurements.
        remarks: differences from the paper (scale, inputs that the paper does not state) and their reasons.
    """

    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    figures: Sequence[Path] = ()
    claims: Sequence[PaperClaim] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Reproduction:
    """Table or figure that can be reproduced.

    Attributes:
        name: name in the command, such as ``lotto-table2``.
        title: description in one line.
        source: paper, and the place in the paper.
        measure: function that runs or computes everything.
        conclude: function that makes table, claims and remarks from stored measurements. It must not read files, run
            experiments or draw random numbers.
        aliases: further names, since a table and a figure of the same runs are one reproduction.
        data_files: description of the real data that the reproduction can use; empty when it uses none.
        scales: scales at which the reproduction can run.
        takes_seeds: whether the reproduction uses the context's `seeds`.
        built_in_data: kind of the data without ``--data``.
    """

    name: str
    title: str
    source: str
    measure: Callable[[ReproductionContext], Measurements]
    conclude: Callable[[Measurements], ReproductionResult]
    aliases: Sequence[str] = ()
    data_files: str = ""
    scales: Sequence[Scale] = ("small", "paper")
    takes_seeds: bool = False
    built_in_data: DataKind = "none"
