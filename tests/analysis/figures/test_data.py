"""The CSV beside a figure has the records' numbers; bands and error bars are 95% intervals, and the figure says so."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

from analysis.comparison.losses import first_losses
from analysis.comparison.measures import FAILED, by_stage, per_round
from analysis.comparison.rows import rows_of
from analysis.figures.availability import availability, dropouts_by_stage
from analysis.figures.by_stage import COMPLETED, round_time, traffic
from analysis.figures.comparison import FIGURES, FigureRequest, plot
from analysis.figures.elements import FigureWithData, fitted, interval_note
from analysis.style import COLUMN_INCHES, PAGE_INCHES, figure_lines, house_style, save
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.messages_named import naming

MakeRun = Callable[..., RunRecords]


@pytest.fixture
def seeds(make_run: MakeRun) -> list[RunRecords]:
    """One experiment with three seeds."""
    return [make_run(f"seed-{seed}", seed=seed, rounds=4, failing={2: "aborted"}) for seed in (1, 2, 3)]


def t_interval(values: list[float]) -> tuple[float, float]:
    """Mean and half-width, by another way than the product's."""
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return float(np.mean(values)), float(high - low) / 2


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def drawn(found: FigureWithData | str) -> FigureWithData:
    assert isinstance(found, FigureWithData)
    return found


def test_every_figure_has_its_data_beside_it(seeds: list[RunRecords], tmp_path: Path) -> None:
    paths = plot(seeds, tmp_path, formats=["svg"])
    names = {path.stem for path in paths}
    assert {"round-time-by-stage", "accuracy"} <= names
    for name in names:
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        assert len(frame)
        assert frame["seeds"].eq(3).all()
        assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")


def test_bars_are_of_the_records_with_an_interval_over_seeds(seeds: list[RunRecords]) -> None:
    rows = rows_of(seeds)
    found = drawn(round_time(rows))
    data = found.data.set_index("part")
    done = [by_stage(run).query("outcome == 'completed'") for run in seeds]
    for part in ("train", "secagg/unmask"):
        means = [frame.loc[frame["stage"] == part, "duration_s"].sum() / 3 for frame in done]
        assert data.loc[part, "value"] == pytest.approx(np.mean(means))
    mean, half_width = t_interval([frame["duration_s"].sum() / 3 for frame in done])
    assert data.loc[COMPLETED, ["value", "half_width"]].tolist() == pytest.approx([mean, half_width])
    assert data.loc[FAILED, "value"] > 0
    assert "error bars: 95% intervals over 3 seeds" in texts(found.figure)
    ways = drawn(traffic(rows)).data
    down = ways[(ways["measure"] == "bytes_down") & (ways["part"] == COMPLETED)].iloc[0]
    assert down["value"] == pytest.approx(np.mean([frame["bytes_down"].sum() / 3 for frame in done]))


def test_one_run_has_its_interval_over_its_rounds(seeds: list[RunRecords]) -> None:
    found = drawn(round_time(rows_of(seeds[:1])))
    rounds = per_round(seeds[0])
    expected = t_interval(rounds.loc[rounds["outcome"] == "completed", "round_s"].tolist())
    total = found.data.set_index("part").loc[COMPLETED]
    assert (total["value"], total["half_width"]) == pytest.approx(expected)
    assert "error bars: 95% intervals over rounds" in texts(found.figure)
    assert "seed" not in texts(found.figure)


def test_the_drawn_error_bar_is_the_interval(seeds: list[RunRecords]) -> None:
    found = drawn(round_time(rows_of(seeds)))
    (axes,) = found.figure.axes
    (container,) = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    (bar,) = container.lines[2]
    low, high = bar.get_segments()[0][:, 0]
    total = found.data.set_index("part").loc[COMPLETED]
    size = {"s": 1.0, "min": 60.0}[axes.get_xlabel().split("[")[1].rstrip("]")]
    assert size * (high - low) / 2 == pytest.approx(total["half_width"])


def test_bands_of_accuracy_are_intervals_over_seeds(seeds: list[RunRecords], tmp_path: Path) -> None:
    plot(seeds, tmp_path, only=["accuracy"])
    frame = pd.read_csv(tmp_path / "accuracy.csv")
    for number, row in frame.set_index("round").iterrows():
        values = [run.rounds.set_index("round").loc[number, "accuracy"] for run in seeds]
        assert (row["accuracy"], row["accuracy_half_width"]) == pytest.approx(t_interval(values))
    with house_style():
        found = drawn(FIGURES["availability"](FigureRequest(rows_of(seeds))))
    assert "bands: 95% intervals over 3 seeds" in texts(found.figure)


def test_a_band_ends_where_shares_end(make_run: MakeRun) -> None:
    runs = [make_run(f"seed-{seed}", seed=seed, rounds=3) for seed in (1, 2)]  # of two, intervals are wide
    figure = drawn(availability(rows_of(runs))).figure
    for axes in figure.axes:
        low, high = axes.dataLim.intervaly
        assert low >= 0
        assert high <= 100


def test_losses_per_round_have_the_ratio_of_sums(seeds: list[RunRecords]) -> None:
    found = drawn(dropouts_by_stage(rows_of(seeds)))
    total = found.data[found.data["part"] == "all"].iloc[0]
    expected = sum(len(first_losses(run)) for run in seeds) / sum(len(run.rounds) for run in seeds)
    assert total["lost_per_round"] == pytest.approx(expected)
    parts = found.data[found.data["by"] == "stage"]["lost_per_round"]
    assert parts.sum() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("counts", "alone", "said"),
    [
        ([1, 1], "", ""),
        ([1, 1], "rounds", "95% intervals over rounds"),
        ([3, 3], "rounds", "95% intervals over 3 seeds"),
        ([3, 5], "", "95% intervals over seeds (3 to 5)"),
        ([1, 5], "rounds", "95% intervals over 5 seeds, of one seed over rounds"),
    ],
)
def test_what_an_interval_is_over_is_said(counts: list[int], alone: str, said: str) -> None:
    assert interval_note(counts, alone) == said


@pytest.mark.parametrize(("columns", "inches"), [(1, COLUMN_INCHES), (2, PAGE_INCHES)])
def test_figures_are_as_wide_as_a_column_or_two(seeds: list[RunRecords], columns: int, inches: float) -> None:
    rows = rows_of(seeds)
    for draw in (round_time, traffic, availability, dropouts_by_stage):
        assert drawn(draw(rows, columns)).figure.get_figwidth() == inches


def test_a_figure_that_is_not_there_is_said_in_a_line(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("run", rounds=2, accuracy_every=None)
    with pytest.raises(ExperimentError, match=naming("--only acuracy:", "did you mean accuracy?", "availability")):
        plot([run], tmp_path, only=["acuracy"])
    with pytest.raises(ExperimentError, match=naming("--only accuracy")):
        plot([run], tmp_path, only=["accuracy"])
    with pytest.raises(ExperimentError, match=naming("--only accuracy-of-noise:")):
        plot([run], tmp_path, only=["accuracy-of-noise"])
    assert not list(tmp_path.glob("*.png"))


def test_lines_of_a_label_are_short_and_lose_nothing() -> None:
    label = '{"distribution":"log-normal","median":2,"sigma":0.5},' + "x" * 70 + " and $more$"
    lines = figure_lines(label, 26)
    assert all(len(line.replace(r"\$", "$").rstrip()) <= 26 for line in lines)
    assert "".join(lines).replace(r"\$", "$").replace(" ", "") == label.replace(" ", "")
    assert figure_lines("", 26) == [""]
    assert figure_lines("_hidden", 26) == [" _hidden"]
    assert figure_lines("x" * 9, 4, 2) == ["xxxx", "xxx…"]
    assert figure_lines("x" * 8, 4, 2) == ["xxxx", "xxxx"]


def test_legends_have_as_many_columns_as_fit() -> None:
    assert fitted(["a", "b", "c"], COLUMN_INCHES).columns == 3
    assert fitted(["a" * 40, "b"], COLUMN_INCHES).columns == 1
    assert fitted(["a" * 200], COLUMN_INCHES).inches > fitted(["a" * 20], COLUMN_INCHES).inches


def test_text_that_a_spreadsheet_would_run_is_text(tmp_path: Path) -> None:
    paths = save(Figure(), tmp_path / "new" / "figure", pd.DataFrame({"label": ["=1+1"], "value": [-1.5]}), ["png"])
    assert [path.name for path in paths] == ["figure.png", "figure.csv"]
    assert paths[1].read_text() == "label,value\n'=1+1,-1.5\n"
