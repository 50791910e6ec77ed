"""Skellam noise compared with the continuous Gaussian, and sums of Skellam noise: the abstract of Agarwal et al.

Agarwal, Kairouz, Liu, The Skellam Mechanism for Differentially Private Federated Learning, NeurIPS 2021, arXiv
2110.04995. Noise of equal variance costs equal accuracy, so that the epsilons at equal variance are the trade-off.
"""

from math import inf

import numpy as np
import pandas as pd

from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
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


def run_skellam(context: ReproductionContext) -> ReproductionResult:
    """Compute epsilons and exact distributions; nothing is trained."""
    context.progress("epsilons at equal variance")
    table = pd.DataFrame.from_records([trade_off(z, steps) for z in MULTIPLIERS for steps in STEPS])
    context.progress("sums of shares")
    sums = {size: apart_from_a_sum("skellam", *size) for size in SUMS}
    others = {size: apart_from_a_sum("discrete-gaussian", *size) for size in SUMS}
    return ReproductionResult(
        table,
        claims=[
            *_epsilon_claims(table),
            PaperClaim(
                "Skellam noise is closed under summation",
                f"total variation {_format_variations(sums)}",
                [
                    between(f"total variation, {n} shares", variation, most=FLOATING)
                    for (_, n), variation in sums.items()
                ],
            ),
            PaperClaim(
                "sums of discrete Gaussians are not discrete Gaussians",
                f"total variation {_format_variations(others)}",
                [above(f"total variation, {n} shares", variation, FLOATING) for (_, n), variation in others.items()],
            ),
        ],
        remarks=[
            f"{DIMENSION:,} coordinates, {PARTICIPANTS} participants, {ROUNDS} rounds, delta {DELTA:g}; both by Rényi "
            "divergences of the same orders. bits: of the ring; the sum exceeds the ring with probability 2^-40 at "
            "most.",
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
        ),
        PaperClaim(
            "the same even when the precision is low",
            f"{coarse.min():.2f} to {coarse.max():.2f} times the Gaussian's epsilon at {STEPS[0]} steps; within "
            f"{MARGIN - 1:.0%} from {_first_fine(table)} bits a coordinate on, by noise multiplier",
            undetermined="how many bits are low for how many coordinates and participants",
        ),
    ]


def _first_fine(table: pd.DataFrame) -> str:
    near = table[table["ratio"] <= MARGIN]
    bits = near.groupby("noise multiplier")["bits of a coordinate"].min()
    return ", ".join(map(str, bits))


def _format_variations(variations: dict[tuple[float, int], float]) -> str:
    return ", ".join(f"{apart:.2g} ({n} shares of variance {v / n:.2g})" for (v, n), apart in variations.items())


REPRODUCTIONS = (
    Reproduction(
        "distributed-noise-skellam",
        "Skellam noise beside the continuous Gaussian, and its sums",
        "Agarwal, Kairouz, Liu, NeurIPS 2021, arXiv 2110.04995, abstract and section 1",
        run_skellam,
        claims_of=lambda table, seeds: [*_epsilon_claims(table), None, None],  # no sums of shares in the table
    ),
)
