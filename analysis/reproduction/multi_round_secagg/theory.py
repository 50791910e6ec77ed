"""Multi-RoundSecAgg's theory as numbers: Theorems 2 and 3, appendices C and I, Remark 7, and equation (5).

So et al., Securing Secure Aggregation, arXiv 2106.03328. Equation (5) has two versions.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import pandas as pd

from analysis.attacks.reconstruction import spanned
from analysis.bounds.batch_partition import average_cardinality, rounds_until_full_rank, uniform_round
from analysis.bounds.convergence import Problem, printed, repaired
from analysis.multi_round.participation import strong_privacy
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.multi_round_secagg.families import best_groups
from analysis.reproduction.multi_round_secagg.published import PAPER, PARTICIPANTS, POPULATION
from analysis.reproduction.verdicts import PaperClaim, above, between, equal
from analysis.statistics import Proportion
from testbed.arrays import Floats
from testbed.batches import Batches

LARGEST = 24
"""Largest N for which appendix C is checked over all groupings."""

PRIVACIES = (1, 3, 4, 6, 12)
TRIALS = 200
ROUNDING = 1e-9
"""Rounding error of a quotient of the two sides of an inequality in floating point."""


def run_theory(context: ReproductionContext) -> ReproductionResult:
    """Compute all claims, which takes a minute."""
    context.progress(f"appendix C: all groupings of up to {LARGEST} users")
    claims = [*_optimality(), _exchange(), *_versions()]
    context.progress(f"Theorem 3: {TRIALS} matrices")
    claims += [*_theorem_2(), *_theorem_3(), *_appendix_i()]
    return ReproductionResult(
        _variances(),
        claims=claims,
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
        ],
    )


def claims_of(table: pd.DataFrame) -> list[PaperClaim | None]:
    """Return the claims about variances, from `_variances`, at their places among all claims."""
    over_single, over_beta = (
        dict(zip(table["T"].astype(str), table[name].astype(float), strict=True))
        for name in ("variance over single users'", "over beta's")
    )
    return [*[None] * 4, _beta_claim(over_beta), *[None] * 6, _batches_claim(over_single), None]


# -- appendix C, Remark 6 -------------------------------------------------------------------------------------------


def _optimality() -> list[PaperClaim]:
    """Claim that no grouping allows more sets than batches of T, for sizes that T divides and for others."""
    counts = {True: [0, 0], False: [0, 0]}  # by whether T divides N and K and K <= N/2: sizes, exceeded
    worst = 0.0
    for users in range(2, LARGEST + 1):
        for selected in range(1, users):
            for privacy in range(1, selected + 1):
                most = best_groups(users, selected, privacy)
                ours = math.comb(users // privacy, selected // privacy)
                applies = users % privacy == selected % privacy == 0 and 2 * selected <= users
                counts[applies][0] += 1
                counts[applies][1] += most > ours
                if applies:
                    worst = max(worst, most / ours)
    sizes, exceeded = counts[True]
    others, beyond = counts[False]
    return [
        PaperClaim(
            "No strategy with multi-round privacy T has more than C(N/T, K/T) sets, K <= N/2 (appendix C, Remark 6)",
            f"{sizes} sizes up to N = {LARGEST}, all groupings of each: {exceeded} allow more, the most is {worst:g} "
            f"times as many; beyond the condition (T does not divide, or K > N/2) {beyond} of {others} do",
            [equal("sizes at which some grouping allows more sets", float(exceeded), 0.0)],
        ),
    ]


# -- Remark 7 (Remark 6 of the first version) -----------------------------------------------------------------------


def _exchange() -> PaperClaim:
    """Claim that members of a batch can exchange parts of their updates without a change of any sum."""
    generator = np.random.default_rng(1)
    batches = Batches.consecutive(POPULATION, 3)
    rounds = np.array([generator.choice(len(batches), PARTICIPANTS // 3, replace=False) for _ in range(500)])
    participation = np.array([np.isin(batches.of, chosen) for chosen in rounds], np.int64)
    updates = generator.integers(-(2**20), 2**20, (POPULATION, 50))
    exchanged = updates.copy()
    exchanged[[0, 1]] = exchanged[[1, 0]] + np.array([[7], [-7]])  # and a part of one's goes to the other
    change = int(np.abs(participation @ updates - participation @ exchanged).max())
    return PaperClaim(
        "Batches hide single updates from non-linear reconstructions, too (Remark 7; Remark 6 of the first version)",
        f"two members of a batch exchange updates and part of one: the sums of 500 rounds change by {change}, and so "
        "does any function of them; other knowledge of a server about updates (that they are gradients of pictures, "
        "multiround-fig11) is not in them",
        [equal("largest change of a sum", float(change), 0.0)],
    )


# -- equation (5) ---------------------------------------------------------------------------------------------------


def _versions() -> list[PaperClaim]:
    """Claim the guarantee of (5) in two versions: with disjoint sets (AAAI), and with sets that may overlap."""
    users, privacy = 8, 3
    subsets = [row for row in product((0, 1), repeat=users) if sum(row) == privacy]
    left = _distance_of_unit_vector(np.array(subsets, np.float64))
    matrices, revealing = _revealing()
    return [
        PaperClaim(
            "A multi-round privacy T of (5) keeps the server from single models (AAAI version: disjoint sets)",
            f"of {matrices} random participation matrices with T of 2 or more {revealing} give a single update away",
            [equal("matrices that reveal a single update", float(revealing), 0.0)],
        ),
        PaperClaim(
            "The same of (5) in the first version, in which sets may overlap",
            f"sums over sets of {privacy} of {users} users make up a single user's update: distance {left:.1g}; any "
            "combination is of the form (5)",
            [above("distance of a single update from sums over T users", left, ROUNDING)],
        ),
    ]


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


def _theorem_2() -> list[PaperClaim]:
    problem = Problem(2.0, 1.0, 1.0, 4.0, 0.5, 1.0)
    completed = average_cardinality(POPULATION, PARTICIPANTS, 6, 0.3) / PARTICIPANTS
    rounds = 100
    ratio = repaired(problem, POPULATION, PARTICIPANTS, 1, 1, completed, rounds) / printed(
        problem, POPULATION, PARTICIPANTS, 1, completed, rounds
    )
    over = {str(privacy): _over_beta(privacy) for privacy in PRIVACIES}
    shift = 1.0 - POPULATION
    return [
        _beta_claim(over),
        PaperClaim(
            "Gamma = L* - sum L_i* (as printed) measures heterogeneity",
            f"adding 1 to every loss changes it by {shift:g}; with the mean of L_i* (Li et al.) by 0",
            [equal("change of Gamma when 1 is added to every loss", shift, 0.0)],
        ),
        PaperClaim(
            "The number of completed rounds may be replaced by its mean C J / K (24)",
            f"at T = 6, p = 0.3, J = {rounds} the mean over the number is {ratio:.4f} times the printed bound: the "
            "rate is convex in it",
            [between("true mean over the printed bound", ratio, most=1.0)],
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
    )


# -- Theorem 3 ------------------------------------------------------------------------------------------------------


def _theorem_3() -> list[PaperClaim]:
    full_rank = rounds_until_full_rank(uniform_round(POPULATION, PARTICIPANTS), POPULATION, TRIALS, 2 * POPULATION, 1)
    at_n = Proportion.of(int((np.asarray(full_rank) == POPULATION).sum()), TRIALS)
    measured = (
        f"N = 120, K = 12: full rank after exactly N rounds in {at_n.count} of {TRIALS} matrices "
        f"({at_n.low:.2f} to {at_n.high:.2f})"
    )
    return [
        PaperClaim(
            "Random selection reveals all models after N rounds with probability 1 - 2 exp(-c'N) (Theorem 3, (29))",
            measured,
            undetermined="the constant c'",
            seeds=TRIALS,
        ),
        PaperClaim(
            "Independent selection does so with the probability of (30)",
            "without its o(1) it says 0.9992 at N = 120, K = 12 and nothing at K = 4; `testbed bound batch-partition`",
            undetermined="the o(1) for a given N",
        ),
    ]


# -- appendix I -----------------------------------------------------------------------------------------------------


def _appendix_i() -> list[PaperClaim]:
    dependent, past = _largest_covariance_quotient(), max(_martingale_quotients())
    ratio = {str(privacy): batch_variance(privacy) / batch_variance(1) for privacy in PRIVACIES}
    return [
        PaperClaim(
            "Separating mean and variance, (48), and (50) of Corollary 3.1 with skipped rounds",
            f"largest quotient of the two sides over 2,000 covariances, the fully dependent one among them: "
            f"{dependent:.6f}, with skips the same",
            [between("left over right side", dependent, most=1 + ROUNDING)],
        ),
        PaperClaim(
            "The same for variables that depend on earlier ones, (49), and (51) of Corollary 3.1",
            f"largest quotient over 300 processes of five coins, enumerated: {past:.3f}, with skips the same",
            [between("left over right side", past, most=1 + ROUNDING)],
        ),
        _batches_claim(ratio),
        PaperClaim(
            "Rates (45) to (47), strongly convex, convex and not convex, with C in them (appendix I, Remark 9)",
            "stated for rounds of exactly K users, and up to constants",
            undetermined="the constants of O, and the bounds with C, which are not printed",
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
        "Theorems 2 and 3, appendices C and I, and equation (5), as numbers",
        f"{PAPER}, Theorems 2 and 3, Remarks 6 and 7, appendices C, H.1 and I; first version, equation (5)",
        run_theory,
        claims_of=lambda table, seeds: claims_of(table),
    ),
)
