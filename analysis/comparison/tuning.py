"""Grid search over settings, e.g. the learning rate: accuracies of the values and the best of them.

So et al. (Multi-RoundSecAgg, arXiv 2106.03328, Appendix F) choose the best learning rate of a grid for each scheme.
Other swept keys (a scheme, a partition) define settings, and each setting has its own best value.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from analysis.comparison.measures import per_round
from analysis.comparison.targets import model_changed
from analysis.statistics import Interval, mean_interval
from analysis.tables import Table, data, markdown, require_format
from analysis.tables import render as render_table
from testbed.errors import ExperimentError
from testbed.records import RunRecords

By = Literal["final", "best"]
_MEASURES = ("final", "best")


def tuned(runs: Sequence[tuple[Mapping[str, Any], RunRecords]], keys: Sequence[str], by: By = "final") -> pd.DataFrame:
    """Return one row for each setting and each combination of the grid's values, in their order.

    Columns: setting (the other swept keys and their values; empty if there are none), one for each of `keys`, seeds
    (number of runs), final_accuracy and best_accuracy (of the last evaluation and the highest of a run, means over the
    seeds; missing without an evaluation or a completed round) with ``_half_width`` of their 95% intervals over the
    seeds, and is_best: the highest mean of `by` in its setting, the first of several.

    Args:
        runs: swept keys with their values, and the records of that run.
        keys: of the grid.
        by: the accuracy that decides.

    Raises:
        ExperimentError: in some setting no run has completed a round and measured an accuracy.
    """
    groups: dict[tuple[str, str], tuple[list[Any], list[RunRecords]]] = {}
    for values, run in runs:
        setting = ",".join(_setting_text(key, value) for key, value in values.items() if key not in (*keys, "seed"))
        grid = [values[key] for key in keys]
        # As text, since values may be lists, which are no keys.
        groups.setdefault((setting, json.dumps(grid)), (grid, []))[1].append(run)
    rows = [
        {"setting": setting, **dict(zip(keys, grid, strict=True)), "seeds": len(pooled), **_accuracies(pooled)}
        for (setting, _), (grid, pooled) in groups.items()
    ]
    frame = pd.DataFrame(rows)
    order = {setting: place for place, setting in enumerate(dict.fromkeys(frame["setting"]))}
    frame = frame.sort_values("setting", key=lambda column: column.map(order), kind="stable", ignore_index=True)
    scores = frame[f"{by}_accuracy"].astype(float)
    frame["is_best"] = False
    for name, places in frame.groupby("setting", sort=False).groups.items():
        if scores[places].isna().all():
            where = f" with {name}" if name else ""
            raise ExperimentError(
                f"no round completed, or no accuracy was measured{where}, so no value is best; see `testbed status`"
            )
        frame.loc[scores[places].idxmax(), "is_best"] = True  # of equal ones the first
    return frame


def best_values(frame: pd.DataFrame, keys: Sequence[str]) -> dict[str, Any]:
    """Return the best values of a table of `tuned`.

    Args:
        frame: from `tuned`.
        keys: of the grid.

    Raises:
        ExperimentError: the best values of the settings differ.
    """
    best = frame.loc[frame["is_best"], list(keys)]
    best_rows = dict.fromkeys(json.dumps(row) for row in best.astype(object).to_numpy().tolist())
    if len(best_rows) > 1:
        raise ExperimentError(
            "--write: the settings of the sweep have different best values, see the table; write an experiment for each"
        )
    return dict(zip(keys, json.loads(next(iter(best_rows))), strict=True))


def _accuracies(runs: Sequence[RunRecords]) -> dict[str, float | None]:
    measured = [per_round(run)["accuracy"].dropna() for run in runs]
    if not any(model_changed(run.rounds).any() for run in runs):
        measured = []  # the accuracy of the initial model does not depend on the values
    final = mean_interval([values.iloc[-1] if len(values) else math.nan for values in measured])
    best = mean_interval([values.max() if len(values) else math.nan for values in measured])
    return final.named("final_accuracy") | best.named("best_accuracy")


def _setting_text(key: str, value: Any) -> str:
    """Return a swept key as part of a setting's name: of a section its values, of a protocol only its name."""
    if isinstance(value, Mapping) and value:
        return ",".join(_setting_text(str(inner), part) for inner, part in value.items())
    return _value_text(value) if key.rpartition(".")[2] == "protocol" else f"{key}={_value_text(value)}"


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# -- printing -------------------------------------------------------------------------------------------------------


def render(frame: pd.DataFrame, keys: Sequence[str], format: str = "text") -> str:
    """Return the table of `tuned`, ending in a line feed.

    Args:
        frame: from `tuned`.
        keys: of the grid.
        format: ``text``, ``markdown``, ``csv`` or ``json``.
    """
    require_format(format, "text", "markdown", "csv", "json")
    if format in ("csv", "json"):
        return data(frame, format)
    heads = [*(key.rpartition(".")[2] for key in keys), "Seeds", "Final accuracy", "Best accuracy", ""]
    if format == "markdown":
        heads = list(map(markdown, heads))
    tables = []
    for setting, part in frame.groupby("setting", sort=False):
        rows = [
            [
                *(_value_text(row[key]) for key in keys),
                str(row["seeds"]),
                *(_cell(Interval(row[f"{m}_accuracy"], row[f"{m}_accuracy_half_width"])) for m in _MEASURES),
                "best" if row["is_best"] else "",
            ]
            for _, row in part.iterrows()
        ]
        tables.append(Table(heads, rows, left=(), title=str(setting)))
    return "\n".join(render_table(table, format) for table in tables)


def _cell(accuracy: Interval) -> str:
    if accuracy.mean is None or math.isnan(accuracy.mean):
        return "–"
    if accuracy.half_width is None or math.isnan(accuracy.half_width):
        return f"{100 * accuracy.mean:.1f}%"
    return f"{100 * accuracy.mean:.1f}% ±{100 * accuracy.half_width:.1f}"
