"""What a figure shows as rows: each kind of mark, and nothing that is not data."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from analysis.plot_data import plot_data
from tests.thoroughness import examples

NUMBERS = st.floats(-1e6, 1e6)


@pytest.fixture
def figure() -> Figure:
    return Figure()


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.floats(0.1, 1e3)), min_size=1, max_size=5))
@settings(max_examples=examples(20))
def test_points_and_their_error_bars_come_back(points: list[tuple[float, float, float]]) -> None:
    x, y, half = map(np.asarray, zip(*points, strict=True))
    axes = Figure().subplots()
    axes.errorbar(x, y, half, capsize=2, label="ours")
    axes.plot(x, 2 * y, label="theirs")
    found = plot_data(axes.get_figure(root=True)).set_index("series")
    ours, theirs = found.loc[["ours"]], found.loc[["theirs"]]
    assert ours[["x", "y"]].to_numpy(float) == pytest.approx(np.column_stack([x, y]))
    assert ours[["y_low", "y_high"]].to_numpy(float) == pytest.approx(np.column_stack([y - half, y + half]))
    assert ours["x_low"].isna().all()
    assert theirs["y"].tolist() == pytest.approx((2 * y).tolist())
    assert len(found) == 2 * len(points)


def test_each_kind_of_mark(figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    left.set_title("first", loc="left")
    left.set(xlabel="n", ylabel="s")
    left.bar([1, 2], [3, 4], width=1.0, label="bars")
    left.axhline(0.5, label="bound")
    left.axvline(7)
    left.plot([], [], label="for the legend")
    right.stairs([5, 6], [0, 1, 3], label="steps")
    right.fill_between([1, 2], [0, 1], [2, 3], label="band")
    right.scatter([8], [9])
    found = plot_data(figure)
    assert found["colour"].str.fullmatch("#[0-9a-f]{6}").all()
    assert found["panel"].unique().tolist() == ["first", "2"]
    assert found[found["panel"] == "first"][["x_axis", "y_axis"]].drop_duplicates().to_numpy().tolist() == [["n", "s"]]
    shown = found.drop(columns=["panel", "x_axis", "y_axis", "colour"]).to_dict("records")
    told = [{key: value for key, value in row.items() if pd.notna(value)} for row in shown]
    told = [
        {key: value for key, value in row.items() if key not in ("panel", "x_axis", "y_axis", "colour")} for row in told
    ]
    assert told == [
        {"series": "bound", "mark": "reference", "y": 0.5},
        {"series": "", "mark": "reference", "x": 7.0},
        {"series": "", "mark": "bar", "x_low": 0.5, "x_high": 1.5, "y_low": 0, "y_high": 3},
        {"series": "", "mark": "bar", "x_low": 1.5, "x_high": 2.5, "y_low": 0, "y_high": 4},
        {"series": "steps", "mark": "step", "y": 5, "x_low": 0, "x_high": 1},
        {"series": "steps", "mark": "step", "y": 6, "x_low": 1, "x_high": 3},
        {"series": "band", "mark": "band", "x": 1.0, "y_low": 0.0, "y_high": 2.0},
        {"series": "band", "mark": "band", "x": 2.0, "y_low": 1.0, "y_high": 3.0},
        {"series": "", "mark": "point", "x": 8.0, "y": 9.0},
    ]


def test_an_empty_figure_has_no_marks(figure: Figure) -> None:
    assert plot_data(figure).empty
    assert "series" in plot_data(figure)
