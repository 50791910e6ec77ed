"""Tables of text from other sources: names or data, decimal marks, times. Ambiguous tables are refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.emulation.traces.conversion import csv_intervals, csv_series
from testbed.emulation.traces.conversion.csv_series import SeriesColumns, convert
from testbed.emulation.traces.decimals import DecimalMarks
from testbed.emulation.traces.series import BANDWIDTH, LATENCY
from testbed.emulation.traces.text_tables import TableForm
from testbed.emulation.traces.timestamps import Timestamps
from testbed.errors import TraceError
from tests.emulation.traces.conversions import refused, rows
from tests.messages_named import naming

DATA, NAMES = TableForm(header=False), TableForm(header=True)
NUMBERED = ("1", "2", "3")
INTERVALS = [(3, 0.0, 10.0), (40, 5.0, 20.0), (50, 30.0, 45.0)]


def written(folder: Path, text: str) -> Path:
    (folder / "log.csv").write_text(text)
    return folder / "log.csv"


# -- names or data --------------------------------------------------------------------------------------------------


def test_a_table_without_names_keeps_its_first_row(tmp_path: Path) -> None:
    path = written(tmp_path, "3,0,10\n40,5,20\n50,30,45\n")
    line = refused(csv_intervals.convert, path, *NUMBERED)
    assert "the first row has '0' in column 2, so it can be data or a line of column names" in line
    assert "say --no-header if it is data, --header if it is names" in line
    trace, counts = csv_intervals.convert(path, *NUMBERED, form=DATA)
    assert rows(trace) == INTERVALS
    assert counts["intervals"] == 3
    path = written(tmp_path, "0,4,5\n3,0,10\n40,5,20\n50,30,45\n")
    assert rows(csv_intervals.convert(path, *NUMBERED, form=NAMES)[0]) == INTERVALS


def test_a_cell_of_the_first_row_is_no_column_number(tmp_path: Path) -> None:
    """The client's name 3 stands in the first row; 3 is the column of the ends."""
    path = written(tmp_path, "3,0,10\n40,5,20\n")
    trace, _ = csv_intervals.convert(path, *NUMBERED, form=DATA)
    assert rows(trace) == INTERVALS[:2]
    assert "can be data or a line of column names" in refused(csv_intervals.convert, path, "3", "1", "2")


@pytest.mark.parametrize("first", ["a,2024-05-01,2024-05-02", "a,,", "a,-,5", "a,11:13:10,11:13:20"])
def test_first_rows_that_can_be_data_are_refused(first: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"{first}\nb,0,1\n")
    assert "can be data or a line of column names" in refused(csv_intervals.convert, path, *NUMBERED)


@pytest.mark.parametrize("columns", [NUMBERED, ("phone", "begin", "end"), ("1", "begin", "end"), ("phone", "2", "3")])
def test_words_above_the_times_are_names(columns: tuple[str, str, str], tmp_path: Path) -> None:
    trace, counts = csv_intervals.convert(written(tmp_path, "phone,begin,end\n3,0,10\n"), *columns)
    assert rows(trace) == INTERVALS[:1]
    assert counts["intervals"] == 1


def test_a_name_that_is_a_number_is_settled_by_the_option(tmp_path: Path) -> None:
    path = written(tmp_path, "3,begin,end\n7,0,10\n")
    line = refused(csv_intervals.convert, path, "3", "begin", "end")
    assert re.search(naming("3", "column 1", "--header", "--no-header"), line)
    trace, _ = csv_intervals.convert(path, "3", "begin", "end", form=NAMES)
    assert rows(trace) == [(7, 0.0, 10.0)]


def test_missing_columns_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, "3,0,10\n")
    assert "call the columns by number, from 1, not 'begin', and say --no-header" in refused(
        csv_intervals.convert, path, "phone", "begin", "end"
    )
    for column in ("4", "0", "begin"):
        with pytest.raises(Exception, match=f"give the column's number, 1 to 3, not '{column}'"):
            csv_intervals.convert(path, "1", "2", column, form=DATA)
    assert "no column '4'; its columns are 'phone', 'begin', 'end'" in refused(
        csv_intervals.convert, written(tmp_path, "phone,begin,end\n"), "phone", "begin", "4"
    )


def test_series_take_nothing_for_names_either(tmp_path: Path) -> None:
    """pandas writes ``0,1`` above columns without names."""
    path = written(tmp_path, "0,1\n0,5\n1,6\n2,7\n")
    columns = SeriesColumns("1", "2", "Mbit/s")
    assert "can be data or a line of column names" in refused(csv_series.convert, path, BANDWIDTH, columns)
    by_name = SeriesColumns("0", "1", "Mbit/s")
    assert "can be data or a line of column names" in refused(csv_series.convert, path, BANDWIDTH, by_name)
    traces, _ = csv_series.convert(path, BANDWIDTH, replace(by_name, form=NAMES))
    assert traces[""].value.tolist() == [5, 6, 7]
    traces, _ = csv_series.convert(path, BANDWIDTH, replace(columns, form=DATA))
    assert traces[""].value.tolist() == [3, 6, 7]  # the mean of 1 and 5, both at time 0
    line = refused(csv_series.convert, path, BANDWIDTH, replace(columns, form=NAMES))
    assert "'1' and '2' are one column; name two" in line  # the second is called 1
    path = written(tmp_path, "2024-05-01,-\n2024-05-02,5\n2024-05-03,6\n")
    assert "can be data or a line of column names" in refused(csv_series.convert, path, BANDWIDTH, columns)


def test_a_remark_is_skipped_unless_it_names_a_column(tmp_path: Path) -> None:
    path = written(tmp_path, "# made by hand\n#phone,begin,end\n3,0,10\n")
    assert rows(csv_intervals.convert(path, "#phone", "begin", "end")[0]) == INTERVALS[:1]
    assert rows(csv_intervals.convert(path, *NUMBERED, form=DATA)[0]) == INTERVALS[:1]


# -- rows that lack a time ------------------------------------------------------------------------------------------


def test_rows_without_a_time_are_left_out_on_request(tmp_path: Path) -> None:
    """As Alibaba's pods that were never scheduled."""
    path = written(tmp_path, "pod,begin,end\na,0,10\nb,,20\n,5,6\nc,NULL,7\nd,-,7\n")
    line = refused(csv_intervals.convert, path, "pod", "begin", "end")
    assert line.endswith("row 2: no time in column 'begin'; --skip-incomplete leaves such rows out")
    trace, counts = csv_intervals.convert(path, "pod", "begin", "end", skip_incomplete=True)
    assert len(trace) == 1
    assert counts["rows_incomplete"] == 4
    line = refused(csv_intervals.convert, written(tmp_path, ",5,6\n"), *NUMBERED)
    assert "say --no-header" in line
    path = written(tmp_path, "pod,begin,end\n,5,6\n")
    assert "row 1: no client; --skip-incomplete" in refused(csv_intervals.convert, path, "pod", "begin", "end")


# -- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "end", "unit", "said"),
    [
        ("20240501115950", "20240501120010", None, "looks like a date without separators; write it like 2024-05-01T12"),
        ("20240501115950", "20240501120010", "ms", "looks like a date without separators"),
        ("20240501115950.0", "20240501120010.0", None, "looks like a date without separators"),
        ("202405011159", "202405011200", None, "looks like a date without separators"),
        ("20240501", "20240502", None, "all times look like the date 20240501; write it like 2024-05-01T12:00:00Z, or"),
        ("1714564790000", "1714564850000", None, "looks like ms since 1970; say --unit ms"),
        ("1714564790000000", "1714564850000000", None, "looks like us since 1970; say --unit us"),
        ("1714564790000000", "1714564850000000", "ms", "looks like us since 1970; say --unit us"),
        ("1714564790000000000", "1714564850000000000", "us", "looks like ns since 1970; divide by 1000"),
        ("1714564790", "1714564850", "min", "looks like s since 1970; say --unit s"),
        ("1e30", "1e31", None, "is more than 1e+10 s; correct it"),
        ("11:13:10", "11:13:20", None, "is a time of day; date and time must be in one column"),
    ],
)
def test_times_of_another_form_or_unit_are_refused(
    begin: str, end: str, unit: str | None, said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, f"c,a,b\nx,{begin},{end}\n")
    assert said in refused(csv_intervals.convert, path, "c", "a", "b", unit)
    path = written(tmp_path, f"t,v\n{begin},1\n{end},2\n")
    line = refused(csv_series.convert, path, BANDWIDTH, SeriesColumns("t", "v", "Mbit/s", unit))
    assert said.replace("--unit", "--time-unit") in line


def test_the_unit_settles_the_meaning_of_times(tmp_path: Path) -> None:
    path = written(tmp_path, "c,a,b\nx,1714564790000,1714564850000\n")
    assert rows(csv_intervals.convert(path, "c", "a", "b", "ms")[0]) == [(0, 1714564790.0, 1714564850.0)]
    path = written(tmp_path, "c,a,b\nx,20240501,20240502\n")
    assert rows(csv_intervals.convert(path, "c", "a", "b", "s")[0]) == [(0, 20240501.0, 20240502.0)]
    path = written(tmp_path, "c,a,b\nx,20240501,20240599\n")  # 99 May: no date
    assert rows(csv_intervals.convert(path, "c", "a", "b")[0]) == [(0, 20240501.0, 20240599.0)]


def test_a_table_of_days_says_that_the_time_is_missing(tmp_path: Path) -> None:
    lines = "".join(f"2024-05-01,11:13:{second:02d},{second}\n" for second in range(9))
    path = written(tmp_path, f"date,time,n\n{lines}")
    line = refused(csv_series.convert, path, BANDWIDTH, SeriesColumns("date", "n", "Mbit/s"))
    assert "8 of 9 rows have the day of the row before, and column 'date' has no time of day" in line


def test_moments_of_one_file_have_one_form() -> None:
    moments = Timestamps()
    assert moments.seconds("5") == 5.0
    with pytest.raises(ValueError, match=naming("dates", "numbers")):
        moments.seconds("2024-05-01")
    moments.check()


# -- decimals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "as_seen", "comma", "point"),
    [
        ("1.5", "1.5", "has a decimal point", "1.5"),
        ("1,5", "1.5", "1.5", "1,5"),
        ("-1,25e3", "-1.25e3", "-1.25e3", "-1,25e3"),
        ("0,125", "0.125", "0.125", "0,125"),
        ("1,500", "can be 1.500 or 1500; say --decimal comma or --decimal point", "1.500", "1500"),
        ("12,345.5", "commas between thousands; say --decimal point", "12,345.5", "12345.5"),
        ("1,500,000", "commas between thousands; say --decimal point", "1,500,000", "1500000"),
        ("1.500,5", "points between thousands; say --decimal comma", "1500.5", "1.500,5"),
        ("1.500", "1.500", "1500", "1.500"),
        ("17", "17", "17", "17"),
        ("a,b", "a,b", "a,b", "a,b"),
    ],
)
def test_decimal_marks(cell: str, as_seen: str, comma: str, point: str) -> None:
    for decimal, expected in ((None, as_seen), ("comma", comma), ("point", point)):
        marks = DecimalMarks(decimal)
        if " " in expected:
            with pytest.raises(ValueError, match=expected):
                marks.plain(cell)
        else:
            assert marks.plain(cell) == expected


@pytest.mark.parametrize(("first", "second"), [("1,5", "2.5"), ("2.5", "1,5")])
def test_a_file_has_one_decimal_mark(first: str, second: str) -> None:
    marks = DecimalMarks()
    assert float(marks.plain(first)) in (1.5, 2.5)
    with pytest.raises(ValueError, match=naming("comma", "point", "--decimal")):
        marks.plain(second)


def test_after_a_decimal_comma_three_digits_are_decimals() -> None:
    marks = DecimalMarks()
    assert [marks.plain(cell) for cell in ("0,25", "1,500")] == ["0.25", "1.500"]


def test_thousands_are_not_taken_for_decimals(tmp_path: Path) -> None:
    path = written(tmp_path, 't;v\n0;"1,500"\n1;"2,500"\n')
    columns = SeriesColumns("t", "v", "ms")
    assert "row 1: '1,500' can be 1.500 or 1500" in refused(csv_series.convert, path, LATENCY, columns)
    for decimal, values in (("comma", [1.5, 2.5]), ("point", [1500, 2500])):
        form = TableForm(decimal=decimal)
        traces, _ = csv_series.convert(path, LATENCY, SeriesColumns("t", "v", "ms", form=form))
        assert traces[""].value.tolist() == values


@pytest.mark.parametrize(
    ("rows", "refused"),
    [
        ("0;1.500\n1;2.500", True),
        ("0;1.500\n1;2", True),
        ("0.000;1.500\n0.125;2.500", False),  # times with milliseconds: no thousands begin with a zero
        ("0;1.500\n1;2.5", False),
        ("0;1.500\n1;1650.000", False),
        ("0\t1.500\n1\t2.500", False),
        ("0,1.500\n1,2.500", False),
    ],
)
def test_points_between_semicolons_can_be_between_thousands(rows: str, refused: bool, tmp_path: Path) -> None:
    """A table with thousands was once read as one with decimals, a thousandth of its values."""
    path = tmp_path / "t.csv"
    separator = next(mark for mark in ";\t," if mark in rows)
    path.write_text(f"t{separator}v\n{rows}\n")
    columns = SeriesColumns("t", "v", "Mbit/s")
    if refused:
        with pytest.raises(TraceError, match=r"'1.500' can be 1.500 or 1500, .*; say --decimal point or"):
            convert(path, BANDWIDTH, columns)
    else:
        assert convert(path, BANDWIDTH, columns)[0][""].value[0] == 1.5
    for decimal, first in (("point", 1.5), ("comma", 1500.0)):
        if refused:
            form = TableForm(decimal=decimal)
            assert convert(path, BANDWIDTH, SeriesColumns("t", "v", "Mbit/s", form=form))[0][""].value[0] == first
