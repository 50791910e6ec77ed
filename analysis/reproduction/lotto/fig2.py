"""Lotto's Figure 2: over-selection that yields enough candidates, by Theorem 1 and by real VRFs."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.bounds.lotto import candidates_suffice, smallest_over_selection
from analysis.plot_data import plot_data
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
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
_EXPERIMENT, _SEED = b"lotto-fig2", 2024
CLOSE_TO_1 = 0.95
"""Least probability that counts as "a probability close to 1", which the paper leaves open: at most one round in twenty
is lost."""


ANNOUNCED = (Fraction(4, 5), Fraction(5, 4))
"""Announced population over the true one, for Theorem 1 with n_true different from n."""

_EXAMPLE_FACTOR = Fraction(13, 10)


def measure_fig2(context: ReproductionContext) -> Measurements:
    """Evaluate Theorem 1 for the paper's three sizes, and count rounds in which every client evaluates its VRF."""
    rows = []
    for size in FEDERATIONS:
        rounds = EMULATED[context.scale].get(size, 0)
        if rounds:
            context.progress(f"lotto-fig2: {size[0]} clients evaluate the VRF in {rounds} rounds")
        counted = successes(*size, rounds) if rounds else {}
        points = [(factor, size[0]) for factor in _FACTORS] + _announcements(size[0])
        for factor, announced in points:
            row = {
                "population": size[0],
                "participants": size[1],
                "over_selection": float(factor),
                "announced": announced,
                "candidates_suffice": candidates_suffice(*size, factor, announced),
            }
            if (factor, announced) in counted:
                row |= {"rounds": rounds, "successes": counted[factor, announced]}
            rows.append(row)
    needed = [{"population": n, "participants": s, "over_selection for 0.99": _enough(n, s)} for n, s in FEDERATIONS]
    setting = Setting("none", seeds=(_SEED,), differs=["the paper does not state the sizes of its figure"])
    table = pd.DataFrame(rows)
    return Measurements(
        setting,
        {"points": table, "needed": pd.DataFrame(needed)},
        _draw(_with_rates(table), context.out / "lotto-fig2"),
    )


def _announcements(population: int) -> list[tuple[Fraction, int]]:
    """Return over-selection and announced population of the points with another population than the true one."""
    return [(_EXAMPLE_FACTOR, int(population * share)) for share in ANNOUNCED]


def _with_rates(table: pd.DataFrame) -> pd.DataFrame:
    """Return the points with the rate of successful rounds and its 95% interval, empty for points without rounds."""
    rates = pd.DataFrame(
        {"emulated": share.rate, "low": share.low, "high": share.high}
        for share in (
            Proportion.of(0, 0) if pd.isna(rounds) else Proportion.of(int(count), int(rounds))
            for count, rounds in zip(table["successes"], table["rounds"], strict=True)
        )
    )
    without_rounds = table["rounds"].isna().to_numpy()
    rates.loc[without_rounds] = np.nan
    return pd.concat([table, rates.set_index(table.index)], axis="columns")


def conclude_fig2(measurements: Measurements) -> ReproductionResult:
    """Compare the counted rounds with Theorem 1, for the true and for other announced populations."""
    points = _with_rates(measurements.tables["points"])
    true_n = points[points["announced"] == points["population"]]
    measured, others = (part[part["emulated"].notna()] for part in (true_n, points.drop(true_n.index)))
    shown = points["emulated"].notna() | points["over_selection"].isin([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 2.0])
    at = true_n[true_n["over_selection"] == float(_EXAMPLE_FACTOR)]
    needed = measurements.tables["needed"]["over_selection for 0.99"].tolist()
    return ReproductionResult(
        table=points[shown].drop(columns="successes").reset_index(drop=True),
        claims=[
            PaperClaim(
                "a >= 1.3 samples enough clients with a probability close to 1",
                ", ".join(
                    f"{row['candidates_suffice']:.4f} for {row['participants']:.0f} of {row['population']:.0f}"
                    for _, row in at.iterrows()
                ),
                [between("chance of enough candidates", float(p), least=CLOSE_TO_1) for p in at["candidates_suffice"]],
                uses_data=False,
            ),
            _is_the_distribution(measured, "Theorem 1 is the distribution of the candidates' number"),
            _is_the_distribution(others, "Theorem 1 with an announced n that is not n_true"),
        ],
        remarks=[
            "The paper does not state the sizes of its figure; these are those of its Tables 2 and 3.",
            "With 100 clients and 10 participants a = 1.3 fails one round in seven; 0.99 takes a = "
            f"{needed[0]} there, {needed[1]} with 400 and {needed[2]} with 700.",
            f'"Close to 1" is judged as {CLOSE_TO_1} or more: at most one round in twenty is lost.',
            "One evaluation of the VRFs serves all factors of a size: points of one size are not independent.",
        ],
    )


def _is_the_distribution(measured: pd.DataFrame, claim: str) -> PaperClaim:
    theorem = measured["candidates_suffice"]
    inside = int(((measured["low"] <= theorem) & (theorem <= measured["high"])).sum())
    contradicted = sum(excludes(row, len(measured)) for _, row in measured.iterrows())
    return PaperClaim(
        claim,
        f"{inside} of {len(measured)} emulated points have it in their 95% interval",
        [equal("points with an interval (95% for all together) that excludes it", float(contradicted), 0)],
        seeds=int(measured["rounds"].min()),
        uses_data=False,
    )


def successes(population: int, participants: int, rounds: int) -> dict[tuple[Fraction, int], int]:
    """Count the rounds in which at least s clients fall under the threshold, by over-selection and announced n.

    Every client has its own key and evaluates the VRF as in the protocol.

    Args:
        population: n_true.
        participants: s.
        rounds: number of rounds.
    """
    randomness = Randomness(_SEED)
    keys = [SecretKey.from_seed(randomness.secret(client, 0, "vrf")) for client in range(population)]
    points = [(factor, population) for factor in _EMULATED_FACTORS] + _announcements(population)
    counted = dict.fromkeys(points, 0)
    for number in range(1, rounds + 1):
        # Once a round for all factors, since the VRFs take nearly all of the time.
        outputs = [key.output(selection_input(_EXPERIMENT, number)) for key in keys]
        for factor, announced in counted:
            candidates = sum(under_threshold(output, factor, participants, announced) for output in outputs)
            counted[factor, announced] += candidates >= participants
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
            part = table[(table["population"] == n) & (table["announced"] == n) & table["emulated"].notna()]
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
        measure=measure_fig2,
        conclude=conclude_fig2,
    ),
)
