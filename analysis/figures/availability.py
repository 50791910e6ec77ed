"""Figures of availability: reachable clients and lost participants over time, and losses by stage."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.losses import LOST, first_losses, somebody_was_lost
from analysis.comparison.measures import stage_order
from analysis.comparison.rows import ComparisonRow
from analysis.figures.curves import Panel, keep_within, over_settings, with_intervals
from analysis.figures.elements import (
    FigureWithData,
    bars,
    fitted,
    interval_note,
    named,
    of_rows,
    part_handles,
    positions,
    protocol_axis,
)
from analysis.stage_looks import StageLook, stage_looks
from analysis.statistics import Interval, mean_interval, ratio_interval
from analysis.style import width
from analysis.tables import Unit, seconds_unit
from testbed.records import RunRecords

# Okabe and Ito (Color Universal Design, 2008).
_OUTCOME_LOOKS = dict(
    zip(
        LOST,
        (
            StageLook("#999999"),
            StageLook("#D55E00", "////"),
            StageLook("#E69F00", "...."),
            StageLook("#0072B2", "\\\\\\\\"),
        ),
        strict=True,
    )
)

FEW_PERCENT = 40


def presence(run: RunRecords) -> pd.DataFrame:
    """Return the availability of clients, one row per round with any question.

    Columns: round, started_s (virtual seconds), reachable (share of the clients asked in the round's first stage that
    were not offline), lost (share of the round's participants that were offline, dropped out, were too late or refused
    in any stage; NaN without participants), lost_so_far (the same over all rounds up to this one).
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


def availability(rows: Sequence[ComparisonRow], columns: int = 1) -> FigureWithData | str:
    """Draw the shares of reachable clients and of participants lost so far, at the beginning of rounds, over time.

    There is a column of panels per setting. Repetitions with other seeds are averaged round by round, with a band of
    the 95% interval over them.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        columns: of the page, 1 or 2.

    Returns:
        the figure, or the reason for its absence.
    """
    if not _somebody_was_lost(rows):
        return _NOBODY
    curves = [_curves(row) for row in rows]
    unit = seconds_unit([max((curve["started_s"].max() for curve in curves if len(curve)), default=0)])
    varies = {"reachable": any(curve["reachable"].min() < 1 for curve in curves)}
    varies["lost_so_far"] = any(curve["lost_so_far"].max() > 0 for curve in curves)
    shown_shares = [share for share in _SHARES if varies[share]]  # skip panels without information
    if not shown_shares:
        return _no_loss(rows)
    lines = []
    for curve in curves:
        x = curve["started_s"] / unit.size
        shares = [(100 * curve[share], 100 * curve[f"{share}_half_width"]) for share in shown_shares]
        lines.append([(x, pd.DataFrame({"mean": mean, "half_width": half_width})) for mean, half_width in shares])
    panels = [Panel(f"Time [{unit.symbol}]", _SHARES[share], 100) for share in shown_shares]
    figure, settings = over_settings(rows, panels, lines, columns, linewidth=1.0)
    for axes in figure.axes:
        keep_within(axes, 100)
    if settings[0][0].get_ylim()[1] > FEW_PERCENT:  # with small shares, a full axis would hide the changes
        settings[0][0].set_ylim(0, 103)
    return FigureWithData("availability", figure, of_rows(rows, curves))


_SHARES = {"reachable": "Clients reachable [%]", "lost_so_far": "Participants lost so far [%]"}
_NOBODY = "no client was offline or lost in these runs"


def _no_loss(rows: Sequence[ComparisonRow]) -> str:
    """Return the reason for a missing figure when clients were offline but no participant was lost."""
    took_part = any(run.rounds["participants"].gt(0).any() for row in rows for run in row.runs)
    return "no participant was lost in these runs" if took_part else "these runs have no participants"


def _somebody_was_lost(rows: Sequence[ComparisonRow]) -> bool:
    return any(somebody_was_lost(run) for row in rows for run in row.runs)


def _curves(row: ComparisonRow) -> pd.DataFrame:
    """Return by round: started_s (s, mean), reachable and lost_so_far with half-widths over the repetitions."""
    rounds = pd.concat([presence(run) for run in row.runs])
    return with_intervals(rounds, "round", ["started_s", *_SHARES]).drop(columns="started_s_half_width")


def dropouts_by_stage(rows: Sequence[ComparisonRow], columns: int = 1) -> FigureWithData | str:
    """Draw participants lost per round, by the stage and the way in which each was lost first.

    Bars are means over all recorded rounds of all repetitions. The error bar is the 95% interval of all losses over the
    repetitions (`analysis.statistics.ratio_interval`); of a single run over its rounds.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        columns: of the page, 1 or 2.

    Returns:
        the figure, or the reason for its absence.
    """
    if not _somebody_was_lost(rows):
        return _NOBODY
    order = stage_order([[str(stage) for stage in run.exchanges["stage"].unique()] for row in rows for run in row.runs])
    stages = [_lost_per_round(row, "stage", order) for row in rows]
    outcomes = [_lost_per_round(row, "outcome", LOST) for row in rows]
    totals = [_all_lost_per_round(row) for row in rows]
    if not any(total.mean for total in totals):
        return _no_loss(rows)
    # Parts without losses would only lengthen the legend.
    of_stage = {name: look for name, look in stage_looks(order).items() if any(s.get(name, 0) for s in stages)}
    of_outcome = {name: look for name, look in _OUTCOME_LOOKS.items() if any(o.get(name, 0) for o in outcomes)}
    places, height = positions(rows)
    has_intervals = any(total.half_width is not None for total in totals)
    note = f"error bars: {interval_note([len(row.runs) for row in rows], 'rounds')}" if has_intervals else ""
    by_outcome = len(of_outcome) > 1  # a single outcome needs no panel of its own
    legends = [fitted(list(of_stage), width(columns), "" if by_outcome else note)]
    legends += [fitted(list(of_outcome), width(columns), note)] if by_outcome else []
    heights = [height + 0.22 + 0.3 + legend.inches for legend in legends]
    figure = Figure(figsize=(width(columns), sum(heights)), layout="constrained")
    parts = figure.subfigures(len(legends), 1, squeeze=False, height_ratios=heights)[:, 0]
    unit, only = Unit("", 1.0, 2), next(iter(of_outcome))
    panels = []
    contents = (
        (stages, of_stage, "By stage of the loss"),
        (outcomes, of_outcome, "By outcome"),
    )
    for part, (values, looks, title), legend in zip(parts, contents, legends, strict=False):
        axes = part.subplots()
        axes.set_title(title if by_outcome else "", loc="left")
        half_widths = [total.half_width for total in totals]
        panels.append((axes, bars(axes, places, values, half_widths, unit, looks, "no round")))
        protocol_axis(axes, rows, places)
        legend.add_to(part, part_handles(looks))
    for axes, _ in panels:
        axes.set_xlim(0, max(reach for _, reach in panels) or 1)
        axes.set_xlabel("Participants lost per round" if by_outcome else f"Participants lost per round (all {only})")
    return FigureWithData("dropouts-by-stage", figure, _data(rows, stages, outcomes, totals))


def _data(
    rows: Sequence[ComparisonRow],
    stages: Sequence[pd.Series],
    outcomes: Sequence[pd.Series],
    totals: Sequence[Interval],
) -> pd.DataFrame:
    """Return a row per bar's part, and one for all losses, with the half-width of its interval."""
    records = []
    for row, of_stage, of_outcome, total in zip(rows, stages, outcomes, totals, strict=True):
        for by, parts in (("stage", of_stage), ("outcome", of_outcome)):
            records += [{**named(row), "by": by, "part": part, "lost_per_round": n} for part, n in parts.items()]
        mean, half_width = total.mean, total.half_width
        records.append(
            {**named(row), "by": "", "part": "all", "lost_per_round": mean, "lost_per_round_half_width": half_width}
        )
    return pd.DataFrame(records).astype({"lost_per_round": float, "lost_per_round_half_width": float})


def _all_lost_per_round(row: ComparisonRow) -> Interval:
    """Return the losses per round in total, the length of a bar."""
    lost = [
        first_losses(run).groupby("round").size().reindex(run.rounds["round"], fill_value=0).astype(float)
        for run in row.runs
    ]
    if len(lost) == 1:
        return mean_interval(lost[0])
    return ratio_interval([run_losses.sum() for run_losses in lost], [len(run_losses) for run_losses in lost])


def _lost_per_round(row: ComparisonRow, by: str, parts: Sequence[str]) -> pd.Series:
    """Return participants lost per recorded round, by the column `by` of `first_losses`; empty without rounds."""
    rounds = sum(len(run.rounds) for run in row.runs)
    if not rounds:
        return pd.Series(dtype=float)
    losses = pd.concat([first_losses(run) for run in row.runs])
    return losses.groupby(by).size().reindex(list(parts), fill_value=0) / rounds
