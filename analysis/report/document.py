"""Content of the report page as plain data: tables, curves, and the data of the round explorer for each run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison import overhead
from analysis.comparison.measures import (
    FAILED,
    STAGE_COSTS,
    by_stage,
    mean_by_stage,
    per_update_by_stage,
    stage_order,
)
from analysis.comparison.rows import ComparisonRow, rows_of
from analysis.comparison.summary import PRIVACY_TIME_LIMIT_S
from analysis.comparison.targets import is_unfinished
from analysis.comparison.time_to_target import compare_targets, targets_beside
from analysis.findings import findings, plain
from analysis.multi_round.participation import (
    cardinalities,
    fairness_gaps,
    participation_matrix,
    strong_privacies,
    summed_clients,
)
from analysis.report import clients, curves, origins, rounds, sheets
from analysis.report.overhead import overhead as overhead_sheet
from analysis.report.settings import settings
from analysis.report.sheets import Sheet
from analysis.style import SERIES_COLOURS, protocol_colours, stage_colours
from testbed.display import visible, visible_lines
from testbed.records import RunRecords
from testbed.records.targets import Target
from testbed.records.vocabulary import OUTCOMES
from testbed.version import VERSION

DASHES = 3
"""Number of dash patterns that are easy to distinguish."""


@dataclass(frozen=True)
class RunPart:
    """The part of the page that depends on one run, so that a live page recomputes it only for runs that progressed.

    Attributes:
        run: the records.
        curve: `analysis.report.curves.over_rounds`.
        stages: `analysis.comparison.measures.per_update_by_stage`.
        stage_names: in the order of the protocol.
        metrics: strong T, F and C after each round; None before the first sum.
        ledger: epsilons by round, or None.
        rounds: the round explorer's data, gzipped.
        stamp: differs after the run has progressed.
    """

    run: RunRecords
    curve: pd.DataFrame
    stages: pd.DataFrame
    stage_names: Sequence[str]
    metrics: pd.DataFrame | None
    ledger: pd.DataFrame | None
    rounds: bytes
    stamp: str = ""


@dataclass(frozen=True)
class Document:
    """The page: facts about all runs, and the explorer's data of each, in the order of ``facts["runs"]``."""

    title: str
    facts: dict[str, Any]
    rounds: Sequence[bytes]


def part_of(run: RunRecords, rows: int = rounds.ROWS, stamp: str = "") -> RunPart:
    """Return the part of the page for one run.

    Args:
        run: the records.
        rows: number of exchanges that the page may show.
        stamp: see `RunPart`.
    """
    by_round = by_stage(run)
    return RunPart(
        run=run,
        curve=curves.over_rounds(run),
        stages=per_update_by_stage(run, by_round),
        stage_names=list(by_round["stage"].unique()),
        metrics=_metrics(run),
        ledger=curves.ledger(run),
        rounds=rounds.packed(run, rows),
        stamp=stamp,
    )


def document(
    parts: Sequence[RunPart],
    targets: Sequence[str] = (),
    baseline: str | None = None,
    *,
    command: str = "",
    folder: Path = Path(),
    privacy_time_limit_s: float = PRIVACY_TIME_LIMIT_S,
) -> Document:
    """Return the page of some runs.

    Args:
        parts: of the runs, from `part_of`.
        targets: texts that `Target.parse` takes; default: the targets of the experiments, otherwise the best that all
            runs reach.
        baseline: as for `analysis.comparison.rows.baselines_of`.
        command: the command that writes the page, if any.
        folder: folder of the page, for the commands on it.
        privacy_time_limit_s: as for `analysis.comparison.summary.summarise`.

    Raises:
        ExperimentError: there are no runs, the baseline is unknown, or the runs cannot be compared by `targets`.
    """
    runs = [part.run for part in parts]
    rows = rows_of(runs)
    frame = overhead.compare(runs, baseline, privacy_time_limit_s=privacy_time_limit_s)
    reached, why_not = (compare_targets(runs, targets, baseline), "") if targets else targets_beside(runs, baseline)
    shown = plain(findings(runs, baseline, targets=reached))
    differences, common = settings(runs)
    names = list(dict.fromkeys(str(run.experiment.get("name") or run.path.name) for run in runs))
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    all_sheets: dict[str, Sheet | None] = {
        "runs": sheets.runs(runs),
        "clients": clients.clients(runs),
        "differences": differences if len(differences.heads) > 1 else None,
        "common": common,
        "overhead": overhead_sheet(frame, shown),
        "targets": None if reached is None else sheets.targets(reached),
        "losses": sheets.dropouts(runs),
        "events": sheets.events(runs),
    }
    curves_drawn, stages = _curves(rows, parts), _stages(rows, parts)
    facts = {
        "title": title,
        "version": VERSION,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "unfinished": [run.label for run in runs if is_unfinished(run)],
        "no_targets": why_not,
        "no_stages": "no completed round" if not stages["stages"] and any(len(run.rounds) for run in runs) else "",
        "targets": [] if reached is None else _lines(reached),
        "sheets": {name: asdict(sheet) for name, sheet in all_sheets.items() if sheet is not None},
        "headline": _headline(curves_drawn, stages),
        "findings": shown,
        "curves": curves_drawn,
        "stages": stages,
        "stage_colours": stage_colours(stage_order([part.stage_names for part in parts])),
        "outcomes": OUTCOMES,
        "metrics": _by_run(parts, "metrics"),
        "ledger": _by_run(parts, "ledger"),
        "runs": _runs(parts),
        "provenance": origins.provenance(runs, folder),
    }
    return Document(visible(title), _visible_texts(facts), [part.rounds for part in parts])


def _visible_texts(value: Any) -> Any:
    """Return the value with hidden and reordering characters in its texts made visible (`testbed.display`)."""
    if isinstance(value, str):
        return visible_lines(value)
    if isinstance(value, dict):
        return {_visible_texts(key): _visible_texts(part) for key, part in value.items()}
    return [_visible_texts(part) for part in value] if isinstance(value, list | tuple) else value


def _metrics(run: RunRecords) -> pd.DataFrame | None:
    if not len(summed_clients(run)):
        return None
    matrix = participation_matrix(run, compact=True).astype(np.bool_)
    frame = pd.DataFrame({"round": run.rounds["round"].to_numpy(np.int64)})
    reachable = matrix.any(axis=1).cumsum() > 0
    frame["strong"] = np.where(reachable, strong_privacies(matrix).astype(np.float64), np.nan)
    frame["fairness"], frame["cardinality"] = fairness_gaps(matrix), cardinalities(matrix)
    return frame


def _headline(lines: Sequence[dict[str, Any]], stages: dict[str, Any]) -> dict[str, str] | None:
    """Return the first figure of the page: learning over time if measured, otherwise round time by stage.

    None if there is nothing to draw yet.
    """
    for measure in ("accuracy", "loss"):
        counts = [sum(value is not None for value in curve["points"].get(measure, ())) for curve in lines]
        if max(counts, default=0) > 1:
            return {"kind": "curves", "y": measure, "x": "time_s"}
    return {"kind": "bars", "y": "duration_s"} if stages["stages"] else None


def _of(row: ComparisonRow, parts: Sequence[RunPart]) -> list[RunPart]:
    return [part for part in parts if any(part.run is run for run in row.runs)]


def _curves(rows: Sequence[ComparisonRow], parts: Sequence[RunPart]) -> list[dict[str, Any]]:
    """Return a curve per row: its label, colour, seeds and points."""
    labels = _told_apart([row.full_label for row in rows], [row.runs[0] for row in rows])
    looks = _looks([row.protocol or row.label for row in rows])
    row_curves = []
    for label, row, (colour, dash) in zip(labels, rows, looks, strict=True):
        points = curves.of_row(row, [part.curve for part in _of(row, parts)])
        row_curves.append({"label": label, "seeds": len(row.runs), "colour": colour, "dash": dash, "points": points})
    return row_curves


def _looks(names: Sequence[str]) -> list[tuple[str, int]]:
    """Return colour and dash of each row: the colour of its protocol, and dashes for rows of the same protocol.

    Colours distinguish the rows instead if all have one protocol, if a protocol has more rows than there are dashes, or
    if there are more protocols than colours.
    """
    kinds = len(set(names))
    if 1 == kinds < len(names) or max(map(names.count, names)) > DASHES or kinds > len(SERIES_COLOURS):
        return [(SERIES_COLOURS[at % len(SERIES_COLOURS)], at // len(SERIES_COLOURS)) for at in range(len(names))]
    colours = protocol_colours(names)
    return [(colours[name], names[:at].count(name)) for at, name in enumerate(names)]


def _stages(rows: Sequence[ComparisonRow], parts: Sequence[RunPart]) -> dict[str, Any]:
    """Return the cost of a completed round in each stage, by row; without stages if no row has completed a round."""
    completed = [any(run.rounds["outcome"].eq("completed").any() for run in row.runs) for row in rows]
    frames = [mean_by_stage([part.stages for part in _of(row, parts)]) for row in rows]
    names = stage_order([part.stage_names for part in parts]) if any(completed) else []
    colours: dict[str, str] = dict(stage_colours(names))
    if names and any(FAILED in frame.index for frame in frames):
        names, colours = [*names, FAILED], colours | {FAILED: "#B5544D"}
    costs = {cost: [[_rounded(frame[cost].get(name)) for name in names] for frame in frames] for cost in STAGE_COSTS}
    labels = [row.full_label for row in rows]
    return {"rows": labels, "completed": completed, "stages": names, "colours": colours, **costs}


def _lines(reached: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the target lines of the curves: metric, threshold and label of each target."""
    targets = [Target.parse(target) for target in reached["target"].drop_duplicates()]
    return [{"metric": target.metric, "threshold": target.threshold, "label": target.label} for target in targets]


def _rounded(value: Any) -> float:
    return 0.0 if value is None or pd.isna(value) else float(f"{value:.6g}")


def _by_run(parts: Sequence[RunPart], name: str) -> list[dict[str, Any]]:
    run_frames = [(part.run, getattr(part, name)) for part in parts]
    names = _names(parts)
    looks = _looks([run.label for run, _ in run_frames])
    return [
        {"label": names[str(run.path)], "colour": colour, "dash": dash, "points": curves.as_lists(frame)}
        for (run, frame), (colour, dash) in zip(run_frames, looks, strict=True)
        if frame is not None
    ]


def _name(run: RunRecords) -> str:
    seed = run.experiment.get("seed")
    return run.label if seed is None or "seed" in run.label else f"{run.label}, seed {seed}"


def _names(parts: Sequence[RunPart]) -> dict[str, str]:
    """Return a name for each run that is unique among all runs, by its path."""
    runs = [part.run for part in parts]
    return dict(zip(map(str, (run.path for run in runs)), _told_apart(list(map(_name, runs)), runs), strict=True))


def _told_apart(labels: Sequence[str], runs: Sequence[RunRecords]) -> list[str]:
    """Return the labels, with the directories of their runs where labels are equal."""
    return [
        f"{label} ({run.path})" if labels.count(label) > 1 else label for label, run in zip(labels, runs, strict=True)
    ]


def _runs(parts: Sequence[RunPart]) -> list[dict[str, Any]]:
    """Return facts about each run that the round explorer shows before the rounds are loaded."""
    names = _names(parts)
    return [
        {
            "key": str(part.run.path),
            "stamp": part.stamp,
            "label": names[str(part.run.path)],
            "rounds": len(part.run.rounds),
            "planned": int(part.run.experiment.get("rounds", 0)),
            "state": sheets.state(part.run),
            "deadline_s": part.run.value("time.deadline_s"),
        }
        for part in parts
    ]
