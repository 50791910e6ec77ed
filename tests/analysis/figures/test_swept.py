"""Measures over a swept key: the points are the summaries', the lines tell runs apart, and bad input is one line."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text

from analysis.comparison.summary import summarise
from analysis.comparison.targets import Target
from analysis.comparison.time_to_target import reach
from analysis.figures.comparison import plot_swept
from analysis.figures.elements import FigureWithData
from analysis.figures.points import MARKERS
from analysis.figures.swept import swept
from analysis.statistics import mean_interval
from analysis.style import COLUMN_INCHES, PAGE_INCHES, house_style
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.messages_named import naming

MakeRun = Callable[..., RunRecords]
Runs = list[RunRecords]


@pytest.fixture
def grid(make_run: MakeRun) -> Runs:
    """Two protocols with 4 and with 10 participants, with two seeds each."""
    return [
        make_run(
            f"{name}-{participants}-{seed}", name, participants=participants, seed=seed, rounds=3,
            sweep={"selection.protocol": name, "selection.participants": participants, "seed": seed},
        )
        for name, participants, seed in itertools.product(("random", "batch-partition"), (10, 4), (1, 2))
    ]  # fmt: skip


def drawn(*arguments: Any, **options: Any) -> FigureWithData:
    with house_style():
        found = swept(*arguments, **options)
        FigureCanvasAgg(found.figure).draw()
    return found


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_points_are_means_of_the_summaries_with_intervals_over_seeds(grid: Runs) -> None:
    found = drawn(grid, "selection.participants", ["round_s", "survivors_mean"])
    assert list(found.data) == [
        "selection.participants", "selection.protocol", "seeds", "measure", "value", "half_width", "interval_over",
        "is_bound", "reached",
    ]  # fmt: skip
    assert len(found.data) == 8
    for _, row in found.data.iterrows():
        key = {"round_s": "mean_round_s", "survivors_mean": "survivors_mean"}[row["measure"]]
        own = [
            summarise(run)[key]
            for run in grid
            if run.experiment["selection"]
            == {"protocol": row["selection.protocol"], "participants": row["selection.participants"]}
        ]
        expected = mean_interval(own)
        assert [row["value"], row["half_width"]] == pytest.approx([expected.mean, expected.half_width])
        assert (row["seeds"], row["interval_over"]) == (2, "seeds")
    assert any("error bars: 95% intervals over 2 seeds" in text for text in texts(found.figure))


def test_lines_go_up_the_axis_and_are_the_data(grid: Runs) -> None:
    found = drawn(grid, "selection.participants", ["round_s"])
    (axes,) = found.figure.axes
    lines = [line for line in axes.lines if line.get_linestyle() == "-" and len(np.atleast_1d(line.get_xdata())) == 2]
    assert [np.asarray(line.get_xdata()).tolist() for line in lines] == [[4, 10], [4, 10]]
    size = {"s": 1.0, "min": 60.0}[axes.get_ylabel().split("[")[1].rstrip("]")]
    own = found.data[found.data["selection.protocol"] == "random"].sort_values("selection.participants")["value"]
    assert any((size * np.asarray(line.get_ydata())).tolist() == pytest.approx(own.tolist()) for line in lines)


def test_one_seed_has_what_its_rounds_say_or_nothing(grid: Runs) -> None:
    alone = [run for run in grid if run.experiment["seed"] == 1]
    found = drawn(alone, "selection.participants", ["round_s", "final_accuracy"])
    over = found.data.groupby("measure")["interval_over"].unique().map(list).to_dict()
    assert over == {"round_s": ["rounds"], "final_accuracy": [""]}
    summary = summarise(alone[0])
    first = found.data[(found.data["value"] == summary["mean_round_s"])].iloc[0]
    assert first["half_width"] == pytest.approx(summary["mean_round_s_half_width"])
    assert any("error bars: 95% intervals over rounds" in text for text in texts(found.figure))


def test_what_is_no_number_is_named(grid: Runs) -> None:
    found = drawn(grid, "selection.protocol", ["round_s", "server_bytes"], columns=2)
    assert found.figure.get_figwidth() == PAGE_INCHES
    for axes in found.figure.axes:
        assert [label.get_text().replace("\n", "") for label in axes.get_xticklabels()] == ["random", "batch-partition"]
    legend = [text.get_text() for text in found.figure.legends[0].get_texts()]
    assert legend == ["4", "10"]  # in the order of the numbers


MAPPINGS = [
    {"model": "bernoulli", "unavailable": 0.1, "dropout": {"rate": 0.1, "stage": "random", "why": "$x_1$"}},
    {"model": "bernoulli", "unavailable": 0.1, "dropout": {"rate": 0.2, "stage": "random"}},
    {"model": "trace", "path": "phones-of-a-very-long-name/" * 6 + "phones.parquet"},
    None,
]


@pytest.mark.parametrize("x", ["availability", "population"])
def test_mappings_and_long_names_never_break_a_figure(make_run: MakeRun, x: str) -> None:
    runs = [
        make_run(
            f"{place}-{population}", rounds=2, population=population, extra={"availability": value},
            sweep={"availability": value, "population": population},
        )
        for place, value in enumerate(MAPPINGS)
        for population in (20, 40)
    ]  # fmt: skip
    figure = drawn(runs, x, ["round_s", "client_s"]).figure
    assert figure.get_figwidth() == COLUMN_INCHES
    wide, high = figure.canvas.get_width_height()
    for axes in figure.axes:
        frame = axes.get_window_extent()
        assert frame.height > 80, "the labels leave no room"
        boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        if axes is figure.axes[-1]:
            assert all(box.x0 >= -1 and box.x1 <= wide + 1 and box.y0 >= -1 and box.y1 <= high for box in boxes)
            assert not any(one.overlaps(two) for i, one in enumerate(boxes) for two in boxes[:i])
        legend = figure.legends[0].get_window_extent()
        assert not legend.overlaps(frame)
        assert legend.x0 >= -1
        assert legend.x1 <= wide + 1


def test_names_of_values_are_used(make_run: MakeRun) -> None:
    runs = [
        make_run(
            f"run-{rate}", rounds=2, extra={"availability": {"rate": rate}},
            sweep={"availability": {"rate": rate}}, sweep_labels={"availability": name},
        )
        for rate, name in ((0.1, "calm"), (0.3, "wild"))
    ]  # fmt: skip
    assert drawn(runs, "availability", ["round_s"]).data["availability"].tolist() == ["calm", "wild"]


def test_time_to_a_target_is_that_of_the_runs_and_bounds_are_marked(grid: Runs) -> None:
    target = Target("accuracy", 0.4)
    found = drawn(grid, "selection.participants", ["time_to_target_s"], target=target)
    for _, row in found.data.iterrows():
        runs = [
            run
            for run in grid
            if run.experiment["selection"]
            == {"protocol": row["selection.protocol"], "participants": row["selection.participants"]}
        ]
        reached = [reach(run, target) for run in runs]
        assert row["is_bound"] == (not all(each.reached for each in reached))
        if not row["is_bound"]:
            assert row["value"] == pytest.approx(np.mean([each.time_s for each in reached]))
    never = drawn(grid, "selection.participants", ["time_to_target_s"], target=Target("accuracy", 0.999))
    assert never.data["is_bound"].all()
    assert not never.data["reached"].any()
    assert "none reached" in texts(never.figure)
    (axes,) = never.figure.axes
    dots = [line for line in axes.lines if str(line.get_marker()) in list(MARKERS)]
    assert not any(np.isfinite(np.asarray(line.get_ydata(), float)).any() for line in dots)  # arrows alone
    arrows = [
        line for line in axes.lines if isinstance(line.get_marker(), Path) and len(np.atleast_1d(line.get_xdata()))
    ]
    assert sum(len(np.atleast_1d(line.get_ydata())) for line in arrows) == len(never.data)


def test_the_axis_ends_above_the_highest_point(grid: Runs) -> None:
    figure = drawn(grid, "selection.participants", ["round_s"]).figure
    (axes,) = figure.axes
    low, high = axes.get_ylim()
    assert low == 0
    assert high >= 1.049 * axes.dataLim.y1


def test_files_and_the_same_bytes_each_time(grid: Runs, tmp_path: FilePath) -> None:
    paths = plot_swept(grid, tmp_path / "one", "selection.participants", ["round_s"], log="x")
    assert [path.name for path in paths] == [
        f"round_s-by-selection.participants.{kind}" for kind in ("png", "pdf", "csv")
    ]
    again = plot_swept(grid, tmp_path / "two", "selection.participants", ["round_s"], log="x")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert len(pd.read_csv(paths[2])) == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"x": "selection.partcipants"}, "--x selection.partcipants: no run has this key; did you mean "
         "selection.participants? the runs differ in selection.protocol, selection.participants"),
        ({"x": "population"}, "--x population: has only one value, 100; the runs differ in selection.protocol, "),
        ({"x": "seed"}, "--x seed: not a key for an axis: runs that differ only in it are repetitions; "),
        ({"y": ["round"]}, "--y round: no such measure; did you mean round_s? choose among round_s, client_s, "),
        ({"y": ["label"]}, "--y label: no such measure; "),
        ({"y": ["final_perplexity"]}, "--y final_perplexity: "),
        ({"hue": ["population"]}, "--hue: runs of the same point differ in selection.protocol: "
         "--hue population,selection.protocol, or plot fewer directories"),
        ({"hue": ["nothing"]}, "--hue nothing: no run has this key; the runs differ in selection.protocol"),
        ({"x": "selection.protocol", "log": "x"}, "--log x: selection.protocol is not a number in every run"),
        ({"log": "z"}, "--log z: unknown; allowed: x, y, xy"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(grid: Runs, options: dict[str, Any], said: str) -> None:
    given = {"x": "selection.participants", "y": ["round_s"], **options}
    with pytest.raises(ExperimentError, match=f"^{re.escape(said)}") as raised:
        swept(grid, **given)
    assert "\n" not in str(raised.value)


def test_too_many_lines_are_refused(make_run: MakeRun) -> None:
    runs = [
        make_run(f"{many}-{few}", population=many, participants=few, rounds=1, sweep={"population": many})
        for many in range(20, 30)
        for few in (3, 4)
    ]
    with pytest.raises(ExperimentError, match=naming("--hue population:", "10 values", "at most 8")):
        swept(runs, "selection.participants", ["round_s"])


def test_the_same_point_twice_is_refused(grid: Runs, make_run: MakeRun) -> None:
    copy = make_run("copy", "random", participants=10, seed=1, rounds=3)
    with pytest.raises(ExperimentError, match=naming("copy", "random-10-1", "same point")):
        swept([*grid, copy], "selection.participants", ["round_s"])
