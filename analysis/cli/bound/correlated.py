"""``testbed bound correlated``: accuracy of the strategies of correlated noise, at one epsilon."""

from dataclasses import asdict
from typing import Annotated, Literal

from analysis.cli.bound.declaration import Row, declare
from testbed.cli.invocation import option
from testbed.privacy.matrix.section import MOST_ROUNDS

_HEADS = (
    "strategy",
    "noise vectors in memory",
    "sensitivity",
    "mean error",
    "largest error",
    "mean error / identity's",
)


def _text(row: Row) -> str:
    """Format the strategies as a table; with a noise multiplier also the error in clips."""
    from analysis.tables import Table, render

    first = f"n = {row['rounds']}, b = {row['separation']}, k = {row['participations']}"
    heads, least = list(_HEADS), row["strategies"][0]["mean_error"]
    cells = [
        [
            strategy["strategy"],
            f"{strategy['vectors']}",
            f"{strategy['sensitivity']:.4g}",
            f"{strategy['mean_error']:.4g}",
            f"{strategy['max_error']:.4g}",
            f"{strategy['mean_error'] / least:.3f}",
        ]
        for strategy in row["strategies"]
    ]
    if "epsilon" in row:
        multiplier = row["noise_multiplier"]
        first += f", noise multiplier {multiplier:.4g} (epsilon {row['epsilon']:g} at delta {row['delta']:g})"
        heads.append("mean error [clipping norms]")
        for line, strategy in zip(cells, row["strategies"], strict=True):
            line.append(f"{multiplier * strategy['mean_error']:.4g}")
    return f"{first}\n\n{render(Table(heads, cells), 'text')}"


@declare(
    _text,
    "testbed bound correlated --rounds 2052 --separation 342",
    "testbed bound correlated --rounds 200 --separation 20 --epsilon 4 --delta 1e-5",
    "testbed bound correlated --rounds 100 --separation 100 --error max --format json",
    then="Errors: root mean square of one coordinate of the sums, divided by clipping norm × noise multiplier.",
)
def bound_correlated(
    rounds: Annotated[int, option("N", "Rounds of the training, n.", min=2, max=MOST_ROUNDS)],
    separation: Annotated[int, option("B", "Smallest distance between two rounds of one client, b.", min=1)] = 1,
    participations: Annotated[
        int | None,
        option("K", "Largest number of rounds of one client, k.  \\[default: the largest that b allows]", min=1),
    ] = None,
    error: Annotated[
        Literal["mean", "max"], option("KIND", "The error that strategies minimise: mean or max.")
    ] = "mean",
    epsilon: Annotated[float | None, option("E", "Also print the error at this epsilon, in clipping norms.")] = None,
    delta: Annotated[float, option("D", "delta of differential privacy.")] = 1e-6,
) -> Row:
    """Compare strategies of correlated noise: sensitivity, memory and error.

    See docs/explanation/correlated-noise.md.
    """
    from analysis.bounds.checks import require_inside
    from analysis.bounds.correlated_noise import noise_multiplier, strategy_errors

    room = -(-rounds // separation)
    most = room if participations is None else min(participations, room)
    row: Row = {"rounds": rounds, "separation": separation, "participations": most, "error": error}
    if epsilon is not None:
        multiplier = noise_multiplier(rounds, most, epsilon, delta)
        row |= {"epsilon": epsilon, "delta": delta, "noise_multiplier": multiplier}
    require_inside(delta=delta)
    return row | {"strategies": [asdict(result) for result in strategy_errors(rounds, separation, most, error)]}
