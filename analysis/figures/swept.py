"""Measures of runs over a key of the experiment: a point for each value, a line for each value of other keys."""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison.cells import CLIENT_ACCURACY
from analysis.comparison.labels import canonical, has_key, names_of, settings_of, sweep_of, value_of
from analysis.comparison.overhead import COSTS
from analysis.comparison.rows import ComparisonRow, rows_of
from analysis.comparison.summary import summarise
from analysis.comparison.targets import Target
from analysis.comparison.time_to_target import MEAN, MEASURES, NOT_REACHED, compare_targets
from analysis.figures.curves import Panel, grid_of
from analysis.figures.elements import FigureWithData, fitted, interval_note
from analysis.figures.points import (
    MARKERS,
    Look,
    Series,
    bound_handle,
    draw_points,
    end_above_points,
    log_axis,
    missing_handle,
    name_axis,
    number_axis,
)
from analysis.statistics import Interval, mean_interval
from analysis.style import SERIES_COLOURS, protocol_colours, width
from analysis.tables import Unit, bytes_unit, seconds_unit
from testbed.errors import ExperimentError
from testbed.flattening import flattened
from testbed.records import RunRecords
from testbed.spelling import did_you_mean

_ASIDE = ("provenance", "output", "sweep", "cluster")  # sections without influence on the measurements of a run
_KEYS = COSTS | {"transport_bytes": "transport_bytes_per_round"}  # column of the overhead table: key of the summary
_TITLES = {
    "round_s": "Round time",
    "client_s": "Client time",
    "server_bytes": "Server traffic per round",
    "client_bytes": "Client traffic per round",
    "round_s_per_update": "Time per update",
    "server_bytes_per_update": "Server traffic per update",
    "transport_bytes": "Transport overhead per round",
    "time_to_target_s": "Time to target",
    **CLIENT_ACCURACY,
    "final_client_accuracy_std": "Client accuracy, std. dev.",
}
_MOST_NAMES = 40
_UNITS = {
    "_mbit_s": "Mbit/s",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
}
_COMPLETE = ("participants", "population", "rounds", "epochs", "bits", "seed")
"""Last parts of a key that need no section in a title; neither do last parts of several words."""


def swept(
    runs: Sequence[RunRecords],
    x: str,
    y: Sequence[str],
    hue: Sequence[str] = (),
    *,
    log: str = "",
    columns: int = 1,
    target: Target | None = None,
) -> FigureWithData:
    """Draw a panel for each of `y`, with a point for each value of `x`: the mean over the seeds and its 95% interval.

    For a point with a single run, costs have their interval over its rounds and other measures have none. Points that
    are lower bounds (some seeds have not reached the target) are hollow, with an arrow upwards. If no seed reached the
    target, there is only an arrow.

    Args:
        runs: e.g. from `testbed.records.find_runs`.
        x: a dotted key of the experiments; numbers have a numeric axis, other values are named.
        y: columns of the overhead table, numeric keys of the summary, ``time_to_target_s`` and the like.
        hue: dotted keys with a line for each value; default: the keys that distinguish runs of one x.
        log: ``x``, ``y`` or ``xy``.
        columns: of the page, 1 or 2.
        target: the target of ``..._to_target``; default: the best that all runs reach.

    Raises:
        ExperimentError: no run has such a key or measure, or two rows would be the same point.
    """
    rows = rows_of(runs)
    _check_x(rows, x)
    hue = list(hue) or _telling(rows, x)
    lines = _lines(rows, x, hue)
    values = [value_of(row.runs[0], x) for row in rows]
    is_number = all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in values)
    names = _names([row.runs[0] for row in rows], x)
    categories = list(dict.fromkeys(names))
    if not is_number and len(categories) > _MOST_NAMES:
        raise ExperimentError(f"--x {x}: has {len(categories)} values with names; at most {_MOST_NAMES} fit")
    measured = _measured(runs, rows, y, target)
    _check_log(log, x, values if is_number else None, measured)
    first = pd.DataFrame({x: values if is_number else names, "hue": lines, "seeds": [len(row.runs) for row in rows]})
    frame = pd.concat(
        [first.assign(measure=name, **statistics) for name, statistics in measured.items()], ignore_index=True
    )
    frame["place"] = frame[x] if is_number else frame[x].map(categories.index)
    frame = frame.sort_values("place", kind="stable", ignore_index=True) if is_number else frame
    figure = _figure(frame, x, y, hue, categories if not is_number else None, log, columns, target)
    data = frame.drop(columns=["place", *([] if hue else ["hue"])]).rename(columns={"hue": ",".join(hue)})
    return FigureWithData(f"{'-'.join(y)}-by-{x}"[:120], figure, data)


# -- points ---------------------------------------------------------------------------------------------------------


def _leaves(run: RunRecords) -> list[str]:
    return [key for key, _ in flattened(run.experiment, keep_empty=True)]


def _differing(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return keys in which the rows differ: swept keys first, then names of protocols and models."""
    firsts = [row.runs[0] for row in rows]
    keys = [key for run in firsts for key in sweep_of(run)]
    leaves = [
        leaf
        for run in firsts
        for leaf, _ in flattened(run.experiment, keep_empty=True)
        if leaf.partition(".")[0] not in _ASIDE
    ]
    keys += sorted(dict.fromkeys(leaves), key=lambda leaf: leaf.rpartition(".")[2] not in ("protocol", "model"))
    return [key for key in dict.fromkeys(keys) if key != "seed" and len({_value(run, key) for run in firsts}) > 1]


def _value(run: RunRecords, key: str) -> str:
    return canonical(value_of(run, key))


def _check_x(rows: Sequence[ComparisonRow], x: str) -> None:
    runs = [run for row in rows for run in row.runs]
    differing = _differing(rows)
    there = f"the runs differ in {', '.join(differing[:12])}" if differing else "the runs differ at most in their seed"
    if x == "seed" or x.partition(".")[0] in _ASIDE:
        raise ExperimentError(f"--x {x}: not a key for an axis: runs that differ only in it are repetitions; {there}")
    if not any(has_key(run, x) for run in runs):
        key_names = dict.fromkeys([*differing, *(leaf for run in runs for leaf in _leaves(run))])
        hint = did_you_mean(x, key_names, quoted=False)
        raise ExperimentError(f"--x {x}: no run has this key; {hint}{there}")
    if len({_value(run, x) for run in runs}) == 1:
        value = _names(runs[:1], x)[0]
        raise ExperimentError(f"--x {x}: has only one value, {value[:60]}; {there}")


def _telling(rows: Sequence[ComparisonRow], x: str) -> list[str]:
    """Return the fewest keys, taken in order, that distinguish rows of one x."""
    firsts = [row.runs[0] for row in rows]
    chosen: list[str] = []

    def parts() -> int:
        return len({(_value(run, x), *(_value(run, key) for key in chosen)) for run in firsts})

    for key in _differing(rows):
        if x == key or x.startswith(f"{key}.") or key.startswith(f"{x}."):
            continue
        before = parts()
        chosen.append(key)
        if parts() == before:
            chosen.pop()
    return chosen


def _lines(rows: Sequence[ComparisonRow], x: str, hue: Sequence[str]) -> list[str]:
    """Return the name of the line that each row belongs to.

    Raises:
        ExperimentError: two rows are the same point, or there are too many lines.
    """
    firsts = [row.runs[0] for row in rows]
    for key in hue:
        if not any(has_key(run, key) for run in firsts):
            differing = ", ".join(_differing(rows)[:12]) or "at most their seed"
            raise ExperimentError(f"--hue {key}: no run has this key; the runs differ in {differing}")
    points: dict[tuple[str, ...], ComparisonRow] = {}
    for row in rows:
        run = row.runs[0]
        other = points.setdefault((_value(run, x), *(_value(run, key) for key in hue)), row)
        if other is not row:
            more = [key for key in _differing([row, other]) if key not in hue and not x.startswith(f"{key}.")]
            if not more:
                raise ExperimentError(f"{run.path} and {other.runs[0].path} are the same point; give only one of them")
            raise ExperimentError(
                f"--hue: runs of the same point differ in {', '.join(more[:5])}: --hue {','.join([*hue, more[0]])}, or "
                "plot fewer directories"
            )
    columns_of_names = [_names(firsts, key, alone=len(hue) == 1) for key in hue]
    labels = [", ".join(parts) for parts in zip(*columns_of_names, strict=True)] if hue else [""] * len(rows)
    if len(set(labels)) > len(SERIES_COLOURS):
        raise ExperimentError(
            f"--hue {','.join(hue)}: has {len(set(labels))} values; at most {len(SERIES_COLOURS)} have colours; name "
            "another key, or plot fewer directories"
        )
    return labels


def _names(runs: Sequence[RunRecords], key: str, *, alone: bool = True) -> list[str]:
    """Return the name of a key's value in each run; with the key's last part unless it stands alone."""
    if key.rpartition(".")[2] == "protocol":
        return [names_of(run).get(key) or str(value_of(run, key) or "–") for run in runs]
    setting_names = settings_of(runs, [key])
    if not alone:
        return setting_names
    named = [names_of(run).get(key) for run in runs]
    short = (f"{key}=", f"{key.rpartition('.')[2]}=")
    shortened = [
        next((text.removeprefix(start) for start in short if text.startswith(start)), text) for text in setting_names
    ]
    texts = ["–" if value_of(run, key) is None else text for run, text in zip(runs, shortened, strict=True)]
    return [name or text for name, text in zip(named, texts, strict=True)]


# -- measures --------------------------------------------------------------------------------------------------------


def _measured(
    runs: Sequence[RunRecords], rows: Sequence[ComparisonRow], y: Sequence[str], target: Target | None
) -> dict[str, dict[str, list[Any]]]:
    """Return by measure and row: value, half_width, interval_over (seeds, rounds or empty), is_bound, reached.

    ``reached`` is False if no seed has reached the target; True for measures without a target.
    """
    summaries = [[summarise(run) for run in row.runs] for row in rows]
    measure_names = dict.fromkeys([*_KEYS, *_numeric(summaries), *MEASURES])
    measures: dict[str, dict[str, list[Any]]] = {}
    for name in y:
        if name not in measure_names:
            hint = did_you_mean(name, measure_names, quoted=False)
            raise ExperimentError(f"--y {name}: no such measure; {hint}choose among {', '.join(measure_names)}")
        if name in MEASURES:
            table = compare_targets(runs, None if target is None else [target])
            at = {(row["setting"], row["label"]): row for row in table.to_dict("records")}
            mine = [at[row.setting, row.label] for row in rows]
            estimates = [(row[name], row[f"{name}_half_width"], row["estimator"] != MEAN) for row in mine]
            reached = [row["estimator"] != NOT_REACHED for row in mine]
        else:
            intervals = [_interval(of_runs, _KEYS.get(name, name)) for of_runs in summaries]
            estimates = [(interval.mean, interval.half_width, False) for interval in intervals]
            reached = [True] * len(rows)
        values = [math.nan if value is None else float(value) for value, _, _ in estimates]
        half = [math.nan if half is None else float(half) for _, half, _ in estimates]
        if all(map(math.isnan, values)):
            raise ExperimentError(f"--y {name}: not measured in any of these runs")
        kinds = ["seeds" if len(row.runs) > 1 else "rounds" for row in rows]
        over = ["" if math.isnan(width) else kind for width, kind in zip(half, kinds, strict=True)]
        bounds = [is_bound for _, _, is_bound in estimates]
        measures[name] = {"value": values, "half_width": half, "interval_over": over, "is_bound": bounds}
        measures[name]["reached"] = reached
    return measures


def _interval(summaries: Sequence[Mapping[str, Any]], key: str) -> Interval:
    """Return the interval over the seeds; of a single run the interval in its summary, if any."""
    if len(summaries) == 1:
        return Interval(summaries[0].get(key), summaries[0].get(f"{key}_half_width"))
    values = [summary.get(key) for summary in summaries]
    return mean_interval([math.nan if value is None else float(value) for value in values])


def _numeric(summaries: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return keys of the summaries that have a number in some run."""
    items = [item for of_runs in summaries for summary in of_runs for item in summary.items()]
    keys = [key for key, value in items if isinstance(value, int | float) and not isinstance(value, bool)]
    return [key for key in dict.fromkeys(keys) if key != "seed" and not key.endswith("_half_width")]


def _check_log(log: str, x: str, values: Sequence[float] | None, measured: Mapping[str, Mapping[str, Any]]) -> None:
    if log not in ("", "x", "y", "xy"):
        raise ExperimentError(f"--log {log}: unknown; allowed: x, y, xy")
    if "x" in log and values is None:
        raise ExperimentError(f"--log {log}: {x} is not a number in every run")
    if "x" in log and min(values or [1]) <= 0:
        raise ExperimentError(f"--log {log}: {x} has values that are not above 0")
    for name, statistics in measured.items():
        if "y" in log and any(value <= 0 for value in statistics["value"]):
            raise ExperimentError(f"--log {log}: {name} has values that are not above 0")


# -- drawing ----------------------------------------------------------------------------------------------------------


def key_title(key: str) -> str:
    """Return the title of a key beside an axis.

    Args:
        key: dotted.

    Example:
        >>> key_title("links.up_mbit_s")
        'Links up [Mbit/s]'
    """
    unit = next((suffix for suffix in _UNITS if key.endswith(suffix)), "")
    parts = key.removesuffix(unit).split(".") if unit else key.split(".")
    last = parts[-1].replace("_", " ")
    above = parts[-2].replace("_", " ") if len(parts) > 1 else ""
    says_enough = not above or last in _COMPLETE or " " in last
    title = last if says_enough else f"{above} {last}"
    title = title[:1].upper() + title[1:]
    return f"{title} [{_UNITS[unit]}]" if unit else title


def _figure(
    frame: pd.DataFrame,
    x: str,
    y: Sequence[str],
    hue: Sequence[str],
    categories: Sequence[str] | None,
    log: str,
    columns: int,
    target: Target | None,
) -> Any:
    labels = sorted(dict.fromkeys(frame["hue"]), key=_number)
    if len(hue) == 1 and hue[0].endswith("selection.protocol"):
        colours = protocol_colours(labels)
    else:
        colours = dict(zip(labels, SERIES_COLOURS, strict=False))
    looks = {label: Look(colours[label], marker) for label, marker in zip(labels, MARKERS, strict=False)}
    units = {name: _unit(name, frame.loc[frame["measure"] == name, "value"]) for name in y}
    panels = [Panel(key_title(x), _title(name, units[name], target)) for name in y]
    bars = frame[frame["interval_over"] != ""]
    note = interval_note(bars["seeds"].tolist(), "rounds" if (bars["interval_over"] == "rounds").any() else "")
    notes = [f"error bars: {note}" if len(bars) and note else ""]
    missing, bound = ~frame["reached"], frame["is_bound"] & frame["reached"]
    entries = [("at least: some seeds have not reached the target", bound_handle())] if bound.any() else []
    entries += [("none reached", missing_handle())] if missing.any() else []
    title = "\n".join(filter(None, [*notes, key_title(hue[0]) if len(hue) == 1 else ""]))
    named = labels if len(labels) > 1 else []
    legend = fitted([*named, *(text for text, _ in entries)], width(columns), title)
    figure, [axes_of] = grid_of([""], panels, columns, legend.inches)
    more = 0.0
    for axes, name in zip(axes_of, y, strict=True):
        part = frame[frame["measure"] == name]
        series = [
            Series(looks[label], own["place"], own["value"], own["half_width"], own["is_bound"], ~own["reached"])
            for label in labels
            for own in [part[part["hue"] == label]]
        ]
        above_0, top = bool(part["value"].min() >= 0), 1.0 if units[name].symbol == "%" else None
        draw_points(axes, series, units[name], joined=categories is None, top=top, above_0=above_0)
        if "y" in log:
            log_axis(axes)
        elif units[name].symbol not in ("", "%"):
            end_above_points([axes])
        if categories is None:
            number_axis(axes, part["place"].tolist(), is_log="x" in log)
        else:
            more = name_axis(axes, categories)
    figure.set_figheight(figure.get_figheight() + more)
    legend.add_to(figure, [*(looks[label].handle for label in named), *(handle for _, handle in entries)])
    return figure


def _number(label: str) -> float:
    """Return the number in a line's label, which orders the lines; 0 for other labels."""
    try:
        return float(label)
    except ValueError:
        return 0.0


def _unit(name: str, values: pd.Series) -> Unit:
    key = MEASURES.get(name, name)
    present = values.dropna()
    if "bytes" in key:
        return bytes_unit(present)
    if key.endswith("_s") or "_s_per_" in key:
        return seconds_unit(present)
    is_share = key.endswith("accuracy") or key in CLIENT_ACCURACY
    return Unit("%", 0.01, 1) if is_share else Unit("", 1.0, 2)


def _title(name: str, unit: Unit, target: Target | None) -> str:
    title = name.removesuffix("_s").replace("_", " ").replace(".", ": ")
    title = _TITLES.get(name, title[:1].upper() + title[1:])
    if name in MEASURES:
        label = "the best that all runs reach" if target is None else target.label
        title = title.replace(
            "target", label.replace(" ≥ ", " ≥\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")
        )
    return f"{title} [{unit.symbol}]" if unit.symbol else title
