"""Skellam noise compared with the continuous Gaussian, and sums of Skellam noise: the abstract of Agarwal et al.

Agarwal, Kairouz, Liu, The Skellam Mechanism for Differentially Private Federated Learning, NeurIPS 2021, arXiv
2110.04995. Noise of equal variance costs equal accuracy, so that the epsilons at equal variance are the trade-off.
"""

from math import inf

import numpy as np
import pandas as pd

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.verdicts import PaperClaim, above, between
from testbed.arrays import Floats
from testbed.privacy.accounting import ORDERS, Skellam, epsilon
from testbed.privacy.encoding import Encoding
from testbed.privacy.sampling import Mechanism, table_of

DIMENSION, PARTICIPANTS, ROUNDS, DELTA = 2**20, 100, 10, 1e-5
MULTIPLIERS = (0.5, 1.0, 2.0, 4.0)
STEPS = (256, 1024, 2048, 4096, 8192, 16384)
"""Quantisation steps from 0 to the clip."""
FINE = 8192
MARGIN = 1.01
"""Largest ratio of the epsilons with `FINE` steps; a larger ratio would need noise that accuracy shows."""
SUMS = ((1.0, 20), (4.0, 10), (16.0, 100))
"""Variance of the sum, in squared steps, and participants: small shares, as in a federation."""
FLOATING = 1e-12


def trade_off(multiplier: float, steps: int) -> dict[str, float]:
    """Return the epsilons of both mechanisms at one variance, and the ring that holds the sum.

    Args:
        multiplier: noise multiplier.
        steps: quantisation steps from 0 to the clip.
    """
    encoding = Encoding(DIMENSION, 1.0, steps, 32)
    ours = Skellam(multiplier, DIMENSION, steps).epsilon(ROUNDS, DELTA)
    gaussian = epsilon(np.array(ORDERS) / (2 * multiplier**2), ROUNDS, DELTA)
    return {
        "noise multiplier": multiplier,
        "steps to the clip": steps,
        "bits of a coordinate": encoding.bits_needed(PARTICIPANTS, multiplier),
        "epsilon, Skellam": ours,
        "epsilon, Gaussian": gaussian,
        "ratio": ours / gaussian,
    }


def apart_from_a_sum(mechanism: Mechanism, variance: float, participants: int) -> float:
    """Return the total variation between noise of a variance, and the sum of as many shares of it as participants.

    Args:
        mechanism: noise that the clients draw.
        variance: variance of the sum, in squared steps.
        participants: number of shares.
    """
    share, whole = (_masses(mechanism, part) for part in (variance / participants, variance))
    summed = share
    for _ in range(participants - 1):
        summed = np.convolve(summed, share)
    wide = max(len(summed), len(whole))
    # Both are symmetric about 0, with odd lengths.
    of_sum, of_whole = (np.pad(masses, (wide - len(masses)) // 2) for masses in (summed, whole))
    return float(np.abs(of_sum - of_whole).sum() / 2)


def _masses(mechanism: Mechanism, variance: float) -> Floats:
    """Return the probabilities of -K to K, `(2K+1,)`."""
    masses = np.array([float(mass) for mass in table_of(mechanism, variance).masses])
    masses[1:] /= 2  # the table has -x and x together
    return np.concatenate((masses[:0:-1], masses))


def measure_skellam(context: ReproductionContext) -> Measurements:
    """Compute epsilons and exact distributions; nothing is trained."""
    context.progress("epsilons at equal variance")
    epsilons = pd.DataFrame.from_records([trade_off(z, steps) for z in MULTIPLIERS for steps in STEPS])
    context.progress("sums of shares")
    mechanisms: tuple[Mechanism, ...] = ("skellam", "discrete-gaussian")
    sums = pd.DataFrame.from_records(
        [
            {
                "mechanism": mechanism,
                "variance": variance,
                "shares": shares,
                "total variation": apart_from_a_sum(mechanism, variance, shares),
            }
            for mechanism in mechanisms
            for variance, shares in SUMS
        ]
    )
    return Measurements(
        Setting(
            "none",
            sizes={"dimension": DIMENSION, "participants": PARTICIPANTS, "rounds": ROUNDS, "delta": DELTA},
            differs=["no training: noise of equal variance stands for equal accuracy"],
        ),
        {"epsilons": epsilons, "sums": sums},
    )


def conclude_skellam(measurements: Measurements) -> ReproductionResult:
    """Compare the epsilons at equal variance, and the sums of shares with whole draws."""
    table, sums, sizes = measurements.tables["epsilons"], measurements.tables["sums"], measurements.setting.sizes
    ours, others = (sums[sums["mechanism"] == mechanism] for mechanism in ("skellam", "discrete-gaussian"))
    return ReproductionResult(
        table,
        claims=[
            *_epsilon_claims(table),
            PaperClaim(
                "Skellam noise is closed under summation",
                f"total variation {_format_variations(ours)}",
                [
                    between(f"total variation, {row['shares']} shares", row["total variation"], most=FLOATING)
                    for _, row in ours.iterrows()
                ],
                uses_data=False,
            ),
            PaperClaim(
                "sums of discrete Gaussians are not discrete Gaussians",
                f"total variation {_format_variations(others)}",
                [
                    above(f"total variation, {row['shares']} shares", row["total variation"], FLOATING)
                    for _, row in others.iterrows()
                ],
                uses_data=False,
            ),
        ],
        remarks=[
            f"{sizes['dimension']:,} coordinates, {sizes['participants']} participants, {sizes['rounds']} rounds, "
            f"delta {sizes['delta']:g}; both by Rényi divergences of the same orders. bits: of the ring; the sum "
            "exceeds the ring with probability 2^-40 at most.",
            "The cost of few steps is rounding: a rounded update is longer, and any integer noise has to hide the "
            "longer update.",
            "Total variation is between a sum of shares and one draw, with the tables that clients draw from, "
            f"convolved in floating point; rounding explains up to {FLOATING:g}.",
        ],
    )


def _epsilon_claims(table: pd.DataFrame) -> list[PaperClaim]:
    fine, coarse = (table.loc[table["steps to the clip"] == steps, "ratio"] for steps in (FINE, STEPS[0]))
    return [
        PaperClaim(
            "Skellam noise gives the privacy of the continuous Gaussian at the same accuracy",
            f"{fine.min():.4f} to {fine.max():.4f} times the Gaussian's epsilon, {FINE} steps to the clip",
            [between("times the epsilon, same variance", ratio, -inf, MARGIN) for ratio in fine],
            uses_data=False,
        ),
        PaperClaim(
            "the same even when the precision is low",
            f"{coarse.min():.2f} to {coarse.max():.2f} times the Gaussian's epsilon at {STEPS[0]} steps; within "
            f"{MARGIN - 1:.0%} from {_first_fine(table)} bits a coordinate on, by noise multiplier",
            undetermined="how many bits are low for how many coordinates and participants",
            uses_data=False,
        ),
    ]


def _first_fine(table: pd.DataFrame) -> str:
    near = table[table["ratio"] <= MARGIN]
    bits = near.groupby("noise multiplier")["bits of a coordinate"].min()
    return ", ".join(map(str, bits))


def _format_variations(sums: pd.DataFrame) -> str:
    return ", ".join(
        f"{row['total variation']:.2g} ({row['shares']} shares of variance {row['variance'] / row['shares']:.2g})"
        for _, row in sums.iterrows()
    )


REPRODUCTIONS = (
    Reproduction(
        "distributed-noise-skellam",
        "Skellam noise beside the continuous Gaussian, and its sums",
        "Agarwal, Kairouz, Liu, NeurIPS 2021, arXiv 2110.04995, abstract and section 1",
        measure=measure_skellam,
        conclude=conclude_skellam,
    ),
)
