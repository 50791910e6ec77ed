"""Tables that hold several runs or clients: a trace each, and never one averaged over all of them."""

from pathlib import Path

import numpy as np
import pytest

from testbed.emulation.traces.conversion import csv_intervals, csv_series, mahimahi
from testbed.emulation.traces.conversion.csv_series import SeriesColumns
from testbed.emulation.traces.conversion.series_formats import convert_all, converter, detect_format, refuse_traces
from testbed.emulation.traces.series import BANDWIDTH, LATENCY, read_series, write_series
from testbed.errors import TraceError
from tests.emulation.traces.conversions import refused
from tests.messages_named import naming

RUNS, SECONDS = 6, 20
COLUMNS = SeriesColumns("second", "rate", "Mbit/s")
SPLIT = SeriesColumns("second", "rate", "Mbit/s", split="run")


def rate(run: int, second: int) -> float:
    return float(100 * run + second)


def long_log(path: Path, *, by_time: bool = False) -> Path:
    """Six runs below each other, as 5Gophers' 120; sorted by time, as the old error message asked for."""
    keys = [(run, second) for run in range(RUNS) for second in range(SECONDS)]
    if by_time:
        keys.sort(key=lambda key: key[1])
    lines = [f"{run},{second},{rate(run, second)}" for run, second in keys]
    path.write_text("\n".join(["run,second,rate", *lines]) + "\n")
    return path


def test_runs_below_each_other_are_not_sorted_but_split(tmp_path: Path) -> None:
    line = refused(csv_series.convert, long_log(tmp_path / "a.csv"), BANDWIDTH, COLUMNS)
    assert "row 21: the time '0' is before the one above; the times begin again there" in line
    assert "if it is another run or client, --split-column NAME makes a trace of each" in line


def test_runs_sorted_by_time_are_not_averaged(tmp_path: Path) -> None:
    path = long_log(tmp_path / "a.csv", by_time=True)
    line = refused(csv_series.convert, path, BANDWIDTH, COLUMNS)
    assert "100 of 120 rows have the time of the row before; if they are of several runs or clients, --split" in line
    assert "--average-repeated takes the mean of rows with one time" in line
    asked = SeriesColumns("second", "rate", "Mbit/s", average_repeated=True)
    traces, counts = csv_series.convert(path, BANDWIDTH, asked)
    assert traces[""].value.tolist() == [250.0 + second for second in range(SECONDS)]
    assert counts["rows_with_repeated_times"] == 100


@pytest.mark.parametrize("by_time", [False, True])
def test_a_column_tells_runs_apart(by_time: bool, tmp_path: Path) -> None:
    path = long_log(tmp_path / "a.csv", by_time=by_time)
    traces, counts = csv_series.convert(path, BANDWIDTH, SPLIT)
    assert sorted(traces) == [str(run) for run in range(RUNS)]
    for run in range(RUNS):
        assert traces[str(run)].value.tolist() == [rate(run, second) for second in range(SECONDS)]
    assert counts == {"rows": 120, "rows_without_a_value": 0, "rows_with_repeated_times": 0, "steps": 120}


def test_a_few_repeated_times_are_averaged_and_counted(tmp_path: Path) -> None:
    """Loggers of phones have them; a fifth of the rows is the most."""
    for repeated, accepted in ((20, True), (21, False)):
        seconds = sorted([*range(100 - repeated), *range(repeated)])
        lines = "".join(f"{second},1\n" for second in seconds)
        (tmp_path / "a.csv").write_text(f"second,rate\n{lines}")
        if accepted:
            assert csv_series.convert(tmp_path / "a.csv", BANDWIDTH, COLUMNS)[1]["rows_with_repeated_times"] == repeated
        else:
            assert "21 of 100 rows" in refused(csv_series.convert, tmp_path / "a.csv", BANDWIDTH, COLUMNS)


def test_a_column_without_times_is_named(tmp_path: Path) -> None:
    """5Gophers' round-trip times have no time beside them."""
    values = np.random.default_rng(1).uniform(20, 90, 50).round(1)
    (tmp_path / "rtt.csv").write_text("RTT,n\n" + "".join(f"{value},1\n" for value in values))
    line = refused(csv_series.convert, tmp_path / "rtt.csv", LATENCY, SeriesColumns("RTT", "n", "ms"))
    goes_back = int((np.diff(values) < 0).sum())
    assert f"column 'RTT' goes back in {goes_back} of 50 rows" in line
    line = refused(csv_series.convert, tmp_path / "rtt.csv", LATENCY, SeriesColumns("RTT", "RTT", "ms"))
    assert "'RTT' and 'RTT' are one column; name two" in line


def test_a_row_out_of_order_is_to_be_sorted(tmp_path: Path) -> None:
    seconds = [*range(30), 25, *range(31, 40)]
    (tmp_path / "a.csv").write_text("second,rate\n" + "".join(f"{second},1\n" for second in seconds))
    line = refused(csv_series.convert, tmp_path / "a.csv", BANDWIDTH, COLUMNS)
    assert "row 31: the time '25' is before the one above; sort the rows; if they are of several runs" in line


def test_data_that_cannot_be_split_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("run,second,rate\nx,0,1\n,1,1\n")
    assert "row 2: nothing in column run" in refused(csv_series.convert, path, BANDWIDTH, SPLIT)
    path.write_text("run,second,rate\nx,0,1\nx,1,1\ny,0,1\n")
    assert f"{path}: run 'y': a single row" in refused(csv_series.convert, path, BANDWIDTH, SPLIT)
    path.write_text("run,second,rate\nx,3,1\nx,4,1\nx,1,1\n")
    assert "run 'x': row 3: the time '1' is before" in refused(csv_series.convert, path, BANDWIDTH, SPLIT)
    monkeypatch.setattr(csv_series, "MOST_TRACES", 5)
    assert "more than 5 values in run" in refused(csv_series.convert, long_log(path), BANDWIDTH, SPLIT)


def test_split_traces_are_files_called_like_the_values(tmp_path: Path) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "out"
    out.mkdir()
    path.write_text("run,second,rate\nT-Mobile US,0,1\n../x,0,5\nT-Mobile US,1,2\n../x,1,6\n")
    split = converter(BANDWIDTH, "csv", SPLIT)
    written, counts = convert_all(path, None, out, BANDWIDTH, split, into_folder=True)
    assert (written, counts["rows"], "files" in counts) == (2, 4, False)
    series = read_series(out, BANDWIDTH)
    assert series.names == ("T-Mobile_US.txt", "_x.txt")
    assert series.value.tolist() == [1, 2, 5, 6]
    for value, part in (("..", "'..'"), ("T-Mobile_US", "T-Mobile_US.txt")):
        path.write_text(f"run,second,rate\nT-Mobile US,0,1\nT-Mobile US,1,2\n{value},0,5\n{value},1,6\n")
        with pytest.raises(TraceError, match=naming(part)):
            convert_all(path, None, out, BANDWIDTH, split, into_folder=True)


def test_folders_in_folders_are_read(tmp_path: Path) -> None:
    """As the 5G data set of Cork has them: Netflix/Driving/*.csv."""
    source, out = tmp_path / "source", tmp_path / "out"
    out.mkdir()
    for folder in ("Amazon", "Netflix/Driving", ".git"):
        (source / folder).mkdir(parents=True)
        long_log(source / folder / "a.csv")
    (source / "README.md").write_text("about")
    written, counts = convert_all(source, None, out, BANDWIDTH, converter(BANDWIDTH, "csv", SPLIT), into_folder=True)
    assert (written, counts["files"]) == (2 * RUNS, 2)
    assert {file.name for file in out.iterdir()} == {
        f"{folder}-a-{run}.txt" for folder in ("Amazon", "Netflix-Driving") for run in range(RUNS)
    }
    line = refused(read_series, source, BANDWIDTH)
    assert "no bandwidth traces in this folder itself, and those below it are not read: name one of its 2" in line


# -- files that are traces already, or JSON -------------------------------------------------------------------------


def test_traces_need_no_conversion(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("0.0\t2.29\n1.01\t1.36\n")
    for source in (tmp_path, tmp_path / "a.log"):
        line = refused(lambda path: refuse_traces(path, None, BANDWIDTH, has_columns=False), source)
        assert "two numbers in each line, which is the format of traces already" in line
        refuse_traces(source, None, BANDWIDTH, has_columns=True)
    write_series(tmp_path / "a.log", LATENCY, read_series(tmp_path / "a.log", LATENCY).steps[0])
    for has_columns in (False, True):
        line = refused(lambda path: refuse_traces(path, None, BANDWIDTH, has_columns=has_columns), tmp_path / "a.log")  # noqa: B023
        assert "a.log: a trace of latency already; no conversion is needed, name it as it is" in line


@pytest.mark.parametrize(
    "text", ['{"dishGetHistory": {}}', "[\n  {", "  [[0, 1]]", '[{"a": [' + "1, " * 400_000 + "1]}]"]
)
def test_json_is_recognised_and_refused(text: str, tmp_path: Path) -> None:
    """Also in one line of more than a megabyte, which is not to be split."""
    (tmp_path / "a.json").write_text(text)
    for read in (
        lambda path: csv_series.convert(path, BANDWIDTH, COLUMNS),
        lambda path: detect_format(path, None, LATENCY),
        lambda path: read_series(path, BANDWIDTH),
        lambda path: csv_intervals.convert(path, "a", "b", "c"),
        mahimahi.convert,
    ):
        assert "this is JSON; write its values as rows of text (CSV)" in refused(read, tmp_path / "a.json")


def test_names_in_brackets_are_no_json(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("[second],[rate]\n0,1\n1,2\n")
    traces, _ = csv_series.convert(tmp_path / "a.csv", BANDWIDTH, SeriesColumns("[second]", "[rate]", "Mbit/s"))
    assert traces[""].value.tolist() == [1, 2]
