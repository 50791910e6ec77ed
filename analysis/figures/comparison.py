"""The figures of `testbed plot`: which there are, and their files.

Each is written as PNG and as PDF with embedded fonts, one or two columns of a page wide, and its data beside it as
CSV. Stages come in the order of the protocol (selection, training, aggregation) and keep their colour from figure to
figure, and so do protocols.
"""

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.comparison.rows import Row, rows_of
from analysis.figures.accuracy import accuracy
from analysis.figures.availability import availability, dropouts_by_stage
from analysis.figures.by_stage import round_time, traffic
from analysis.figures.curves import settings_of
from analysis.figures.elements import Drawn, random_first
from analysis.figures.noise import noise_figure
from analysis.style import FORMATS, USUAL_FORMATS, house_style, save
from testbed.errors import ExperimentError
from testbed.records import RunRecords

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subject:
    """What is drawn.

    Attributes:
        rows: of the runs.
        columns: of the page, 1 or 2; None: 1 for bars, and for curves of a single setting, else 2.
    """

    rows: Sequence[Row]
    columns: int | None = None

    @property
    def runs(self) -> list[RunRecords]:
        """Those of all rows."""
        return [run for row in self.rows for run in row.runs]

    @property
    def of_bars(self) -> int:
        """Columns of the page for a figure with a row for each protocol."""
        return self.columns or 1

    @property
    def of_curves(self) -> int:
        """Columns of the page for a figure with panels for each setting."""
        return self.columns or (1 if len(settings_of(self.rows)) == 1 else 2)


FIGURES: dict[str, Callable[[Subject], Drawn | str]] = {
    "round-time-by-stage": lambda subject: round_time(subject.rows, subject.of_bars),
    "accuracy": lambda subject: accuracy(subject.rows, subject.of_curves),
    "traffic-by-stage": lambda subject: traffic(subject.rows, subject.of_bars),
    "accuracy-of-noise": lambda subject: noise_figure(subject.runs, subject.of_bars),
    "availability": lambda subject: availability(subject.rows, subject.of_curves),
    "dropouts-by-stage": lambda subject: dropouts_by_stage(subject.rows, subject.of_bars),
}
"""By name: draws it, or says why not."""

_SPECIAL = ("accuracy-of-noise",)  # nobody misses these where there is nothing to show


def plot(
    runs: Sequence[RunRecords],
    out: Path,
    note: Callable[[str], None] = _log.warning,
    *,
    only: Sequence[str] = (),
    columns: int | None = None,
    formats: Sequence[str] = USUAL_FORMATS,
) -> list[Path]:
    """Draw the figures `FIGURES`; return the files, each figure's data among them.

    Repetitions with other seeds are averaged (see `analysis.comparison.rows`); bands and error bars are 95% intervals.
    A figure for which nothing was recorded is left out, and `note` is told so.

    Args:
        runs: e.g. from `testbed.records.find_runs`; raises `ExperimentError` when there are none.
        out: directory, made when it is not there.
        note: called with one line for each figure that is left out.
        only: names of figures; default: all. Raises `ExperimentError` for one that is unknown or cannot be drawn.
        columns: of the page, 1 or 2; see `Subject`.
        formats: of `analysis.style.FORMATS`.
    """
    chosen = [_known(name) for name in only] or list(FIGURES)
    subject = Subject(random_first(rows_of(runs)), columns)
    paths = []
    with house_style():
        for name in chosen:
            found = FIGURES[name](subject)
            if isinstance(found, Drawn):
                paths += save(found.figure, out / found.name, found.data, formats)
            elif only:
                raise ExperimentError(f"--only {name}: {found}")
            elif name not in _SPECIAL:
                note(f"no {name} figure: {found}")
    return paths


def formats_of(names: Sequence[str]) -> list[str]:
    """Each format once; raises `ExperimentError` where one is unknown, or there is none."""
    if unknown := [name for name in names if name not in FORMATS] or ([] if names else [""]):
        raise ExperimentError(f"--format {unknown[0] or '(empty)'}: no such format; there are {', '.join(FORMATS)}")
    return list(dict.fromkeys(names))


def _known(name: str) -> str:
    if name in FIGURES:
        return name
    close = difflib.get_close_matches(name, FIGURES, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ExperimentError(f"--only {name}: no such figure; {hint}there are {', '.join(FIGURES)}")
