"""Claims of Lotto's Tables 2 and 3, judged cell by cell and in both directions (Jiang et al., arXiv 2401.02880).

A cell of client-centric Lotto is predicted with the authors' costs and compared with the paper's. The margin comes from
other cells, those of server-centric Lotto (`published.overhead_spread`, `published.minutes_spread`). Statements of the
paper's text about all cells are compared with the cells of both tables of costs.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.reproduction.lotto.overhead import COST_TABLES, VERIFIED
from analysis.reproduction.lotto.published import (
    TABLE_2,
    largest_overhead,
    minutes_spread,
    overhead_spread,
    smallest_overhead,
)
from analysis.reproduction.verdicts import Check, PaperClaim, below, between, within, within_factor

SERVER, CLIENT = "server", "participant"
_RATIO, _MINUTES = {SERVER: "server ×", CLIENT: "client ×"}, {SERVER: "server min", CLIENT: "client min"}
_TRAFFIC = {SERVER: "server MB ×", CLIENT: "client MB ×"}
_MEGABYTES = {SERVER: "server MB", CLIENT: "client MB"}
_MEASURE = {SERVER: "server_min", CLIENT: "client_min"}

ADDED_FACTOR = 1.5
"""Factor to either side of the megabytes that Lotto adds according to the paper, which prints one digit after the point
(0.3 is 0.25 to 0.35) and encodes its messages otherwise."""

TRAFFIC_FACTOR = 1.05
"""Factor to either side of the paper's MB: it prints GB with two digits (0.25 GB is 2% more or less)."""

BARELY = 0.5
"""Largest share of the participants' extra time by which rounds are longer, for the words "barely affects"."""


def claims_of_table2(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims of section 5.2, statement by statement, and then of the table's cells."""
    limits = {100: 6, 400: 8, 700: 10}
    return [
        at_most(frame, "Cli-Ctr", SERVER, limits, f"less than 6, 8 and 10% more time{_in_cells(limits, 2)}"),
        unresolved(frame, "1, 4 and 3% more time"),
        _up_to_40(frame),
        _on_the_path(frame),
        at_most(frame, "Srv-Ctr", CLIENT, dict.fromkeys((100, 400, 700), 4), "less than 4% more time"),
        *(traffic(frame, protocol, party) for protocol in ("Cli-Ctr", "Srv-Ctr") for party in (SERVER, CLIENT)),
        _added(frame),
        *absolute_traffic(frame),
        *cells(frame, "Rand"),
    ]


def claims_of_table3(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims of appendix C, statement by statement, and then of the table's cells.

    The paper's absolute traffic is that of Table 2, and is judged there.
    """
    limits = {100: 5, 400: 10, 700: 5}
    claim = f"less than 5, 10 and 5% more time than Oort{_in_cells(limits, 3)}"
    return [
        at_most(frame, "Cli-Ctr", SERVER, limits, claim),
        unresolved(frame, "2, 0 and 0% more time than Oort"),
        *(traffic(frame, protocol, party) for protocol in ("Cli-Ctr", "Srv-Ctr") for party in (SERVER, CLIENT)),
        *cells(frame, "Oort"),
    ]


def _in_cells(limits: Mapping[int, float], number: int) -> str:
    """Return a note on the cells of the paper's table that are not below the limits of its text; empty without such.

    Args:
        limits: percent by population.
        number: number of the table.
    """
    largest = {n: 100 * (largest_overhead(number, "Cli-Ctr", "server_min", n) - 1) for n in limits}
    above = [f"{percent:.2f}% at {n} clients" for n, percent in largest.items() if round(percent, 2) >= limits[n]]
    return f" (misprint: Table {number} itself has {' and '.join(above)})" if above else ""


def _claim(claim: str, measured: str, checks: Sequence[Check]) -> PaperClaim:
    """Return a claim; a check without a number means that more rounds are needed to complete one."""
    missing = any(check.value is None for check in checks)
    return PaperClaim(claim, measured, checks, not_run="length" if missing else "", uses_data=False)


def at_most(frame: pd.DataFrame, protocol: str, party: str, limits: Mapping[int, float], claim: str) -> PaperClaim:
    """Claim that the largest overhead of all applications stays within a limit, by population and table of costs.

    Args:
        frame: from `overhead.overhead_table`.
        protocol: the paper's name.
        party: `SERVER` or `CLIENT`.
        limits: percent by population.
        claim: the paper's statement.
    """
    checks, texts = [], []
    for costs, title in _tables_of(frame).items():
        worst = {n: _percent_over(frame, protocol, party, costs, n) for n in limits}
        checks += [between(f"most %, {n} clients", worst[n], most=limit) for n, limit in limits.items()]
        texts.append(f"{title}: {_format_percents(worst)}")
    return _claim(
        f"{protocol} takes the {party} {claim}", "; ".join(texts) + " at 100, 400 and 700 clients, most of any", checks
    )


def unresolved(frame: pd.DataFrame, claim: str) -> PaperClaim:
    """Return an overhead of Srv-Ctr that the paper's runs cannot resolve.

    Args:
        frame: from `overhead.overhead_table`.
        claim: the paper's statement.
    """
    texts = [
        f"{title}: {_format_percents({n: _percent_over(frame, 'Srv-Ctr', SERVER, costs, n) for n in (100, 400, 700)})}"
        for costs, title in _tables_of(frame).items()
    ]
    spread = 100 * (minutes_spread("server_min") - 1)
    return PaperClaim(
        f"Srv-Ctr takes the server {claim}",
        "; ".join(texts) + " at 100, 400 and 700 clients, most of any",
        undetermined=f"repeated runs with intervals; the paper's Rand and Oort do the same work and differ by up to "
        f"{spread:.0f}%, and its Srv-Ctr is up to {-100 * (smallest_overhead('Srv-Ctr', 'server_min') - 1):.1f}% "
        "faster than they are",
        uses_data=False,
    )


def absolute_traffic(frame: pd.DataFrame) -> list[PaperClaim]:
    """Claim the paper's MB in all cells, by party and application.

    Args:
        frame: from `overhead.overhead_table`.
    """
    claims = []
    rows = frame[(frame["costs"] == "testbed") & frame["server MB (paper)"].notna()]
    for party, heading in _MEGABYTES.items():
        for application, of_it in rows.groupby("application", sort=False):
            ratios = (of_it[heading] / of_it[f"{heading} (paper)"].astype(float)).dropna()
            claims.append(
                _claim(
                    f"{application}: the {party}'s MB in the table's {len(of_it)} cells",
                    f"{ratios.min():.2f} to {ratios.max():.2f} times the paper's"
                    if len(ratios)
                    else "no round was completed",
                    [within_factor("times the paper's", float(ratio), 1, TRAFFIC_FACTOR) for ratio in ratios]
                    or [within_factor("times the paper's", None, 1, TRAFFIC_FACTOR)],
                )
            )
    return claims


def traffic(frame: pd.DataFrame, protocol: str, party: str) -> PaperClaim:
    """Claim less than 1% more bytes in every cell.

    Args:
        frame: from `overhead.overhead_table`.
        protocol: the paper's name.
        party: `SERVER` or `CLIENT`.
    """
    rows = frame[(frame["protocol"] == protocol) & frame[_TRAFFIC[party]].notna()]
    most = None if rows.empty else 100 * (float(rows[_TRAFFIC[party]].max()) - 1)
    return _claim(
        f"{protocol} adds less than 1% to the {party}'s traffic",
        "no round was completed" if most is None else f"{most:+.2f}% at most",
        [between("most % of any cell", most, most=1)],
    )


def cells(frame: pd.DataFrame, baseline: str) -> list[PaperClaim]:
    """Return the claims of all predicted cells of time: overheads, then minutes.

    Args:
        frame: from `overhead.overhead_table`.
        baseline: baseline of the overheads, Rand or Oort.
    """
    of_each = {str(name): rows for name, rows in frame[frame["costs"] == "authors"].groupby("application", sort=False)}
    overheads = [
        _overheads(rows, name, "Cli-Ctr", party, baseline)
        for party in (SERVER, CLIENT)
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
    return _claim(
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
    return _claim(
        f"{application}: the {party}'s minutes in the table's {len(shown)} predicted cells",
        f"{ratios.min():.2f} to {ratios.max():.2f} times the paper's" if len(ratios) else "no round was completed",
        [within_factor("times the paper's", float(ratio), 1, factor) for ratio in ratios]
        or [within_factor("times the paper's", None, 1, factor)],
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
    return _claim(
        "Cli-Ctr takes a participant up to 40% more time",
        "; ".join(f"{COST_TABLES[costs]}: {_percent(value)} at most" for costs, value in most.items()),
        [within("most % of any cell", value, 100 * top, 100 * margin) for value in most.values()],
    )


def _on_the_path(frame: pd.DataFrame) -> PaperClaim:
    """Claim that participants' extra time barely lengthens the rounds (footnote 4)."""
    rows = frame[(frame["costs"] == "authors") & frame["protocol"].isin(("Rand", "Cli-Ctr"))]
    by_protocol = rows.pivot(index=["application", "population"], columns="protocol")
    server, client = (
        by_protocol[heading]["Cli-Ctr"] - by_protocol[heading]["Rand"] for heading in ("server min", "client min")
    )
    shares = (server / client).dropna()
    together = float(server.sum() / client.sum()) if len(shares) else None
    paper = [
        sum(
            getattr(cost, measure) - getattr(TABLE_2[application, population, "Rand"], measure)
            for (application, population, protocol), cost in TABLE_2.items()
            if protocol == "Cli-Ctr"
        )
        for measure in ("server_min", "client_min")
    ]
    return _claim(
        "Cli-Ctr's extra time at participants barely affects the round at the server, since they run in parallel "
        "(footnote 4)",
        f"rounds are longer by {together:.2f} of the participants' extra time, all cells together "
        f"({shares.min():.2f} to {shares.max():.2f}; the paper's cells together: {paper[0] / paper[1]:.2f})"
        if together is not None
        else "no round was completed",
        [below("share of the extra time", together, BARELY)],
    )


def _added(frame: pd.DataFrame) -> PaperClaim:
    """Claim the bytes that Lotto adds to the server's traffic at the largest population."""
    claim = "at 700 clients (Reddit) Cli-Ctr adds 1.3 MB to the server's traffic, Srv-Ctr 0.3 MB"
    rows = frame[(frame["costs"] == "testbed") & (frame["population"] == frame["population"].max())]
    megabytes = rows[rows["application"] == rows["application"].iloc[-1]].set_index("protocol")["server MB"]
    added = {name: float(megabytes[name] - megabytes["Rand"]) for name in ("Cli-Ctr", "Srv-Ctr")}
    where = f"{rows['population'].iloc[-1]} clients, {rows['application'].iloc[-1]}"
    return _claim(
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


def _tables_of(frame: pd.DataFrame) -> dict[str, str]:
    """Return names and titles of a frame's tables of costs."""
    return {str(costs): COST_TABLES[costs] for costs in frame["costs"].unique()}


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
