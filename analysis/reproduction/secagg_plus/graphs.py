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

import numpy as np
import pandas as pd

from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
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
        if bound.failure_bits(s, k, k, needs).disconnected < SECURITY + 1:
            continue
        fitting = int(np.flatnonzero(bound.log_tails(s, dishonest, k)[1] <= secret)[0])
        t = fitting if of.server != "semi-malicious" else (fitting + k + 1) // 2  # 2t - k >= fitting
        if t <= k and bound.log_tails(s, s - gone, k)[0][t] < too_few:
            return k, max(t, 2)
    return 0, 0


def ours(of: Instance) -> bound.Neighbourhood | None:
    """Return the neighbourhood of `secagg-plus`, which always allows for a malicious server; None if it is refused."""
    try:
        return bound.smallest_neighbourhood(of.clients, requirements(of))
    except ValueError:
        return None


def run_graphs(context: ReproductionContext) -> ReproductionResult:
    """Compute all rows of the test."""
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
    refused = [instance for instance in REFUSED if instance.server == "semi-malicious"]
    accepted = {instance: here for instance in refused if (here := ours(instance)) is not None}
    frame = pd.DataFrame.from_records(rows)
    return ReproductionResult(
        frame,
        claims=[
            *_row_claims(frame),
            PaperClaim(
                "the instances against a semi-malicious server that the test wants refused have no safe graph",
                "; ".join(
                    f"{instance.clients} clients, {instance.dishonest:g} and {instance.dropouts:g}: "
                    + (
                        f"k = {accepted[instance].neighbours}, t = {accepted[instance].threshold}"
                        if instance in accepted
                        else "none"
                    )
                    for instance in refused
                ),
                [
                    equal(
                        f"graphs found for {instance.dishonest:g} and {instance.dropouts:g}",
                        float(instance in accepted),
                        0.0,
                    )
                    for instance in refused
                ],
            ),
        ],
        remarks=[
            f"Source: {SOURCE}: {len(frame)} rows with k and t, and {len(REFUSED)} that are to be refused, of which "
            f"{len(REFUSED) - len(refused)} are of other servers or out of range.",
            "secagg-plus always allows for a malicious server, so rows with a curious server have no k and t of "
            f"ours. Rows with more than {_MOST_CLIENTS_FOR_OURS:,} clients have none either, since the search takes "
            "minutes.",
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


def _row_claims(frame: pd.DataFrame) -> list[PaperClaim]:
    same = int((frame["k, t (paper)"] == frame["our tails, their count"]).sum())
    large = frame[(frame["secagg-plus"] != "") & (frame["clients"] >= 100)]
    apart = _neighbours(large["secagg-plus"]) / _neighbours(large["k, t (paper)"]) - 1
    place = int(np.argmax(apart.abs().to_numpy()))
    most, furthest = float(apart.iloc[place]), large.iloc[place]
    return [
        PaperClaim(
            f"k and t of the {len(frame)} rows are the smallest that their count of failures allows",
            f"{same} of {len(frame)} with our tails and their count",
            [equal("rows with the same k and t", float(same), float(len(frame)))],
        ),
        PaperClaim(
            "secagg-plus needs the k that Google's implementation needs against a semi-malicious server, within "
            f"{MARGIN:.0%} (100 clients and more)",
            f"{len(large)} rows; furthest apart {most:+.1%}: {furthest['clients']} clients, "
            f"{furthest['dishonest']} dishonest, {furthest['dropouts']} gone",
            [between("largest share that k is apart", abs(most), most=MARGIN)],
        ),
    ]


def _neighbours(cells: "pd.Series[str]") -> "pd.Series[int]":
    """Return k of cells such as "54, 27"."""
    return cells.str.partition(",")[0].astype(int)


def _row(instance: Instance, here: bound.Neighbourhood | None) -> dict[str, object]:
    k, t = by_their_count(instance)
    return {
        "server": instance.server,
        "dishonest": f"{instance.dishonest:g}",
        "dropouts": f"{instance.dropouts:g}",
        "clients": instance.clients,
        "k, t (paper)": f"{instance.neighbours}, {instance.threshold}",
        "our tails, their count": f"{k}, {t}",
        "secagg-plus": "" if here is None else f"{here.neighbours}, {here.threshold}",
        "theirs under our bound": "" if here is None else _missed(instance),
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
        run_graphs,
        claims_of=lambda table, seeds: [*_row_claims(table), None],  # refused instances have no rows
    ),
)
