"""Costs and completion of the compared protocols, from the measured rounds and settings alone."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.reproduction.aggregation_comparison.completion import Tolerance
from analysis.reproduction.aggregation_comparison.conditions import CHANCE
from analysis.reproduction.aggregation_comparison.measures import PHASES
from analysis.statistics import Interval, Proportion, mean_interval

ROUNDS_OF_A_SET_UP = 100
"""Rounds over which a set-up that serves many rounds is spread."""

MULTI_SCALAR_SPEED_UP = 4.0
"""Largest gain of Straus's method for a sum of products with public points over one product after another, as measured
in curve25519-dalek (github.com/dalek-cryptography/curve25519-dalek/pull/249: "saturates at 4x")."""

PHASED = [f"{kind} ({phase})" for kind in ("client s", "server s", "elapsed s") for phase in PHASES]
MEASURES = [
    *PHASED, "MB up (set-up)", "MB up (upload)", "MB up", "MB down", "client s", "busiest client s",
    "busiest client MB", "server s", "training s", "round s",
]  # fmt: skip

Row = Mapping[str, Any]


def tolerance_in(setting: Row) -> Tolerance:
    """Return the tolerated losses of a row of the settings."""
    return Tolerance(
        int(setting["n"]), int(setting["may be lost"]), int(setting["members"]), int(setting["members may be lost"])
    )


def by_seed(rounds: pd.DataFrame, column: str) -> Interval:
    """Return the mean of a column over seeds, of the means over a seed's rounds, with its 95% interval.

    Args:
        rounds: measured rounds.
        column: name of a measured column.
    """
    interval = mean_interval(rounds.groupby("seed")[column].mean())
    if interval.mean is None or interval.half_width is None:
        return interval
    # Equal numbers have an interval of a rounding error.
    return Interval(interval.mean, 0.0 if interval.half_width <= 1e-9 * abs(interval.mean) else interval.half_width)


def steady(rounds: pd.DataFrame, session: str) -> pd.DataFrame:
    """Return completed rounds, without the first of a protocol with a set-up for later rounds, where there are others.

    Args:
        rounds: measured rounds.
        session: `ComparedProtocol.session`.
    """
    return _later(rounds[rounds["outcome"] == "completed"], session)


def _later(rounds: pd.DataFrame, session: str) -> pd.DataFrame:
    later = rounds[rounds["round"] > 1]
    return later if session and not later.empty else rounds


def costs(rounds: pd.DataFrame, setting: Row) -> dict[str, Any]:
    """Return the columns of one protocol under one condition, as means over seeds.

    Args:
        rounds: measured rounds.
        setting: row of the settings.
    """
    session = str(setting["session"])
    usual = steady(rounds, session)
    columns: dict[str, Any] = {name: by_seed(usual, name).mean for name in MEASURES}
    for name in ("round s", "server s", "MB up"):
        columns[f"{name} ±"] = by_seed(usual, name).half_width
    overlapped = usual.assign(overlap=usual[["elapsed s (set-up)", "training s"]].min(axis=1))
    columns["round s (set-up while training)"] = by_seed(
        overlapped.assign(rest=overlapped["round s"] - overlapped["overlap"]), "rest"
    ).mean
    first = rounds[(rounds["outcome"] == "completed") & (rounds["round"] == 1)]
    once = session == "once" and not first.empty and bool((usual["round"] > 1).any())
    for name, unit in (("round s", "s"), ("MB up", "MB up")):
        more = by_seed(first, name).mean - columns[name] if once else None
        columns[f"set-up once {unit}"] = more
    more = columns["set-up once s"]
    columns["round s (share of set-up)"] = (
        columns["round s"]
        if more is None or columns["round s"] is None
        else columns["round s"] + more / ROUNDS_OF_A_SET_UP
    )
    done = Proportion.of(int((rounds["outcome"] == "completed").sum()), len(rounds))
    columns |= {
        "questions": usual["questions"].min() if len(usual) else None,
        "most questions": usual["most questions"].max() if len(usual) else None,
        "stages": usual["stages"].max() if len(usual) else None,
        "completed": f"{done.count} of {done.trials}",
        "completed low": done.low,
        "completed high": done.high,
    }
    return columns


def per_sum(of_row: Mapping[str, pd.DataFrame], setting: Row, rate: float) -> dict[str, Any]:
    """Return chance and cost of a sum if each participant drops out with a probability, independently of the others.

    A sum costs its own round and the ended rounds before it: with a chance p, (p C + (1 - p) A) / p, for C of a
    completed and A of an ended round.

    Args:
        of_row: rounds of one protocol at this rate: ``completed``, ``ended``, ``exact`` (as many losses as expected)
            and ``counted``.
        setting: row of the settings at this rate.
        rate: probability of a dropout.
    """
    chance, session = tolerance_in(setting).completes_with_rate(rate), str(setting["session"])
    nearly_all = chance >= CHANCE
    completed = steady(of_row["exact"] if nearly_all else of_row["completed"], session)
    ended = of_row["ended"]
    ended = _later(ended[ended["outcome"] != "completed"], session)
    counted = of_row["counted"]
    columns: dict[str, Any] = {"chance of a sum": chance}
    if len(counted):
        done = Proportion.of(int((counted["outcome"] == "completed").sum()), len(counted))
        columns |= {
            "completed": f"{done.count} of {done.trials}",
            "completed low": done.low,
            "completed high": done.high,
        }
    for name in ("round s", "MB up", "server s"):
        won, lost = by_seed(completed, name), by_seed(ended, name)
        missing = won.mean is None or (lost.mean is None and not nearly_all)
        columns[f"{name} (completed)"], columns[f"{name} (ended)"] = won.mean, lost.mean
        odds = 0.0 if nearly_all or missing else (1 - chance) / chance
        columns[f"{name} per sum"] = None if missing else (won.mean or 0.0) + odds * (lost.mean or 0.0)
        widths = [won.half_width, (lost.half_width or 0.0) * odds]
        columns[f"{name} per sum ±"] = None if missing or widths[0] is None else math.hypot(*map(float, widths))  # type: ignore[arg-type]
    return columns


def points_share(usual: Mapping[str, Any], free: pd.DataFrame, setting: Row) -> dict[str, Any]:
    """Return the server's seconds for products of public points, and the row's seconds with a faster product, computed.

    Computed, not measured: a sum of products at `MULTI_SCALAR_SPEED_UP` times the speed, of the L/3 + 1 decryptions
    that the paper's server takes instead of t.

    Args:
        usual: `costs` of the row.
        free: rounds of the same runs, with products and sums of points that cost no time.
        setting: row of the settings.
    """
    name = "server s (recovery)"
    without = by_seed(steady(free, str(setting["session"])), name).mean
    if usual[name] is None or without is None:
        return {}
    points = usual[name] - without
    members = int(setting["members"])
    used, published = members - int(setting["members may be lost"]), members // 3 + 1
    saved = points * (1 - published / used / MULTI_SCALAR_SPEED_UP)
    return {
        "server s for points": points,
        "server s (fast points)": usual["server s"] - saved,
        "round s (fast points)": usual["round s"] - saved,
    }


def selected(rounds: pd.DataFrame, **values: str) -> pd.DataFrame:
    """Return the rows with these values.

    Args:
        rounds: measured rounds, or settings.
        **values: value of each column; ``protocol``, ``varied``, ``value`` or ``losses``.
    """
    chosen = rounds
    for column, value in values.items():
        chosen = chosen[chosen[column] == value]
    return chosen


def first_of(*frames: pd.DataFrame) -> Row | None:
    """Return the first row of the first frame that has one."""
    return next((rows_of(frame)[0] for frame in frames if len(frame)), None)


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """Return the rows as mappings from columns to cells."""
    return [{str(name): cell for name, cell in row.items()} for row in frame.to_dict("records")]
