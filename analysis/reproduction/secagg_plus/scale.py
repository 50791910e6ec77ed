"""Sufficient number of neighbours for ten thousand clients and for a billion: the abstract of Bell et al.

Bell, Bonawitz, Gascon, Lepoint, Raykova: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020
(IACR ePrint 2020/704). The semi-honest number is computed with the count of failures that gives Google's expected
values (`graphs.by_their_count`).
"""

import pandas as pd

from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
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


def run_scale(context: ReproductionContext) -> ReproductionResult:
    """Compute neighbours for growing numbers of clients, and the two statements."""
    rows = []
    for dishonest, dropouts in RATES:
        for clients in GROWTH:
            context.progress(f"{clients:,} clients, {dishonest:g} dishonest, {dropouts:g} gone")
            k, t = by_their_count(Instance(clients, "curious", dishonest, dropouts))
            rows.append(
                {
                    "dishonest": f"{dishonest:g}",
                    "dropouts": f"{dropouts:g}",
                    "clients": clients,
                    "k, t, curious server": f"{k}, {t}",
                    "k over that of 1,000 in secagg": k / (THOUSAND - 1),
                }
            )
    chosen = SecAggPlusParameters(dishonest=MALICIOUS_RATE, dropouts=MALICIOUS_RATE, tries=0).neighbourhood(
        MALICIOUS_CLIENTS
    )
    frame = pd.DataFrame.from_records(rows)
    return ReproductionResult(
        frame,
        claims=[
            _billion(frame),
            PaperClaim(
                f"against a malicious server, of {MALICIOUS_CLIENTS:,} clients each talks to {SHARE:.0%}, and its "
                f"input is in a sum with at least {AT_LEAST:,} others (5% dishonest, 5% gone)",
                "the paper's malicious variant, in which clients choose and acknowledge neighbours, is not "
                f"implemented; secagg-plus has {chosen.neighbours} neighbours there "
                f"({chosen.neighbours / MALICIOUS_CLIENTS:.1%}), and promises parts of {chosen.threshold} or more, "
                f"not of {AT_LEAST:,}",
            ),
        ],
        remarks=[
            "k, t: the smallest values by the count of failures that gives the expected values of Google's "
            "implementation (secagg-plus-graphs), for 2^-40 and 2^-20.",
            "The abstract states no fractions for a billion clients; these are those of Google's test.",
        ],
    )


def _billion(frame: pd.DataFrame) -> PaperClaim:
    rows = frame[frame["clients"] == frame["clients"].max()]
    of_rates = {
        (row["dishonest"], row["dropouts"]): int(row["k, t, curious server"].partition(",")[0])
        for _, row in rows.iterrows()
    }
    return PaperClaim(
        "against a curious server a billion clients cost each no more than a thousand cost each in SecAgg",
        "; ".join(f"{k} neighbours at {c} and {d}" for (c, d), k in of_rates.items()) + "; SecAgg has 999",
        [between(f"neighbours, {c} dishonest, {d} gone", float(k), 1, THOUSAND - 1) for (c, d), k in of_rates.items()],
    )


REPRODUCTIONS = (
    Reproduction(
        "secagg-plus-scale",
        "SecAgg+: neighbours for ten thousand clients, and for a billion",
        "Bell et al., CCS 2020, IACR ePrint 2020/704, abstract",
        run_scale,
        claims_of=lambda table, seeds: [_billion(table), None],  # the second is about a size without a row
    ),
)
