"""Curves over time, rounds and traffic, and their lines at targets."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis.comparison.rows import rows_of
from analysis.comparison.targets import Target
from analysis.comparison.time_to_target import trajectory
from analysis.figures.comparison import plot
from analysis.figures.elements import FigureWithData
from analysis.figures.learning import by_traffic, over_time
from analysis.statistics import mean_interval
from analysis.style import protocol_colours
from testbed.errors import ExperimentError
from testbed.records import RunRecords

MakeRun = Callable[..., RunRecords]


@pytest.fixture
def seeds(make_run: MakeRun) -> list[RunRecords]:
    """One experiment with three seeds."""
    return [make_run(f"seed-{seed}", seed=seed, rounds=6, failing={2: "aborted"}) for seed in (1, 2, 3)]


def drawn(found: FigureWithData | str) -> FigureWithData:
    assert isinstance(found, FigureWithData)
    return found


def levels(figure: Figure) -> list[list[float]]:
    """Of the horizontal lines in each panel."""
    lines = [[np.unique(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 2] for axes in figure.axes]
    return [[float(level[0]) for level in each if len(level) == 1] for each in lines]


def test_traffic_is_what_has_gone_since_the_start(seeds: list[RunRecords]) -> None:
    found = drawn(by_traffic(rows_of(seeds)))
    frames = [trajectory(run).set_index("round") for run in seeds]
    for _, row in found.data.iterrows():
        for column in ("server_bytes", "client_bytes"):
            assert row[column] == pytest.approx(np.mean([frame.loc[row["round"], column] for frame in frames]))
        expected = mean_interval([frame.loc[row["round"], "value"] for frame in frames])
        assert [row["accuracy"], row["accuracy_half_width"]] == pytest.approx([expected.mean, expected.half_width])
    server, clients = found.figure.axes
    assert server.get_xlabel().startswith("Server traffic so far [")
    assert clients.get_xlabel().startswith("Traffic of all clients so far, with the PKI [")
    sizes = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
    size = sizes[server.get_xlabel().split("[")[1].rstrip("]")]
    assert (size * np.asarray(server.lines[0].get_xdata())).tolist() == pytest.approx(
        found.data["server_bytes"].tolist()
    )


def test_targets_are_lines_in_the_panels_of_their_metric(seeds: list[RunRecords]) -> None:
    targets = [Target("accuracy", 0.5), Target("loss", 0.5)]
    found = drawn(over_time(rows_of(seeds), "accuracy", targets))
    assert levels(found.figure) == [[50.0], [50.0]]
    assert any("50\N{NO-BREAK SPACE}%" in text.get_text() for text in found.figure.findobj(Text))
    marks = found.data[found.data["label"].str.startswith("target")]
    assert marks[["label", "accuracy"]].to_numpy().tolist() == [["target: accuracy>=0.5", 0.5]]


def test_a_smoothed_curve_is_of_means_and_says_so(seeds: list[RunRecords]) -> None:
    found = drawn(over_time(rows_of(seeds[:1]), smooth=3))
    values = trajectory(seeds[0])["value"]
    assert found.data["accuracy"].tolist() == pytest.approx(values.rolling(3).mean().dropna().tolist())
    assert found.figure.axes[0].get_ylabel().replace("\n", " ") == "Accuracy [%], mean of 3 evaluations"


def test_rows_of_one_protocol_are_told_apart_by_colour(make_run: MakeRun) -> None:
    def colours(*runs: RunRecords) -> list[str]:
        (panel, *_) = drawn(over_time(rows_of(runs))).figure.axes
        return [str(line.get_color()) for line in panel.lines if len(line.get_xdata()) > 2]

    swept = [make_run(f"swept-{k}", rounds=6, sweep={"aggregation.bits": k}) for k in (32, 33)]
    assert len(set(colours(*swept))) == 2
    assert colours(swept[0]) == [protocol_colours(["random"])["random"]]


def test_targets_come_from_the_command_or_from_the_experiment(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("named", rounds=6, extra={"targets": ["60%"]})]
    plot(runs, tmp_path / "own", print, only=["accuracy"])
    assert "target: accuracy>=0.6" in (tmp_path / "own" / "accuracy.csv").read_text()
    plot(runs, tmp_path / "best", print, only=["accuracy"], targets=["best"])
    best = pd.read_csv(tmp_path / "best" / "accuracy.csv").dropna(subset="round")["accuracy"].max()
    last = pd.read_csv(tmp_path / "best" / "accuracy.csv").iloc[-1]
    assert last["label"].startswith("target: accuracy>=")
    assert best - 0.001 <= last["accuracy"] <= best


def test_other_metrics_are_drawn_where_there_is_a_target_for_them(seeds: list[RunRecords], tmp_path: Path) -> None:
    notes: list[str] = []
    paths = plot(seeds, tmp_path, notes.append, targets=["loss<0.5"], formats=["png"])
    assert not any(path.stem == "loss" for path in paths)  # these runs have no losses
    assert "no loss figure: no loss was measured in these runs" in notes
    assert not any("perplexity" in note for note in notes)
    with pytest.raises(ExperimentError, match="unknown metric 'acuracy'"):
        plot(seeds, tmp_path, notes.append, targets=["acuracy>=0.5"])
