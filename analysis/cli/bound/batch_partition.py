"""``testbed bound batch-partition``: batch partition (Multi-RoundSecAgg), Theorems 1, 2 and 3."""

from collections.abc import Sequence
from math import lgamma, log
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from analysis.cli.bound.declaration import Row, declare, number, results, value_or_reason
from testbed.cli.invocation import option
from testbed.errors import ExperimentError
from testbed.files import limits

if TYPE_CHECKING:
    from analysis.statistics import Proportion

_DIGITS = 4300  # the most digits that Python prints of an integer
_SEED = 0  # simulations give the same result every time
_BEYOND = 2  # rounds are simulated up to this multiple of N
_SIMULATED_USERS = 1000  # most users for which rounds are simulated by default: it takes seconds
_SIMULATED_ROUNDS = 10_000

_PAPER = "--users 120 --selected 12"
_LABELS = {
    "family_size": "family size R: possible sets of participants",
    "average_cardinality": "mean cardinality C (Theorem 1)",
    "unavailable_round": "Pr[a round is skipped: too few available batches]",
    "simulated_cardinality": "C, simulated over {simulated_rounds} rounds",
    "simulated_unavailable": "Pr[a round is skipped], simulated",
    "simulated_fairness_gap": "fairness gap F of completed rounds, simulated",
    "theorem3_uniform": "random: Pr[full rank after N rounds] (Theorem 3)",
    "theorem3_independent": "bernoulli: Pr[full rank after N rounds] (equation 30 without o(1))",
    "full_rank_uniform": "random: Pr[full rank after {full_rank_rounds} rounds], simulated",
    "full_rank_uniform_median": "random: median number of rounds until full rank",
    "full_rank_independent": "bernoulli: Pr[full rank after {full_rank_rounds} rounds], simulated",
    "full_rank_independent_median": "bernoulli: median number of rounds until full rank",
    "theorem2_printed": "E[L] - L* after {rounds} rounds, as printed (equation 8)",
    "theorem2_repaired": "E[L] - L* after {rounds} rounds, with batches and skipped rounds",
}


def _text(row: Row) -> str:
    dropout = number(row["dropout"])
    if "dropout_lowest" in row:
        dropout = f"{number(row['dropout_lowest'])} to {number(row['dropout_highest'])}, mean {dropout}"
    sizes = str(row["privacy"])
    if row["largest_batch"] > row["privacy"]:
        sizes += f" to {row['largest_batch']}"
    like = " of like reliability" if row.get("batching") == "by-reliability" else ""
    first = f"N = {row['users']}, K = {row['selected']}, {row['batches']} batches of {sizes}{like}, p = {dropout}"
    return f"{first}\n{results(row, _LABELS, _result)}"


def _result(row: Row, key: str) -> str:
    """Return a result as text, with its standard error or its interval."""
    if key == "simulated_cardinality":
        return f"{number(row[key])} +- {row['simulated_error']:.2g}"
    if f"{key}_low" in row:
        return f"{number(row[key])}  (95%: {number(row[f'{key}_low'])} to {number(row[f'{key}_high'])})"
    return number(row[key])


def _theorem2(symbol: str) -> Any:
    return option("X", f"Theorem 2: {symbol}.", show_default=False, rich_help_panel="Theorem 2")


@declare(
    _text,
    f"testbed bound batch-partition {_PAPER} --privacy 3 --dropout 0.3",
    f"testbed bound batch-partition {_PAPER} --privacy 6 --dropout dropouts.txt --format json",
    f"testbed bound batch-partition {_PAPER} --privacy 12 --dropout dropouts.txt --batching by-reliability",
    f"testbed bound batch-partition {_PAPER} --privacy 3 --dropout 0.1 --trials 200",
    then="Simulations use a fixed seed. Their values have a standard error or a 95% interval.",
)
def bound_batch_partition(
    users: Annotated[int, option("N", "Clients in the population, N.", min=1, max=10**6)],
    selected: Annotated[int, option("K", "Participants of a round, K.", min=1)],
    privacy: Annotated[int, option("T", "Batch size, T.", min=1)],
    dropout: Annotated[
        str,
        option(
            "P", "Probability that a client drops out: one number, N numbers with commas, or a file with one per line."
        ),
    ],
    batching: Annotated[
        Literal["by-index", "by-reliability"],
        option(
            "BATCHING",
            "Members of a batch: consecutive clients, or clients of like P, as selection.reliability_from with a "
            "record that orders them without error.",
        ),
    ] = "by-index",
    simulate: Annotated[
        int | None,
        option(
            "R",
            "Rounds of fair selection to simulate.  \\[default: 10000 if up to 1000 clients differ in P, else 0]",
            min=0,
        ),
    ] = None,
    rounds: Annotated[
        int | None, option("J", "Rounds in Theorems 2 and 3.  \\[default: N]", min=1, max=100_000)
    ] = None,
    trials: Annotated[
        int, option("M", "Number of random participation matrices for the simulation of full rank.", min=0, max=10**6)
    ] = 0,
    smoothness: Annotated[float | None, _theorem2("rho")] = None,
    convexity: Annotated[float | None, _theorem2("mu")] = None,
    gradient_variance: Annotated[float | None, _theorem2("the mean of sigma_i^2")] = None,
    gradient_bound: Annotated[float | None, _theorem2("G^2")] = None,
    heterogeneity: Annotated[float | None, _theorem2("Gamma = L* - mean of L_i*")] = None,
    initial_distance: Annotated[float | None, _theorem2("E ||x_0 - x*||^2")] = None,
    local_steps: Annotated[int, option("E", "Theorem 2: E.", min=1, rich_help_panel="Theorem 2")] = 1,
) -> Row:
    """Evaluate batch partition (Multi-RoundSecAgg): family size, cardinality, skipped rounds, full rank, convergence.

    Theorems 1, 2 and 3. With full rank, the sums of randomly selected clients determine every single update. The
    convergence bound of Theorem 2 is printed if all of its inputs are given.
    """
    from analysis.bounds import batch_partition, convergence

    inputs = {
        "smoothness": smoothness,
        "convexity": convexity,
        "gradient_variance": gradient_variance,
        "gradient_bound": gradient_bound,
        "heterogeneity": heterogeneity,
        "initial_distance": initial_distance,
    }
    missing = [name for name, value in inputs.items() if value is None]
    if missing and len(missing) < len(inputs):
        raise ValueError(f"{missing[0]}: missing; Theorem 2 needs all of its inputs")
    chances = _dropout(dropout)
    problem = None if missing else convergence.Problem(**inputs)  # type: ignore[arg-type]
    if batching == "by-reliability":
        if not isinstance(chances, list):
            raise ValueError(
                "batching: by-reliability has no effect with one probability for all clients; give N of them"
            )
        chances = batch_partition.like_reliability(chances)
    row = {**_theorem1(users, selected, privacy, chances), "batching": batching}
    if simulate is None:
        simulate = _SIMULATED_ROUNDS if isinstance(chances, list) and users <= _SIMULATED_USERS else 0
    if simulate:
        measured = batch_partition.simulated(users, selected, privacy, chances, simulate, _SEED)
        row |= {
            "simulated_rounds": simulate,
            "simulated_cardinality": measured.cardinality,
            "simulated_error": measured.error,
            **_share("simulated_unavailable", measured.unavailable),
            "simulated_fairness_gap": measured.fairness_gap,
        }
    rounds = rounds or users
    row |= _theorem3(users, selected, rounds, trials)
    if problem is None:
        return row
    if isinstance(chances, list) and len(set(chances)) > 1:
        raise ValueError("dropout: Theorem 2 needs one probability for all clients")
    completed = 1 - batch_partition.unavailable_round(users, selected, privacy, chances)
    return row | {
        "rounds": rounds,
        "local_steps": local_steps,
        "theorem2_printed": convergence.printed(problem, users, selected, local_steps, completed, rounds),
        "theorem2_repaired": convergence.repaired(problem, users, selected, privacy, local_steps, completed, rounds),
    }


def _theorem1(users: int, selected: int, privacy: int, dropout: float | Sequence[float]) -> Row:
    """Compute family size, cardinality and skipped rounds, exactly."""
    import numpy as np

    from analysis.bounds.batch_partition import average_cardinality, batches_of, family_size, unavailable_round

    batches = batches_of(users, selected, privacy)
    batches_of_round = selected // privacy
    logarithm = (
        lgamma(len(batches) + 1) - lgamma(batches_of_round + 1) - lgamma(len(batches) - batches_of_round + 1)
    ) / log(10)
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
        **value_or_reason("family_size", size, f"an integer of {int(logarithm) + 1} digits"),
        "family_size_log10": logarithm,
        "average_cardinality": average_cardinality(users, selected, privacy, dropout),
        "unavailable_round": unavailable_round(users, selected, privacy, dropout),
    }


def _theorem3(users: int, selected: int, rounds: int, trials: int) -> Row:
    """Compute Theorem 3 for N rounds, and (with trials) the rate of full rank after `rounds`, with 95% intervals."""
    import numpy as np

    from analysis.bounds.batch_partition import (
        independent_bound,
        independent_round,
        rounds_until_full_rank,
        uniform_round,
    )
    from analysis.statistics import Proportion

    row = value_or_reason("theorem3_uniform", None, "the theorem does not state its constant c'")
    if 2 * selected >= users:
        row |= value_or_reason("theorem3_independent", None, "stated for K below N/2")
    else:
        bound = independent_bound(users, selected)
        row |= value_or_reason(
            "theorem3_independent", bound if bound > 0 else None, f"(30) says nothing here: {bound:.3g}"
        )
    if not trials:
        return row
    row |= {"full_rank_rounds": rounds, "full_rank_trials": trials}
    most = max(rounds, _BEYOND * users)
    for name, draw in (("uniform", uniform_round), ("independent", independent_round)):
        reached = rounds_until_full_rank(draw(users, selected), users, trials, most, _SEED)
        median = float(np.median(reached))
        row |= _share(f"full_rank_{name}", Proportion.of(int((reached <= rounds).sum()), trials))
        row |= value_or_reason(
            f"full_rank_{name}_median", median if median <= most else None, f"more than {most} rounds"
        )
    return row


def _share(name: str, share: "Proportion") -> Row:
    return {name: share.rate, f"{name}_low": share.low, f"{name}_high": share.high}


def _dropout(text: str) -> float | list[float]:
    """Parse one number, numbers with commas, or a file of numbers."""
    advice = "give e.g. 0.1, or 0.1,0.2, or a file with one number per line"
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        try:
            return [float(line) for line in limits.text(Path(text), limits.NUMBERS_BYTES).split()]
        except limits.TooLarge as why:
            problem = f"{text}: {why}"
        except OSError:
            problem = f"{text!r} is neither a number, nor a list of numbers, nor a readable file"
        except ValueError:
            problem = f"{text} has a line that is not a number"
        raise ExperimentError(f"--dropout: {problem}; {advice}") from None
    if not numbers:
        raise ExperimentError(f"--dropout: no numbers; {advice}")
    return numbers[0] if len(numbers) == 1 else numbers
