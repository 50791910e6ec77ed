"""Multi-RoundSecAgg's accuracies: Figures 5 (b, c), 7, 8 and 9, Tables 3, 4 and 5 (So et al., arXiv 2106.03328).

A figure and the table of its last accuracies come from the same runs: they are one reproduction with two names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from analysis.reproduction.contract import Claim, Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.multi_round_secagg.accuracy_claims import Late, ablation_claims, claims, table
from analysis.reproduction.multi_round_secagg.curves import draw
from analysis.reproduction.multi_round_secagg.published import TABLE_3, TABLE_4, TABLE_5, Accuracies, Setting
from analysis.reproduction.multi_round_secagg.tasks import task_of
from analysis.reproduction.multi_round_secagg.training import Results, remarks, train


@dataclass(frozen=True)
class _Figure:
    """A figure of two panels and its table.

    Attributes:
        name: of the reproduction.
        panels: the letters of its panels.
        published: the table.
    """

    name: str
    panels: str
    published: Mapping[str, Accuracies]


def run_training(figure: _Figure, context: ReproductionContext) -> ReproductionResult:
    """Train with every scheme, setting and seed."""
    task = task_of(figure.name, context.scale, context.data)
    results, rates = train(context, task)
    panels = {
        f"({letter}) {setting}": results[setting] for letter, setting in zip(figure.panels, results, strict=False)
    }
    return ReproductionResult(
        table(results, figure.published),
        figures=draw(panels, context.out / figure.name),
        claims=claims(late_of(results)),
        remarks=remarks(task, rates),
    )


def late_of(results: Results) -> dict[Setting, Late]:
    """`(seeds,)` accuracies at the runs' ends, by setting and scheme."""
    return {setting: {name: one.curves.late for name, one in schemes.items()} for setting, schemes in results.items()}


ABLATION_PANELS = {(240, 12): "a", (120, 24): "b"}
"""Figure 9's N and K, and their panels."""


def run_fig9(context: ReproductionContext) -> ReproductionResult:
    """Figure 9: other numbers of users and of participants, IID."""
    task = task_of("multiround-fig9", context.scale, context.data)
    tables, verdicts, panels = [], list[Claim](), {}
    for (population, participants), letter in ABLATION_PANELS.items():
        size = replace(task, population=population, participants=participants)
        context.progress(f"N = {population}, K = {participants}")
        results, rates = train(context, size, f"runs/{population}-{participants}")
        frame = table(results, {})
        frame.insert(0, "N, K", f"{population}, {participants}")
        tables.append(frame)
        verdicts += ablation_claims(population, participants, results["IID"])
        panels[f"({letter}) N = {population}, K = {participants}"] = results["IID"]
    return ReproductionResult(
        pd.concat(tables, ignore_index=True),
        figures=draw(panels, context.out / "multiround-fig9"),
        claims=verdicts,
        remarks=[
            *remarks(replace(size, population=task.population, participants=task.participants), rates),
            f"Sizes: {'; '.join(f'N = {n}, K = {k}' for n, k in ABLATION_PANELS)} instead of the above.",
            "The paper draws these curves and gives no numbers for them.",
        ],
    )


def _reproduction(figure: _Figure, table_name: str, title: str, source: str, data_files: str) -> Reproduction:
    return Reproduction(
        figure.name,
        title,
        f"So et al., Multi-RoundSecAgg, arXiv 2106.03328, {source}",
        partial(run_training, figure),
        aliases=(table_name,),
        data_files=data_files,
    )


REPRODUCTIONS = (
    _reproduction(
        _Figure("multiround-fig5", "bc", TABLE_3),
        "multiround-table3",
        "Accuracy of six selections over the rounds, CIFAR-100, IID and Dirichlet",
        "Figure 5 (b, c) and Table 3",
        "CIFAR-100, python or binary version",
    ),
    _reproduction(
        _Figure("multiround-fig7", "ab", TABLE_5),
        "multiround-table5",
        "Accuracy of six selections over the rounds, MNIST, IID and one label per client",
        "Figure 7 and Table 5",
        "MNIST's idx files (all four, or the test files alone)",
    ),
    _reproduction(
        _Figure("multiround-fig8", "ab", TABLE_4),
        "multiround-table4",
        "Accuracy of six selections over the rounds, CIFAR-10, IID and one label per client besides shared data",
        "Figure 8 and Table 4",
        "CIFAR-10, python or binary version",
    ),
    Reproduction(
        "multiround-fig9",
        "Accuracy of six selections over the rounds for more users, and for more participants",
        "So et al., Multi-RoundSecAgg, arXiv 2106.03328, Figure 9",
        run_fig9,
        data_files="CIFAR-10, python or binary version",
    ),
)
