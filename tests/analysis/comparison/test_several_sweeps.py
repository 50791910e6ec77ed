"""Several sweeps in one comparison: each keeps the ratios that it has alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.comparison.notes import notes
from analysis.comparison.overhead import compare
from testbed.records import RunRecords
from tests.analysis.recorded import synthetic_run

Sweeps = tuple[list[RunRecords], list[RunRecords]]


@pytest.fixture
def sweeps(tmp_path: Path) -> Sweeps:
    """One over the selection, and one over the aggregation alone, which makes one setting."""
    selections = [
        synthetic_run(tmp_path / "selections" / name, name, sweep={"selection.protocol": name})
        for name in ("lotto-client-centric", "random")
    ]
    aggregations = [
        synthetic_run(
            tmp_path / "aggregations" / name, label=name, aggregation=name, sweep={"aggregation.protocol": name}
        )
        for name in ("secagg", "plain")
    ]
    return selections, aggregations


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_sweep_keeps_its_ratios(sweeps: Sweeps, order: tuple[int, int]) -> None:
    first, second = (sweeps[place] for place in order)
    together = {row["label"] + row["setting"]: row for row in compare([*first, *second]).to_dict("records")}
    kept = sorted(row["server_bytes_ratio"] for row in together.values())
    alone = sorted(ratio for sweep in sweeps for ratio in compare(sweep)["server_bytes_ratio"])
    assert kept == pytest.approx(alone)
    assert len({round(ratio, 6) for ratio in alone}) > 2  # ratios other than that of a baseline to itself


def test_the_note_names_the_baselines_as_the_rows_are_called(sweeps: Sweeps) -> None:
    frame = compare([*sweeps[0], *sweeps[1]])
    rows = {",".join(filter(None, (row["label"], row["setting"]))) for row in frame.to_dict("records")}
    names = list(dict.fromkeys(frame["baseline"]))
    assert len(names) == 2
    assert set(names) <= rows
    assert f"ratio to {' / '.join(names)}" in notes(frame)[0]


def test_a_named_baseline_is_that_of_all(sweeps: Sweeps) -> None:
    runs = [*sweeps[0], *sweeps[1]]
    name = str(runs[0].path.name)
    frame = compare(runs, name)
    assert set(frame["baseline"].dropna().map(lambda label: label.split(",")[0].split(" ")[0])) == {name}


def test_runs_side_by_side_that_no_sweep_made_have_one_baseline(make_run: Callable[..., RunRecords]) -> None:
    frame = compare([make_run("monday", "random"), make_run("tuesday", "lotto-client-centric")])
    assert frame["baseline"].nunique() == 1
