"""The figures: files, colours, order of the stages, nothing clipped."""

import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

import analysis.figures.comparison
from analysis.comparison.measures import by_stage
from analysis.figures.comparison import plot
from analysis.style import COLUMN_INCHES, protocol_colours, stage_colours
from testbed.records import RunRecords

MakeRun = Callable[..., RunRecords]
NAMES = [
    "round-time-by-stage", "accuracy", "accuracy-by-traffic", "traffic-by-stage", "availability", "dropouts-by-stage",
]  # fmt: skip
FILES = [f"{name}.{kind}" for name in NAMES for kind in ("png", "pdf", "csv")]
PROTOCOLS = ("random", "batch-partition", "lotto-client-centric", "lotto-server-centric")


def bars(axes: Axes) -> list[Rectangle]:
    """The bars of a plot."""
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


@pytest.fixture
def sweep(make_run: MakeRun) -> list[RunRecords]:
    """Four protocols, two of them with failed rounds."""
    failing = {"batch-partition": {1: "skipped"}, "lotto-client-centric": {2: "aborted"}}
    return [make_run(name, name, rounds=4, failing=failing.get(name)) for name in PROTOCOLS]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """The figures that `plot` draws, by name, instead of their files, which take longer to write than to draw."""
    figures: dict[str, Figure] = {}

    def keep(figure: Figure, path: Path, *_: Any) -> list[Path]:
        figures[path.name] = figure
        return []

    monkeypatch.setattr(analysis.figures.comparison, "save", keep)
    return figures


def test_png_pdf_and_csv_of_all_figures_the_same_each_time(sweep: list[RunRecords], tmp_path: Path) -> None:
    notes: list[str] = []
    paths = plot(sweep, tmp_path / "new" / "plots", notes.append)
    assert [path.name for path in paths] == FILES
    assert notes == []
    for path in paths:
        data = path.read_bytes()
        if path.suffix == ".pdf":
            assert b"/FontFile2" in data  # TrueType, embedded
            assert b"/Type3" not in data
        elif path.suffix == ".png":
            width, height = struct.unpack(">II", data[16:24])
            assert width <= 1.05 * COLUMN_INCHES * 200
            assert height > 200
    again = plot(sweep, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_bars_show_the_mean_completed_round_and_the_failed_ones(
    sweep: list[RunRecords], drawn: dict[str, Figure], tmp_path: Path
) -> None:
    plot(sweep, tmp_path)
    (axes,) = drawn["round-time-by-stage"].axes
    texts = [text.get_text() for text in axes.texts]
    for run, text in zip(sweep, texts, strict=True):
        stages = by_stage(run)
        done = stages["outcome"] == "completed"
        updates = (run.rounds["outcome"] == "completed").sum()
        expected = f"{stages.loc[done, 'duration_s'].sum() / updates:.1f}"
        failed = stages.loc[~done, "duration_s"].sum() / updates
        assert text == expected + (f" + {failed:.1f}" if round(failed, 1) else "")
    assert " + " in texts[2]
    lengths = pd.Series([bar.get_width() for bar in bars(axes)], [bar.get_y() for bar in bars(axes)])
    totals = [by_stage(run)["duration_s"].sum() / (run.rounds["outcome"] == "completed").sum() for run in sweep]
    assert lengths.groupby(level=0).sum().tolist() == pytest.approx(totals)


def test_rows_are_in_the_order_of_the_runs(make_run: MakeRun, drawn: dict[str, Figure], tmp_path: Path) -> None:
    runs = [
        make_run(
            f"{name}-{population}", name, population=population, rounds=1,
            sweep={"selection.protocol": name, "population": population},
        )
        for name, population in product(("batch-partition", "random"), (40, 20))
    ]  # fmt: skip
    plot(runs, tmp_path)
    (axes,) = drawn["round-time-by-stage"].axes
    labels = sorted(zip(axes.get_yticks(), [text.get_text() for text in axes.get_yticklabels()], strict=True))
    shown = [label for _, label in labels]
    assert shown == ["population=40", "batch-partition", "random", "population=20", "batch-partition", "random"]


def test_stages_stand_in_the_legend_in_the_order_of_the_protocols(
    sweep: list[RunRecords], drawn: dict[str, Figure], tmp_path: Path
) -> None:
    plot(sweep, tmp_path)
    for name in ("round-time-by-stage", "traffic-by-stage"):
        (legend,) = drawn[name].legends
        assert [text.get_text() for text in legend.get_texts()] == [
            "check-in", "lotto/announce", "lotto/participants", "lotto/signatures", "train",
            "secagg/advertise-keys", "secagg/share-keys", "secagg/masked-input", "secagg/consistency",
            "secagg/unmask", "skipped and aborted rounds",
        ]  # fmt: skip


def test_nothing_is_clipped_and_labels_do_not_overlap(
    make_run: MakeRun, drawn: dict[str, Figure], tmp_path: Path
) -> None:
    runs = [
        make_run(
            f"{name}-{population}", name, population=population, rounds=3, failing={2: "aborted"},
            sweep={"selection.protocol": name, "population": population},
        )
        for name, population in product(PROTOCOLS, (20, 100))
    ]  # fmt: skip
    plot(runs, tmp_path)
    for name, figure in drawn.items():
        FigureCanvasAgg(figure).draw()
        for axes in figure.axes:
            frame = axes.get_window_extent()
            boxes = [text.get_window_extent() for text in axes.texts]
            assert all(box.x1 <= frame.x1 + 1 for box in boxes), name
            labels = [label.get_window_extent() for label in axes.get_yticklabels()]
            assert all(box.x0 >= -1 for box in labels), name
            assert not any(one.overlaps(two) for i, one in enumerate(labels) for two in labels[:i]), name
        legends = [legend for part in (figure, *figure.subfigs) for legend in part.legends]
        assert legends, name
        bars = [axes.get_window_extent() for axes in figure.axes]
        assert not any(legend.get_window_extent().overlaps(box) for legend in legends for box in bars), name


def test_accuracy_against_time_and_rounds(make_run: MakeRun, drawn: dict[str, Figure], tmp_path: Path) -> None:
    run = make_run("run", rounds=6, accuracy_every=2)
    plot([run], tmp_path)
    time, rounds = drawn["accuracy"].axes
    measured = run.rounds.dropna(subset="accuracy")
    assert rounds.lines[0].get_xdata().tolist() == [2, 4, 6]
    assert rounds.lines[0].get_ydata().tolist() == pytest.approx((100 * measured["accuracy"]).tolist())
    scale = {"min": 60.0, "s": 1.0}[time.get_xlabel().split("[")[1].rstrip("]")]
    assert (time.lines[0].get_xdata() * scale).tolist() == pytest.approx(measured["ended_s"].tolist())


def test_seeds_are_averaged(make_run: MakeRun, drawn: dict[str, Figure], tmp_path: Path) -> None:
    runs = [make_run(f"seed-{seed}", seed=seed, rounds=3) for seed in (1, 2)]
    plot(runs, tmp_path)
    _, rounds = drawn["accuracy"].axes
    expected = 50 * (runs[0].rounds["accuracy"] + runs[1].rounds["accuracy"])
    assert rounds.lines[0].get_ydata().tolist() == pytest.approx(expected.tolist())
    (axes,) = drawn["round-time-by-stage"].axes
    mean = sum(run.rounds["ended_s"].iloc[-1] / 3 for run in runs) / 2
    assert float(axes.texts[0].get_text()) == pytest.approx(mean, abs=0.06)


def test_what_was_not_measured_is_left_out_and_said(make_run: MakeRun, tmp_path: Path) -> None:
    notes: list[str] = []
    paths = plot([make_run("run", rounds=2, accuracy_every=None)], tmp_path / "one", notes.append)
    assert [path.name for path in paths] == [name for name in FILES if "-by-stage" in name and "dropouts" not in name]
    assert notes == [
        "no accuracy figure: no accuracy was measured in these runs",
        "no accuracy-by-traffic figure: no accuracy was measured in these runs",
        "no availability figure: no client was offline or lost in these runs",
        "no dropouts-by-stage figure: no client was offline or lost in these runs",
    ]
    failed = make_run("failed", rounds=1, failing={1: "skipped"}, accuracy_every=None)
    assert plot([failed], tmp_path / "two", notes.append) == []
    assert len(notes) == 10


def test_a_protocol_without_completed_rounds_keeps_its_place(
    make_run: MakeRun, drawn: dict[str, Figure], tmp_path: Path
) -> None:
    failed = make_run("batch-partition", "batch-partition", rounds=1, failing={1: "skipped"}, accuracy_every=None)
    plot([make_run("random"), failed], tmp_path)
    (axes,) = drawn["round-time-by-stage"].axes
    assert [text.get_text() for text in axes.texts][1] == "no completed round"


def test_colours_tell_stages_and_protocols_apart() -> None:
    stages = ["check-in", "lotto/announce", "train", "secagg/masked-input", "their/stage", "their/other"]
    assert len(set(stage_colours(stages).values())) == len(stages)
    assert stage_colours(stages)["train"] == stage_colours(["train"])["train"]
    assert len(set(protocol_colours([*PROTOCOLS, "theirs", "their.other:Class"]).values())) == 6


def test_fonts_are_readable(sweep: list[RunRecords], drawn: dict[str, Figure], tmp_path: Path) -> None:
    plot(sweep, tmp_path)
    for figure in drawn.values():
        assert figure.get_figwidth() == COLUMN_INCHES
        assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 7
