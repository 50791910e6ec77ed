"""The figures of `testbed plot` and their files.

Each figure is written as PNG and as PDF with embedded fonts, one or two columns of a page wide, with its data beside it
as CSV. Stages are in the order of the protocol (selection, training, aggregation). Stages and protocols have the same
colour in all figures.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.comparison.rows import ComparisonRow, rows_of
from analysis.comparison.targets import METRICS, Metric, Target, default_target, named_targets, parse_targets
from analysis.figures.availability import availability, dropouts_by_stage
from analysis.figures.by_stage import round_time, traffic
from analysis.figures.curves import settings_of
from analysis.figures.elements import FigureWithData
from analysis.figures.learning import by_traffic, over_time
from analysis.figures.noise import noise_figure
from analysis.figures.stragglers import stragglers
from analysis.figures.swept import swept
from analysis.style import FORMATS, USUAL_FORMATS, house_style, save
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from testbed.spelling import did_you_mean

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FigureRequest:
    """The runs to draw, and options for drawing.

    Attributes:
        rows: of the runs.
        columns: of the page, 1 or 2; None: 1 for bars, and for curves of a single setting, otherwise 2.
        targets: lines in the curves.
        smooth: number of evaluations that curves average over.
    """

    rows: Sequence[ComparisonRow]
    columns: int | None = None
    targets: Sequence[Target] = ()
    smooth: int = 1

    @property
    def runs(self) -> list[RunRecords]:
        """The runs of all rows."""
        return [run for row in self.rows for run in row.runs]

    @property
    def of_bars(self) -> int:
        """Columns of the page for a figure with a row for each protocol."""
        return self.columns or 1

    @property
    def of_curves(self) -> int:
        """Columns of the page for a figure with panels for each setting."""
        return self.columns or (1 if len(settings_of(self.rows)) == 1 else 2)


Draw = Callable[[FigureRequest], FigureWithData | str]


def _curves(draw: Callable[..., FigureWithData | str], metric: Metric) -> Draw:
    return lambda subject: draw(subject.rows, metric, subject.targets, subject.of_curves, subject.smooth)


FIGURES: dict[str, Draw] = {
    "round-time-by-stage": lambda subject: round_time(subject.rows, subject.of_bars),
    **{metric: _curves(over_time, metric) for metric in METRICS},
    **{f"{metric}-by-traffic": _curves(by_traffic, metric) for metric in METRICS},
    "traffic-by-stage": lambda subject: traffic(subject.rows, subject.of_bars),
    "accuracy-of-noise": lambda subject: noise_figure(subject.runs, subject.of_bars),
    "availability": lambda subject: availability(subject.rows, subject.of_curves),
    "dropouts-by-stage": lambda subject: dropouts_by_stage(subject.rows, subject.of_bars),
    "stragglers": lambda subject: stragglers(subject.rows, subject.of_curves),
}
"""Functions by name of the figure: each returns the figure, or the reason for its absence."""

_SPECIAL = ("accuracy-of-noise", "stragglers")  # left out without a note if there is nothing to show


def _usual(targets: Sequence[Target]) -> list[str]:
    """Return the names of all figures, but of loss and perplexity only if there are targets for them."""
    metrics = {"accuracy", *(target.metric for target in targets)}
    return [name for name in FIGURES if name.partition("-")[0] in metrics or name.partition("-")[0] not in METRICS]


def plot(
    runs: Sequence[RunRecords],
    out: Path,
    note: Callable[[str], None] = _log.warning,
    *,
    only: Sequence[str] = (),
    columns: int | None = None,
    formats: Sequence[str] = USUAL_FORMATS,
    targets: Sequence[str | Target] = (),
    smooth: int = 1,
) -> list[Path]:
    """Draw the figures `FIGURES`; return the files, including each figure's data.

    Curves of loss and perplexity are drawn if there are targets for them. Repetitions with other seeds are averaged
    (see `analysis.comparison.rows`); bands and error bars are 95% intervals. A figure without recorded data is left out
    with a note.

    Args:
        runs: e.g. from `testbed.records.find_runs`.
        out: directory, created if missing.
        note: called with one line for each figure that is left out.
        only: names of figures; default: all.
        columns: of the page, 1 or 2; see `FigureRequest`.
        formats: of `analysis.style.FORMATS`.
        targets: lines in the curves, as `Target.parse` takes them, or ``best``; default: the targets of the experiments
            (`targets`).
        smooth: number of evaluations that curves average over.

    Raises:
        ExperimentError: there are no runs, or a figure in `only` is unknown or cannot be drawn.
    """
    names = [_checked_name(name) for name in only]
    rows = rows_of(runs)
    requested_targets = targets_of(rows, targets, smooth)
    chosen, subject = names or _usual(requested_targets), FigureRequest(rows, columns, requested_targets, smooth)
    paths = []
    with house_style():
        for name in chosen:
            drawing = FIGURES[name](subject)
            if isinstance(drawing, FigureWithData):
                paths += save(drawing.figure, out / drawing.name, drawing.data, formats)
            elif only:
                raise ExperimentError(f"--only {name}: {drawing}")
            elif name not in _SPECIAL:
                note(f"no {name} figure: {drawing}")
    return paths


def plot_swept(
    runs: Sequence[RunRecords],
    out: Path,
    x: str,
    y: Sequence[str],
    hue: Sequence[str] = (),
    *,
    log: str = "",
    columns: int | None = None,
    formats: Sequence[str] = USUAL_FORMATS,
    target: str | Target | None = None,
) -> list[Path]:
    """Draw measures over a key of the experiments; return the files, including the data.

    Args:
        runs, x, y, hue, log: as for `analysis.figures.swept.swept`.
        out, columns, formats: as for `plot`; one column by default.
        target: the target of ``..._to_target``, as `Target.parse` takes it; default: the best that all runs reach.

    Raises:
        ExperimentError: as `swept`.
    """
    requested_target = parse_targets([target])[0] if target is not None else None
    with house_style():
        drawing = swept(runs, x, y, hue, log=log, columns=columns or 1, target=requested_target)
        return save(drawing.figure, out / drawing.name, drawing.data, formats)


def targets_of(rows: Sequence[ComparisonRow], named: Sequence[str | Target], smooth: int = 1) -> list[Target]:
    """Return the targets without duplicates; by default those of the experiments.

    Args:
        rows: the rows of a comparison.
        named: targets, or texts that name them.
        smooth: number of evaluations that curves average over.

    Raises:
        ExperimentError: a target is invalid.
    """
    if not named:
        return named_targets([run for row in rows for run in row.runs])
    targets = [target or default_target(rows, smooth) for target in parse_targets(named)]
    return list(dict.fromkeys(targets))


def formats_of(names: Sequence[str]) -> list[str]:
    """Return the formats without duplicates.

    Raises:
        ExperimentError: a format is unknown, or there is none.
    """
    if unknown := [name for name in names if name not in FORMATS] or ([] if names else [""]):
        raise ExperimentError(f"--format {unknown[0] or '(empty)'}: no such format; choose among {', '.join(FORMATS)}")
    return list(dict.fromkeys(names))


def _checked_name(name: str) -> str:
    if name in FIGURES:
        return name
    hint = did_you_mean(name, FIGURES, quoted=False)
    raise ExperimentError(f"--only {name}: no such figure; {hint}choose among {', '.join(FIGURES)}")
