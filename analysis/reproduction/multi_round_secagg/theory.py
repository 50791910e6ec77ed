"""Multi-RoundSecAgg's theory as numbers: the steps of Theorem 2, appendices C and I, Remark 7, and equation (5).

So et al., Securing Secure Aggregation, arXiv 2106.03328. Equation (5) has two versions.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from analysis.attacks.reconstruction import spanned
from analysis.bounds.batch_partition import average_cardinality
from analysis.bounds.convergence import Problem, printed, repaired
from analysis.multi_round.participation import strong_privacy
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.multi_round_secagg.families import best_groups
from analysis.reproduction.multi_round_secagg.published import PAPER, PARTICIPANTS, POPULATION
from analysis.reproduction.verdicts import PaperClaim, above, between, equal
from testbed.arrays import Floats
from testbed.batches import Batches

LARGEST = 24
"""Largest N for which appendix C is checked over all groupings."""

PRIVACIES = (1, 3, 4, 6, 12)
ROUNDS = 100
"""J where (24) is checked, at T = 6 and p = 0.3."""

ROUNDING = 1e-9
"""Rounding error of a quotient of the two sides of an inequality in floating point."""


def measure_theory(context: ReproductionContext) -> Measurements:
    """Compute all quantities, which takes a minute."""
    context.progress(f"appendix C: all groupings of up to {LARGEST} users")
    families = _families()
    context.progress("equation (5), Theorem 2, appendix I")
    matrices, revealing = _revealing()
    numbers = {
        "largest change of a sum by an exchange": float(_exchange()),
        "matrices with T of 2 or more": float(matrices),
        "matrices that reveal a single update": float(revealing),
        "distance of a single update from sums over 3 of 8 users": _overlapping(),
        "change of Gamma as printed": 1.0 - POPULATION,
        "true mean over the printed bound": _mean_over_printed(),
        "largest quotient of (48) and (50)": _largest_covariance_quotient(),
        "largest quotient of (49) and (51)": max(_martingale_quotients()),
    }
    return Measurements(
        Setting("none", sizes={"population": POPULATION, "participants": PARTICIPANTS, "largest N": LARGEST}),
        {
            "families": families,
            "variances": _variances(),
            "numbers": pd.DataFrame(list(numbers.items()), columns=["quantity", "value"]),
        },
    )


def conclude_theory(measurements: Measurements) -> ReproductionResult:
    """Compare the quantities with the paper's statements; none depends on a data set."""
    variances = measurements.tables["variances"]
    quantities = measurements.tables["numbers"]
    numbers = dict(zip(quantities["quantity"].astype(str), quantities["value"].astype(float), strict=True))
    over_single, over_beta = (
        dict(zip(variances["T"].astype(str), variances[name].astype(float), strict=True))
        for name in ("variance over single users'", "over beta's")
    )
    return ReproductionResult(
        variances,
        claims=[
            _optimality(measurements.tables["families"]),
            _exchange_claim(numbers),
            *_versions(numbers),
            _beta_claim(over_beta),
            *_theorem_2(numbers),
            *_appendix_i(numbers),
            _batches_claim(over_single),
            PaperClaim(
                "Rates (45) to (47), strongly convex, convex and not convex, with C in them (appendix I, Remark 9)",
                "stated for rounds of exactly K users, and up to constants",
                undetermined="the constants of O, and the bounds with C, which are not printed",
                uses_data=False,
            ),
        ],
        remarks=[
            "Table: how much the mean of whole batches varies, relative to users chosen one by one (N = 120, K = "
            "12), when the members of a batch have equal gradients; then relative to the variance that Theorem 2's "
            "beta allows (E = 1).",
            "Appendix C counts sets of exactly K users. Its step from (27) to (28) counts sets with one number of "
            "groups; if groups have several sizes, sets have several numbers of groups. No set contains another, so "
            "the bound holds nevertheless (Lubell, Yamamoto and Meshalkin).",
            "Corollary 3.1 is the lemma before it times the probability that the round is not skipped: exact, and "
            "checked on random covariances and on processes that depend on their past.",
            "Equations (45) to (47) are those of Karimireddy et al. (arXiv 1910.06378), for rounds that always have "
            "K users, chosen one by one. Their form with C is not printed.",
            "Theorem 2's bound itself is judged in multiround-theorem2, Theorem 3 in multiround-theorem3.",
        ],
    )


# -- appendix C, Remark 6 -------------------------------------------------------------------------------------------


def _families() -> pd.DataFrame:
    """Count the sizes (N, K, T) at which some grouping allows more sets than batches of T, by N.

    Returns:
        One row for each N and for sizes within and beyond the condition: T divides N and K, and K is at most N/2.
    """
    rows: dict[tuple[int, bool], dict[str, Any]] = {}
    for users in range(2, LARGEST + 1):
        for selected in range(1, users):
            for privacy in range(1, selected + 1):
                most = best_groups(users, selected, privacy)
                ours = math.comb(users // privacy, selected // privacy)
                applies = users % privacy == selected % privacy == 0 and 2 * selected <= users
                empty = {"N": users, "within the condition": applies, "sizes": 0, "exceeded": 0, "largest ratio": 0.0}
                row = rows.setdefault((users, applies), empty)
                row["sizes"] += 1
                row["exceeded"] += most > ours
                row["largest ratio"] = max(row["largest ratio"], most / ours)
    return pd.DataFrame(list(rows.values()))


def _optimality(families: pd.DataFrame) -> PaperClaim:
    """Return the claim that no grouping allows more sets than batches of T."""
    within = families[families["within the condition"].astype(bool)]
    beyond = families[~families["within the condition"].astype(bool)]
    exceeded = int(within["exceeded"].sum())
    return PaperClaim(
        "No strategy with multi-round privacy T has more than C(N/T, K/T) sets, K <= N/2 (appendix C, Remark 6)",
        f"{within['sizes'].sum()} sizes up to N = {families['N'].max()}, all groupings of each: {exceeded} allow more, "
        f"the most is {within['largest ratio'].max():g} times as many; beyond the condition (T does not divide, or K > "
        f"N/2) {beyond['exceeded'].sum()} of {beyond['sizes'].sum()} do",
        [equal("sizes at which some grouping allows more sets", float(exceeded), 0.0)],
        uses_data=False,
    )


# -- Remark 7 (Remark 6 of the first version) -----------------------------------------------------------------------


def _exchange() -> int:
    """Return the largest change of a sum if two members of a batch exchange updates and part of one."""
    generator = np.random.default_rng(1)
    batches = Batches.consecutive(POPULATION, 3)
    rounds = np.array([generator.choice(len(batches), PARTICIPANTS // 3, replace=False) for _ in range(500)])
    participation = np.array([np.isin(batches.of, chosen) for chosen in rounds], np.int64)
    updates = generator.integers(-(2**20), 2**20, (POPULATION, 50))
    exchanged = updates.copy()
    exchanged[[0, 1]] = exchanged[[1, 0]] + np.array([[7], [-7]])  # and a part of one's goes to the other
    return int(np.abs(participation @ updates - participation @ exchanged).max())


def _exchange_claim(numbers: Mapping[str, float]) -> PaperClaim:
    change = numbers["largest change of a sum by an exchange"]
    return PaperClaim(
        "Batches hide single updates from non-linear reconstructions, too (Remark 7; Remark 6 of the first version)",
        f"two members of a batch exchange updates and part of one: the sums of 500 rounds change by {change:g}",
        [equal("largest change of a sum", change, 0.0)],
        uses_data=False,
    )


# -- equation (5) ---------------------------------------------------------------------------------------------------


def _versions(numbers: Mapping[str, float]) -> list[PaperClaim]:
    """Return the claims of (5) in two versions: with disjoint sets (AAAI), and with sets that may overlap."""
    matrices, revealing = (
        numbers[name] for name in ("matrices with T of 2 or more", "matrices that reveal a single update")
    )
    left = numbers["distance of a single update from sums over 3 of 8 users"]
    return [
        PaperClaim(
            "A multi-round privacy T of (5) keeps the server from single models (AAAI version: disjoint sets)",
            f"of {matrices:g} random participation matrices with T of 2 or more {revealing:g} give a single update "
            "away",
            [equal("matrices that reveal a single update", revealing, 0.0)],
            uses_data=False,
        ),
        PaperClaim(
            "The same of (5) in the first version, in which sets may overlap",
            f"distance of a single user's update from combinations of sums over sets of 3 of 8 users: {left:.1g}",
            [above("distance of a single update from sums over T users", left, ROUNDING)],
            uses_data=False,
        ),
    ]


def _overlapping() -> float:
    """Return the distance of one user's update from combinations of sums over sets of three of eight users."""
    users, privacy = 8, 3
    subsets = [row for row in product((0, 1), repeat=users) if sum(row) == privacy]
    return _distance_of_unit_vector(np.array(subsets, np.float64))


def _revealing() -> tuple[int, int]:
    """Count random unions of random groups with T of 2 or more, and those of them that reach a unit vector."""
    generator = np.random.default_rng(4)
    private = revealing = 0
    for _ in range(1000):
        group = generator.integers(0, generator.integers(2, 8), 12)
        rounds = np.array([np.isin(group, generator.integers(0, 8, 3)) for _ in range(10)])
        if rounds.any() and strong_privacy(rounds) >= 2:
            private += 1
            revealing += any(spanned(rounds, np.array([user])) for user in range(12))
    return private, revealing


def _distance_of_unit_vector(rows: Floats) -> float:
    unit = np.zeros(rows.shape[1])
    unit[0] = 1
    combination = np.linalg.lstsq(rows.T, unit, rcond=None)[0]
    return float(np.linalg.norm(rows.T @ combination - unit))


# -- Theorem 2 ------------------------------------------------------------------------------------------------------


def _variances() -> pd.DataFrame:
    rows = []
    for privacy in PRIVACIES:
        share = batch_variance(privacy) / batch_variance(1)
        rows.append({"T": str(privacy), "variance over single users'": share, "over beta's": _over_beta(privacy)})
    return pd.DataFrame.from_records(rows)


def batch_variance(privacy: int) -> float:
    """Return the variance of the participants' mean, for numbers that are equal within batches.

    It is relative to the numbers' own variance, and exact, from the probabilities with which two users take part
    together: batches without replacement, N = 120 and K = 12.
    """
    batches = Batches.consecutive(POPULATION, privacy)
    count, chosen = len(batches), PARTICIPANTS // privacy
    values = np.where(batches.of % 2 == 0, 1.0, -1.0)
    values -= values.mean()
    together = chosen * (chosen - 1) / (count * (count - 1))
    pairs = np.where(batches.of[:, None] == batches.of, chosen / count, together)  # Pr[both take part]
    covariance = pairs - (PARTICIPANTS / POPULATION) ** 2
    return float(values @ covariance @ values / PARTICIPANTS**2 / np.mean(values**2))


def _over_beta(privacy: int) -> float:
    """Return this variance over beta / (eta^2 E^2 G^2), for gradients with mean square G^2."""
    beta = 4 * (POPULATION - PARTICIPANTS) / (PARTICIPANTS * (POPULATION - 1))
    return batch_variance(privacy) / beta


def _mean_over_printed() -> float:
    """Return the mean of the bound over the number of completed rounds, over the bound at the mean number (24)."""
    problem = Problem(2.0, 1.0, 1.0, 4.0, 0.5, 1.0)
    completed = average_cardinality(POPULATION, PARTICIPANTS, 6, 0.3) / PARTICIPANTS
    mean = repaired(problem, POPULATION, PARTICIPANTS, 1, 1, completed, ROUNDS)
    return mean / printed(problem, POPULATION, PARTICIPANTS, 1, completed, ROUNDS)


def _theorem_2(numbers: Mapping[str, float]) -> list[PaperClaim]:
    shift, ratio = numbers["change of Gamma as printed"], numbers["true mean over the printed bound"]
    return [
        PaperClaim(
            "Gamma = L* - sum L_i* (as printed) measures heterogeneity",
            f"adding 1 to every loss changes it by {shift:g}; with the mean of L_i* (Li et al.) by 0",
            [equal("change of Gamma when 1 is added to every loss", shift, 0.0)],
            uses_data=False,
        ),
        PaperClaim(
            "The number of completed rounds may be replaced by its mean C J / K (24)",
            f"at T = 6, p = 0.3, J = {ROUNDS} the mean over the number is {ratio:.4f} times the printed bound: the "
            "rate is convex in it",
            [between("true mean over the printed bound", ratio, most=1.0)],
            uses_data=False,
        ),
    ]


def _beta_claim(over: Mapping[str, float]) -> PaperClaim:
    """Return the claim of (20), from the variance over beta by T."""
    batches = {privacy: value for privacy, value in over.items() if privacy != "1"}
    return PaperClaim(
        "beta of Theorem 2 bounds the variance of the selection (20)",
        "equal gradients within a batch reach "
        + ", ".join(f"{value:.2f} of it at T = {privacy}" for privacy, value in batches.items()),
        [between(f"share of beta at T = {privacy}", value, most=1.0) for privacy, value in batches.items()],
        uses_data=False,
    )


# -- appendix I -----------------------------------------------------------------------------------------------------


def _appendix_i(numbers: Mapping[str, float]) -> list[PaperClaim]:
    dependent, past = (numbers[f"largest quotient of {name}"] for name in ("(48) and (50)", "(49) and (51)"))
    return [
        PaperClaim(
            "Separating mean and variance, (48), and (50) of Corollary 3.1 with skipped rounds",
            f"largest quotient of the two sides over 2,000 covariances, the fully dependent one among them: "
            f"{dependent:.6f}, with skips the same",
            [between("left over right side", dependent, most=1 + ROUNDING)],
            uses_data=False,
        ),
        PaperClaim(
            "The same for variables that depend on earlier ones, (49), and (51) of Corollary 3.1",
            f"largest quotient over 300 processes of five coins, enumerated: {past:.3f}, with skips the same",
            [between("left over right side", past, most=1 + ROUNDING)],
            uses_data=False,
        ),
    ]


def _batches_claim(ratio: Mapping[str, float]) -> PaperClaim:
    """Return the claim of (45) to (47), from the variance over that of single users by T."""
    batches = {privacy: value for privacy, value in ratio.items() if privacy != "1"}
    return PaperClaim(
        "The rest of the proof of (45) to (47) follows similarly for batches: their sampling has M's (1 - K/N) G^2",
        "the mean of batches varies "
        + ", ".join(f"{value:.2f} times as much at T = {privacy}" for privacy, value in batches.items())
        + " when members of a batch have equal gradients",
        [between(f"times at T = {privacy}", value, most=1 + ROUNDING) for privacy, value in batches.items()],
        uses_data=False,
    )


def _largest_covariance_quotient() -> float:
    """Return the largest quotient of (48) and (50), for random vectors with variances of at most sigma^2 = 1."""
    generator = np.random.default_rng(2)
    largest = 0.0
    for trial in range(2000):
        count = int(generator.integers(1, 9))
        roots = generator.normal(size=(count, int(generator.integers(1, count + 1))))
        covariance = np.ones((count, count)) if trial == 0 else roots @ roots.T  # fully dependent: attains the bound
        covariance /= covariance.diagonal().max()
        mean = generator.normal(size=count).sum() ** 2
        skipped = generator.uniform(0.1, 1.0)  # P(W = w)
        left = skipped * (mean + covariance.sum())
        right = skipped * mean + count * (skipped * count)
        largest = max(largest, left / right)
    return float(largest)


def _martingale_quotients() -> Iterator[float]:
    """Yield quotients of (49) and (51), exactly: E_i = zeta_i + a fair coin, zeta_i a function of earlier coins."""
    generator = np.random.default_rng(3)
    coins = np.array(list(product((-1.0, 1.0), repeat=5)))
    for _ in range(300):
        means = np.zeros_like(coins)
        for place in range(coins.shape[1]):
            of_past = dict[tuple[float, ...], float]()
            for row, past in enumerate(map(tuple, coins[:, :place].tolist())):
                if past not in of_past:
                    of_past[past] = float(generator.normal(scale=3.0))
                means[row, place] = of_past[past]
        left = np.mean((means + coins).sum(axis=1) ** 2)
        right = 2 * np.mean(means.sum(axis=1) ** 2) + 2 * coins.shape[1]
        yield float(left / right)


REPRODUCTIONS = (
    Reproduction(
        "multiround-theory",
        "Theorem 2's steps, appendices C and I, and equation (5), as numbers",
        f"{PAPER}, Theorem 2, Remarks 6 and 7, appendices C and I; first version, equation (5)",
        measure=measure_theory,
        conclude=conclude_theory,
    ),
)
