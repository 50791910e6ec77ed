"""Stored measurements of reproductions: one JSON file each, with one row of a table per line.

Numbers are stored in full, so that table, claims and remarks made from the file are those made from the measurements.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from analysis.reproduction.contract import (
    DataKind,
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from testbed.errors import ExperimentError

FILE = "measurements.json"
_MOST_BYTES = 64 * 2**20


def as_text(measurements: Measurements) -> str:
    """Return measurements as JSON, with a line feed after each row of a table.

    Raises:
        TypeError: a cell or a part of the setting is not text, a number, a truth value or empty.
    """
    setting = json.dumps(asdict(measurements.setting), indent=1, ensure_ascii=False, allow_nan=False)
    tables = ",\n".join(_table_text(name, table) for name, table in measurements.tables.items())
    return f'{{"setting": {setting},\n"tables": {{\n{tables}\n}}}}\n'


def _table_text(name: str, table: pd.DataFrame) -> str:
    columns = json.dumps(list(map(str, table.columns)), ensure_ascii=False)
    rows = ",\n".join(
        json.dumps([_plain(cell) for cell in row], ensure_ascii=False)
        for row in table.astype(object).itertuples(index=False)
    )
    return f'{json.dumps(name)}: {{"columns": {columns}, "rows": [\n{rows}\n]}}'


def _plain(cell: Any) -> Any:
    """Return a cell as plain data, with None for an empty cell."""
    value = cell.item() if isinstance(cell, np.generic) else cell
    if value is None or value is pd.NaT or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise TypeError(f"{value!r}: a measurement must be text, a finite number, true, false or empty")


def of_text(text: str) -> Measurements:
    """Return the measurements that `as_text` wrote, without figures.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the text is not that of measurements.
    """
    data = json.loads(text)
    setting = Setting(**data["setting"])
    if setting.data_kind not in get_args(DataKind):
        raise ValueError(f"data_kind: {setting.data_kind}")
    tables = {
        str(name): pd.DataFrame(table["rows"], columns=list(map(str, table["columns"])))
        for name, table in data["tables"].items()
    }
    return Measurements(setting, tables)


def read_measurements(path: Path) -> Measurements | None:
    """Read measurements from a file; None if the file does not exist, as for results of earlier versions.

    Raises:
        ExperimentError: the file is not readable, or does not hold measurements.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError
        return of_text(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExperimentError(f"{path}: no measurements of `testbed reproduce` of this version") from None


def stored(measurements: Measurements) -> Measurements:
    """Return measurements as a file gives them back: the input of `conclude`, when it follows `measure` and later."""
    again = of_text(as_text(measurements))
    return Measurements(again.setting, again.tables, measurements.figures)


def carry_out(reproduction: Reproduction, context: ReproductionContext) -> tuple[Measurements, ReproductionResult]:
    """Measure and conclude, and return both.

    The result follows from the measurements as a file gives them back.

    Args:
        reproduction: the reproduction.
        context: where and how to run.

    Returns:
        The measurements and the result.
    """
    measurements = stored(reproduction.measure(context))
    return measurements, replace(reproduction.conclude(measurements), figures=measurements.figures)


@dataclass(frozen=True)
class MeasurementComparison:
    """Comparison of new measurements with stored ones.

    Attributes:
        equal: number of equal numbers.
        numbers: number of compared numbers.
        largest: largest relative difference.
        lines: rows that only one of the two has, and the first differing numbers, one line each.
    """

    equal: int
    numbers: int
    largest: float
    lines: Sequence[str]


_MOST_LINES = 20


def compare(earlier: Measurements, new: Measurements) -> MeasurementComparison:
    """Compare the numbers of new measurements with those of kept measurements.

    Rows correspond if all their cells that are not floating-point numbers are equal, in their order. If the new
    measurements have fewer seeds, only rows with their seeds are compared.

    Args:
        earlier: kept measurements.
        new: measurements of a new run.
    """
    equal, numbers, largest, lines = 0, 0, 0.0, list[str]()
    for name in sorted({*earlier.tables, *new.tables}):
        before, after = (each.tables.get(name, pd.DataFrame()) for each in (earlier, new))
        if "seed" in before and "seed" in after:
            before = before[before["seed"].isin(after["seed"])]
        old, now = _by_key(before), _by_key(after)
        lines += [f"{name}: {_named(key)}: only in the {place}" for key, place in _unmatched(old, now)]
        for key in old.keys() & now.keys():
            for column in old[key]:
                left, right = old[key][column], now[key].get(column)
                numbers += 1
                if left == right or (left is not None and right is not None and nearly_equal(left, right)):
                    equal += 1
                    continue
                if left is not None and right is not None:
                    largest = max(largest, abs(left - right) / max(abs(left), abs(right)))
                lines.append(f"{name}: {_named(key)}: {column} is {left!r} in the kept measurements, {right!r} here")
    more = [f"... and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    return MeasurementComparison(equal, numbers, largest, [*lines[:_MOST_LINES], *more])


def nearly_equal(left: float, right: float) -> bool:
    """Return whether two numbers are equal but for their last digits, in which library versions may differ.

    Args:
        left, right: numbers.
    """
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)


Key = tuple[Any, ...]


def _by_key(table: pd.DataFrame) -> dict[Key, dict[str, float | None]]:
    """Return the floating-point cells of each row by its other cells and its number among rows with equal ones."""
    floats = [str(name) for name in table.columns if pd.api.types.is_float_dtype(table[name])]
    others = [str(name) for name in table.columns if str(name) not in floats]
    rows: dict[Key, dict[str, float | None]] = {}
    repeated: dict[Key, int] = {}
    for row in table.astype(object).to_dict("records"):
        cells = tuple((name, _plain(row[name])) for name in others)
        repeated[cells] = repeated.get(cells, 0) + 1
        rows[(*cells, repeated[cells])] = {name: _plain(row[name]) for name in floats}
    return rows


def _unmatched(old: Mapping[Key, Any], new: Mapping[Key, Any]) -> list[tuple[Key, str]]:
    return [(key, "kept measurements") for key in old if key not in new] + [
        (key, "new measurements") for key in new if key not in old
    ]


def _named(key: Key) -> str:
    return ", ".join(f"{name}={value}" for name, value in key[:-1]) or f"row {key[-1]}"
