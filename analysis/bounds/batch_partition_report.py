"""Batch partition's guarantees as a flat object, for scripts and for the command; a reason beside each null."""

from collections.abc import Sequence
from math import lgamma, log

import numpy as np

from analysis.bounds import convergence
from analysis.bounds.batch_partition import (
    Dropout,
    average_cardinality,
    batches_of,
    family_size,
    independent_bound,
    independent_round,
    rounds_until_full_rank,
    simulated,
    unavailable_round,
    uniform_round,
)
from analysis.bounds.rows import Row, found, number, results
from analysis.statistics import Proportion

_DIGITS = 4300  # what Python prints of an integer
_SEED = 0  # simulations are the same every time; other seeds by calling what is simulated
_BEYOND = 2  # rounds are simulated up to so many times N
_SIMULATED_USERS = 1000  # of whom rounds are simulated without being asked to: seconds
_SIMULATED_ROUNDS = 10_000


def batch_partition_report(
    users: int,
    selected: int,
    privacy: int,
    dropout: Dropout,
    *,
    rounds: int | None = None,
    simulated_rounds: int | None = None,
    trials: int = 0,
    problem: convergence.Problem | None = None,
    local_steps: int = 1,
) -> Row:
    """Theorems 1 and 3, and Theorem 2 of a `problem`, for one setting.

    Args:
        users, selected, privacy, dropout: N, K, T and who drops out, as `average_cardinality`.
        rounds: for Theorems 2 and 3; None: N.
        simulated_rounds: of fair selection; None: 10,000 for different users, up to 1000 of them, otherwise none.
        trials: participation matrices whose rank is computed.
        problem: what is learned; None: without Theorem 2.
        local_steps: E of Theorem 2.
    """
    row = batch_partition_bounds(users, selected, privacy, dropout)
    if simulated_rounds is None:
        simulated_rounds = _SIMULATED_ROUNDS if isinstance(dropout, Sequence) and users <= _SIMULATED_USERS else 0
    if simulated_rounds:
        row |= simulated_cardinality(users, selected, privacy, dropout, simulated_rounds)
    row |= full_rank_report(users, selected, rounds or users, trials)
    if problem is not None:
        row |= convergence_report(users, selected, privacy, dropout, problem, local_steps, rounds or users)
    return row


def batch_partition_bounds(users: int, selected: int, privacy: int, dropout: Dropout) -> Row:
    """Family size, Theorem 1's cardinality and skipped rounds, exactly; arguments as `average_cardinality`."""
    batches = batches_of(users, selected, privacy)
    wanted = selected // privacy
    logarithm = (lgamma(len(batches) + 1) - lgamma(wanted + 1) - lgamma(len(batches) - wanted + 1)) / log(10)
    size = family_size(users, selected, privacy) if logarithm < _DIGITS else None
    chances = np.asarray(dropout, np.float64)
    spread = {"dropout_lowest": float(chances.min()), "dropout_highest": float(chances.max())}
    return {
        "users": users,
        "selected": selected,
        "privacy": privacy,
        "dropout": float(chances.mean()),
        **(spread if chances.ndim else {}),
        "batches": len(batches),
        "largest_batch": int(batches.sizes.max()),
        **found("family_size", size, f"an integer of {int(logarithm) + 1} digits"),
        "family_size_log10": logarithm,
        "average_cardinality": average_cardinality(users, selected, privacy, dropout),
        "unavailable_round": unavailable_round(users, selected, privacy, dropout),
    }


def simulated_cardinality(users: int, selected: int, privacy: int, dropout: Dropout, rounds: int) -> Row:
    """The same by simulation of so many rounds of fair selection, with standard error and 95% interval."""
    measured = simulated(users, selected, privacy, dropout, rounds, _SEED)
    return {
        "simulated_rounds": rounds,
        "simulated_cardinality": measured.cardinality,
        "simulated_error": measured.error,
        **_share("simulated_unavailable", measured.unavailable),
    }


def full_rank_report(users: int, selected: int, rounds: int, trials: int) -> Row:
    """Theorem 3 for N rounds, and (with trials) how often P had full rank after `rounds`, with 95% intervals."""
    unstated = "the theorem does not state its constant c'"
    row: Row = {**found("theorem3_uniform", None, unstated), **_independent(users, selected)}
    if trials:
        row |= {"full_rank_rounds": rounds, "full_rank_trials": trials}
        most = max(rounds, _BEYOND * users)
        for name, draw in (
            ("uniform", uniform_round),
            ("independent", independent_round),
        ):
            reached = rounds_until_full_rank(draw(users, selected), users, trials, most, _SEED)
            median = float(np.median(reached))
            row |= _share(f"full_rank_{name}", Proportion.of(int((reached <= rounds).sum()), trials))
            row |= found(f"full_rank_{name}_median", median if median <= most else None, f"more than {most} rounds")
    return row


def convergence_report(
    users: int, selected: int, privacy: int, dropout: Dropout, problem: convergence.Problem, steps: int, rounds: int
) -> Row:
    """Theorem 2 after `rounds`: as printed, and repaired (see `convergence`).

    Raises `ValueError` for unequal dropout, of which the theorem says nothing.
    """
    if isinstance(dropout, Sequence) and len(set(dropout)) > 1:
        raise ValueError("dropout: Theorem 2 is about users that all drop out equally often")
    completed = 1 - unavailable_round(users, selected, privacy, dropout)
    return {
        "rounds": rounds,
        "local_steps": steps,
        "theorem2_printed": convergence.printed(problem, users, selected, steps, completed, rounds),
        "theorem2_repaired": convergence.repaired(problem, users, selected, privacy, steps, completed, rounds),
    }


def _independent(users: int, selected: int) -> Row:
    if 2 * selected >= users:
        return found("theorem3_independent", None, "stated for K below N/2")
    bound = independent_bound(users, selected)
    return found("theorem3_independent", bound if bound > 0 else None, f"(30) says nothing here: {bound:.3g}")


def _share(name: str, share: Proportion) -> Row:
    return {name: share.rate, f"{name}_low": share.low, f"{name}_high": share.high}


# -- as text ----------------------------------------------------------------------------------------------------------

_LABELS = {
    "family_size": "sets of users that a round may take, R",
    "average_cardinality": "average cardinality C (Theorem 1)",
    "unavailable_round": "a round is skipped: no row of B available",
    "simulated_cardinality": "C, simulated, {simulated_rounds} rounds",
    "simulated_unavailable": "a round is skipped, simulated",
    "theorem3_uniform": "random: full rank after N rounds (Theorem 3)",
    "theorem3_independent": "bernoulli: the same ((30) without o(1))",
    "full_rank_uniform": "random: full rank after {full_rank_rounds} rounds, simulated",
    "full_rank_uniform_median": "random: rounds until full rank, median",
    "full_rank_independent": "bernoulli: full rank after {full_rank_rounds} rounds, simulated",
    "full_rank_independent_median": "bernoulli: rounds until full rank, median",
    "theorem2_printed": "E[L] - L* after {rounds} rounds, as printed (8)",
    "theorem2_repaired": "the same, for batches and skipped rounds",
}


def text(row: Row) -> str:
    """What `batch_partition_report` found, for a person."""
    dropout = number(row["dropout"])
    if "dropout_lowest" in row:
        dropout = f"{number(row['dropout_lowest'])} to {number(row['dropout_highest'])}, {dropout} on average"
    sizes = str(row["privacy"])
    if row["largest_batch"] > row["privacy"]:
        sizes += f" to {row['largest_batch']}"
    first = f"N = {row['users']}, K = {row['selected']}, {row['batches']} batches of {sizes}, p = {dropout}"
    return f"{first}\n{results(row, _LABELS, _value)}"


def _value(row: Row, key: str) -> str:
    if key == "simulated_cardinality":
        return f"{number(row[key])} +- {row['simulated_error']:.2g}"
    if f"{key}_low" in row:
        return f"{number(row[key])}  (95%: {number(row[f'{key}_low'])} to {number(row[f'{key}_high'])})"
    return number(row[key])
