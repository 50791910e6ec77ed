"""Targets that runs are compared by: named by the user, or the best target that all runs reach."""

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
"""Name of the default target among others."""

# Keys of the experiment's `workload` that determine the samples and classes of an evaluation.
_EVALUATED_ON = ("dataset", "path", "test_samples", "image_size", "sequence_length", "vocabulary_size", "options")


def values_of(run: RunRecords, metric: Metric, smooth: int = 1) -> pd.Series:
    """Return the metric in each evaluated round, by the index of the round in ``rounds``; NaN if it is not a number.

    Args:
        run: the records.
        metric: of the global model.
        smooth: number of evaluations to average over, ending with the current one; NaN until there are enough.
    """
    rounds = run.rounds
    evaluated = rounds[rounds["accuracy"].notna() | rounds["loss"].notna()]
    names = metrics_of(run)
    if metric in names:
        at = names.index(metric)
        numbers = [math.nan if row is None or len(row) <= at else row[at] for row in evaluated["metrics"]]
        values = pd.Series(numbers, evaluated.index, np.float64)
    elif metric in METRICS:
        values = evaluated["accuracy" if metric == "accuracy" else "loss"].astype(np.float64)
    else:
        values = pd.Series(math.nan, evaluated.index, np.float64)
    if metric == "perplexity":
        values = values.map(lambda loss: measured(metric, math.nan, loss))
    return values if smooth == 1 else values.rolling(smooth, min_periods=smooth).mean()


def metrics_of(run: RunRecords) -> list[str]:
    """Return the names of the metrics measured besides accuracy and loss, in the order of their values."""
    return [str(name) for name in _workload(run).get("metrics") or ()]


def model_changed(rounds: pd.DataFrame) -> pd.Series:
    """Return whether the model has changed by each round, by the index in ``rounds``: whether any round has completed.

    Before that an evaluation measures the initial model, and meeting a target is no achievement of the run.
    """
    return rounds["outcome"].eq("completed").cummax()


def is_unfinished(run: RunRecords) -> bool:
    """Return whether more rounds will come: rounds are missing, and neither budget nor target has ended the run."""
    return len(run.rounds) < int(run.experiment.get("rounds", 0)) and not run.why_stopped


def is_measured(rows: Sequence[ComparisonRow], evaluations: int = 2) -> bool:
    """Return whether every row has a run with at least this number of evaluations.

    Args:
        rows: the rows of a comparison.
        evaluations: how many are needed.
    """
    return all(any(values_of(run, "accuracy").count() >= evaluations for run in row.runs) for row in rows)


def default_target(rows: Sequence[ComparisonRow], smooth: int = 1) -> Target:
    """Return the best accuracy that every run of every row reaches, rounded down to a tenth of a per cent.

    For language models the target is the best perplexity. Unfinished runs do not count as long as others have ended,
    because they may reach more. Runs in which no round has changed the model do not count, and neither do evaluations
    before the first completed round.

    Args:
        rows: the rows of a comparison.
        smooth: as for `values_of`.

    Raises:
        ExperimentError: a run has no evaluation, or no round of any run has completed.

    Source:
        Oort (Lai et al., OSDI 2021, section 7.1) and FedScale choose the target in this way.
    """
    runs = [run for row in rows for run in row.runs]
    runs = [run for run in runs if not is_unfinished(run)] or runs
    metric: Metric = "perplexity" if all(is_language(_dataset(run)) for run in runs) else "accuracy"
    for run in runs:
        require_evaluated(run, metric, "the best target that all runs reach")
    changed = [run for run in runs if model_changed(run.rounds).any()]
    if not changed:
        raise ExperimentError("no round has completed, so no run can have reached a target; see `testbed status`")
    runs = changed
    values_by_run = [_of_changed_models(run, metric, smooth) for run in runs]
    if short := [run for run, values in zip(runs, values_by_run, strict=True) if values.empty]:
        raise ExperimentError(f"{short[0].path}: fewer evaluations than the {smooth} that are averaged (--smooth)")
    if metric == "perplexity":
        largest = max(values.min() for values in values_by_run)
        if not math.isfinite(largest):
            raise ExperimentError(
                "a run has no finite perplexity, so there is no target that all runs reach; give a --target"
            )
        return Target(metric, max(1.0, math.ceil(10 * largest) / 10))  # no perplexity is below 1
    least = min(values.max() for values in values_by_run)
    if least <= 0:
        raise ExperimentError(
            "a run has no accuracy above 0, so there is no target that all runs reach; give a --target"
        )
    return Target(metric, math.floor(1000 * least) / 1000 or least)  # below 0.1 % it would be a target of 0


def _of_changed_models(run: RunRecords, metric: Metric, smooth: int) -> pd.Series:
    """Return the numbers among `values_of` in evaluations after the first completed round."""
    values = values_of(run, metric, smooth)
    return values[model_changed(run.rounds)[values.index]].dropna()


def named_targets(runs: Sequence[RunRecords]) -> list[Target]:
    """Return the targets that the runs' experiments name (`targets`), without duplicates, in their order."""
    texts = [text for run in runs for text in run.experiment.get("targets") or ()]
    return list(dict.fromkeys(map(Target.parse, texts)))


def parse_targets(texts: Sequence[str | Target]) -> list[Target | None]:
    """Return targets given on a command line, without duplicates; None stands for `BEST`."""
    targets = [text if isinstance(text, Target) else None if text == BEST else Target.parse(text) for text in texts]
    return list(dict.fromkeys(targets))


# -- runs that are not comparable --------------------------------------------------------------------------------------


def require_evaluated(run: RunRecords, metric: Metric, purpose: str) -> None:
    """Raise if a metric was never measured in a run; unfinished runs may still measure it.

    Args:
        run: the records.
        metric: the metric to look for.
        purpose: beginning of the error message.

    Raises:
        ExperimentError: the run has ended without a value of the metric, or cannot measure it.
    """
    if metric == "perplexity" and not is_language(_dataset(run)):
        raise ExperimentError(f"{purpose}: {run.path} learns {_dataset(run)}; only language models have a perplexity")
    if metric not in (*METRICS, *metrics_of(run)):
        raise ExperimentError(f"{purpose}: {run.path}: {not_measured(metric, _dataset(run), metrics_of(run))}")
    if values_of(run, metric).notna().any() or is_unfinished(run):
        return
    raise ExperimentError(
        f"{purpose}: {run.path}: {metric} was never measured; set workload.training to real, with a "
        "workload that evaluates, or leave the run out"
    )


def require_same_workload(rows: Sequence[ComparisonRow], baselines: Sequence[ComparisonRow | None]) -> None:
    """Raise if rows of one setting, or a row and its baseline, are evaluated on different data.

    Args:
        rows: the rows of a comparison.
        baselines: of each row.

    Raises:
        ExperimentError: two rows are not comparable; the message names their data.
    """
    firsts: dict[str, ComparisonRow] = {}
    for row, base in zip(rows, baselines, strict=True):
        for other in (firsts.setdefault(row.setting, row), base):
            if other is not None and workload_of(row) != workload_of(other):
                first, second = (
                    f"{_data_text(compared_row)} in {compared_row.full_label}" for compared_row in (other, row)
                )
                raise ExperimentError(
                    f"the runs are evaluated on different data ({first}, {second}), so their accuracies are not "
                    "comparable; compare runs of one workload, or force the comparison with --across-workloads"
                )


def workload_of(row: ComparisonRow) -> tuple[Any, ...]:
    """Return the data that the row's models are evaluated on; equal for rows with comparable accuracies."""
    section = _workload(row.runs[0])
    return tuple(str(section.get(key)) for key in _EVALUATED_ON)


def _data_text(row: ComparisonRow) -> str:
    section = _workload(row.runs[0])
    extra = [f"{key}={section[key]}" for key in _EVALUATED_ON[1:] if section.get(key)]
    return ",".join([_dataset(row.runs[0]), *extra])


def _workload(run: RunRecords) -> Mapping[str, Any]:
    section: Mapping[str, Any] = run.experiment.get("workload") or {}
    return section


def _dataset(run: RunRecords) -> str:
    return str(_workload(run).get("dataset", "digits"))
