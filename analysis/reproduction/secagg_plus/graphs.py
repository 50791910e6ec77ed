"""k and t of `secagg-plus` compared with those that the test of Google's implementation of the same paper expects.

Bell, Bonawitz, Gascon, Lepoint, Raykova: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020
(IACR ePrint 2020/704), section 3. Both take the tails of hypergeometric distributions, but they count different events:

- there a client's k neighbours hold its shares, here also the client itself: 2t - k against 2t - (k + 1) dishonest
  neighbours contradict each other;
- there the marked clients are drawn among all s clients, here among the s - 1 others;
- there each client has 2**-(security + 1) / s, here the union is over the honest clients; and dropouts (which no longer
  hold a share of their own) are distinguished from survivors;
- there 0.9 is the maximum of dishonest + 2 dropouts, here the tails decide.

`by_their_count` finds k and t with our tails and their count. Where it gives their numbers, only these four differences
remain between their numbers and ours.
"""

from functools import cache
from math import log
from typing import Any

import numpy as np
import pandas as pd

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.secagg_plus.published import CORRECTNESS, REFUSED, SECURITY, SOURCE, Instance, expected
from analysis.reproduction.verdicts import PaperClaim, between, equal
from testbed.aggregation.secagg_plus import bound

MARGIN = 0.1
"""Largest relative difference of k, from a hundred clients on: one holder more or less, and one client more or less to
draw from, move a tail by at most that much. With ten clients one even number is already a quarter or more."""

_MOST_CLIENTS_FOR_OURS = 100_000
"""Number of clients above which `smallest_neighbourhood` takes minutes if k is in the thousands."""


def requirements(of: Instance) -> bound.NeighbourhoodRequirements:
    """Return the requirements of `secagg-plus`."""
    return bound.NeighbourhoodRequirements(of.dishonest, of.dropouts, SECURITY, CORRECTNESS)


@cache
def by_their_count(of: Instance) -> tuple[int, int]:
    """Return the smallest even k and its t by their count of the same failures; (0, 0) if there is none below s - 1.

    Disconnected: at most 2**-41, as here. t is the smallest with Pr[dishonest neighbours >= t] (curious) or Pr[>= 2t -
    k] (semi-malicious) at most 2**-41 / s. k fits if Pr[surviving neighbours < t] is below 2**-20 / s; a t of 1 becomes
    2 after that.
    """
    s, needs = of.clients, requirements(of)
    dishonest, gone = needs.counts(s)
    # Union bound over the s clients.
    secret, too_few = -(SECURITY + 1) * log(2) - log(s), -CORRECTNESS * log(2) - log(s)
    for k in range(2, s - 1, 2):
        fitting = int(np.flatnonzero(bound.log_tails(s, dishonest, k)[1] <= secret)[0])
        t = fitting if of.server != "semi-malicious" else (fitting + k + 1) // 2  # 2t - k >= fitting
        if t > k or bound.log_tails(s, s - gone, k)[0][t] >= too_few:
            continue
        # Last, as it takes longest, and few k come so far.
        if bound.failure_bits(s, k, k, needs).disconnected >= SECURITY + 1:
            return k, max(t, 2)
    return 0, 0


def ours(of: Instance) -> bound.Neighbourhood | None:
    """Return the neighbourhood of `secagg-plus`, which always allows for a malicious server; None if it is refused."""
    try:
        return bound.smallest_neighbourhood(of.clients, requirements(of))
    except ValueError:
        return None


def measure_graphs(context: ReproductionContext) -> Measurements:
    """Compute all rows of the test, and try the instances that are to be refused."""
    rows = []
    for instance in expected():
        context.progress(
            f"{instance.clients} clients, {instance.dishonest:g} dishonest, {instance.dropouts:g} gone, "
            f"{instance.server}"
        )
        here = (
            ours(instance)
            if instance.server == "semi-malicious" and instance.clients <= _MOST_CLIENTS_FOR_OURS
            else None
        )
        rows.append(_row(instance, here))
    refused = [_instance(instance, ours(instance)) for instance in REFUSED if instance.server == "semi-malicious"]
    return Measurements(
        Setting(
            "none",
            sizes={
                "rows": len(rows),
                "rows to be refused": len(REFUSED),
                "most clients for our search": _MOST_CLIENTS_FOR_OURS,
                "security bits": SECURITY,
                "correctness bits": CORRECTNESS,
            },
            differs=["secagg-plus always allows for a malicious server: no k and t of ours against a curious one"],
        ),
        {"rows": pd.DataFrame.from_records(rows), "refused": pd.DataFrame.from_records(refused)},
    )


def conclude_graphs(measurements: Measurements) -> ReproductionResult:
    """Compare k and t with those of the test."""
    rows, refused, sizes = measurements.tables["rows"], measurements.tables["refused"], measurements.setting.sizes
    return ReproductionResult(
        pd.DataFrame.from_records([_shown(row) for _, row in rows.iterrows()]),
        claims=[
            *_row_claims(rows),
            PaperClaim(
                "the instances against a semi-malicious server that the test wants refused have no safe graph",
                "; ".join(
                    f"{row['clients']} clients, {row['dishonest']:g} and {row['dropouts']:g}: "
                    + ("none" if pd.isna(row["k"]) else f"k = {row['k']:.0f}, t = {row['t']:.0f}")
                    for _, row in refused.iterrows()
                ),
                [
                    equal(
                        f"graphs found for {row['dishonest']:g} and {row['dropouts']:g}", float(pd.notna(row["k"])), 0.0
                    )
                    for _, row in refused.iterrows()
                ],
                uses_data=False,
            ),
        ],
        remarks=[
            f"Source: {SOURCE}: {len(rows)} rows with k and t, and {sizes['rows to be refused']} that are to be "
            f"refused, of which {sizes['rows to be refused'] - len(refused)} are of other servers or out of range.",
            "secagg-plus always allows for a malicious server, so rows with a curious server have no k and t of "
            f"ours. Rows with more than {sizes['most clients for our search']:,} clients have none either, since the "
            "search takes minutes.",
            "Theirs under our bound: those of our three failures that their k and t do not keep as rare as required, "
            "with exponents. Their count differs (a client holds no share of its own, and is among the clients that "
            "are drawn), so a requirement that is missed here is not missed there.",
            "With no or few dishonest clients t = 1 is sufficient. Their search raises it to 2, which sharing needs, "
            "after its check of the survivors. With ten clients and a third of them gone, a client then has fewer "
            "than 2 surviving neighbours with probability 1/30.",
            "dishonest + 2 dropouts above 0.9 is refused by a rule there; at 0.33 and 0.33 (0.99) the tails still "
            "allow for nearly everybody as neighbours.",
        ],
    )


def _row_claims(rows: pd.DataFrame) -> list[PaperClaim]:
    same = int(((rows["k (paper)"] == rows["k, their count"]) & (rows["t (paper)"] == rows["t, their count"])).sum())
    large = rows[rows["k"].notna() & (rows["clients"] >= 100)]
    apart = large["k"] / large["k (paper)"] - 1
    place = int(np.argmax(apart.abs().to_numpy()))
    most, furthest = float(apart.iloc[place]), large.iloc[place]
    return [
        PaperClaim(
            f"k and t of the {len(rows)} rows are the smallest that their count of failures allows",
            f"{same} of {len(rows)} with our tails and their count",
            [equal("rows with the same k and t", float(same), float(len(rows)))],
            uses_data=False,
        ),
        PaperClaim(
            "secagg-plus needs the k that Google's implementation needs against a semi-malicious server, within "
            f"{MARGIN:.0%} (100 clients and more)",
            f"{len(large)} rows; furthest apart {most:+.1%}: {furthest['clients']} clients, "
            f"{furthest['dishonest']:g} dishonest, {furthest['dropouts']:g} gone",
            [between("largest share that k is apart", abs(most), most=MARGIN)],
            uses_data=False,
        ),
    ]


def _instance(instance: Instance, here: bound.Neighbourhood | None) -> dict[str, object]:
    """Return an instance and our k and t, which are empty without a neighbourhood."""
    return {
        "server": instance.server,
        "clients": instance.clients,
        "dishonest": instance.dishonest,
        "dropouts": instance.dropouts,
        "k": None if here is None else here.neighbours,
        "t": None if here is None else here.threshold,
    }


def _row(instance: Instance, here: bound.Neighbourhood | None) -> dict[str, object]:
    k, t = by_their_count(instance)
    return {
        **_instance(instance, here),
        "k (paper)": instance.neighbours,
        "t (paper)": instance.threshold,
        "k, their count": k,
        "t, their count": t,
        "theirs under our bound": "" if here is None else _missed(instance),
    }


def _shown(row: "pd.Series[Any]") -> dict[str, object]:
    """Return a row of the page's table."""
    return {
        "server": row["server"],
        "dishonest": f"{row['dishonest']:g}",
        "dropouts": f"{row['dropouts']:g}",
        "clients": row["clients"],
        "k, t (paper)": f"{row['k (paper)']}, {row['t (paper)']}",
        "our tails, their count": f"{row['k, their count']}, {row['t, their count']}",
        "secagg-plus": "" if pd.isna(row["k"]) else f"{row['k']:.0f}, {row['t']:.0f}",
        "theirs under our bound": row["theirs under our bound"],
    }


def _missed(instance: Instance) -> str:
    """Return the requirements that their k and t miss by our count."""
    needs = requirements(instance)
    bits = bound.failure_bits(instance.clients, instance.neighbours, instance.threshold, needs)
    required = (SECURITY + 1, SECURITY + 1, CORRECTNESS)
    parts = bound.described(bits).split(", ")
    missed = [
        part
        for part, has, wants in zip(parts, (bits.contradiction, bits.disconnected, bits.too_few), required, strict=True)
        if has < wants
    ]
    return ", ".join(missed) or "meets it"


REPRODUCTIONS = (
    Reproduction(
        "secagg-plus-graphs",
        "SecAgg+: neighbours and threshold beside those that Google's implementation is tested for",
        f"Bell et al., CCS 2020, IACR ePrint 2020/704, section 3; values of {SOURCE}",
        measure=measure_graphs,
        conclude=conclude_graphs,
    ),
)
