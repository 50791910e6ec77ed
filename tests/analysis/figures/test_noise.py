"""Accuracy by noise and ring: what is pooled, what is left out, and what is drawn."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure

from analysis.figures.comparison import plot
from analysis.figures.noise import accuracy_by_noise, accuracy_of_noise, has_enough_points
from testbed.records import RunRecords

pytestmark = pytest.mark.usefixtures("quick_fonts")


@pytest.fixture
def noisy(make_run: Callable[..., RunRecords]) -> Callable[..., RunRecords]:
    """A synthetic run whose experiment says that there is so much noise."""

    def make(name: str, multiplier: float | None, bits: int, **more: Any) -> RunRecords:
        path = make_run(name, rounds=3).path / "experiment.yaml"
        experiment = yaml.safe_load(path.read_text())
        noise = None if multiplier is None else {"noise_multiplier": multiplier, **more}
        experiment["aggregation"] = {"protocol": "secagg", "bits": bits, "noise": noise}
        path.write_text(yaml.safe_dump(experiment))
        return RunRecords(path.parent)

    return make


def last(run: RunRecords) -> float:
    return float(run.rounds["accuracy"].dropna().iloc[-1])


def test_runs_with_the_same_noise_in_the_same_ring_are_pooled(noisy: Callable[..., RunRecords]) -> None:
    runs = [noisy("a", 1.0, 32), noisy("b", 1.0, 32), noisy("c", 1.0, 10), noisy("d", 0.5, 32), noisy("e", None, 32)]
    frame = accuracy_by_noise(
        [
            *runs,
            noisy("f", None, 32, epsilon=3.0),
            noisy("g", 2.0, 8, epsilon=1.0),
            noisy("h", 1.0, 8, mechanism="correlated"),
        ]
    )
    found = frame[["noise_multiplier", "bits", "runs"]].fillna(-1).to_numpy().tolist()
    assert found == [[0.5, 32, 1], [1.0, 10, 1], [1.0, 32, 2], [-1, 32, 2]]
    pooled = frame[frame["runs"] == 2].iloc[0]
    assert pooled["accuracy"] == pytest.approx((last(runs[0]) + last(runs[1])) / 2)
    assert has_enough_points(frame)


def test_a_panel_for_each_thing_that_differs(noisy: Callable[..., RunRecords]) -> None:
    runs = [noisy("a", 1.0, 32), noisy("b", 2.0, 32), noisy("c", None, 32)]
    figure = accuracy_of_noise(accuracy_by_noise(runs))
    assert [axes.get_xlabel() for axes in figure.axes] == ["Noise multiplier"]
    assert texts(figure.axes[0]) == ["1", "2"]
    both = accuracy_of_noise(accuracy_by_noise([*runs, noisy("d", 1.0, 12)]))
    assert [axes.get_xlabel() for axes in both.axes] == ["Noise multiplier", "Ring width [bits]"]
    legends = [[text.get_text() for text in part.legends[0].get_texts()] for part in both.subfigs]
    assert legends == [["32 bits", "no noise"], ["multiplier 1", "no noise"]]


def texts(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def test_plot_draws_it_where_noise_differs_and_nowhere_else(noisy: Callable[..., RunRecords], tmp_path: Path) -> None:
    alone = [noisy("a", None, 32), noisy("b", None, 10)]
    assert not any("noise" in path.name for path in plot(alone, tmp_path / "without", print))
    paths = plot([*alone, noisy("c", 1.0, 32)], tmp_path / "with", print)
    assert {path.name for path in paths if "noise" in path.name} == {
        f"accuracy-of-noise.{kind}" for kind in ("png", "pdf", "csv")
    }


def test_nothing_to_compare_says_nothing(noisy: Callable[..., RunRecords]) -> None:
    assert not has_enough_points(accuracy_by_noise([noisy("a", 1.0, 32)]))
    assert not has_enough_points(accuracy_by_noise([]))
    assert isinstance(accuracy_of_noise(accuracy_by_noise([noisy("b", 1.0, 32)])), Figure)
    assert isinstance(accuracy_by_noise([]), pd.DataFrame)
