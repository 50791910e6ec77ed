"""Claims of the papers on costs, compared with the table."""

import math
from collections.abc import Sequence

import pandas as pd

from analysis.reproduction.aggregation_comparison.protocols import MEMBERS
from analysis.reproduction.verdicts import PaperClaim, above, below, between, equal, within
from analysis.statistics import Interval

UNCHANGED = 1.1
"""Largest ratio to the cost without dropouts at which a cost counts as independent of dropouts."""


def claims(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return all claims.

    Args:
        frame: rows of `aggregation_comparison.table`.
    """
    return [
        _dropouts(frame),
        _coded_pieces(frame),
        _neighbours(frame),
        PaperClaim(
            "LightSecAgg significantly reduces the total training time (So et al., abstract)",
            _round_times(frame, "lightsecagg", "secagg", "round s")
            + "; with the pieces sent while clients train, at best "
            + _round_times(frame, "lightsecagg", "secagg", "round s (set-up while training)"),
            undetermined="bandwidth, machines and languages of the measurements",
        ),
        _interactions(frame),
        PaperClaim(
            "a significant reduction in the end-to-end runtime of a training session over prior work (Ma et al., "
            "abstract)",
            _round_times(frame, "flamingo", "secagg-plus", "round s"),
            undetermined="bandwidth, machines and languages of the measurements, how long the server waits in each "
            "step, and rounds over which the set-up is spread",
        ),
        _speaks_once(frame, "one-shot", "clients speak only once in an aggregation (Karthikeyan and Polychroniadou, "
                     "abstract)"),
        _speaks_once(frame, "e-seafl", "one message of each client in an aggregation (Behnia et al., Algorithm 2)"),
    ]  # fmt: skip


def cell(frame: pd.DataFrame, protocol: str, varied: str, value: str, column: str) -> float | None:
    """Return one number of the table; None if there is no such row, or if none of its rounds was completed.

    Args:
        frame: rows of the table.
        protocol: name of the row.
        varied: kind of condition.
        value: value of the condition.
        column: name of the column.
    """
    rows = frame[(frame["protocol"] == protocol) & (frame["varied"] == varied) & (frame["value"] == value)]
    if rows.empty or column not in rows or pd.isna(rows.iloc[0][column]):
        return None
    return float(rows.iloc[0][column])


def ratio(number: float | None, other: float | None) -> float | None:
    """Return a ratio; None if a number is missing, or if the divisor is 0.

    Args:
        number: dividend.
        other: divisor.
    """
    return None if number is None or not other else number / other


def _dropouts(frame: pd.DataFrame) -> PaperClaim:
    """Claim the growth of the server's seconds, at the most losses at which a sum is possible for all three."""
    names = [name for name in ("secagg", "secagg-plus", "lightsecagg") if name in set(frame["protocol"])]
    most = _most_lost(frame, names)
    without = {name: cell(frame, name, "always on", "", "server s") for name in names}
    ratios = {name: ratio(cell(frame, name, "lost", most, "server s"), without[name]) for name in names}

    def interval(name: str) -> Interval | None:
        width = cell(frame, name, "lost", most, "server s ±")
        return None if ratios[name] is None else Interval(ratios[name], ratio(width, without[name]))

    checks = [
        above(f"server s, {name}, {most} lost / none", interval(name), UNCHANGED)
        for name in names
        if name != "lightsecagg"
    ]
    light = interval("lightsecagg") if "lightsecagg" in names else None
    checks.append(between(f"server s, lightsecagg, {most} lost / none", light, most=UNCHANGED))
    return PaperClaim(
        "the complexity of rebuilding dropped users' seeds grows substantially with their number, and that of decoding "
        "the sum of masks does not (So et al., abstract)",
        f"the server's seconds with {most} lost, of those with none: " + _format_ratios(ratios),
        checks,
        seeds=3,
    )


def _most_lost(frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Return the largest number of losses, as in "30 of 100", with which all protocols completed a round."""
    rows = frame[(frame["varied"] == "lost") & frame["protocol"].isin(names)].dropna(subset=["server s"])
    fitting = [str(value) for value, of_it in rows.groupby("value", sort=False) if len(of_it) == len(names)]
    return max(fitting, key=lambda value: int(value.partition(" ")[0]), default="")


def _coded_pieces(frame: pd.DataFrame) -> PaperClaim:
    """Claim the size of the pieces, N / (U - T) vectors in the paper's Table 1; a client sends none to itself."""
    rows = frame[frame["protocol"].str.startswith("lightsecagg") & frame["varied"].isin(("always on", "corruption"))]
    shares = []
    for _, row in rows.dropna(subset=["MB up (upload)"]).iterrows():
        due = (row["n"] - 1) / (row["n"] - row["may be lost"] - row["T"])
        shares.append(float(row["MB up (set-up)"] / row["MB up (upload)"] / due))
    furthest = max(shares, key=lambda share: abs(math.log(share)), default=None)
    return PaperClaim(
        "lightsecagg: beforehand a client sends N - 1 pieces of d / (U - T) elements (So et al., section 4)",
        "not run" if furthest is None else f"{len(shares)} rows, the furthest {furthest:.3f} of it",
        [within("share of (N - 1) d / (U - T)", furthest, 1.0, 0.05)],
    )


def _neighbours(frame: pd.DataFrame) -> PaperClaim:
    """Claim the growth of a client's set-up from the fewest participants to the most."""
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
        # Half of linear growth tells it from logarithmic growth, at factors of 4 between sizes.
        times = int(last) / int(first)
        checks = [
            above(f"growth of secagg's set-up from {first} to {last} participants", grown["secagg"], times / 2),
            below(f"growth of secagg-plus's from {first} to {last}", grown["secagg-plus"], times / 2),
        ]
    return PaperClaim(
        "a client's overhead grows with the number of clients in secagg, and with its logarithm in secagg-plus (Bell "
        "et al., abstract)",
        f"bytes sent before the masked input, {last} participants of {first}: " + _format_ratios(grown),
        checks,
    )


def _round_times(frame: pd.DataFrame, name: str, other: str, column: str) -> str:
    rows = frame[frame["protocol"].isin((name, other)) & (frame["varied"] != "each leaves")]
    if column not in rows:
        return "not run"
    pairs = rows.pivot_table(index=["varied", "value"], columns="protocol", values=column, sort=False)
    times = (pairs[name] / pairs[other]).dropna().tolist() if {name, other} <= set(pairs) else []
    text = f"{min(times):.2f} to {max(times):.2f} of {other}'s round time" if times else "no round was completed"
    return f"{text}, over all conditions that both completed"


def _interactions(frame: pd.DataFrame) -> PaperClaim:
    questions = {name: cell(frame, name, "always on", "", "questions") for name in ("flamingo", "secagg-plus")}
    most = questions["secagg-plus"]
    return PaperClaim(
        "Flamingo reduces the number of interactions between clients and the server over Bell et al. (Ma et al., "
        "abstract)",
        f"questions to a participant, the fewest of a round: {_format_ratios(questions)}",
        [] if most is None else [below("questions of flamingo, of secagg-plus's", questions["flamingo"], most)],
    )


def _speaks_once(frame: pd.DataFrame, name: str, claim: str) -> PaperClaim:
    """Claim one question per client, in rounds with clients that are not on the committee."""
    rows = frame[(frame["protocol"] == name) & (frame["varied"] == "always on")]
    questions = None if rows.empty else cell(rows[rows["members"] < rows["n"]], name, "always on", "", "questions")
    return PaperClaim(
        claim,
        f"not run with more participants than the {MEMBERS} members of the committee"
        if questions is None
        else f"{questions:.0f} question to a participant that serves nobody else",
        [equal("questions", questions, 1)],
    )


def _format_ratios(ratios: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {'–' if value is None else f'{value:.2f}'}" for name, value in ratios.items())
