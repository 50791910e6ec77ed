"""Training runs of reproductions: the data in words, accuracies over the rounds, and the best learning rate."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

import workloads
from analysis.reproduction.contract import ReproductionContext
from analysis.statistics import mean_interval
from testbed.arrays import Floats, Ids
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords
from testbed.workload.section import WorkloadSection


def describe_data(workload: Mapping[str, Any], population: int) -> str:
    """One line about the data of a built-in workload; raises `ExperimentError` as an experiment with it does.

    Args:
        workload: keys of an experiment's workload.
        population: clients who share the data.
    """
    built: Any = workloads.build(WorkloadSection.model_validate(workload), population, 1)
    return str(built.description)  # of built-in workloads; a federation needs no description of a user's own


_LATE = 0.1
"""Share of the rounds, the last ones, over whose evaluations an accuracy is the mean."""


@dataclass(frozen=True)
class AccuracyCurves:
    """The runs of one scheme, which differ in their seeds.

    Attributes:
        rounds: `(e,)` int64, after which the model was evaluated.
        accuracy: `(seeds, e)` float64, in percent.
        total: rounds of each run.
    """

    rounds: Ids
    accuracy: Floats
    total: int

    @classmethod
    def of(cls, runs: Sequence[RunRecords]) -> "AccuracyCurves":
        """The evaluations of runs of different seeds."""
        evaluated = [run.rounds.dropna(subset=["accuracy"]) for run in runs]
        return AccuracyCurves(
            rounds=evaluated[0]["round"].to_numpy(np.int64),
            accuracy=100 * np.array([rows["accuracy"].to_numpy(np.float64) for rows in evaluated]),
            total=len(runs[0].rounds),
        )

    @property
    def late(self) -> Floats:
        """`(seeds,)` in percent: the mean over the evaluations of the last tenth of the rounds, as one round's is
        noisy.
        """
        return np.asarray(self.accuracy[:, self.rounds > (1 - _LATE) * self.total].mean(axis=1), np.float64)

    @property
    def last(self) -> Floats:
        """`(seeds,)` in percent: at the last evaluation."""
        return np.asarray(self.accuracy[:, -1], np.float64)

    def plot(self, axes: Axes, *, color: str, linestyle: str, label: str) -> Floats:
        """Draw the mean over the seeds with a band of its 95% intervals; returns the mean, `(e,)`."""
        intervals = [mean_interval(values) for values in self.accuracy.T]
        mean = np.array([interval.mean for interval in intervals], np.float64)
        half = np.array([interval.half_width or 0.0 for interval in intervals])
        axes.plot(self.rounds, mean, color=color, linestyle=linestyle, label=label)
        axes.fill_between(self.rounds, mean - half, mean + half, color=color, alpha=0.13, linewidth=0)
        return mean


def late_recalls(runs: Sequence[RunRecords]) -> Floats:
    """`(seeds, labels)` in percent: each label's recall, the mean over the evaluations of a run's last tenth of rounds.

    NaN, one label, where the records of a run (of an earlier version, or of words) do not say.
    """
    recalls_of_runs = []
    for run in runs:
        late = run.rounds[run.rounds["round"] > (1 - _LATE) * len(run.rounds)]
        recalls_of_runs.append([recalls for recalls in late["recalls"] if recalls is not None])
    if not all(recalls_of_runs):
        return np.full((len(runs), 1), np.nan)
    return np.array([100 * np.mean([list(recalls) for recalls in of_run], axis=0) for of_run in recalls_of_runs])


def runs_by_scheme(
    context: ReproductionContext,
    schemes: Collection[str],
    rounds: int,
    seeds: int,
    swept: Callable[[int], Experiment],
    setting: str = "",
    folder: str = "runs",
) -> dict[str, list[RunRecords]]:
    """Run one sweep over the schemes for each seed from 1 on; the runs of each scheme, by seed.

    Args:
        context: where and how to run.
        schemes: their names, in the order of the sweep's points.
        rounds: of each run.
        seeds: repetitions.
        swept: a seed's experiment.
        setting: what the schemes are compared in, where there are several.
        folder: of the runs, below the context's.
    """
    runs: dict[str, list[RunRecords]] = {scheme: [] for scheme in schemes}
    for seed in range(1, seeds + 1):
        where = f"{setting}, " if setting else ""
        context.progress(f"{where}seed {seed} of {seeds}: {len(schemes)} schemes, {rounds} rounds each")
        directory = context.out / folder / f"{setting}{'-' if setting else ''}seed-{seed}".lower()
        for scheme, run in zip(schemes, context.run_experiment(swept(seed), directory), strict=True):
            runs[scheme].append(run)
    return runs


def best_of(rates: Sequence[float], reached: Sequence[float]) -> float:
    """The learning rate that reached the most, the larger of equal ones; one that reached no number is none of them.

    Args:
        rates: that were tried.
        reached: the accuracy at each; NaN where the model was lost.
    """
    return max(
        (-math.inf if math.isnan(accuracy) else accuracy, rate) for accuracy, rate in zip(reached, rates, strict=True)
    )[1]
