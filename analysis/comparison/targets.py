"""Which targets runs are compared by: those that somebody names, or the best that all of them reach."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.rows import ComparisonRow
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from testbed.records.targets import METRICS, Metric, Target, measured, not_measured
from testbed.records.vocabulary import is_language

__all__ = ["BEST", "METRICS", "Metric", "Target"]

BEST = "best"
"""Names the default target among others."""

# What decides which samples a model is evaluated on, and by what classes, of the experiment's `workload`.
_EVALUATED_ON = ("dataset", "path", "test_samples", "image_size", "sequence_length", "vocabulary_size", "options")


def values_of(run: RunRecords, metric: Metric, smooth: int = 1) -> pd.Series:
    """The metric in each evaluated round, by the round's place in ``rounds``; NaN where it is not a number.

    Args:
        run: the records.
        metric: of the global model.
        smooth: the mean over this evaluation and those before it, so many in all; NaN until there are that many.
    """
    rounds = run.rounds
    evaluated = rounds[rounds["accuracy"].notna() | rounds["loss"].notna()]
    names = metrics_of(run)
    if metric in names:
        at = names.index(metric)
        found = [math.nan if row is None or len(row) <= at else row[at] for row in evaluated["metrics"]]
        values = pd.Series(found, evaluated.index, np.float64)
    elif metric in METRICS:
        values = evaluated["accuracy" if metric == "accuracy" else "loss"].astype(np.float64)
    else:
        values = pd.Series(math.nan, evaluated.index, np.float64)
    if metric == "perplexity":
        values = values.map(lambda loss: measured(metric, math.nan, loss))
    return values if smooth == 1 else values.rolling(smooth, min_periods=smooth).mean()


def metrics_of(run: RunRecords) -> list[str]:
    """The names of the metrics that a run measures besides accuracy and loss, in the order of their values."""
    return [str(name) for name in _workload(run).get("metrics") or ()]


def model_changed(rounds: pd.DataFrame) -> pd.Series:
    """Whether a round has changed the model, by the round's place in ``rounds``: it, or one before it, has completed.

    Before that an evaluation measures the initial model, and a target that it meets is nothing that the run reached.
    """
    return rounds["outcome"].eq("completed").cummax()


def is_unfinished(run: RunRecords) -> bool:
    """Whether more rounds are to come: it has not had all, and neither budget nor target has ended it."""
    return len(run.rounds) < int(run.experiment.get("rounds", 0)) and not run.why_stopped


def is_measured(rows: Sequence[ComparisonRow], evaluations: int = 2) -> bool:
    """Whether the model was evaluated so many times at least in a run of every row."""
    return all(any(values_of(run, "accuracy").count() >= evaluations for run in row.runs) for row in rows)


def default_target(rows: Sequence[ComparisonRow], smooth: int = 1) -> Target:
    """The best accuracy that every run of every row reaches, rounded down to a tenth of a per cent.

    As Oort (Lai et al., OSDI 2021, section 7.1) and FedScale choose it. Where words are learned it is the best
    perplexity. Runs that go on do not count as long as others have ended: they may reach more. Runs whose model no
    round has changed do not count, and neither do evaluations before the first completed round.

    Raises:
        ExperimentError: nothing was evaluated in a run, or no round of any run has completed.
    """
    runs = [run for row in rows for run in row.runs]
    runs = [run for run in runs if not is_unfinished(run)] or runs
    metric: Metric = "perplexity" if all(is_language(_dataset(run)) for run in runs) else "accuracy"
    for run in runs:
        require_evaluated(run, metric, "the best that all reach")
    changed = [run for run in runs if model_changed(run.rounds).any()]
    if not changed:
        raise ExperimentError("no round has completed, so no run has reached anything; see `testbed status`")
    runs = changed
    found = [_of_changed_models(run, metric, smooth) for run in runs]
    if short := [run for run, values in zip(runs, found, strict=True) if values.empty]:
        raise ExperimentError(f"{short[0].path}: fewer evaluations than are to be smoothed over ({smooth})")
    if metric == "perplexity":
        largest = max(values.min() for values in found)
        if not math.isfinite(largest):
            raise ExperimentError(
                "a run has no finite perplexity, so there is no target that all reach; name one: --target"
            )
        return Target(metric, max(1.0, math.ceil(10 * largest) / 10))
    least = min(values.max() for values in found)
    if least <= 0:
        raise ExperimentError("a run has no accuracy above 0, so there is no target that all reach; name one: --target")
    return Target(metric, math.floor(1000 * least) / 1000 or least)


def _of_changed_models(run: RunRecords, metric: Metric, smooth: int) -> pd.Series:
    """`values_of` that are numbers, of evaluations after the first completed round."""
    values = values_of(run, metric, smooth)
    return values[model_changed(run.rounds)[values.index]].dropna()


def named_targets(runs: Sequence[RunRecords]) -> list[Target]:
    """The targets that the runs' experiments name (`targets`), each once, in their order."""
    texts = [text for run in runs for text in run.experiment.get("targets") or ()]
    return list(dict.fromkeys(map(Target.parse, texts)))


def parsed(texts: Sequence[str | Target]) -> list[Target | None]:
    """Targets as they are named on a command line, each once; None stands for `BEST`."""
    found = [text if isinstance(text, Target) else None if text == BEST else Target.parse(text) for text in texts]
    return list(dict.fromkeys(found))


# -- what does not compare --------------------------------------------------------------------------------------------


def require_evaluated(run: RunRecords, metric: Metric, told: str) -> None:
    """Raise `ExperimentError` for a run whose metric was never measured; one that goes on may still be."""
    if metric == "perplexity" and not is_language(_dataset(run)):
        raise ExperimentError(f"{told}: {run.path} learns {_dataset(run)}; a perplexity is of words")
    if metric not in (*METRICS, *metrics_of(run)):
        raise ExperimentError(f"{told}: {run.path}: {not_measured(metric, _dataset(run), metrics_of(run))}")
    if values_of(run, metric).notna().any() or is_unfinished(run):
        return
    raise ExperimentError(
        f"{told}: {run.path}: its {metric} was never measured; train for real (workload.training: real), with a "
        "workload that evaluates, or leave the run out"
    )


def require_same_workload(rows: Sequence[ComparisonRow], baselines: Sequence[ComparisonRow | None]) -> None:
    """Raise `ExperimentError` where rows of one setting, or a row and its baseline, learn what does not compare."""
    firsts: dict[str, ComparisonRow] = {}
    for row, base in zip(rows, baselines, strict=True):
        for other in (firsts.setdefault(row.setting, row), base):
            if other is not None and workload_of(row) != workload_of(other):
                one, two = (f"{_told(each)} in {each.full_label}" for each in (other, row))
                raise ExperimentError(
                    f"the runs are evaluated on different data ({one}, {two}), so their accuracies do not compare; "
                    "compare those of one workload, or insist with --across-workloads"
                )


def workload_of(row: ComparisonRow) -> tuple[Any, ...]:
    """What the row's models are evaluated on; the same for rows whose accuracies compare."""
    section = _workload(row.runs[0])
    return tuple(str(section.get(key)) for key in _EVALUATED_ON)


def _told(row: ComparisonRow) -> str:
    section = _workload(row.runs[0])
    extra = [f"{key}={section[key]}" for key in _EVALUATED_ON[1:] if section.get(key)]
    return ",".join([_dataset(row.runs[0]), *extra])


def _workload(run: RunRecords) -> Mapping[str, Any]:
    section: Mapping[str, Any] = run.experiment.get("workload") or {}
    return section


def _dataset(run: RunRecords) -> str:
    return str(_workload(run).get("dataset", "digits"))
