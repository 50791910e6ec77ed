"""Multi-RoundSecAgg's accuracies: Figures 5 (b, c), 7, 8 and 9, Tables 3, 4 and 5 (So et al., arXiv 2106.03328).

A figure and the table of its last accuracies come from the same runs, so they are one reproduction with two names. The
accuracies of the six schemes stand beside the paper's. The paper's orderings are judged by differences by seed, with
95% intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.multi_round_secagg import published as paper
from analysis.reproduction.multi_round_secagg.published import Accuracies, Setting
from analysis.reproduction.multi_round_secagg.tasks import Task, scales_of, task_of
from analysis.reproduction.multi_round_secagg.training import Results, TrainedRun, remarks, train
from analysis.reproduction.verdicts import PaperClaim, above, between
from analysis.statistics import Interval, mean_interval
from analysis.style import PAGE_INCHES, house_style, save
from testbed.arrays import Floats

Late = Mapping[str, Floats]
"""Accuracy by scheme, `(seeds,)` in percent."""


def table(results: Results, published: Mapping[str, Accuracies], by_label: bool = False) -> pd.DataFrame:
    """Return one row per scheme: accuracies beside the paper's, then T, F and C.

    Accuracies are in percent, as mean and half-width of the 95% interval over seeds. T is the smallest among the runs
    of a setting, F and C are means. If dropouts depend on the label, the row also has the recall of the worst label.

    Args:
        results: runs by setting and scheme.
        published: the paper's accuracies by scheme; empty if the paper has none.
        by_label: whether dropouts depend on the label in the non-IID setting.
    """
    rows = []
    for scheme in paper.SCHEMES:
        row: dict[str, Any] = {"scheme": scheme}
        for setting in [setting for setting in paper.SETTINGS if setting in results]:
            late = mean_interval(results[setting][scheme].curves.late)
            row |= {f"{setting} %": late.mean, f"{setting} ±": late.half_width}
            if published:
                row[f"{setting} % (paper)"] = published[scheme].of(setting)
            if by_label and setting == "non-IID":
                worst = mean_interval(results[setting][scheme].worst)
                row |= {"worst label %": worst.mean, "worst label ±": worst.half_width}
        for setting in [setting for setting in paper.SETTINGS if setting in results]:
            row |= _metrics(setting, results[setting][scheme])
        rows.append(row)
    return pd.DataFrame.from_records(rows)


def _metrics(setting: Setting, of_scheme: TrainedRun) -> dict[str, Any]:
    weak = "–" if of_scheme.privacy is None else f"{'' if of_scheme.certified else '≤ '}{of_scheme.privacy}"
    strong = "–" if of_scheme.strong is None else str(of_scheme.strong)
    return {
        f"{setting} T weak": weak,
        f"{setting} T strong": strong,
        f"{setting} F": float(of_scheme.fairness.mean()),
        f"{setting} F completed": float(of_scheme.fairness_completed.mean()),
        f"{setting} C": float(of_scheme.cardinality.mean()),
        f"{setting} skipped %": float(100 * of_scheme.skipped.mean() / of_scheme.curves.total),
    }


def claims(late: Mapping[Setting, Late]) -> list[PaperClaim]:
    """Return the paper's claims about its figures and tables, for each setting that was run."""
    stated: list[PaperClaim] = []
    if "IID" in late:
        stated += [
            _worst("IID", late["IID"]),
            _comparable("IID", late["IID"], paper.WEIGHTED),
            _comparable("IID", late["IID"], paper.RANDOM),
        ]
    if "non-IID" in late:
        stated += [
            _worst("non-IID", late["non-IID"]),
            _comparable("non-IID", late["non-IID"], paper.WEIGHTED),
            _better(late["non-IID"], [paper.T3, paper.T4], "T = 3 and T = 4 are better than random (non-IID)"),
            _better(late["non-IID"], [paper.WEIGHTED], "weighted random is better than random (non-IID)"),
        ]
    return stated


def levels(frame: pd.DataFrame, published: Mapping[str, Accuracies], seeds: int) -> PaperClaim:
    """Return the claim on the accuracies themselves, which is undetermined, as the paper leaves the rounds open.

    Args:
        frame: as `table` makes it.
        published: the paper's accuracies.
        seeds: number of seeds of each accuracy.
    """
    by_setting = {
        setting: [
            f"{row['scheme']} {row[f'{setting} %']:.1f} ({published[row['scheme']].of(setting):.1f})"
            for _, row in frame.iterrows()
        ]
        for setting in paper.SETTINGS
        if f"{setting} %" in frame
    }
    return PaperClaim(
        "the accuracies of the table, as numbers",
        "; ".join(f"{setting}: {', '.join(accuracies)}" for setting, accuracies in by_setting.items()),
        undetermined="after how many rounds they are, and whether of the last round or a mean",
        seeds=seeds,
    )


def claims_of(published: Mapping[str, Accuracies], frame: pd.DataFrame, seeds: int) -> list[PaperClaim | None]:
    """Return the last claim, on the accuracies themselves; the others need differences by seed.

    Args:
        published: the paper's accuracies.
        frame: as `table` makes it.
        seeds: number of seeds of each accuracy.
    """
    differences = sum(_DIFFERENCES[setting] for setting in paper.SETTINGS if f"{setting} %" in frame)
    return [*[None] * differences, levels(frame, published, seeds)]


_DIFFERENCES: Mapping[Setting, int] = {"IID": 3, "non-IID": 4}
"""Number of claims of `claims` for each setting."""


NEVER = 0.05
"""Largest share of completed rounds at which a scheme counts as failing to train."""


def ablation_claims(population: int, participants: int, schemes: Mapping[str, TrainedRun]) -> list[PaperClaim]:
    """Return the claims of appendix G for one size; "partition fails to train" is stated for K = 24 only.

    A group takes part only if all of its K users are available, which is rarer for larger K, with any data.

    Args:
        population: N.
        participants: K.
        schemes: runs by scheme.
    """
    late = {name: runs.curves.late for name, runs in schemes.items()}
    where = f"N = {population}, K = {participants}"
    stated = [_worst(where, late), _comparable(where, late, paper.RANDOM), _comparable(where, late, paper.WEIGHTED)]
    if participants > paper.PARTICIPANTS:
        curves = schemes[paper.PARTITION].curves
        done = 1 - schemes[paper.PARTITION].skipped / curves.total
        start, end = curves.accuracy[:, 0].mean(), curves.late.mean()
        stated.append(
            PaperClaim(
                f"partition fails to train ({where})",
                f"{100 * done.mean():.1f}% of the rounds; {start:.1f}% at the first evaluation, {end:.1f}% at the end",
                (between("the most of any seed", float(done.max()), most=NEVER),),
                seeds=len(done),
            )
        )
    return stated


def difference(values: Floats, baseline: Floats) -> Interval:
    """Return the mean of values - baseline, seed by seed, in points of accuracy.

    Args:
        values: `(seeds,)` in percent.
        baseline: `(seeds,)` in percent.
    """
    return mean_interval(values - baseline)


def _format_difference(interval: Interval) -> str:
    """Return a difference as text; a single seed has no interval."""
    return f"{interval.mean:+.2f} ± {'–' if interval.half_width is None else f'{interval.half_width:.2f}'}"


def _points(intervals: Mapping[str, Interval]) -> str:
    return "; ".join(f"{scheme}: {_format_difference(interval)} points" for scheme, interval in intervals.items())


def _worst(where: str, late: Late) -> PaperClaim:
    others = {
        scheme: difference(values, late[paper.PARTITION])
        for scheme, values in late.items()
        if scheme != paper.PARTITION
    }
    nearest = min(others, key=lambda scheme: others[scheme].mean or 0.0)
    return PaperClaim(
        f"partition is worst ({where})",
        f"the next, {nearest}, is {_format_difference(others[nearest])} points from it",
        [above("points of every other scheme over partition", interval) for interval in others.values()],
        seeds=_seeds(late),
    )


def _comparable(where: str, late: Late, baseline: str) -> PaperClaim:
    intervals = {scheme: difference(late[scheme], late[baseline]) for scheme in (paper.T4, paper.T3)}
    return PaperClaim(
        f"T = 3 and T = 4 are comparable to {_PLAIN[baseline]} ({where})",
        _points(intervals),
        [
            between("points of difference", interval, -paper.COMPARABLE, paper.COMPARABLE)
            for interval in intervals.values()
        ],
        seeds=_seeds(late),
    )


def _better(late: Late, schemes: Sequence[str], claim: str) -> PaperClaim:
    intervals = {scheme: difference(late[scheme], late[paper.RANDOM]) for scheme in schemes}
    return PaperClaim(
        claim,
        _points(intervals),
        [above("points over random", interval) for interval in intervals.values()],
        seeds=_seeds(late),
    )


def _seeds(late: Late) -> int:
    return len(late[paper.RANDOM])


_PLAIN = {paper.WEIGHTED: "weighted random", paper.RANDOM: "random"}


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


def run_training(
    name: str, letters: str, published: Mapping[str, Accuracies], context: ReproductionContext
) -> ReproductionResult:
    """Train with every scheme, setting and seed.

    Args:
        name: name of the figure.
        letters: letters of its panels.
        published: the table of its last accuracies.
        context: where and how to run.
    """
    task = _task(name, context)
    results, rates = train(context, task)
    panels = {f"({letter}) {setting}": results[setting] for letter, setting in zip(letters, results, strict=False)}
    frame = table(results, published, task.by_label)
    return ReproductionResult(
        frame,
        figures=draw(panels, context.out / name),
        claims=[*claims(late_of(results)), levels(frame, published, task.seeds)],
        remarks=remarks(task, rates),
    )


def _task(name: str, context: ReproductionContext) -> Task:
    task = task_of(name, context.scale, context.data)
    return task if context.seeds is None else replace(task, seeds=context.seeds)


def late_of(results: Results) -> dict[Setting, Late]:
    """Return the late accuracies by setting and scheme, `(seeds,)` each."""
    return {setting: {name: runs.curves.late for name, runs in schemes.items()} for setting, schemes in results.items()}


ABLATION_PANELS = {(240, 12): "a", (120, 24): "b"}
"""Panels by Figure 9's N and K."""


def run_fig9(context: ReproductionContext) -> ReproductionResult:
    """Train for Figure 9: other numbers of users and of participants, IID."""
    task = _task("multiround-fig9", context)
    tables, verdicts, panels = [], list[PaperClaim](), {}
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


def _reproduction(
    figure: str, letters: str, published: Mapping[str, Accuracies], title: str, source: str, data_files: str
) -> Reproduction:
    return Reproduction(
        figure,
        title,
        f"So et al., Multi-RoundSecAgg, arXiv 2106.03328, {source}",
        partial(run_training, figure, letters, published),
        aliases=(f"multiround-table{source[-1]}",),
        data_files=data_files,
        scales=scales_of(figure),
        takes_seeds=True,
        claims_of=partial(claims_of, published),
    )


REPRODUCTIONS = (
    _reproduction(
        "multiround-fig5",
        "bc",
        paper.TABLE_3,
        "Accuracy of six selections over the rounds, CIFAR-100, IID and Dirichlet",
        "Figure 5 (b, c) and Table 3",
        "CIFAR-100, python or binary version",
    ),
    _reproduction(
        "multiround-fig7",
        "ab",
        paper.TABLE_5,
        "Accuracy of six selections over the rounds, MNIST, IID and one label per client",
        "Figure 7 and Table 5",
        "MNIST's idx files (all four, or the test files alone)",
    ),
    _reproduction(
        "multiround-fig8",
        "ab",
        paper.TABLE_4,
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
        scales=scales_of("multiround-fig9"),
        takes_seeds=True,
    ),
)
