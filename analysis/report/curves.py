"""Curves of the page over rounds: accuracy, cost and participants of each row, and the privacy spent by clients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.measures import per_round
from analysis.comparison.rows import ComparisonRow
from analysis.privacy.spent import spending
from analysis.statistics import mean_interval
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from testbed.records.vocabulary import is_language

POINTS = 400
"""Largest number of points of a curve; further points are left out evenly."""
_X = ["time_s", "server_bytes"]
_MEASURES = ["accuracy", "loss", "round_s", "round_bytes", "participants", "survivors"]


def over_rounds(run: RunRecords) -> pd.DataFrame:
    """Return one run by round: round, time_s and server_bytes (since its start, with failed rounds) and the measures.

    The measures are accuracy (a fraction), loss, perplexity (of language models), round_s, round_bytes (server),
    participants and survivors; NaN if not measured.
    """
    frame = per_round(run)
    frame = frame.assign(time_s=frame["ended_s"], round_bytes=frame["server_bytes"])
    frame["server_bytes"] = frame["round_bytes"].cumsum()
    if is_language(str(run.value("workload.dataset"))):
        frame["perplexity"] = np.exp(frame["loss"])
    return frame[["round", *_X, *[name for name in (*_MEASURES, "perplexity") if name in frame]]]


def of_row(row: ComparisonRow, frames: Sequence[pd.DataFrame]) -> dict[str, Any]:
    """Return a row's curves: lists by name, means over its seeds.

    With several seeds, ``NAME_half`` has half of the 95% intervals.

    Args:
        row: of a comparison.
        frames: `over_rounds` of its runs.
    """
    if len(frames) == 1:
        curve = frames[0]
    else:
        together = pd.concat(frames).groupby("round", sort=True)
        curve = together.mean()
        for name in [str(name) for name in curve if name not in _X]:
            curve[f"{name}_half"] = [mean_interval(part.dropna()).half_width for _, part in together[name]]
        curve = curve.reset_index()
    measured = curve["accuracy"].notna() | curve["loss"].notna()
    places = np.unique(np.linspace(0, len(curve) - 1, min(len(curve), POINTS)).astype(int))
    if 0 < measured.sum() <= POINTS:  # evaluations are not left out
        places = np.union1d(places, np.flatnonzero(measured))
    shown = curve.iloc[places]
    return {str(name): _rounded(shown[name]) for name in shown if shown[name].notna().any()}


def ledger(run: RunRecords) -> pd.DataFrame | None:
    """Return the clients' spending by round (`analysis.privacy.spent.Spending.by_round`); None without a ledger."""
    try:
        return spending(run).by_round
    except ExperimentError:
        return None


def as_lists(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the frame's columns as lists of at most `POINTS` rows."""
    places = np.unique(np.linspace(0, len(frame) - 1, min(len(frame), POINTS)).astype(int))
    return {str(name): _rounded(frame[name].iloc[places]) for name in frame}


def _rounded(column: pd.Series) -> list[Any]:
    """Return numbers with six digits."""
    if column.dtype.kind != "f":
        return list(column)
    return [None if not np.isfinite(value) else float(f"{value:.6g}") for value in column.astype(float)]
