"""Overhead of the transport: a column if there is any; runs of earlier versions have none."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analysis.comparison.measures import per_round
from analysis.comparison.overhead import compare
from analysis.comparison.report import render
from analysis.comparison.summary import summarise
from testbed.records import RunRecords
from tests.analysis import recorded

MakeRun = Callable[..., RunRecords]


@pytest.fixture
def heavy(tmp_path: Path) -> RunRecords:
    """Two completed rounds and a skipped one, with 3 clients and (40, 7) bytes of overhead each, then (80, 14)."""
    rounds = []
    for number, outcome in ((1, "completed"), (2, "completed"), (3, "skipped")):
        stage = recorded.asked(
            "train", number, [0, 1, 2], [number + 0.5] * 3, down=500, overhead=(40 * number, 7 * number)
        )
        rounds.append(recorded.RecordedRound(number, number + 1.0, [stage], [0, 1, 2], [0, 1, 2], outcome=outcome))
    experiment = {"name": "heavy", "seed": 1, "population": 3, "selection": {"protocol": "random"}}
    return recorded.write_run(tmp_path / "heavy", experiment, rounds)


def test_overhead_is_measured_beside_the_traffic(heavy: RunRecords) -> None:
    frame = per_round(heavy)
    assert frame["transport_bytes"].tolist() == [141, 282, 423]
    assert frame["server_bytes"].tolist() == [1500] * 3
    assert summarise(heavy)["transport_bytes_per_round"] == pytest.approx((141 + 282) / 2)
    assert summarise(heavy)["server_bytes_per_round"] == 1500


def test_the_table_shows_it_only_where_there_is_any(heavy: RunRecords, make_run: MakeRun) -> None:
    light = make_run("light", rounds=2, population=3, participants=2)
    for kind in ("text", "markdown", "latex"):
        assert "Overhead" not in render(compare([light]), kind)
        head = "Overhead {[}B{]}" if kind == "latex" else "Overhead [B]"
        assert head in render(compare([light, heavy]), kind)
    frame = compare([light, heavy]).set_index("label")
    assert frame["transport_bytes"].tolist() == [0.0, 211.5]
    text = render(compare([light, heavy]), "text")
    assert "headers, acknowledgements" in text
    assert max(map(len, text.splitlines())) <= 118


def test_a_run_of_an_earlier_version_has_none(make_run: MakeRun) -> None:
    path = make_run("old", rounds=2).path
    table = pq.read_table(path / "exchanges.parquet")
    pq.write_table(table.drop_columns(["transport_down", "transport_up"]), path / "exchanges.parquet")
    old = RunRecords(path)
    assert "transport_down" not in pq.read_schema(path / "exchanges.parquet").names
    assert per_round(old)["transport_bytes"].tolist() == [0, 0]
    assert summarise(old)["transport_bytes_per_round"] == 0
    assert compare([old])["transport_bytes"].tolist() == [0.0]
