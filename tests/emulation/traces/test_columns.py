"""Columns of tables of devices: three kinds of files with the same rows, and every kind of bad file."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.traces.columns import Columns, column_names, read_columns
from testbed.errors import TraceError
from tests.messages_named import naming

Rows = list[tuple[float | None, float | None]]


def as_csv(path: Path, rows: Rows) -> Path:
    cells = ("" if value is None else repr(value) for row in rows for value in row)
    text = "".join(f"{a},x,{b}\n" for a, b in zip(cells, cells, strict=True))
    (path / "table.csv").write_text("a,name,b\n" + text)
    return path / "table.csv"


def as_json(path: Path, rows: Rows) -> Path:
    records = [{"a": a, "name": "x", "b": None if b is None else str(b)} for a, b in rows]
    (path / "table.json").write_text(json.dumps([{k: v for k, v in row.items() if v is not None} for row in records]))
    return path / "table.json"


def as_json_by_name(path: Path, rows: Rows) -> Path:
    (path / "table.json").write_text(json.dumps({str(at): {"a": a, "b": b} for at, (a, b) in enumerate(rows)}))
    return path / "table.json"


def as_parquet(path: Path, rows: Rows) -> Path:
    pq.write_table(
        pa.table({"a": [a for a, _ in rows], "name": ["x"] * len(rows), "b": [b for _, b in rows]}), path / "t.parquet"
    )
    return path / "t.parquet"


@pytest.mark.parametrize("write", [as_csv, as_json, as_json_by_name, as_parquet])
@given(data=st.data())
def test_rows_that_have_all_the_columns(
    write: Callable[[Path, Rows], Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    cell = st.none() | st.floats(allow_nan=False, allow_infinity=False)
    rows = [(1.5, -2.0), *data.draw(st.lists(st.tuples(cell, cell), max_size=8))]
    found = read_columns(write(tmp_path_factory.mktemp("table"), rows), ["b", "a"])
    whole = [(number, a, b) for number, (a, b) in enumerate(rows, start=1) if a is not None and b is not None]
    assert found.rows.tolist() == [number for number, _, _ in whole]
    assert found.values.tolist() == [[b for _, _, b in whole], [a for _, a, _ in whole]]


def test_column_names(tmp_path: Path) -> None:
    for write in (as_csv, as_json, as_parquet):
        assert column_names(write(tmp_path, [(1.0, 2.0)])) == ["a", "name", "b"]


def test_scores_with_footnotes(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    path.write_text('[{"AI_Score": " 76206 1,6"}, {"AI_Score": 5}]')
    found: Columns = read_columns(path, ["AI_Score"])
    np.testing.assert_array_equal(found.values, [[76206, 5]])


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("t.csv", b"", "the file is empty; it needs a row per device"),
        ("t.csv", b"\n\n", "no column 'a'; there are none"),
        ("t.csv", b"a,b\n1,2\n3\n", "row 2: 1 values; the header has 2"),
        ("t.csv", b"a,a\n1,2\n", "the column 'a' stands twice"),
        ("t.csv", b"a\n1\nfast\n", "row 2: a is 'fast'; it must be a finite number"),
        ("t.csv", b"a\ninf\n", "row 1: a is 'inf'; it must be a finite number"),
        ("t.csv", b"a\n76206 1,6\n", "row 1: 2 values; the header has 1"),
        ("t.csv", b"\xff\xfe\x00\x01", "not a text file (UTF-8)"),
        ("t.csv", b"a\n" + b"1" * 200_000 + b"\n", "not CSV: "),
        ("t.csv", b"a\n", "no row has a value in 'a'"),
        ("t.json", b"[{\"a\": 1}", "not JSON, or truncated: "),
        ("t.json", b"[" * 100_000, "not JSON, or truncated: "),
        ("t.json", b"3", "a table in JSON is a list of objects, or an object of objects, one per device"),
        ("t.json", b"[{\"a\": 1}, 2]", "row 2: not an object; a table in JSON has an object for each device"),
        ("t.json", b"[{\"a\": NaN}]", "row 1: a is nan; it must be a finite number"),
        ("t.json", b"[{\"a\": true}]", "row 1: a is True; it must be a finite number"),
        ("t.json", b"[{\"a\": [1]}]", "row 1: a is a list; it must be a finite number"),
        ("t.json", b"[{\"a\": 1" + b"0" * 400 + b"}]", "it must be a finite number"),
        ("t.json", b"[]", "no column 'a'; there are none"),
        ("t.json", b"\xff\xfe\x00", "not a text file (UTF-8)"),
        ("t.parquet", b"PAR1 and no more", "not a Parquet file, or truncated: "),
        ("t.txt", b"a\n1\n", "a table of devices is a file that ends in .csv, .parquet, .json"),
    ],
)  # fmt: skip
def test_bad_files_are_one_line(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_columns(path, ["a"])
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert complaint in said
    assert "\n" not in said
    assert len(said) < len(str(path)) + 400


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_columns(tmp_path / "none.csv", ["a"])
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read_columns(tmp_path / "folder.csv", ["a"])


def test_a_truncated_parquet_file(tmp_path: Path) -> None:
    whole = as_parquet(tmp_path, [(1.0, 2.0)] * 100).read_bytes()
    for size in (1, 4, len(whole) // 2, len(whole) - 1):
        (tmp_path / "t.parquet").write_bytes(whole[:size])
        with pytest.raises(TraceError, match=naming("Parquet", "truncated")):
            read_columns(tmp_path / "t.parquet", ["a"])


def test_parquet_without_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": ["fast", "slow"], "b": [1.0, math.nan]}), path)
    for column, shown in (("a", "'fast'"), ("b", "nan")):
        with pytest.raises(TraceError, match=f"{column} is {shown}; it must be a finite number"):
            read_columns(path, [column])
