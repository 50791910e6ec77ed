"""Latency matrices: the same delays from CSV, Parquet and .npy, with and without names."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.emulation.traces.latency import read_latency_matrix
from testbed.errors import TraceError

DELAYS = [[6.5, 19.0, 0.0], [31.0, 24.5, 7.0]]
CLIENTS, SERVERS = ("bergen", "lisboa"), ("oslo", "frankfurt", "paris")


def refused(path: Path) -> str:
    with pytest.raises(TraceError) as raised:
        read_latency_matrix(path)
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("6.5,19,0\n31,24.5,7\n", ("0", "1"), ("0", "1", "2")),
        ("oslo,frankfurt,paris\n6.5,19,0\n31,24.5,7\n", ("0", "1"), SERVERS),
        (",0,1,2\nbergen,6.5,19,0\nlisboa,31,24.5,7\n", CLIENTS, ("0", "1", "2")),
        ("client,oslo,frankfurt,paris\nbergen,6.5,19,0\nlisboa,31,24.5,7\n", CLIENTS, SERVERS),
        (",10,20,30\n5,6.5,19,0\n6,31,24.5,7\n", ("5", "6"), ("10", "20", "30")),
        ('\ufeff,"oslo", frankfurt,paris\r\n\r\nbergen,6.5,19,0\r\nlisboa,31,24.5,7\r\n', CLIENTS, SERVERS),
    ],
)
def test_csv_with_and_without_names(tmp_path: Path, text: str, rows: tuple[str, ...], columns: tuple[str, ...]) -> None:
    (tmp_path / "m.csv").write_bytes(text.encode())
    values, row_names, column_names = read_latency_matrix(tmp_path / "m.csv")
    assert values.tolist() == DELAYS
    assert values.dtype == np.float64
    assert (row_names, column_names) == (rows, columns)


def test_the_other_formats(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.array(DELAYS, np.float32))
    values, rows, columns = read_latency_matrix(tmp_path / "m.npy")
    assert (values.tolist(), rows, columns) == (DELAYS, ("0", "1"), ("0", "1", "2"))
    frame = pd.DataFrame(DELAYS, index=pd.Index(CLIENTS, name="client"), columns=SERVERS)
    frame.to_csv(tmp_path / "m.csv")
    frame.to_parquet(tmp_path / "m.parquet")
    frame.reset_index().to_parquet(tmp_path / "n.parquet", index=False)
    for name in ("m.csv", "m.parquet", "n.parquet"):
        values, rows, columns = read_latency_matrix(tmp_path / name)
        assert (values.tolist(), rows, columns) == (DELAYS, CLIENTS, SERVERS)
    pq.write_table(pa.table({"oslo": [1, 2]}), tmp_path / "m.parquet")
    assert read_latency_matrix(tmp_path / "m.parquet")[1:] == (("0", "1"), ("oslo",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,-4\n", "row 2: column '1' is -4.0 ms; a delay must be finite and at least 0"),
        ("a,b\n1,2\n3,nan\n", "row 2: column 'b' is nan ms"),
        ("a,b\ninf,2\n3,4\n", "row 1: column 'a' is inf ms"),
        ("1,2\n3\n", "row 2: 1 values; the first row of the file has 2"),
        ("a,b\n1,2,3\n", "row 1: 3 values; the first row of the file has 2"),
        ("1,2\n3,\n", "row 2: '' is not a delay in ms"),
        ("1,2\n3,far\n", "row 2: 'far' is not a delay in ms"),
        ("client,a\nx,1\ny,z\n", "row 2: 'z' is not a delay in ms"),
        ("bergen,1,2\nlisboa,3,4\n", "the first row begins with 'bergen' and goes on with numbers"),
        ("client,0,1\nlisboa,3,4\n", "the first row begins with 'client' and goes on with numbers"),
        ("a,b\n", "no row of delays"),
        ("\n\n", "no row of delays"),
        ("client\nx\ny\n", "no delays"),
        ("", "the file is empty"),
        ("client,a,a\nx,1,2\n", "the column name 'a' occurs twice"),
        ("client,a,b\nx,1,2\nx,1,2\n", "the row name 'x' occurs twice"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.csv").write_text(text)
    assert refused(tmp_path / "m.csv").startswith(message)


def test_bad_parquet(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    for table, message in (
        ({"client": ["a", "b"], "oslo": [1.0, None]}, "row 2: column 'oslo' has no value"),
        ({"client": ["a"], "city": ["b"], "oslo": [1.0]}, "column 'city' holds string, not delays in ms"),
        ({"oslo": [1.0, -3.0]}, "row 2: column 'oslo' is -3.0 ms"),
        ({"client": ["a"]}, "no delays"),
    ):
        pq.write_table(pa.table(table), path)
        assert refused(path).startswith(message)
    path.write_bytes(path.read_bytes()[:-9])
    assert refused(path).startswith("not a Parquet file, or truncated")


def test_bad_npy(tmp_path: Path) -> None:
    path = tmp_path / "m.npy"
    for array, message in (
        (np.zeros(3), "float64 (3,); it must be a matrix of numbers"),
        (np.array([["a"]]), "<U1 (1, 1); it must be a matrix of numbers"),
        (np.zeros((0, 3)), "no delays"),
        (np.array([[1.0], [np.nan]]), "row 2: column '0' is nan ms"),
    ):
        np.save(path, array)
        assert refused(path).startswith(message)
    np.save(path, np.array([[object()]]), allow_pickle=True)
    assert refused(path).startswith("not an array of numbers in NumPy's .npy, or truncated")
    np.save(path, np.zeros((30, 30)))
    path.write_bytes(path.read_bytes()[:-100])
    assert refused(path).startswith("not an array of numbers in NumPy's .npy, or truncated")
    archive = io.BytesIO()
    np.savez(archive, delays=np.zeros((2, 2)))
    path.write_bytes(archive.getvalue())
    assert refused(path).startswith("an archive; it must be a matrix of numbers")


@pytest.mark.parametrize("name", ["m.csv", "m.parquet", "m.npy"])
def test_invalid_files_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert refused(path) == "cannot be read: No such file or directory"
    path.mkdir()
    assert refused(path) == "cannot be read: Is a directory"
    path.rmdir()
    path.write_bytes(bytes(range(128, 256)) * 100)
    assert refused(path).startswith("not a")
    assert refused(tmp_path / "m.txt").startswith("a latency matrix is a file that ends in .csv, .parquet, .npy")
