"""Random against weighted random selection, with one label per client and dropouts that grow with the label.

Table 5 of So et al. (arXiv 2106.03328) has 85.79% for random and 94.04% for weighted random selection, and explains the
difference by fairness. Here possible causes of the difference are varied: the learning rate, and a ReLU on the logits,
as in the public notebook. For a seed, both selections have the same data, first model and absences.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.multi_round_secagg.published import COMPARABLE, RANDOM, SCHEMES, TABLE_5, WEIGHTED
from analysis.reproduction.multi_round_secagg.tasks import DIGITS, MNIST, MNIST_SMALL, Task
from analysis.reproduction.multi_round_secagg.training import experiment
from analysis.reproduction.training_runs import AccuracyCurves, describe_data, late_recalls
from analysis.reproduction.verdicts import Check, PaperClaim, above, plus_minus, within
from analysis.statistics import Interval, interval_of, mean_interval
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.records import RunRecords

COMPARED = (RANDOM, WEIGHTED)
AWAY_MOST = (8, 9)
"""Labels with the clients that drop out most: with probabilities of 0.46 and 0.5."""

LOST = 10.0
"""Recall [%] up to which a label counts as lost: no better than guessing."""

RECTIFIED = "analysis.reproduction.multi_round_secagg.rectified:Rectified"
"""Class of a workload; its module needs torch, which listing the reproductions does not import."""

PLAIN, RELU = "plain logits", "ReLU"


@dataclass(frozen=True)
class Factors:
    """Varied factors and number of repetitions.

    Attributes:
        task: workload without the varied factors.
        rates: learning rates.
        seeds: number of paired repetitions.
    """

    task: Task
    rates: tuple[float, ...]
    seeds: int


BUILT_IN = Factors(DIGITS, (0.1, 0.03), 5)
SMALL = Factors(replace(MNIST_SMALL, rounds=100, evaluations=50), (0.1, 0.03, 0.01), 15)
PAPER = Factors(replace(MNIST, rounds=300, evaluations=100), (0.1, 0.03, 0.01), 20)


def factors_of(context: ReproductionContext) -> Factors:
    """Return the factors at the context's scale.

    Raises:
        ExperimentError: the paper's scale lacks the paper's data.
    """
    if context.data is None and context.scale == "paper":
        raise ExperimentError(
            "multiround-label-dropouts: --scale paper learns mnist itself; give the folder of its files with --data DIR"
        )
    factors = BUILT_IN if context.data is None else SMALL if context.scale == "small" else PAPER
    return factors if context.seeds is None else replace(factors, seeds=context.seeds)


@dataclass(frozen=True)
class LabelDropoutResult:
    """Result of one selection's runs with one learning rate and last layer; arrays are over the seeds, in percent.

    Attributes:
        last: accuracy of the last evaluation.
        late: mean accuracy over the evaluations of the last tenth of rounds.
        recalls: `(seeds, labels)` means over the same evaluations.
    """

    last: Floats
    late: Floats
    recalls: Floats

    @classmethod
    def of(cls, runs: list[RunRecords]) -> "LabelDropoutResult":
        """Return the result of the runs of all seeds."""
        curves = AccuracyCurves.of(runs)
        return LabelDropoutResult(curves.last, curves.late, late_recalls(runs))

    @property
    def away_most(self) -> Floats:
        """Mean recall of the labels in `AWAY_MOST`."""
        return np.asarray(self.recalls[:, list(AWAY_MOST)].mean(axis=1), np.float64)

    @property
    def worst(self) -> Floats:
        """Recall of the worst label."""
        return np.asarray(self.recalls.min(axis=1), np.float64)

    @property
    def lost(self) -> Floats:
        """Number of lost labels."""
        return np.asarray((self.recalls <= LOST).sum(axis=1), np.float64)


Outcomes = Mapping[tuple[float, str], Mapping[str, LabelDropoutResult]]
"""Results by learning rate and last layer, then by selection."""


def run_label_dropouts(context: ReproductionContext) -> ReproductionResult:
    """Train both selections with every learning rate, last layer and seed."""
    factors = factors_of(context)
    runs: dict[tuple[float, str], dict[str, list[RunRecords]]] = {}
    for seed in range(1, factors.seeds + 1):
        context.progress(f"seed {seed} of {factors.seeds}: {len(factors.rates)} rates, two last layers")
        for layer in (PLAIN, RELU):
            task = _task(factors.task, layer, context.data)
            selections = [SCHEMES[name] for name in COMPARED]
            swept = experiment(task, "non-IID", seed, selections, factors.rates)
            folder = context.out / "runs" / f"{layer.split()[0].lower()}-seed-{seed}"
            points = iter(context.run_experiment(swept, folder))
            for rate in factors.rates:
                for name in COMPARED:
                    runs.setdefault((rate, layer), {}).setdefault(name, []).append(next(points))
    outcomes = {key: {name: LabelDropoutResult.of(of_name) for name, of_name in by.items()} for key, by in runs.items()}
    frame = table(outcomes)
    return ReproductionResult(frame, claims=claims(frame, factors.seeds), remarks=remarks(factors, context.data))


def _task(task: Task, layer: str, data: Path | None) -> Task:
    workload = dict(task.workload)
    if data is not None:
        workload["path"] = str(data)
    if layer == RELU:
        workload |= {"dataset": RECTIFIED, "options": {"dataset": workload["dataset"]}}
    return replace(task, workload=workload)


def table(outcomes: Outcomes) -> pd.DataFrame:
    """Return a row for each rate and last layer: both selections, and their differences by seed with intervals."""
    rows = []
    for (rate, layer), of_names in outcomes.items():
        row: dict[str, object] = {"rate": f"{rate:g}", "last layer": layer}
        for name in COMPARED:
            row[f"{name} %"] = float(of_names[name].late.mean())
        for measure in ("late", "last", "away_most", "worst", "lost"):
            difference = _difference(of_names, measure)
            row |= {_HEADINGS[measure]: difference.mean, f"± {_HEADINGS[measure]}": difference.half_width}
        row |= {f"{name} labels 8, 9 %": float(of_names[name].away_most.mean()) for name in COMPARED}
        rows.append(row)
    return pd.DataFrame.from_records(rows)


_HEADINGS = {
    "late": "late", "last": "last", "away_most": "labels 8, 9", "worst": "worst label", "lost": "labels lost",
}  # fmt: skip


def _difference(of_names: Mapping[str, LabelDropoutResult], measure: str) -> Interval:
    """Return the mean of weighted random minus random, seed by seed."""
    return mean_interval(getattr(of_names[WEIGHTED], measure) - getattr(of_names[RANDOM], measure))


def claims(frame: pd.DataFrame, seeds: int) -> list[PaperClaim]:
    """Return the claims on Table 5's difference, its size, and the reason that the paper gives.

    Args:
        frame: as `table` makes it.
        seeds: number of seeds of each difference.
    """
    published = TABLE_5[WEIGHTED].non_iid - TABLE_5[RANDOM].non_iid
    return [
        _claim(
            "weighted random is better than random (one label per client, dropouts by label), under every factor",
            frame, "late", seeds, lambda what, gap: above(what, gap),
        ),
        _claim(
            f"it is better by {published:.2f} points (Table 5)",
            frame, "late", seeds, lambda what, gap: within(what, gap, published, COMPARABLE),
        ),
        _claim(
            "labels with the clients that drop out most are recognised less under random (the reason given: fairness)",
            frame, "away_most", seeds, lambda what, gap: above(what, gap),
        ),
    ]  # fmt: skip


def _claim(
    claim: str, frame: pd.DataFrame, measure: str, seeds: int, judged: Callable[[str, Interval], Check]
) -> PaperClaim:
    heading = _HEADINGS[measure]
    gaps = {
        (row["rate"], row["last layer"]): interval_of(row[heading], row[f"± {heading}"]) for _, row in frame.iterrows()
    }
    text = "; ".join(f"{rate}, {layer}: {plus_minus(gap, '+.2f')}" for (rate, layer), gap in gaps.items())
    checks = [judged("points of weighted over random", gap) for gap in gaps.values()]
    return PaperClaim(claim, text, checks, seeds=seeds)


def remarks(factors: Factors, data: Path | None) -> list[str]:
    """Return the data, and the meaning of the columns.

    Args:
        factors: the factors.
        data: folder with MNIST; None: built-in data.
    """
    task = _task(factors.task, PLAIN, data)
    described = describe_data({**task.workload, **task.settings["non-IID"]}, task.population)
    return [
        f"Data: {described}.",
        *task.notes,
        f"{task.rounds} rounds, {factors.seeds} seeds; N = {task.population}, K = {task.participants}; one label per "
        "client; a client is away with a probability that grows with its label from 0.1 to 0.5. F of random is "
        "therefore large, that of weighted random is not.",
        "late, last, labels 8, 9, worst label, labels lost: weighted random less random, seed by seed, with the "
        "half-width of 95% intervals. late: the mean over the evaluations of the last tenth of rounds, as the recalls; "
        f"lost: recognised in {LOST:g}% or less.",
        "ReLU: the logits pass a ReLU, as in the public notebook.",
    ]


REPRODUCTIONS = (
    Reproduction(
        "multiround-label-dropouts",
        "Random against weighted random when clients of some labels drop out more: learning rate and last layer",
        "So et al., Multi-RoundSecAgg, arXiv 2106.03328, Table 5 (non-IID) and appendix F; first version, section 6",
        run_label_dropouts,
        data_files="MNIST's idx files (all four, or the test files alone)",
        takes_seeds=True,
        claims_of=claims,
    ),
)
