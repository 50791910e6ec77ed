"""Training runs of reproductions: their data, accuracy over the rounds, and choice of the learning rate."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

import workloads
from analysis.reproduction.contract import ReproductionContext
from analysis.statistics import mean_interval
from testbed.arrays import Floats, Ids
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords
from testbed.workload.section import WorkloadSection


def describe_data(workload: Mapping[str, Any], population: int) -> str:
    """Return one line about the data of a built-in workload.

    Args:
        workload: keys of an experiment's workload.
        population: number of clients that share the data.

    Raises:
        ExperimentError: the workload is not valid, as for an experiment.
    """
    built: Any = workloads.build(WorkloadSection.model_validate(workload), population, 1)
    return str(built.description)  # built-in workloads have a description; a user's workload need not


_LATE = 0.1
"""Share of the rounds at the end of a run; a late accuracy is the mean of their evaluations."""


@dataclass(frozen=True)
class AccuracyCurves:
    """Runs of one scheme that differ in their seeds.

    Attributes:
        rounds: `(e,)` int64, numbers of the rounds with an evaluation.
        accuracy: `(seeds, e)` float64, in percent.
        total: number of rounds of each run.
    """

    rounds: Ids
    accuracy: Floats
    total: int

    @classmethod
    def of(cls, runs: Sequence[RunRecords]) -> "AccuracyCurves":
        """Return the evaluations of runs with different seeds."""
        evaluated = [run.rounds.dropna(subset=["accuracy"]) for run in runs]
        return AccuracyCurves(
            rounds=evaluated[0]["round"].to_numpy(np.int64),
            accuracy=100 * np.array([rows["accuracy"].to_numpy(np.float64) for rows in evaluated]),
            total=len(runs[0].rounds),
        )

    @property
    def late(self) -> Floats:
        """Late accuracy, `(seeds,)` in percent: the mean over the evaluations in the last tenth of the rounds."""
        # A mean, since a single round's accuracy is noisy.
        return np.asarray(self.accuracy[:, self.rounds > (1 - _LATE) * self.total].mean(axis=1), np.float64)

    @property
    def last(self) -> Floats:
        """Accuracy of the last evaluation, `(seeds,)` in percent."""
        return np.asarray(self.accuracy[:, -1], np.float64)

    def plot(self, axes: Axes, *, color: str, linestyle: str, label: str) -> Floats:
        """Draw the mean over the seeds with a band of 95% intervals, and return the mean, `(e,)`."""
        intervals = [mean_interval(values) for values in self.accuracy.T]
        mean = np.array([interval.mean for interval in intervals], np.float64)
        half = np.array([interval.half_width or 0.0 for interval in intervals])
        axes.plot(self.rounds, mean, color=color, linestyle=linestyle, label=label)
        axes.fill_between(self.rounds, mean - half, mean + half, color=color, alpha=0.13, linewidth=0)
        return mean


def late_recalls(runs: Sequence[RunRecords]) -> Floats:
    """Return the recall of each label, averaged over the evaluations in the last tenth of a run's rounds.

    Returns:
        `(seeds, labels)` float64, in percent. One column of NaN if a run's records have no recalls (records of an
        earlier version, or of a language model).
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
    """Run one sweep over the schemes for each seed from 1 on, and return the runs by scheme, in the order of the seeds.

    Args:
        context: where and how to run.
        schemes: names of the schemes, in the order of the sweep's points.
        rounds: number of rounds of each run.
        seeds: number of repetitions.
        swept: function from a seed to its experiment.
        setting: name of the setting in which the schemes are compared, if there are several.
        folder: folder of the runs, below the context's directory.
    """
    runs: dict[str, list[RunRecords]] = {scheme: [] for scheme in schemes}
    for seed in range(1, seeds + 1):
        where = f"{setting}, " if setting else ""
        context.progress(f"{where}seed {seed} of {seeds}: {len(schemes)} schemes, {rounds} rounds each")
        directory = context.out / folder / f"{setting}{'-' if setting else ''}seed-{seed}".lower()
        for scheme, run in zip(schemes, context.run_experiment(swept(seed), directory), strict=True):
            runs[scheme].append(run)
    return runs


def evaluations_of(run: RunRecords) -> list[dict[str, Any]]:
    """Return the round and the accuracy [%] of each evaluation of a run."""
    rows = run.rounds.dropna(subset=["accuracy"])
    return [
        {"round": int(number), "accuracy [%]": 100 * float(accuracy)}
        for number, accuracy in zip(rows["round"], rows["accuracy"], strict=True)
    ]


def best_rate_by(column: str, tried: pd.DataFrame) -> dict[str, float]:
    """Return the best learning rate of each scheme, see `best_of`.

    Args:
        column: column with the names of the schemes.
        tried: this column, ``learning rate`` and ``accuracy [%]``.
    """
    return {
        str(scheme): best_of(rows["learning rate"].tolist(), rows["accuracy [%]"].astype(float).tolist())
        for scheme, rows in tried.groupby(column, sort=False)
    }


def best_of(rates: Sequence[float], reached: Sequence[float]) -> float:
    """Return the learning rate with the highest accuracy, the larger of equals.

    Args:
        rates: learning rates.
        reached: accuracy at each learning rate; NaN, which ranks last, where the model was lost.

    Example:
        >>> best_of([0.1, 0.01], [64.0, 64.0])
        0.1
        >>> best_of([0.1, 0.01], [math.nan, 10.0])
        0.01
    """
    return max(
        (-math.inf if math.isnan(accuracy) else accuracy, rate) for accuracy, rate in zip(reached, rates, strict=True)
    )[1]
