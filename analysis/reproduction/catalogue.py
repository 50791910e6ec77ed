"""All reproductions by name; their modules are imported on demand."""

import importlib
from collections.abc import Sequence

from analysis.reproduction.contract import Reproduction
from testbed.errors import ExperimentError
from testbed.spelling import question, similar

MODULES = (
    "lotto.fig1b",
    "lotto.fig2",
    "lotto.fig4",
    "lotto.fig5",
    "lotto.worked_example",
    "lotto.fig10",
    "lotto.example_run",
    "lotto.table1",
    "lotto.tables",
    "lotto.participant_time",
    "lotto.fig8",
    "lotto.fig9",
    "lotto.theorem2",
    "lotto.unpredictability",
    "lotto.fig1a",
    "multi_round_secagg.table1",
    "multi_round_secagg.fig3",
    "multi_round_secagg.fig4",
    "multi_round_secagg.fairness",
    "multi_round_secagg.theory",
    "multi_round_secagg.theorem2",
    "multi_round_secagg.theorem3",
    "multi_round_secagg.fig10",
    "multi_round_secagg.v1_fig8",
    "multi_round_secagg.fig11",
    "multi_round_secagg.accuracy",
    "multi_round_secagg.label_dropouts",
    "random_participation.curves",
    "random_participation.fig4",
    "random_participation.fig5",
    "random_participation.unsound",
    "random_participation.untrusted",
    "random_participation.accuracy",
    "secagg.expansion",
    "secagg_plus.graphs",
    "secagg_plus.scale",
    "distributed_noise.skellam",
    "distributed_noise.dropouts",
    "inversion.other_models",
    "batches.like_reliability",
    "batches.moving_updates",
    "aggregation_comparison.table",
)
"""Modules of this package with a tuple `REPRODUCTIONS`, in the order in which their reproductions are listed."""

ALL = "all"


def catalogue() -> dict[str, Reproduction]:
    """Return all reproductions by name."""
    modules = [importlib.import_module(f"analysis.reproduction.{name}") for name in MODULES]
    return {reproduction.name: reproduction for module in modules for reproduction in module.REPRODUCTIONS}


def named(names: Sequence[str]) -> list[Reproduction]:
    """Return the reproductions with these names or aliases, each once, in the given order.

    Args:
        names: names or aliases; ``all`` stands for every reproduction.

    Raises:
        ExperimentError: a name is unknown; the message suggests similar names.

    Example:
        >>> [reproduction.name for reproduction in named(["lotto-fig6a", "lotto-fig6"])]
        ['lotto-fig6']
    """
    every = catalogue()
    by_name = {name: reproduction for reproduction in every.values() for name in _names(reproduction)}
    requested = [each for name in names for each in (every if name == ALL else [name])]
    for name in requested:
        if name not in by_name:
            close = similar(name, by_name, most=3, cutoff=0.8)
            close = close or [each for each in by_name if name and name in each]  # "fig6" is similar to no name
            hint = question(close, quoted=False).rstrip() if close else f"there are {', '.join(by_name)}, {ALL}"
            raise ExperimentError(f"{name}: no such reproduction; {hint}")
    return [every[name] for name in dict.fromkeys(by_name[name].name for name in requested)]


def _names(reproduction: Reproduction) -> tuple[str, ...]:
    return (reproduction.name, *reproduction.aliases)
