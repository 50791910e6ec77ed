"""Sufficient number of neighbours for ten thousand clients and for a billion: the abstract of Bell et al.

Bell, Bonawitz, Gascon, Lepoint, Raykova: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020
(IACR ePrint 2020/704). The semi-honest number is computed with the count of failures that gives Google's expected
values (`graphs.by_their_count`).
"""

import pandas as pd

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.secagg_plus.graphs import by_their_count
from analysis.reproduction.secagg_plus.published import Instance
from analysis.reproduction.verdicts import PaperClaim, between
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters

THOUSAND = 1000
RATES = ((0.05, 0.05), (0.05, 0.33), (0.33, 0.05), (0.33, 0.33))
"""Dishonest fraction and dropout fraction; the abstract states none for a billion clients, these are those of Google's
test."""
MALICIOUS_CLIENTS, MALICIOUS_RATE, SHARE, AT_LEAST = 10_000, 0.05, 0.03, 5000
GROWTH = tuple(10**power for power in range(3, 10))


def measure_scale(context: ReproductionContext) -> Measurements:
    """Compute neighbours for growing numbers of clients, and those of the two statements."""
    rows = []
    for dishonest, dropouts in RATES:
        for clients in GROWTH:
            context.progress(f"{clients:,} clients, {dishonest:g} dishonest, {dropouts:g} gone")
            k, t = by_their_count(Instance(clients, "curious", dishonest, dropouts))
            rows.append({"clients": clients, "dishonest": dishonest, "dropouts": dropouts, "k": k, "t": t})
    chosen = SecAggPlusParameters(dishonest=MALICIOUS_RATE, dropouts=MALICIOUS_RATE, tries=0).neighbourhood(
        MALICIOUS_CLIENTS
    )
    malicious = {
        "clients": MALICIOUS_CLIENTS,
        "dishonest": MALICIOUS_RATE,
        "dropouts": MALICIOUS_RATE,
        "k": chosen.neighbours,
        "t": chosen.threshold,
    }
    return Measurements(
        Setting(
            "none",
            sizes={"most clients": max(GROWTH)},
            differs=["the paper's variant against a malicious server, in which clients choose neighbours, is missing"],
        ),
        {"curious server": pd.DataFrame.from_records(rows), "malicious server": pd.DataFrame.from_records([malicious])},
    )


def conclude_scale(measurements: Measurements) -> ReproductionResult:
    """Compare the neighbours with the statements of the abstract."""
    rows, chosen = measurements.tables["curious server"], measurements.tables["malicious server"].iloc[0]
    frame = pd.DataFrame.from_records(
        [
            {
                "dishonest": f"{row['dishonest']:g}",
                "dropouts": f"{row['dropouts']:g}",
                "clients": row["clients"],
                "k, t, curious server": f"{row['k']}, {row['t']}",
                "k over that of 1,000 in secagg": row["k"] / (THOUSAND - 1),
            }
            for row in rows.to_dict("records")
        ]
    )
    return ReproductionResult(
        frame,
        claims=[
            _billion(rows),
            PaperClaim(
                f"against a malicious server, of {MALICIOUS_CLIENTS:,} clients each talks to {SHARE:.0%}, and its "
                f"input is in a sum with at least {AT_LEAST:,} others (5% dishonest, 5% gone)",
                "the paper's malicious variant, in which clients choose and acknowledge neighbours, is not "
                f"implemented; secagg-plus has {chosen['k']:.0f} neighbours there "
                f"({chosen['k'] / chosen['clients']:.1%}), and promises parts of {chosen['t']:.0f} or more, "
                f"not of {AT_LEAST:,}",
                not_run="not implemented",
                uses_data=False,
            ),
        ],
        remarks=[
            "k, t: the smallest values by the count of failures that gives the expected values of Google's "
            "implementation (secagg-plus-graphs), for 2^-40 and 2^-20.",
            "The abstract states no fractions for a billion clients; these are those of Google's test.",
        ],
    )


def _billion(rows: pd.DataFrame) -> PaperClaim:
    largest = rows[rows["clients"] == rows["clients"].max()]
    of_rates = {(f"{row['dishonest']:g}", f"{row['dropouts']:g}"): int(row["k"]) for _, row in largest.iterrows()}
    return PaperClaim(
        "against a curious server a billion clients cost each no more than a thousand cost each in SecAgg",
        "; ".join(f"{k} neighbours at {c} and {d}" for (c, d), k in of_rates.items()) + f"; SecAgg has {THOUSAND - 1}",
        [between(f"neighbours, {c} dishonest, {d} gone", float(k), 1, THOUSAND - 1) for (c, d), k in of_rates.items()],
        uses_data=False,
    )


REPRODUCTIONS = (
    Reproduction(
        "secagg-plus-scale",
        "SecAgg+: neighbours for ten thousand clients, and for a billion",
        "Bell et al., CCS 2020, IACR ePrint 2020/704, abstract",
        measure=measure_scale,
        conclude=conclude_scale,
    ),
)
