"""What the papers say of costs, with the numbers that could be looked up, against the table."""

import math
from collections.abc import Sequence

import pandas as pd

from analysis.reproduction.generations.conditions import EXPANSION
from analysis.reproduction.verdicts import Claim, above, below, between, within

EXPANSION_PUBLISHED, EXPANSION_MARGIN = 1.73, 0.09
"""Bonawitz et al., abstract: 2^10 users, 2^20 dimensions, 16-bit inputs; five per cent for encodings and key sizes."""

UNCHANGED = 1.1
"""A cost that does not depend on drop-outs is at most so many times that without any."""

_INPUT_BYTES = 2  # 16 bits
_MB = 1e6


def claims(frame: pd.DataFrame, dimension: int | None) -> list[Claim]:
    """All claims whose protocols are in the table.

    Args:
        frame: of `generations.table`.
        dimension: parameters of the expansion's model; None: it was not run.
    """
    found = [_expansion(frame, dimension), _dropouts(frame), _coded_pieces(frame), _neighbours(frame)]
    return [*found, _training_time(frame)]


def cell(frame: pd.DataFrame, protocol: str, varied: str, value: str, column: str) -> float | None:
    """One number; None: there is no such row, or no round of it was completed."""
    rows = frame[(frame["protocol"] == protocol) & (frame["varied"] == varied) & (frame["value"] == value)]
    if rows.empty or pd.isna(rows.iloc[0][column]):
        return None
    return float(rows.iloc[0][column])


def ratio(number: float | None, other: float | None) -> float | None:
    """None where either is missing, or nothing can be divided by."""
    return None if number is None or not other else number / other


def _expansion(frame: pd.DataFrame, dimension: int | None) -> Claim:
    values = frame.loc[frame["varied"] == EXPANSION, "value"]
    value = values.iloc[0] if len(values) else ""
    sent = [cell(frame, "secagg", EXPANSION, value, column) for column in ("MB down", "MB up")]
    total = None if None in sent else sum(part for part in sent if part is not None)
    found = None if dimension is None else ratio(total, dimension * _INPUT_BYTES / _MB)
    return Claim(
        f"secagg: {EXPANSION_PUBLISHED}x communication expansion for 2^10 users, 2^20-dimensional vectors and 16 bits",
        "not run at this scale"
        if found is None
        else f"{found:.2f}x: {total:.2f} MB of a client both ways, {value} clients, {dimension:,} parameters",
        [within("times the plain vector", found, EXPANSION_PUBLISHED, EXPANSION_MARGIN)],
    )


def _dropouts(frame: pd.DataFrame) -> Claim:
    """At the most drop-outs under which all of the three completed rounds."""
    names = [name for name in ("secagg", "secagg-plus", "lightsecagg") if name in set(frame["protocol"])]
    most = _most_dropouts(frame, names)
    ratios = {
        name: ratio(cell(frame, name, "drop-out", most, "server s"), cell(frame, name, "always on", "", "server s"))
        for name in names
    }
    checks = [
        above(f"server s, {name}, {most} lost / none", ratios[name], UNCHANGED)
        for name in names
        if name != "lightsecagg"
    ]
    checks.append(between(f"server s, lightsecagg, {most} lost / none", ratios.get("lightsecagg"), most=UNCHANGED))
    return Claim(
        "the complexity of rebuilding dropped users' seeds grows substantially with their number, and that of decoding "
        "the sum of masks does not (So et al., abstract)",
        f"the server's seconds with {most} lost, of those with none: " + _said(ratios),
        checks,
    )


def _most_dropouts(frame: pd.DataFrame, names: Sequence[str]) -> str:
    """The last rate of the table at which all of them completed a round."""
    rows = frame[(frame["varied"] == "drop-out") & frame["protocol"].isin(names)]
    fitting = [str(value) for value, of_it in rows.groupby("value", sort=False) if (of_it["completed"] > 0).all()]
    return fitting[-1] if fitting else ""


def _coded_pieces(frame: pd.DataFrame) -> Claim:
    """The paper's Table 1: N / (U - T) vectors; a client sends none to itself."""
    rows = frame[(frame["protocol"] == "lightsecagg") & frame["varied"].isin(("always on", "corruption", "drop-out"))]
    found = []
    for _, row in rows.dropna(subset=["MB up (upload)"]).iterrows():
        if float(row["dropout"]):  # who has left has sent less
            continue
        due = (row["n"] - 1) / (row["n"] - row["may be lost"] - row["T"])
        found.append(float(row["MB up (set-up)"] / row["MB up (upload)"] / due))
    furthest = max(found, key=lambda one: abs(math.log(one)), default=None)
    return Claim(
        "lightsecagg: beforehand a client sends N - 1 pieces of d / (U - T) elements (So et al., section 4)",
        "not run" if furthest is None else f"{len(found)} rows, the furthest {furthest:.3f} of it",
        [within("share of (N - 1) d / (U - T)", furthest, 1.0, 0.05)],
    )


def _neighbours(frame: pd.DataFrame) -> Claim:
    """From the fewest participants to the most."""
    rows = frame[(frame["varied"] == "participants") & (frame["protocol"] == "secagg")]
    numbers = sorted(rows["value"], key=int)
    first, last = (numbers[0], numbers[-1]) if numbers else ("", "")
    grown = {
        name: ratio(
            cell(frame, name, "participants", last, "MB up (set-up)"),
            cell(frame, name, "participants", first, "MB up (set-up)"),
        )
        for name in ("secagg", "secagg-plus")
    }
    checks = []
    if numbers:
        times = int(last) / int(first)
        checks = [
            above(f"growth of secagg's set-up from {first} to {last} participants", grown["secagg"], times / 2),
            below(f"growth of secagg-plus's from {first} to {last}", grown["secagg-plus"], times / 2),
        ]
    return Claim(
        "a client's overhead grows with the number of clients in secagg, and with its logarithm in secagg-plus (Bell "
        "et al., abstract)",
        f"bytes sent before the masked input, {last} participants of {first}: " + _said(grown),
        checks,
    )


def _training_time(frame: pd.DataFrame) -> Claim:
    rows = frame[frame["protocol"].isin(("secagg", "lightsecagg"))]
    pairs = rows.pivot_table(index=["varied", "value"], columns="protocol", values="round s", sort=False)
    there = {"secagg", "lightsecagg"} <= set(pairs)
    times = (pairs["lightsecagg"] / pairs["secagg"]).dropna().tolist() if there else []
    said = f"{min(times):.2f} to {max(times):.2f} of secagg's round time" if times else "no round was completed"
    return Claim(
        "LightSecAgg significantly reduces the total training time (So et al., abstract)",
        f"{said}, over all conditions that both completed",
        undetermined="bandwidth, machines and languages of the measurements, and that pieces are sent while clients "
        "train, which stages here do not do",
    )


def _said(ratios: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {'–' if value is None else f'{value:.2f}'}" for name, value in ratios.items())
