"""Claims of Lotto's Tables 2 and 3, judged cell by cell and in both directions (Jiang et al., arXiv 2401.02880).

A cell is predicted with the authors' costs and compared with the paper's. The margin is the difference between the
paper's own runs of the same work (`published.overhead_spread`, `published.minutes_spread`). Statements of the paper's
text about all cells are compared with the cells of both tables of costs.
"""

from collections.abc import Mapping

import pandas as pd

from analysis.reproduction.lotto.overhead import COST_TABLES, VERIFIED
from analysis.reproduction.lotto.published import TABLE_2, minutes_spread, overhead_spread
from analysis.reproduction.verdicts import PaperClaim, between, within, within_factor

SERVER, CLIENT = "server", "participant"
_RATIO, _MINUTES = {SERVER: "server ×", CLIENT: "client ×"}, {SERVER: "server min", CLIENT: "client min"}
_TRAFFIC = {SERVER: "server MB ×", CLIENT: "client MB ×"}
_MEASURE = {SERVER: "server_min", CLIENT: "client_min"}

ADDED_FACTOR = 1.5
"""Factor to either side of the megabytes that Lotto adds according to the paper, which prints one digit after the point
(0.3 is 0.25 to 0.35) and encodes its messages otherwise."""


def claims_of_table2(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims of section 5.2, statement by statement, and then of the table's cells."""
    return [
        at_most(frame, "Cli-Ctr", SERVER, {100: 6, 400: 8, 700: 10}, "less than 6, 8 and 10% more time"),
        at_most(frame, "Srv-Ctr", SERVER, _printed(1, 4, 3), "1, 4 and 3% more time"),
        _up_to_40(frame),
        at_most(frame, "Srv-Ctr", CLIENT, dict.fromkeys((100, 400, 700), 4), "less than 4% more time"),
        *(traffic(frame, protocol, party) for protocol in ("Cli-Ctr", "Srv-Ctr") for party in (SERVER, CLIENT)),
        _added(frame),
        *cells(frame, "Rand"),
    ]


def claims_of_table3(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims of appendix C, statement by statement, and then of the table's cells."""
    return [
        at_most(frame, "Cli-Ctr", SERVER, {100: 5, 400: 10, 700: 5}, "less than 5, 10 and 5% more time than Oort"),
        at_most(frame, "Srv-Ctr", SERVER, _printed(2, 0, 0), "2, 0 and 0% more time than Oort"),
        *(traffic(frame, protocol, SERVER) for protocol in ("Cli-Ctr", "Srv-Ctr")),
        *cells(frame, "Oort"),
    ]


def _printed(*percents: float) -> dict[int, float]:
    """Return the upper ends of printed whole percents, at 100, 400 and 700 clients."""
    return {population: percent + 0.5 for population, percent in zip((100, 400, 700), percents, strict=True)}


def at_most(frame: pd.DataFrame, protocol: str, party: str, limits: Mapping[int, float], claim: str) -> PaperClaim:
    """Claim that the largest overhead of all applications stays within a limit, by population and table of costs.

    Args:
        frame: from `overhead.table`.
        protocol: the paper's name.
        party: `SERVER` or `CLIENT`.
        limits: percent by population.
        claim: the paper's statement.
    """
    checks, texts = [], []
    for costs, title in COST_TABLES.items():
        worst = {n: _percent_over(frame, protocol, party, costs, n) for n in limits}
        checks += [between(f"most %, {n} clients", worst[n], most=limit) for n, limit in limits.items()]
        texts.append(f"{title}: {_format_percents(worst)}")
    return PaperClaim(
        f"{protocol} takes the {party} {claim}", "; ".join(texts) + " at 100, 400 and 700 clients, most of any", checks
    )


def traffic(frame: pd.DataFrame, protocol: str, party: str) -> PaperClaim:
    """Claim less than 1% more bytes in every cell.

    Args:
        frame: from `overhead.table`.
        protocol: the paper's name.
        party: `SERVER` or `CLIENT`.
    """
    rows = frame[(frame["protocol"] == protocol) & frame[_TRAFFIC[party]].notna()]
    most = None if rows.empty else 100 * (float(rows[_TRAFFIC[party]].max()) - 1)
    return PaperClaim(
        f"{protocol} adds less than 1% to the {party}'s traffic",
        "no round was completed" if most is None else f"{most:+.2f}% at most",
        [between("most % of any cell", most, most=1)],
    )


def cells(frame: pd.DataFrame, baseline: str) -> list[PaperClaim]:
    """Return the claims of all predicted cells of time: overheads, then minutes.

    Args:
        frame: from `overhead.table`.
        baseline: baseline of the overheads, Rand or Oort.
    """
    of_each = {str(name): rows for name, rows in frame[frame["costs"] == "authors"].groupby("application", sort=False)}
    overheads = [
        _overheads(rows, name, protocol, party, baseline)
        for party in (SERVER, CLIENT)
        for protocol in ("Cli-Ctr", "Srv-Ctr")
        for name, rows in of_each.items()
    ]
    return overheads + [_minutes(rows, name, party) for party in (SERVER, CLIENT) for name, rows in of_each.items()]


def _overheads(rows: pd.DataFrame, application: str, protocol: str, party: str, baseline: str) -> PaperClaim:
    margin = 100 * overhead_spread(_MEASURE[party])
    ours = _by_population(rows, protocol, _RATIO[party])
    papers = {
        n: value for n, value in _by_population(rows, protocol, f"{_RATIO[party]} (paper)").items() if value is not None
    }
    measured = _format_percents(ours)
    if protocol == "Cli-Ctr" and party == SERVER:
        measured += (
            f" ({_format_percents(_by_population(rows, VERIFIED, _RATIO[party]))} where the server verifies, too)"
        )
    return PaperClaim(
        f"{application}: {protocol} takes the {party} {_format_percents(papers)} more than {baseline} at "
        f"{_joined(papers)} clients",
        measured,
        [
            within("points more than the paper", None if value is None else value - papers[n], 0, margin)
            for n, value in ours.items()
            if n in papers
        ],
    )


def _minutes(rows: pd.DataFrame, application: str, party: str) -> PaperClaim:
    factor = minutes_spread(_MEASURE[party])
    shown = rows[rows[f"{_MINUTES[party]} (paper)"].notna()]
    if party == CLIENT:  # two of them were used to find the costs
        shown = shown[~((shown["protocol"] == "Rand") & shown["population"].isin((100, 700)))]
    ratios = (shown[_MINUTES[party]] / shown[f"{_MINUTES[party]} (paper)"].astype(float)).dropna()
    return PaperClaim(
        f"{application}: the {party}'s minutes in the table's {len(shown)} predicted cells",
        f"{ratios.min():.2f} to {ratios.max():.2f} times the paper's" if len(ratios) else "no round was completed",
        [within_factor("times the paper's", float(ratio), 1, factor) for ratio in ratios],
    )


def _up_to_40(frame: pd.DataFrame) -> PaperClaim:
    """Claim that the largest of a participant's overheads is as large as the paper's."""
    rows = frame[(frame["protocol"] == "Cli-Ctr") & frame[_RATIO[CLIENT]].notna()]
    most = {
        costs: None if of_it.empty else 100 * (float(of_it[_RATIO[CLIENT]].max()) - 1)
        for costs in COST_TABLES
        for of_it in [rows[rows["costs"] == costs]]
    }
    top = max(TABLE_2[a, n, "Cli-Ctr"].client_min / TABLE_2[a, n, "Rand"].client_min for a, n, _ in TABLE_2) - 1
    margin = overhead_spread(_MEASURE[CLIENT])
    return PaperClaim(
        "Cli-Ctr takes a participant up to 40% more time",
        "; ".join(f"{COST_TABLES[costs]}: {_percent(value)} at most" for costs, value in most.items()),
        [within("most % of any cell", value, 100 * top, 100 * margin) for value in most.values()],
    )


def _added(frame: pd.DataFrame) -> PaperClaim:
    """Claim the bytes that Lotto adds to the server's traffic at the largest population."""
    claim = "at 700 clients (Reddit) Cli-Ctr adds 1.3 MB to the server's traffic, Srv-Ctr 0.3 MB"
    rows = frame[(frame["costs"] == "testbed") & (frame["population"] == frame["population"].max())]
    megabytes = rows[rows["application"] == rows["application"].iloc[-1]].set_index("protocol")["server MB"]
    added = {name: float(megabytes[name] - megabytes["Rand"]) for name in ("Cli-Ctr", "Srv-Ctr")}
    where = f"{rows['population'].iloc[-1]} clients, {rows['application'].iloc[-1]}"
    return PaperClaim(
        claim,
        f"{', '.join(f'{name} {value:.2f} MB' for name, value in added.items())} ({where})",
        [
            within_factor(f"MB, {name}", added[name], paper, ADDED_FACTOR)
            for name, paper in (("Cli-Ctr", 1.3), ("Srv-Ctr", 0.3))
        ],
    )


# -- percentages ------------------------------------------------------------------------------------------------------

Percents = Mapping[int, float | None]
"""Percents by population; None if no round was completed."""


def _percent_over(frame: pd.DataFrame, protocol: str, party: str, costs: str, population: int) -> float | None:
    """Return the largest overhead of all applications, in percent."""
    chosen = (frame["protocol"] == protocol) & (frame["costs"] == costs) & (frame["population"] == population)
    ratios = frame.loc[chosen, _RATIO[party]].dropna()
    return None if ratios.empty else 100 * (float(ratios.max()) - 1)


def _by_population(rows: pd.DataFrame, protocol: str, heading: str) -> Percents:
    of_it = rows[rows["protocol"] == protocol]
    return {
        int(n): None if pd.isna(ratio) else 100 * (float(ratio) - 1)
        for n, ratio in zip(of_it["population"], of_it[heading], strict=True)
    }


def _format_percents(percents: Percents) -> str:
    return " / ".join(_percent(value) for value in percents.values())


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f}%"


def _joined(percents: Percents) -> str:
    return " / ".join(str(n) for n in percents)
