"""Converting matrices of rounds x clients, CSV files of intervals, and FedScale's pickles."""

import csv
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.devices import read_device_factors
from testbed.emulation.traces.conversion import csv_intervals, fedscale, matrix
from testbed.emulation.traces.conversion.collector import join_intervals
from testbed.errors import TraceError
from tests.emulation.traces.conversions import refused, rows
from tests.messages_named import naming
from tests.thoroughness import examples

# -- matrices -------------------------------------------------------------------------------------------------------

SMALL = np.array([[1, 0, 0, 1], [1, 0, 1, 0], [0, 0, 1, 1]])


def write_matrix(path: Path, values: Any) -> Path:
    values = np.asarray(values)
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".csv":
        np.savetxt(path, values.astype(int), fmt="%d", delimiter=",")
    else:
        pd.DataFrame(values, columns=[f"c{column}" for column in range(values.shape[1])]).to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".parquet"])
@pytest.mark.parametrize("kind", [np.int64, np.bool_, np.float32, np.uint8])
def test_runs_of_ones_become_intervals(suffix: str, kind: Any, tmp_path: Path) -> None:
    source = write_matrix(tmp_path / f"rounds{suffix}", SMALL.astype(kind))
    trace, counts = matrix.convert(source, 60.0)
    assert rows(trace) == [(0, 0, 120), (2, 60, 180), (3, 0, 60), (3, 120, 180)]
    assert trace.horizon == (0, 180)
    assert trace.never_online.tolist() == [1]
    assert counts == {
        "rounds": 3,
        "devices": 4,
        "devices_never_online": 1,
        "devices_kept": 4,
        "presences": 6,
        "intervals_kept": 4,
    }


def test_a_line_of_names_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rounds.csv"
    path.write_text("a, b\n1, 0\n\n0, 1\n")
    assert rows(matrix.convert(path, 10)[0]) == [(0, 0, 10), (1, 10, 20)]


@pytest.mark.parametrize(
    ("text", "index", "names"),
    [
        (",ann,ben\n0,1,0\n1,0,1\n2,1,1\n", "column_'1'_taken_for_an_index", {0: "ann", 1: "ben"}),
        ("round,ann,ben\n0,1,0\n1,0,1\n", "column_'round'_taken_for_an_index", {0: "ann", 1: "ben"}),
        ("date,ann,ben\n2024-05-01,1,0\n2024-05-02,0,1\n", "column_'date'_taken_for_an_index", {0: "ann", 1: "ben"}),
        ("Unnamed: 0,0,1\n0,1,0\n1,0,1\n", "column_'Unnamed: 0'_taken_for_an_index", {0: "0", 1: "1"}),
        ("5,1,0\n6,0,1\n", "column_'1'_taken_for_an_index", {}),
        ("ann,ben\n1,0\n0,1\n", None, {0: "ann", 1: "ben"}),
        ("round,ben\n1,0\n0,1\n", None, {0: "round", 1: "ben"}),
    ],
)
def test_an_index_column_is_recognised_and_named(text: str, index: str, names: Any, tmp_path: Path) -> None:
    path = tmp_path / "rounds.csv"
    path.write_text(text)
    trace, counts = matrix.convert(path, 10)
    assert [key for key in counts if key.startswith("column_")] == ([index] if index else [])
    assert (trace.online_until(np.arange(2), 5.0) > -np.inf).tolist() == [True, False]
    assert len(trace) == 2
    assert {client: name for client, name in trace.names.items() if str(client) != name} == {
        client: name for client, name in names.items() if str(client) != name
    }


def test_indexes_of_other_files(tmp_path: Path) -> None:
    frame = pd.DataFrame(SMALL, columns=list("abcd"), index=pd.Index([3, 4, 7], name="round"))
    frame.to_parquet(tmp_path / "m.parquet")
    frame.reset_index().to_parquet(tmp_path / "first.parquet")
    frame.rename_axis(None).to_parquet(tmp_path / "unnamed.parquet")
    np.save(tmp_path / "m.npy", np.column_stack([[0, 1, 2], SMALL]))
    for name in ("first.parquet", "unnamed.parquet", "m.npy"):
        trace, counts = matrix.convert(tmp_path / name, 60.0)
        assert rows(trace) == [(0, 0, 120), (2, 60, 180), (3, 0, 60), (3, 120, 180)], name
        assert sum("taken_for_an_index" in key for key in counts) == 1
    assert trace.names == {}


@settings(max_examples=examples(50))
@given(data=st.data())
def test_the_matrix_can_be_read_back_from_the_trace(data: st.DataObject, tmp_path_factory: Any) -> None:
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 6)))
    bits = data.draw(st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).filter(any))
    values = np.array(bits).reshape(shape)
    path = write_matrix(tmp_path_factory.mktemp("matrix") / "m.npy", values)
    trace, _ = matrix.convert(path, 2.5)
    again = [(trace.online_until(np.arange(shape[1]), 2.5 * (number + 0.5)) > -np.inf) for number in range(shape[0])]
    assert (np.array(again) == values).all()
    starts = values & ~np.vstack([np.zeros((1, shape[1]), bool), values[:-1]])
    assert len(trace.online_from_s) == starts.sum()


def test_long_matrices_are_read_in_batches(tmp_path: Path) -> None:
    values = np.ones((10_000, 2), np.int8)
    values[5000, 1] = 7
    for suffix in (".npy", ".parquet"):
        path = write_matrix(tmp_path / f"m{suffix}", values)
        assert "row 5001: column 2: 7 is not 0 or 1" in refused(matrix.convert, path, 1.0)
        path = write_matrix(tmp_path / f"m{suffix}", np.minimum(values, 1))
        assert rows(matrix.convert(path, 1.0)[0]) == [(0, 0, 10_000), (1, 0, 10_000)]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("m.csv", b"1,0\n1,2\n", "row 2: '2' is not 0 or 1"),
        ("m.csv", b"1,0\n1\n", "row 2: 1 values, not 2"),
        ("m.csv", b"", "nobody is ever there"),
        ("m.csv", b"0,0\n", "nobody is ever there"),
        ("m.csv", b"\xff\xfe", "not a text file"),
        ("m.npy", b"", "not a .npy file"),
        ("m.npy", b"\x93NUMPY\x01\x00", "not a .npy file"),
        ("m.npy", pickle.dumps([1, 0]), "not a .npy file"),
        ("m.parquet", b"PAR1", "not a .parquet file"),
        ("m.txt", b"1,0\n", "ends in .csv, .npy or .parquet"),
    ],
)
def test_bad_matrices_are_one_line(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert said in refused(matrix.convert, tmp_path / name, 1.0)


def test_matrices_of_other_shapes_and_types_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.ones(3))
    assert "1 dimensions" in refused(matrix.convert, tmp_path / "m.npy", 1.0)
    np.save(tmp_path / "m.npy", np.array([["a"]]))
    assert "2 dimensions of" in refused(matrix.convert, tmp_path / "m.npy", 1.0)
    np.save(tmp_path / "m.npy", np.array([[{}]]), allow_pickle=True)
    assert "not a .npy file of numbers" in refused(matrix.convert, tmp_path / "m.npy", 1.0)
    np.save(tmp_path / "m.npy", np.array([[1.0, np.nan]]))
    assert "row 1: column 2: nan" in refused(matrix.convert, tmp_path / "m.npy", 1.0)
    pd.DataFrame({"a": ["x"]}).to_parquet(tmp_path / "m.parquet")
    assert "column 'a'" in refused(matrix.convert, tmp_path / "m.parquet", 1.0)
    pd.DataFrame({"a": [1, None]}).to_parquet(tmp_path / "m.parquet")
    assert "row 2: column 1: nan" in refused(matrix.convert, tmp_path / "m.parquet", 1.0)
    for name in ("absent.csv", "absent.npy", "absent.parquet"):
        assert "cannot be read" in refused(matrix.convert, tmp_path / name, 1.0)
    for length in (0.0, -1.0, np.nan, np.inf):
        assert "--round-seconds" in refused(matrix.convert, write_matrix(tmp_path / "m.csv", SMALL), length)


# -- CSV ------------------------------------------------------------------------------------------------------------

COLUMNS = ("phone", "begin", "end")


def write_csv(path: Path, lines: list[Any], header: Any = ("note", *COLUMNS)) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def test_any_csv_with_named_columns(tmp_path: Path) -> None:
    source = write_csv(
        tmp_path / "log.csv",
        [
            ("x", "zoe", 2, 3),
            ("x", "adam", 1, 2),
            ("x", "zoe", 2.5, 4),
            ("x", "zoe", 0, 1),
            ("x", "zoe", 1, 1),
            ("x", "eve", 7, 7),
            ("x", "adam", 9, 8),
        ],
    )
    trace, counts = csv_intervals.convert(source, *COLUMNS, "min")
    assert rows(trace) == [(0, 0, 60), (0, 120, 240), (1, 60, 120)]
    assert trace.never_online.tolist() == [2]
    assert counts["devices_renumbered"] == counts["devices"] == counts["devices_kept"] == 3
    assert counts["intervals"] == 7
    assert counts["intervals_merged"] == counts["intervals_reversed"] == 1
    assert counts["intervals_zero_length"] == 2
    assert counts["intervals_unsorted"] == 1  # zoe at 0, after 2.5
    assert counts["intervals_kept"] == 3


@pytest.mark.parametrize(("unit", "seconds"), [("s", 1.0), ("ms", 1e-3), ("min", 60.0), ("h", 3600.0)])
def test_units(unit: Any, seconds: float, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "log.csv", [("", 17, 1, 2)])
    trace, counts = csv_intervals.convert(source, *COLUMNS, unit)
    assert rows(trace) == [(17, seconds, 2 * seconds)]
    assert "devices_renumbered" not in counts


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([("", "a", 1, 2), ("", "a", "x", 2)], "row 2: 'x' is not a time"),
        ([("", "a", 1, "nan")], "row 1: no time in column 'end'; --skip-incomplete leaves such rows out"),
        ([("", "a", 1, "inf")], "row 1: 'inf' is not a time"),
        ([("", "a", 1, "")], "row 1: no time in column 'end'; --skip-incomplete leaves such rows out"),
        ([("", "a", 1)], "row 1: 3 values, not 4"),
        ([("", " ", 1, 2)], "row 1: no client"),
        ([], "no device is ever online; it is empty"),
        ([("", "a", 2, 1)], "no device is ever online"),
    ],
)
def test_bad_csv_is_one_line(lines: list[Any], said: str, tmp_path: Path) -> None:
    assert said in refused(csv_intervals.convert, write_csv(tmp_path / "log.csv", lines), *COLUMNS)


def test_a_file_that_is_no_csv_is_one_line(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "log.csv", [], header=("a", "b"))
    assert "no column 'phone'; its columns are 'a', 'b'" in refused(csv_intervals.convert, source, *COLUMNS)
    source.write_text("")
    assert "no rows; the file is empty" in refused(csv_intervals.convert, source, *COLUMNS)
    source.write_bytes(b"\xff\xfe\x00")
    assert "not a text file (UTF-8)" in refused(csv_intervals.convert, source, *COLUMNS)
    source.write_text("phone,begin,end\n" + "a" * 200_000 + ",1,2\n")
    assert "not CSV" in refused(csv_intervals.convert, source, *COLUMNS)
    for path in (tmp_path, tmp_path / "absent"):
        assert "cannot be read" in refused(csv_intervals.convert, path, *COLUMNS)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 9))))
def test_disjoint_covers_the_same_seconds(intervals: list[tuple[int, int, int]]) -> None:
    """Against marking every second."""
    device = np.array([one for one, _, _ in intervals], np.int64)
    begin = np.array([start for _, start, _ in intervals], np.float64)
    end = begin + np.array([length for _, _, length in intervals], np.float64)
    found = join_intervals(device, begin, end)
    covered = {(one, second) for one, start, length in intervals for second in range(start, start + length)}
    again = [(one, second) for one, a, b in zip(*found, strict=True) for second in range(int(a), int(b))]
    assert len(again) == len(set(again))
    assert set(again) == covered
    order = sorted(zip(*found, strict=True))
    assert order == list(zip(*found, strict=True))
    assert all(one != other or until < start for (one, _, until), (other, start, _) in pairwise(order))


# -- FedScale -------------------------------------------------------------------------------------------------------

# One client of the file that FedScale ships, as its users quote it.
REAL = {
    "duration": 211625,
    "inactive": [65881, 133574, 208292, 276575, 295006, 356236, 400906, 475099],
    "finish_time": 518400,
    "active": [12788, 100044, 188992, 271372, 276663, 352625, 356267, 441193],
    "model": "CPH1801",
}


def pickled(path: Path, value: Any, protocol: int = 3) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def behaviour(path: Path, outside: Any = "repeat") -> Any:
    return fedscale.behaviour_trace(fedscale.read(path), str(path), outside)


def was_active(entry: dict[str, Any], now: float) -> bool:
    """FedScale's `is_active` without its pointer: within one of the intervals, modulo finish_time."""
    now %= entry["finish_time"]
    return any(begin <= now < end for begin, end in zip(entry["active"], entry["inactive"], strict=True))


@pytest.mark.parametrize("protocol", range(6))
def test_behaviour_as_fedscale_reads_it(protocol: int, tmp_path: Path) -> None:
    short = REAL | {"active": [5, 60], "inactive": [10, 100], "finish_time": 150_000.0}
    clients = {3834: REAL, 2: short}
    trace, counts = behaviour(pickled(tmp_path / "behave", clients, protocol))
    assert trace.horizon == (0, 518400)
    assert trace.clients.tolist() == [2, 3834]
    assert counts["devices_kept"] == 2
    assert counts["intervals_kept"] == 10
    assert counts["intervals_after_repeating"] == 8 + 4 * 2
    for now in np.random.default_rng(1).uniform(0, 518400, 300):
        expected = [was_active(clients[number], now) for number in (2, 3834)]
        assert (trace.online_until(np.arange(2), now) > -np.inf).tolist() == expected
    trace, _ = behaviour(pickled(tmp_path / "behave", clients, protocol), "offline")
    assert not (trace.online_until(np.array([0]), 150_007.0) > -np.inf).item()


def test_behaviour_that_cannot_be_used_is_counted(tmp_path: Path) -> None:
    clients = {
        1: REAL,
        2: REAL | {"active": [1]},
        3: REAL | {"finish_time": 0},
        4: REAL | {"finish_time": 300_000},
        5: REAL | {"active": [], "inactive": []},
        6: REAL | {"active": [5, 3, 9], "inactive": [6, 4, 8]},
    }
    trace, counts = behaviour(pickled(tmp_path / "behave", clients))
    assert trace.clients.tolist() == [1, 4, 5, 6]
    assert trace.never_online.tolist() == [5]
    assert counts["devices_unusable"] == 2
    assert counts["devices_unusable_active_and_inactive_differ_in_length"] == 1
    assert counts["devices_unusable_no_finish_time"] == 1
    assert counts["intervals_beyond_recording"] == 3  # of client 4
    assert counts["intervals_reversed"] == counts["intervals_unsorted"] == 1


def test_capacities_become_a_table(tmp_path: Path) -> None:
    clients = {
        432802: {"computation": 162.0, "communication": 5648.109619499134},
        5: {"computation": 20, "communication": 1000},
        6: {"computation": 0, "communication": 1000},
        7: {"computation": 10.0, "communication": float("nan")},
        8: {"computation": True, "communication": "fast"},
    }
    path = pickled(tmp_path / "capacity", clients)
    found = fedscale.read(path)
    assert fedscale.is_capacity(found)
    table, counts = fedscale.capacity_table(found, str(path))
    assert table.to_dict("list") == {
        "client": [5, 432802],
        "computation_ms": [20.0, 162.0],
        "down_mbit_s": [1.0, 5648.109619499134 / 1000],
        "up_mbit_s": [1.0, 5648.109619499134 / 1000],
    }
    assert counts == {"devices": 5, "devices_unusable": 3, "devices_kept": 2}
    table.to_csv(tmp_path / "capacity.csv", index=False)
    assert read_device_factors(tmp_path / "capacity.csv", "computation_ms").tolist() == [1.0, 8.1]


NESTED: list[Any] = []
NESTED.append(NESTED)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1, 2], "not a dict of clients"),
        ({}, "not a dict of clients"),
        ({1: 5}, "client '1': a int, not a dict"),
        ({1: {"active": [1]}}, "client '1': no inactive"),
        ({1: REAL | {"active": 5}}, "must be lists"),
        ({1: REAL | {"active": [NESTED], "inactive": [5]}}, "interval 1: a time is not a finite number"),
        ({1: REAL | {"active": ["1"], "inactive": [5]}}, "interval 1: a time is not a finite number"),
        ({1: REAL | {"active": [10**400], "inactive": [5]}}, "interval 1: a time is not a finite number"),
        ({None: REAL}, "client a NoneType: not a number"),
        ({1.5: REAL}, "a float as the key of a dict"),
        ({"x" * 1000: 5}, "client 'xxx"),
        ({1: REAL | {"active": [np.int64(5)], "inactive": [9]}}, "numpy"),
        ({1: {"computation": 5}}, "no active"),
    ],
)
def test_other_pickles_are_one_line(value: Any, said: str, tmp_path: Path) -> None:
    line = refused(behaviour, pickled(tmp_path / "some", value))
    assert said in line
    assert len(line) < 500


@pytest.mark.parametrize("text", ["1,a\n0,1\n", "0,1,2,1\n0,1,0,1\n", "x,1\n1,1\n"])
def test_a_first_line_that_is_neither_names_nor_values_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "matrix.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=naming("row 1", "0 or 1")):
        matrix.convert(path, 60.0)


@pytest.mark.parametrize("text", ["a,b\n0,1\n", "0,1,2\n0,1,0\n", "7,8\n1,1\n"])
def test_a_first_line_of_names_is_no_round(text: str, tmp_path: Path) -> None:
    path = tmp_path / "matrix.csv"
    path.write_text(text)
    assert matrix.convert(path, 60.0)[1]["rounds"] == 1
