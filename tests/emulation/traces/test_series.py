"""Traces of one number: meaning of rows, repeated times, gzip, the converter's files, and mistakes."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.traces.series import (
    BANDWIDTH,
    KINDS,
    LATENCY,
    LOSS,
    Kind,
    Steps,
    kind_of,
    read_series,
    write_series,
)
from testbed.errors import TraceError
from tests.messages_named import naming
from tests.thoroughness import examples


def refused(path: Path, kind: Kind = BANDWIDTH, **options: object) -> str:
    with pytest.raises(TraceError) as raised:
        read_series(path, kind, **options)
    (line,) = str(raised.value).splitlines()
    return line


def only(path: Path, kind: Kind = BANDWIDTH, **options: object) -> Steps:
    (steps,) = read_series(path, kind, **options).steps
    return steps


def test_a_row_covers_the_interval_before_it(tmp_path: Path) -> None:
    """1 Mbit/s was measured in the second before 10 s, 5 in the three seconds from 10 to 13, and so on."""
    (tmp_path / "a.txt").write_text("10 1\n13 5\n14 7\n15 9\n")
    before = only(tmp_path / "a.txt", rows="interval-before")
    assert before.time_s.tolist() == [0.0, 1.0, 4.0, 5.0]
    assert before.value.tolist() == [1.0, 5.0, 7.0, 9.0]
    assert before.period_s == 6.0
    until = only(tmp_path / "a.txt")
    assert until.time_s.tolist() == [0.0, 3.0, 4.0, 5.0]
    assert until.period_s == 6.0


ROWS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=2, max_size=12)


@settings(max_examples=examples(50))
@given(ROWS)
def test_bytes_carried_between_rows_match_the_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    """Between the first time and the last, both meanings give sums that can be written down from the rows."""
    path = tmp_path_factory.mktemp("rows") / "a.txt"
    times = np.cumsum([gap for gap, _ in rows])
    path.write_text("".join(f"{time} {value}\n" for time, (_, value) in zip(times, rows, strict=True)))
    gaps, values = np.diff(times), np.array([value for _, value in rows])
    for meaning, expected in (
        ("until-next", float((gaps * values[:-1]).sum())),
        ("interval-before", float((gaps * values[1:]).sum())),
    ):
        steps = only(path, rows=meaning)
        lasts = np.diff(np.append(steps.time_s, steps.period_s))
        end = -1 if meaning == "until-next" else None
        begin = 1 if meaning == "interval-before" else 0
        assert (lasts * steps.value)[begin:end].sum() == pytest.approx(expected)
        assert steps.period_s == pytest.approx(times[-1] - times[0] + np.median(gaps))


def test_repeated_times_become_their_mean_and_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1\n1 2\n1.0 4\n1 6\n2 8\n2 10\n")
    (tmp_path / "b.txt").write_text("0 1\n1 2\n")
    both = read_series(tmp_path, BANDWIDTH)
    assert both.names == ("a.txt", "b.txt")
    assert both.repeated.tolist() == [3, 0]
    assert both.steps[0].time_s.tolist() == [0.0, 1.0, 2.0]
    assert both.steps[0].value.tolist() == [1.0, 4.0, 9.0]
    assert both.offsets.tolist() == [0, 3, 5]
    assert only(tmp_path / "a.txt", rows="interval-before").value.tolist() == [1.0, 4.0, 9.0]
    (tmp_path / "b.txt").write_text("5 1\n5 2\n")
    assert "b.txt: 2 rows with one time; a trace needs two times" in refused(tmp_path)


def test_gzip_is_unpacked_and_damaged_gzip_is_one_line(tmp_path: Path) -> None:
    packed = gzip.compress(b"0 1\n1 3\n2 3\n")
    (tmp_path / "a.txt.gz").write_bytes(packed)
    assert only(tmp_path / "a.txt.gz").value.tolist() == [1.0, 3.0, 3.0]
    for damaged in (packed[:-6], packed[:4] + b"\x00" * 9, b"0 1\n1 3\n"):
        (tmp_path / "a.txt.gz").write_bytes(damaged)
        assert "a.txt.gz: not gzip, or truncated" in refused(tmp_path / "a.txt.gz")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"0" * (3 << 20)))
    assert "a line is longer than 1 MiB" in refused(tmp_path / "a.txt.gz")


@pytest.mark.parametrize("suffix", [".txt", ".csv"])
@pytest.mark.parametrize("name", list(KINDS))
@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_written_trace_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, name: str, suffix: str, data: st.DataObject
) -> None:
    kind = KINDS[name]
    gaps = data.draw(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=9))
    values = data.draw(st.lists(st.floats(0, kind.most), min_size=len(gaps), max_size=len(gaps)))
    ends = np.cumsum(gaps)
    steps = Steps(np.append(0.0, ends[:-1]), np.array(values), float(ends[-1]))
    path = tmp_path_factory.mktemp("written") / f"a{suffix}"
    write_series(path, kind, steps, "from somewhere:\n 3 rows")
    again = only(path, kind)
    assert again.time_s.tolist() == steps.time_s.tolist()
    assert again.value.tolist() == steps.value.tolist()
    assert again.period_s == steps.period_s
    assert kind_of(path) is kind


def test_a_written_trace_names_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_series(path, LATENCY, Steps(np.zeros(1), np.array([5.0]), 60.0))
    assert path.read_text().splitlines() == [
        "# testbed trace: latency, seconds and ms, each row until the next",
        "# period_s: 60.0",
        "0.0\t5.0",
    ]
    assert "a trace of latency; here one of bandwidth is needed, in Mbit/s" in refused(path)
    assert "leave out `rows: interval-before`" in refused(path, LATENCY, rows="interval-before")
    text = path.read_text()
    path.write_text(text.replace("60.0", "soon"))
    assert "row 2: period_s 'soon' is no number of seconds" in refused(path, LATENCY)
    path.write_text(text + "60.0\t1\n")
    assert "period_s is 60.0, and the last row begins at 60.0" in refused(path, LATENCY)
    (tmp_path / "b.txt").write_text("0 1\n")
    assert kind_of(tmp_path / "b.txt") is None


def test_the_numbers_of_a_kind_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 0.5\n1 1.5\n")
    assert only(tmp_path / "a.txt", LATENCY).value.tolist() == [0.5, 1.5]
    assert "row 2: loss 1.5; it must be from 0 to 1" in refused(tmp_path / "a.txt", LOSS)
    (tmp_path / "a.txt").write_text("0 1\n1 -2\n")
    assert "row 2: latency -2.0 ms; it must be from 0" in refused(tmp_path / "a.txt", LATENCY)
    (tmp_path / "a.txt").write_text("0 1 2\n")
    assert "`testbed trace convert --kind latency` reads other formats" in refused(tmp_path / "a.txt", LATENCY)


def test_a_period_is_of_rows_that_hold_until_the_next(tmp_path: Path) -> None:
    """A file with a period was once read as until-next, with any meaning of its rows."""
    (tmp_path / "a.txt").write_text("# period_s: 60.0\n0 1\n10 2\n")
    assert read_series(tmp_path / "a.txt", BANDWIDTH).steps[0].period_s == 60
    with pytest.raises(TraceError, match=naming("# period_s", "rows: interval-before")):
        read_series(tmp_path / "a.txt", BANDWIDTH, "interval-before")
