"""Stored measurements: exact round trips, and comparison of new numbers with kept ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.reproduction.contract import Measurements, Setting
from analysis.reproduction.measurements import as_text, compare, read_measurements, stored
from testbed.errors import ExperimentError
from tests.messages_named import naming

SETTING = Setting("stand-in", "UCI digits", [1, 2], {"population": 24}, ["30 rounds, not 50"], {"rate": 0.1})


def measured(**columns: object) -> Measurements:
    """Return measurements of two seeds with further columns."""
    return Measurements(SETTING, {"runs": pd.DataFrame({"seed": [1, 2], **columns})})


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=2, max_size=2))
def test_stored_numbers_are_the_measured_ones(values: list[float | None]) -> None:
    column = pd.Series(values, dtype="float64")
    again = stored(measured(value=column, name=["a\n", "ü"], whole=[1, 2], holds=[True, False]))
    (table,) = again.tables.values()
    assert [None if np.isnan(value) else value for value in table["value"].astype(float)] == values
    assert table[["seed", "name", "whole", "holds"]].to_dict("records") == [
        {"seed": 1, "name": "a\n", "whole": 1, "holds": True},
        {"seed": 2, "name": "ü", "whole": 2, "holds": False},
    ]
    assert again.setting == SETTING


@pytest.mark.parametrize("cell", [float("inf"), [1], object(), np.array([1, 2])])
def test_a_cell_that_a_file_cannot_hold_is_refused(cell: object) -> None:
    with pytest.raises(TypeError, match="measurement"):
        as_text(measured(value=[cell, cell]))


def test_a_file_has_a_line_for_each_row() -> None:
    lines = as_text(measured(value=[0.1, 0.2])).splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[1, 0.1],", "[2, 0.2]"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"setting": {"data_kind": "mine"}, "tables": {}}', "\xff", "null"])
def test_another_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "measurements.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ExperimentError, match=naming("measurements.json")):
        read_measurements(file)
    file.unlink()
    assert read_measurements(file) is None


def test_equal_numbers_are_counted_and_another_number_is_named() -> None:
    kept = measured(value=[0.1, 0.2], other=[1.0, None])
    same = compare(kept, stored(kept))
    assert (same.equal, same.numbers, list(same.lines)) == (4, 4, [])
    typed = compare(kept, measured(value=[0.1, 0.21], other=[1.0, None]))
    assert (typed.equal, typed.numbers) == (3, 4)
    assert typed.largest == pytest.approx(0.01 / 0.21)
    (line,) = typed.lines
    assert "seed=2" in line
    assert "value is 0.2 " in line


def test_rows_that_only_one_of_the_two_has_are_named() -> None:
    kept, fewer = (
        measured(value=[0.1, 0.2]),
        Measurements(SETTING, {"runs": pd.DataFrame({"seed": [1], "value": [0.1]})}),
    )
    assert list(compare(kept, fewer).lines) == []  # fewer seeds were asked for
    lines = compare(kept, measured(value=[0.1, 0.2], name=["a", "b"])).lines
    assert sum("only in the kept" in line for line in lines) == sum("only in the new" in line for line in lines) == 2
