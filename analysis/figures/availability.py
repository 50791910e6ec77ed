"""Figures of who was there: clients reachable and participants lost over time, and where participants were lost."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.losses import LOST, first_losses
from analysis.comparison.measures import stage_order
from analysis.comparison.rows import Row
from analysis.figures.elements import (
    LEGEND_COLUMNS,
    bars,
    legend_inches,
    over_settings,
    part_handles,
    positions,
    protocol_axis,
    random_first,
)
from analysis.style import COLUMN_INCHES, stage_colours
from analysis.tables import Unit, seconds_unit
from testbed.records import RunRecords

# Okabe and Ito (Color Universal Design, 2008).
_OUTCOME_COLOURS = dict(zip(LOST, ("#999999", "#D55E00", "#E69F00", "#0072B2"), strict=True))

FEW_PERCENT = 40


def presence(run: RunRecords) -> pd.DataFrame:
    """One row per round in which somebody was asked.

    Columns: round, started_s (virtual seconds), reachable (share of the clients asked in the round's first stage
    that were not offline), lost (share of the round's participants that were offline, dropped out, came too late or
    refused in any stage; NaN without participants), lost_so_far (the same over all rounds up to this one).
    """
    exchanges = run.exchanges
    stage = pd.Series(pd.factorize(exchanges["stage"])[0], exchanges.index)
    first = exchanges[stage == stage.groupby(exchanges["round"]).transform("first")]
    reachable = (first["outcome"] != "offline").groupby(first["round"]).mean()
    frame = run.rounds[["round", "started_s"]].copy()
    frame["reachable"] = frame["round"].map(reachable).astype(float)
    losses = frame["round"].map(first_losses(run).groupby("round").size()).fillna(0).astype(float)
    chosen = run.rounds["participants"].astype(float)
    frame["lost"] = losses / chosen.where(chosen > 0)
    frame["lost_so_far"] = losses.cumsum() / chosen.cumsum().where(chosen.cumsum() > 0)
    return frame.dropna(subset="reachable").reset_index(drop=True)


def availability(rows: Sequence[Row]) -> Figure:
    """Clients reachable when a round begins, and participants lost up to it, against virtual time.

    A column of panels per setting. Repetitions with other seeds are averaged round by round, with a band from the
    least to the most.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
    """
    rows = random_first(rows)
    curves = [_curves(row) for row in rows]
    unit = seconds_unit([max((curve["started_s", "mean"].max() for curve in curves if len(curve)), default=0)])
    lines = []
    for curve in curves:
        x = curve["started_s", "mean"] / unit.size
        lines.append([(x, 100 * curve[share]) for share in ("reachable", "lost_so_far")])
    figure, panels = over_settings(rows, lines, linewidth=1.0, sharex="col", sharey="row")
    for axes in panels[1]:
        axes.set_xlabel(f"Time [{unit.symbol}]")
    for axes, label in zip(panels[:, 0], ("Clients reachable [%]", "Participants lost so far [%]"), strict=True):
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    if panels[0, 0].get_ylim()[1] > FEW_PERCENT:  # of few clients, only the changes would be hard to see
        panels[0, 0].set_ylim(0, 103)
    return figure


def _curves(row: Row) -> pd.DataFrame:
    """By round: mean, min and max over the repetitions of started_s, reachable and lost_so_far."""
    rounds = pd.concat([presence(run) for run in row.runs])
    return rounds.groupby("round")[["started_s", "reachable", "lost_so_far"]].agg(["mean", "min", "max"])


def dropouts_by_stage(rows: Sequence[Row]) -> Figure:
    """Participants lost per round: the stage in which each was lost first, and how.

    Means over all recorded rounds of all repetitions.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
    """
    rows = random_first(rows)
    order = stage_order([[str(stage) for stage in run.exchanges["stage"].unique()] for row in rows for run in row.runs])
    stages = [_lost_per_round(row, "stage", order) for row in rows]
    outcomes = [_lost_per_round(row, "outcome", LOST) for row in rows]
    # Stages and ways in which nobody was lost would only lengthen the legend.
    of_stage = {name: colour for name, colour in stage_colours(order).items() if any(s.get(name, 0) for s in stages)}
    of_outcome = {name: colour for name, colour in _OUTCOME_COLOURS.items() if any(o.get(name, 0) for o in outcomes)}
    places, height = positions(rows)
    handles, others = part_handles(of_stage), part_handles(of_outcome)
    inches = 2 * (height + 0.22) + 0.6 + legend_inches(handles) + legend_inches(others)
    figure = Figure(figsize=(COLUMN_INCHES, inches), layout="constrained")
    ratios = [height + 0.5 + legend_inches(legend) for legend in (handles, others)]
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=ratios)[:, 0]
    unit = Unit("", 1.0, 2)
    panels = []
    for part, columns, colours, title, legend in (
        (above, stages, of_stage, "By the stage in which they were lost", handles),
        (below, outcomes, of_outcome, "By what became of them", others),
    ):
        axes = part.subplots()
        axes.set_title(title, loc="left")
        panels.append((axes, bars(axes, places, columns, unit, colours, "no round")))
        protocol_axis(axes, rows, places)
        part.legend(handles=legend, loc="outside lower center", ncols=LEGEND_COLUMNS)
    for axes, _ in panels:
        axes.set_xlim(0, max(reach for _, reach in panels) or 1)
        axes.set_xlabel("Participants lost per round")
    return figure


def _lost_per_round(row: Row, by: str, parts: Sequence[str]) -> pd.Series:
    """Participants lost per recorded round, by the column `by` of `first_losses`; empty when there are no rounds."""
    rounds = sum(len(run.rounds) for run in row.runs)
    if not rounds:
        return pd.Series(dtype=float)
    losses = pd.concat([first_losses(run) for run in row.runs])
    return losses.groupby(by).size().reindex(list(parts), fill_value=0) / rounds
