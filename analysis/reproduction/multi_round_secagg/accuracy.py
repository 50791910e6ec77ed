"""Multi-RoundSecAgg's accuracies: Figures 5 (b, c), 7, 8 and 9, Tables 3, 4 and 5 (So et al., arXiv 2106.03328).

A figure and the table of its last accuracies come from the same runs, so they are one reproduction with two names. The
accuracies of the six schemes stand beside the paper's. The paper's orderings are judged by differences by seed, with
95% intervals.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.plot_data import plot_data
from analysis.reproduction.contract import (
    DataKind,
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
)
from analysis.reproduction.multi_round_secagg import published as paper
from analysis.reproduction.multi_round_secagg.accuracy_claims import (
    ablation_claims,
    claims,
    late_of,
    levels,
    printed_cells,
    rate_claim,
    reason_of,
    table,
)
from analysis.reproduction.multi_round_secagg.published import Accuracies
from analysis.reproduction.multi_round_secagg.tasks import Task, scales_of, task_of
from analysis.reproduction.multi_round_secagg.training import (
    TrainedRun,
    measured_setting,
    remarks,
    results_of,
    train,
)
from analysis.reproduction.verdicts import PaperClaim
from analysis.style import PAGE_INCHES, house_style, save

_LOOKS = {
    paper.RANDOM: ("#000000", "-"),
    paper.WEIGHTED: ("#CC79A7", "--"),
    paper.PARTITION: ("#E69F00", "-"),
    paper.T6: ("#56B4E9", "-"),
    paper.T4: ("#009E73", "--"),
    paper.T3: ("#0072B2", "-"),
}
"""Colour (that of the protocol in other figures; T by shade) and line."""

_START = 0.1
"""Share of the rounds at the beginning that the panel need not show."""

_ROOM = 3.0
"""Points of accuracy between the curves and the panel's edges."""


def draw(panels: Mapping[str, Mapping[str, TrainedRun]], path: Path) -> list[Path]:
    """Draw means over the seeds, with bands of 95% intervals, and return the files.

    The first tenth of a curve may lie below the panel.

    Args:
        panels: runs by scheme, by title of the panel.
        path: path of the files, without extension.
    """
    with house_style():
        figure = Figure(figsize=(PAGE_INCHES, 2.4), layout="constrained")
        every = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, schemes) in zip(every, panels.items(), strict=True):
            lowest, highest = 100.0, 0.0
            for scheme, of_scheme in schemes.items():
                colour, line = _LOOKS[scheme]
                mean = of_scheme.curves.plot(axes, color=colour, linestyle=line, label=scheme)
                shown = mean[of_scheme.curves.rounds > _START * of_scheme.curves.total]
                lowest, highest = min(lowest, shown.min()), max(highest, shown.max())
            axes.set_ylim(max(0, lowest - _ROOM), min(100, highest + _ROOM))
            axes.set_title(title)
            axes.set_xlabel("round")
            axes.grid(visible=True)
        every[0].set_ylabel("accuracy [%]")
        handles, labels = every[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return save(figure, path, plot_data(figure))


def measure_training(name: str, letters: str, context: ReproductionContext) -> Measurements:
    """Train with every scheme, setting and seed.

    Args:
        name: name of the figure.
        letters: letters of its panels.
        context: where and how to run.
    """
    task = _task(name, context)
    runs, evaluations, rates = train(context, task)
    results = results_of(runs, evaluations)
    panels = {f"({letter}) {setting}": results[setting] for letter, setting in zip(letters, results, strict=False)}
    return Measurements(
        measured_setting(task, rates, context.data is not None),
        {"runs": runs, "evaluations": evaluations},
        draw(panels, context.out / name),
    )


def conclude_training(
    published: Mapping[str, Accuracies], stored: Mapping[str, Accuracies] | None, measurements: Measurements
) -> ReproductionResult:
    """Compare accuracies with the paper's.

    Args:
        published: the table of the last accuracies.
        stored: the same of the runs in the public repository; None if it has none.
        measurements: runs and evaluations.
    """
    setting = measurements.setting
    results = results_of(measurements.tables["runs"], measurements.tables["evaluations"])
    reason = reason_of(setting.data_kind, bool(setting.choices["is paper's"]))
    facts = [] if stored is None else [f"Public runs: {printed_cells(published, stored)}."]
    return ReproductionResult(
        table(results, published, bool(setting.choices["by label"])),
        claims=[
            *claims(late_of(results)),
            *(rate_claim(schemes, name) for name, schemes in results.items()),
            levels(results, published, reason),
        ],
        remarks=[*remarks(setting), *facts],
    )


def _task(name: str, context: ReproductionContext) -> Task:
    task = task_of(name, context.scale, context.data)
    return task if context.seeds is None else replace(task, seeds=context.seeds)


ABLATION_PANELS = {(240, 12): "a", (120, 24): "b"}
"""Panels by Figure 9's N and K."""


def measure_fig9(context: ReproductionContext) -> Measurements:
    """Train for Figure 9: other numbers of users and of participants, IID."""
    task = _task("multiround-fig9", context)
    tables: dict[str, list[pd.DataFrame]] = {"runs": [], "evaluations": []}
    panels, rates = {}, list[float]()
    for (population, participants), letter in ABLATION_PANELS.items():
        size = replace(task, population=population, participants=participants)
        context.progress(f"N = {population}, K = {participants}")
        runs, evaluations, rates = train(context, size, f"runs/{population}-{participants}")
        for name, frame in (("runs", runs), ("evaluations", evaluations)):
            tables[name].append(frame.assign(N=population, K=participants))
        panels[f"({letter}) N = {population}, K = {participants}"] = results_of(runs, evaluations)["IID"]
    return Measurements(
        measured_setting(task, rates, context.data is not None),
        {name: pd.concat(frames, ignore_index=True) for name, frames in tables.items()},
        draw(panels, context.out / "multiround-fig9"),
    )


def conclude_fig9(measurements: Measurements) -> ReproductionResult:
    """Compare Figure 9's schemes for each N and K."""
    runs, evaluations = measurements.tables["runs"], measurements.tables["evaluations"]
    frames, stated = [], list[PaperClaim]()
    for population, participants in runs[["N", "K"]].drop_duplicates().itertuples(index=False):
        of_size = [frame[(frame["N"] == population) & (frame["K"] == participants)] for frame in (runs, evaluations)]
        results = results_of(*of_size)
        frame = table(results, {})
        frame.insert(0, "N, K", f"{population}, {participants}")
        stored = paper.STORED_9.get((population, participants), {})
        frame.insert(4, "IID % (public code)", [stored.get(scheme) for scheme in frame["scheme"]])
        frames.append(frame)
        stated += ablation_claims(population, participants, results["IID"])
    sizes = "; ".join(str(frame["N, K"].iloc[0]) for frame in frames)
    return ReproductionResult(
        pd.concat(frames, ignore_index=True),
        claims=stated,
        remarks=[
            *remarks(measurements.setting),
            f"N, K: {sizes} instead of the above.",
            "The paper draws these curves. The public repository has their values: the column (public code) has those "
            "after 1,000 rounds, of one seed (three of T = 4).",
        ],
    )


def _reproduction(
    figure: str,
    letters: str,
    published: Mapping[str, Accuracies],
    stored: Mapping[str, Accuracies] | None,
    title: str,
    source: str,
    data_files: str,
) -> Reproduction:
    return Reproduction(
        figure,
        title,
        f"So et al., Multi-RoundSecAgg, arXiv 2106.03328, {source}",
        aliases=(f"multiround-table{source[-1]}",),
        data_files=data_files,
        scales=scales_of(figure),
        takes_seeds=True,
        built_in_data=_BUILT_IN,
        measure=partial(measure_training, figure, letters),
        conclude=partial(conclude_training, published, stored),
    )


_BUILT_IN: DataKind = "stand-in"

REPRODUCTIONS = (
    _reproduction(
        "multiround-fig5",
        "bc",
        paper.TABLE_3,
        None,
        "Accuracy of six selections over the rounds, CIFAR-100, IID and Dirichlet",
        "Figure 5 (b, c) and Table 3",
        "CIFAR-100, python or binary version",
    ),
    _reproduction(
        "multiround-fig7",
        "ab",
        paper.TABLE_5,
        paper.STORED_5,
        "Accuracy of six selections over the rounds, MNIST, IID and one label per client",
        "Figure 7 and Table 5",
        "MNIST's idx files (all four, or the test files alone)",
    ),
    _reproduction(
        "multiround-fig8",
        "ab",
        paper.TABLE_4,
        paper.STORED_4,
        "Accuracy of six selections over the rounds, CIFAR-10, IID and one label per client besides shared data",
        "Figure 8 and Table 4",
        "CIFAR-10, python or binary version",
    ),
    Reproduction(
        "multiround-fig9",
        "Accuracy of six selections over the rounds for more users, and for more participants",
        "So et al., Multi-RoundSecAgg, arXiv 2106.03328, Figure 9",
        data_files="CIFAR-10, python or binary version",
        scales=scales_of("multiround-fig9"),
        takes_seeds=True,
        built_in_data=_BUILT_IN,
        measure=measure_fig9,
        conclude=conclude_fig9,
    ),
)
