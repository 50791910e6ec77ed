"""``testbed bound verifiable-batch-partition`` and ``testbed plan batch-partition``: batches that clients verify."""

from fractions import Fraction
from typing import Annotated

from analysis.cli.bound.selection import (
    Dishonest,
    Format,
    MinPopulation,
    PlannedRounds,
    Population,
    Sufficiency,
    Threshold,
    in_options,
    number_of,
    threshold_of,
)
from testbed.cli.invocation import Debug, examples, option
from testbed.cli.terminal import echo

_USUAL_OVER_SELECTION = Fraction(13, 10)
_OverSelection = Annotated[
    float | None,
    option("A", "Over-selection factor a, at least 1.  \\[default: 1.3, or N/K where that is smaller]"),
]


def _factor(over_selection: float | None, population: int, participants: int) -> float | Fraction:
    """The factor that is given, or the usual one as far as a small population allows it."""
    if over_selection is not None:
        return over_selection
    return max(Fraction(1), min(_USUAL_OVER_SELECTION, Fraction(population, participants)))


_LARGE = "--population 200000 --dishonest 1000 --participants 200"
VERIFIABLE_EPILOG = examples(
    f"testbed bound verifiable-batch-partition {_LARGE} --privacy 5 --over-selection 1.5 --eta 10 --threshold 0.7",
    "testbed bound verifiable-batch-partition --population 120 --dishonest 12 --participants 12 --privacy 3 "
    "--over-selection 2 --dropout 0.1 --format json",
    then="The placement of the dishonest clients is the worst case; 'attained' is what some placement reaches.",
)


def bound_verifiable(
    population: Population,
    dishonest: Dishonest,
    participants: Annotated[int, option("K", "Participants of a round, K.", min=1)],
    privacy: Annotated[int, option("T", "Batch size T, which divides K.", min=1)],
    over_selection: _OverSelection = None,
    min_population: MinPopulation = None,
    eta: Annotated[float, option("E", "How many times their due share dishonest participants may reach.")] = 10.0,
    threshold: Threshold = "0.7",
    dropout: Annotated[float, option("P", "Chance that a client does not answer.", min=0, max=1)] = 0.0,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Verifiable batch partition in one round: enough candidate batches, too many dishonest participants, SecAgg
    broken; over many rounds: how many honest members each batch keeps.

    Derived in docs/explanation/verifiable-batch-partition.md.
    """
    from analysis.bounds.rows import render
    from analysis.bounds.verifiable_batch_partition import Setting
    from analysis.bounds.verifiable_batch_partition_report import text, verifiable_bounds

    with in_options():
        factor = _factor(over_selection, population, participants)
        setting = Setting(population, participants, privacy, factor, number_of(dishonest, population), min_population)
        row = verifiable_bounds(setting, eta, threshold_of(threshold), dropout)
    echo(render(row, format, text), nl=False)


PLAN_EPILOG = examples(
    f"testbed plan batch-partition {_LARGE} --over-selection 1.5 --target 1e-6 --threshold 0.7",
    "testbed plan batch-partition --population 5000 --dishonest 25 --participants 60 --dropout 0.05 "
    "--over-selection 2 --threshold 0.8 --target 1e-6 --rounds 100",
    then="The plan is the largest batch size; `testbed bound verifiable-batch-partition` has all numbers of one size.",
)


def plan_batch_partition(
    population: Population,
    dishonest: Dishonest,
    participants: Annotated[int, option("K", "Participants of a round, K.", min=1)],
    target: Annotated[
        float, option("P", "What Pr[SecAgg fails] must not exceed: in a round, or with --rounds in all of them.")
    ],
    over_selection: _OverSelection = None,
    min_population: MinPopulation = None,
    threshold: Threshold = "0.7",
    dropout: Annotated[float, option("P", "Chance that a client does not answer.", min=0, max=1)] = 0.0,
    sufficiency: Sufficiency = 0.99,
    rounds: PlannedRounds = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Verifiable batch partition's largest batch size for a target, or which parameter to change.

    Batches are whole candidates: a larger batch protects its members over more rounds, is less often there, and may
    bring more dishonest participants at once. Every batch size that divides K is tried, as given and with more
    over-selection.
    """
    from analysis.bounds.batch_partition_plan import batch_partition_plan, text
    from analysis.bounds.rows import render
    from analysis.bounds.verifiable_batch_partition import Setting

    with in_options():
        count = number_of(dishonest, population)
        factor = _factor(over_selection, population, participants)
        setting = Setting(population, participants, 1, factor, count, min_population)
        row = batch_partition_plan(setting, threshold_of(threshold), dropout, target, sufficiency, rounds)
    echo(render(row, format, text), nl=False)
