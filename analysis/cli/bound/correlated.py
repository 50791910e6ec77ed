"""``testbed bound correlated``: what strategies of correlated noise cost in accuracy, at one epsilon."""

from dataclasses import asdict
from typing import Annotated, Literal

from analysis.cli.bound.selection import Format, in_options
from testbed.cli.invocation import Debug, examples, option
from testbed.cli.terminal import echo
from testbed.errors import ExperimentError
from testbed.privacy.matrix.section import MOST_ROUNDS

EPILOG = examples(
    "testbed bound correlated --rounds 2052 --separation 342",
    "testbed bound correlated --rounds 200 --separation 20 --epsilon 4 --delta 1e-5",
    "testbed bound correlated --rounds 100 --separation 100 --error max --format json",
    then="Errors are of a coordinate of the models, over the clip and the noise multiplier; sums, not means.",
)


def bound_correlated(
    rounds: Annotated[int, option("N", "Rounds of the training, n.", min=2, max=MOST_ROUNDS)],
    separation: Annotated[int, option("B", "Rounds between two of one client, at least, b.", min=1)] = 1,
    participations: Annotated[
        int | None, option("K", "Rounds of one client, at most, k.  \\[default: as many as b leaves room for]", min=1)
    ] = None,
    error: Annotated[
        Literal["mean", "max"], option("KIND", "Which error strategies are made for: mean or max.")
    ] = "mean",
    epsilon: Annotated[float | None, option("E", "Also the error at this epsilon, in clips.")] = None,
    delta: Annotated[float, option("D", "At which epsilon is kept.")] = 1e-6,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Correlated noise of a server: sensitivity, memory and error of each strategy.

    See docs/explanation/correlated-noise.md.
    """
    from analysis.bounds import correlated_noise
    from analysis.tables import to_json

    room = -(-rounds // separation)
    most = room if participations is None else min(participations, room)
    if epsilon is not None and not epsilon > 0:
        raise ExperimentError(f"--epsilon: {epsilon}; must be above 0")
    if not 0 < delta < 1:
        raise ExperimentError(f"--delta: {delta}; must be above 0 and below 1")
    with in_options():
        multiplier = None if epsilon is None else correlated_noise.noise_multiplier(rounds, most, epsilon, delta)
        rows = correlated_noise.strategy_errors(rounds, separation, most, error)
    if format == "json":
        given = {"rounds": rounds, "separation": separation, "participations": most, "error": error}
        noise = {} if epsilon is None else {"epsilon": epsilon, "delta": delta, "noise_multiplier": multiplier}
        echo(to_json(given | noise | {"strategies": [asdict(row) for row in rows]}, ascii=True), nl=False)
        return
    said = "" if multiplier is None else f", noise multiplier {multiplier:.4g} (epsilon {epsilon:g} at delta {delta:g})"
    echo(f"n = {rounds}, b = {separation}, k = {most}{said}\n\n" + correlated_noise.text(rows, multiplier), nl=False)
