"""``testbed bound batch-partition``: Multi-RoundSecAgg's theorems as numbers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.commands.bound_options import Format, in_options
from testbed.commands.invocation import Debug, examples
from testbed.commands.terminal import echo
from testbed.errors import ExperimentError
from testbed.files import limits

_PAPER = "--users 120 --selected 12"
BATCH_PARTITION_EPILOG = examples(
    f"testbed bound batch-partition {_PAPER} --privacy 3 --dropout 0.3",
    f"testbed bound batch-partition {_PAPER} --privacy 6 --dropout dropouts.txt --format json",
    f"testbed bound batch-partition {_PAPER} --privacy 3 --dropout 0.1 --trials 200",
    then="Simulated values are the same every time, and come with a standard error or a 95% interval.",
)


def _theorem2(symbol: str) -> Any:
    return typer.Option(metavar="X", help=f"Theorem 2: {symbol}.", show_default=False, rich_help_panel="Theorem 2")


def bound_batch_partition(
    users: Annotated[int, typer.Option(metavar="N", min=1, max=10**6, help="Users, N.", show_default=False)],
    selected: Annotated[int, typer.Option(metavar="K", min=1, help="Users of a round, K.", show_default=False)],
    privacy: Annotated[int, typer.Option(metavar="T", min=1, help="Batch size, T.", show_default=False)],
    dropout: Annotated[
        str,
        typer.Option(
            metavar="P",
            help="Probability that a user drops out: one number, N numbers with commas, or a file with one a line.",
            show_default=False,
        ),
    ],
    simulate: Annotated[
        int | None,
        typer.Option(
            metavar="R",
            min=0,
            show_default=False,
            help="Rounds of fair selection to simulate.  \\[default: 10000 for different users, up to 1000; else 0]",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(metavar="J", min=1, max=100_000, help="For Theorems 2 and 3.  \\[default: N]", show_default=False),
    ] = None,
    trials: Annotated[
        int, typer.Option(metavar="M", min=0, max=10**6, help="Participation matrices whose rank is computed.")
    ] = 0,
    smoothness: Annotated[float | None, _theorem2("rho")] = None,
    convexity: Annotated[float | None, _theorem2("mu")] = None,
    gradient_variance: Annotated[float | None, _theorem2("the mean of sigma_i^2")] = None,
    gradient_bound: Annotated[float | None, _theorem2("G^2")] = None,
    heterogeneity: Annotated[float | None, _theorem2("Gamma = L* - mean of L_i*")] = None,
    initial_distance: Annotated[float | None, _theorem2("E ||x_0 - x*||^2")] = None,
    local_steps: Annotated[int, typer.Option(metavar="E", min=1, help="E.", rich_help_panel="Theorem 2")] = 1,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Batch partition (Multi-RoundSecAgg): family size, average cardinality and skipped rounds; how soon random
    selection tells the server everything; how fast training converges.

    Theorems 1, 3 and 2. Theorem 2 is printed where all of its inputs are given.
    """
    from analysis.bounds.batch_partition_report import batch_partition_report, text
    from analysis.bounds.convergence import Problem
    from analysis.bounds.rows import render

    given = {
        "smoothness": smoothness,
        "convexity": convexity,
        "gradient_variance": gradient_variance,
        "gradient_bound": gradient_bound,
        "heterogeneity": heterogeneity,
        "initial_distance": initial_distance,
    }
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise ExperimentError(f"--{missing[0].replace('_', '-')}: missing; Theorem 2 needs all of its inputs")
    chances = _dropout(dropout)
    with in_options():
        problem = None if missing else Problem(**{name: value for name, value in given.items() if value is not None})
        row = batch_partition_report(
            users,
            selected,
            privacy,
            chances,
            rounds=rounds,
            simulated_rounds=simulate,
            trials=trials,
            problem=problem,
            local_steps=local_steps,
        )
    echo(render(row, format, text), nl=False)


def _dropout(text: str) -> float | list[float]:
    """One number, numbers with commas, or a file of them."""
    advice = "give e.g. 0.1, or 0.1,0.2, or a file with one number a line"
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        try:
            return [float(line) for line in limits.text(Path(text), limits.NUMBERS_BYTES).split()]
        except limits.TooLarge as why:
            problem = f"{text}: {why}"
        except OSError:
            problem = f"{text!r} is no number, no list of them and no file that can be read"
        except ValueError:
            problem = f"{text} has a line that is no number"
        raise ExperimentError(f"--dropout: {problem}; {advice}") from None
    if not numbers:
        raise ExperimentError(f"--dropout: no numbers; {advice}")
    return numbers[0] if len(numbers) == 1 else numbers
