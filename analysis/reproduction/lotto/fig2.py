"""Lotto's Figure 2: over-selection that yields enough candidates, by Theorem 1 and by real VRFs."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.bounds.lotto import candidates_suffice, smallest_over_selection
from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.lotto.published import PAPER
from analysis.reproduction.verdicts import PaperClaim, between, equal
from analysis.statistics import Proportion
from analysis.style import one_panel, save
from testbed.crypto.sortition import under_threshold
from testbed.crypto.vrf import SecretKey
from testbed.randomness import Randomness
from testbed.selection.lotto.messages import selection_input

FEDERATIONS = ((100, 10), (400, 40), (700, 70))
EMULATED = {"small": {(100, 10): 200}, "paper": {(100, 10): 1000, (400, 40): 300, (700, 70): 300}}  # rounds
_FACTORS = [Fraction(step, 20) for step in range(20, 41)]
_EMULATED_FACTORS = [Fraction(step, 10) for step in range(10, 20)]
_COLOURS = dict(zip(FEDERATIONS, ("#0072B2", "#D55E00", "#009E73"), strict=True))
_EXPERIMENT = b"lotto-fig2"
CLOSE_TO_1 = 0.95
"""Least probability that counts as "a probability close to 1", which the paper leaves open: at most one round in twenty
is lost."""


def run_fig2(context: ReproductionContext) -> ReproductionResult:
    """Evaluate Theorem 1 for the paper's three sizes, and emulate rounds in which every client evaluates its VRF."""
    rows = []
    for size in FEDERATIONS:
        rounds = EMULATED[context.scale].get(size, 0)
        if rounds:
            context.progress(f"lotto-fig2: {size[0]} clients evaluate the VRF in {rounds} rounds")
        counted = successes(*size, rounds) if rounds else {}
        for factor in _FACTORS:
            row = {
                "population": size[0],
                "participants": size[1],
                "over_selection": float(factor),
                "candidates_suffice": candidates_suffice(*size, factor),
            }
            if factor in counted:
                share = Proportion.of(counted[factor], rounds)
                row |= {"rounds": rounds, "emulated": share.rate, "low": share.low, "high": share.high}
            rows.append(row)
    table = pd.DataFrame(rows)
    shown = table[table["emulated"].notna() | table["over_selection"].isin([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 2.0])]
    return ReproductionResult(
        table=shown.reset_index(drop=True),
        figures=_draw(table, context.out / "lotto-fig2"),
        claims=claims_of(table),
        remarks=[
            "The paper does not state the sizes of its figure; these are those of its Tables 2 and 3.",
            "With 100 clients and 10 participants a = 1.3 fails one round in seven; 0.99 takes a = "
            f"{_enough(100, 10)} there, {_enough(400, 40)} with 400 and {_enough(700, 70)} with 700.",
            "One evaluation of the VRFs serves all factors of a size: points of one size are not independent.",
        ],
    )


def claims_of(table: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims on over-selection, from the table's emulated points and Theorem 1 at 1.3."""
    measured = table[table["emulated"].notna()]
    theorem = measured["candidates_suffice"]
    inside = int(((measured["low"] <= theorem) & (theorem <= measured["high"])).sum())
    at = {size: candidates_suffice(*size, 1.3) for size in FEDERATIONS}
    contradicted = sum(excludes(row, len(measured)) for _, row in measured.iterrows())
    return [
        PaperClaim(
            "a >= 1.3 samples enough clients with a probability close to 1",
            ", ".join(f"{value:.4f} for {s} of {n}" for (n, s), value in at.items()),
            [between("chance of enough candidates", value, least=CLOSE_TO_1) for value in at.values()],
        ),
        PaperClaim(
            "Theorem 1 is the distribution of the candidates' number",
            f"{inside} of {len(measured)} emulated points have it in their 95% interval",
            [equal("points with an interval (95% for all together) that excludes it", float(contradicted), 0)],
            seeds=int(measured["rounds"].min()),
        ),
    ]


def successes(population: int, participants: int, rounds: int) -> dict[Fraction, int]:
    """Count the rounds in which at least s of n clients fall under the threshold, by over-selection factor.

    Every client has its own key and evaluates the VRF as in the protocol.

    Args:
        population: n.
        participants: s.
        rounds: number of rounds.
    """
    randomness = Randomness(2024)
    keys = [SecretKey.from_seed(randomness.secret(client, 0, "vrf")) for client in range(population)]
    counted = dict.fromkeys(_EMULATED_FACTORS, 0)
    for number in range(1, rounds + 1):
        # Once a round for all factors, since the VRFs take nearly all of the time.
        outputs = [key.output(selection_input(_EXPERIMENT, number)) for key in keys]
        for factor in counted:
            candidates = sum(under_threshold(output, factor, participants, population) for output in outputs)
            counted[factor] += candidates >= participants
    return counted


def excludes(row: pd.Series, points: int) -> bool:
    """Check whether a point's interval excludes Theorem 1; the intervals of all points hold together with 95%.

    Args:
        row: a row of the table with an emulated point.
        points: number of points.
    """
    rounds = int(row["rounds"])
    wide = Proportion.of(round(row["emulated"] * rounds), rounds, 1 - 0.05 / points)
    return not wide.low <= row["candidates_suffice"] <= wide.high


def _enough(population: int, participants: int) -> float:
    factor = smallest_over_selection(population, participants, 0.99)
    assert factor is not None
    return float(factor)


def _draw(table: pd.DataFrame, path: Path) -> list[Path]:
    with one_panel(2.2) as (figure, axes):
        axes.axvline(1.3, color="#7F7F7F", linewidth=0.8, linestyle="--")
        axes.text(1.31, 0.02, "a = 1.3", color="#4D4D4D", transform=axes.get_xaxis_transform())
        for size, colour in _COLOURS.items():
            n, s = size
            fine = [Fraction(step, 100) for step in range(100, 201)]
            theory = [candidates_suffice(n, s, factor) for factor in fine]
            axes.plot([float(factor) for factor in fine], theory, color=colour, label=f"{s} of {n:,}")
            part = table[(table["population"] == n) & table["emulated"].notna()]
            if len(part):
                middle = part["emulated"].to_numpy()
                spread = np.abs(part[["low", "high"]].to_numpy().T - middle)
                axes.errorbar(
                    part["over_selection"],
                    middle,
                    spread,
                    fmt="o",
                    color=colour,
                    markersize=3,
                    elinewidth=0.8,
                    markerfacecolor="white",
                    markeredgewidth=0.8,
                )
        axes.errorbar(
            [],
            [],
            [],
            fmt="o",
            color="#4D4D4D",
            markersize=3,
            markerfacecolor="white",
            elinewidth=0.8,
            label="real VRFs, 95%",
        )
        axes.legend(loc="lower right")
        axes.set(
            xlim=(0.97, 2.02), ylim=(0.4, 1.02), xlabel="Over-selection factor a", ylabel="Pr[at least s candidates]"
        )
        axes.grid()
        return save(figure, path, plot_data(figure))


REPRODUCTIONS = (
    Reproduction(
        "lotto-fig2",
        "Over-selection that finds enough candidates",
        f"{PAPER}, Figure 2",
        run_fig2,
        claims_of=lambda table, seeds: claims_of(table),
    ),
)
