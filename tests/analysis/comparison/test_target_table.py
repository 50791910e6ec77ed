"""The table of targets in its five formats, and below the overhead table."""

import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analysis.comparison.overhead import compare
from analysis.comparison.report import render as render_both
from analysis.comparison.target_table import notes, render
from analysis.comparison.time_to_target import MEASURES, compare_targets, targets_beside
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.messages_named import naming

Learn = Callable[..., RunRecords]


@pytest.fixture
def runs(learn: Learn) -> list[RunRecords]:
    """Three protocols of three seeds: all reach 50%, two do, none does."""
    found = []
    for protocol, reached in (("random", (2, 3, 4)), ("batch-partition", (2, 4, None)), ("lotto", (None,) * 3)):
        for seed, at in enumerate(reached):
            accuracies = [0.5 if at is not None and number >= at else 0.1 for number in range(1, 7)]
            found.append(learn(accuracies, protocol=protocol, seed=seed))
    return found


def test_a_row_that_has_not_reached_it_cannot_look_fast(runs: list[RunRecords]) -> None:
    frame = compare_targets(runs, ["50%"], baseline="random")
    lines = render(frame).splitlines()
    assert lines[0] == "Time to accuracy ≥ 50 %"
    rows = {line.split()[0]: " ".join(line.split()) for line in lines[3:6]}
    assert rows["random"].startswith("random 3 of 3 30.0 ±24.8 1.000× 3.0 ±2.5 1.000×")
    assert rows["batch-partition"].startswith("batch-partition 2 of 3 ≥40.0 ±49.7 ≥1.333× ≥4.0 ±5.0 ≥1.333×")
    assert rows["lotto"].startswith("lotto 0 of 3 >60.0 ≥2.000× >6.0 ≥2.000×")
    assert [rows[name].split()[-1] for name in rows] == ["3", "4", "–"]
    said = " ".join(notes(frame))
    assert "means over 3 seeds ± half-width of the 95% interval. × is the ratio to random." in said
    assert re.search(naming("≥:", "restricted mean", "Median:", "Kaplan-Meier"), said)
    assert re.search(naming(">:", "no run reached"), said)


def test_where_all_reach_it_there_are_no_bounds_to_explain(runs: list[RunRecords]) -> None:
    frame = compare_targets(runs[:3])
    text = render(frame)
    assert text.startswith("Time to accuracy ≥ 50 %, the best that every run reaches\n")
    assert not {"≥3", ">", "~", "Median", "×."} & set(text.split())
    assert "is the ratio" not in text  # there is nothing beside the baseline


def test_notes_explain_the_evaluations(learn: Learn) -> None:
    run = learn([None, 0.3, None, None, 0.6, 0.7], rounds=9)
    frame = compare_targets([run], ["90%"], smooth=2)
    said = " ".join(notes(frame))
    assert re.search(naming("every 3 rounds", "2 rounds"), said)
    assert re.search(naming("Smoothed:", "mean", "the 1 before"), said)
    assert re.search(naming("Unfinished:", "still reach"), said)
    assert "0 of 1, 1 unfinished" in render(frame)
    assert "mean of 2 evaluations" in render(frame, "markdown")


def test_csv_and_json_hold_every_column(runs: list[RunRecords]) -> None:
    frame = compare_targets(runs, ["50%", "best"])
    table = pd.read_csv(io.StringIO(render(frame, "csv")))
    assert set(table) == set(frame) | {f"{measure}_at_least" for measure in MEASURES}
    found = json.loads(render(frame, "json"))["targets"]
    assert [list(row) for row in found] == [table.columns.tolist()] * 6
    assert {"reached", "seeds", "estimator", *MEASURES} <= set(found[0])
    assert [row["reached"] for row in found[:3]] == frame["reached"].tolist()[:3]
    [never] = [row for row in found if row["protocol"] == "lotto" and row["target"] == "accuracy>=0.5"]
    assert (never["time_to_target_s_half_width"], never["rounds_to_target_median"]) == (None, None)
    [bound] = frame.loc[(frame["protocol"] == "lotto") & (frame["threshold"] == 0.5), "time_to_target_s"]
    assert (never["time_to_target_s"], never["time_to_target_s_at_least"]) == (None, bound)
    assert all((row["time_to_target_s"] is None) == (row["reached"] == 0) for row in found)


def test_below_the_overhead_table(runs: list[RunRecords]) -> None:
    overhead, reached = compare(runs), compare_targets(runs, ["50%"])
    for format in ("text", "markdown", "latex"):
        both = render_both(overhead, format, reached)
        assert both == f"{render_both(overhead, format)}\n{render(reached, format)}"
    assert render_both(overhead, "csv", reached) == render_both(overhead, "csv")
    found = json.loads(render_both(overhead, "json", reached))
    assert {"baseline", "rows", "targets"} <= set(found)
    assert len(found["targets"]) == 3
    assert json.loads(render_both(overhead, "json"))["targets"] == []
    with pytest.raises(ExperimentError, match="--format html: unknown"):
        render(reached, "html")


def test_settings_have_names_in_every_format(learn: Learn) -> None:
    swept = [{"selection.protocol": name, "population": n} for n in (5, 7) for name in ("random", "lotto")]
    runs = [
        learn([0.1, 0.5], protocol=of["selection.protocol"], population=of["population"], provenance={"sweep": of})
        for of in swept
    ]
    frame = compare_targets(runs)
    assert [render(frame).count(f"population={n}\n") for n in (5, 7)] == [1, 1]
    assert "| Setting | Protocol |" in render(frame, "markdown")
    assert render(frame, "latex").count("emph{population=") == 2


def test_a_long_label_is_wrapped_on_the_terminal_alone(learn: Learn) -> None:
    parts = ["lotto-client-centric", *(f"{key}=xxxxxxxxxxxx" for key in ("refinement", "population", "aggregation"))]
    label = ",".join(parts)
    runs = [learn([0.5], protocol="lotto", provenance={"label": label})]
    frame = compare_targets(runs)
    assert max(map(len, render(frame).splitlines())) <= 118
    assert all(part in render(frame) for part in parts)
    assert label not in render(frame)
    assert label in render(frame, "markdown")


def test_a_table_that_was_not_requested_gives_a_reason_but_no_error(learn: Learn) -> None:
    assert targets_beside([learn([0.5])]) == (None, "")  # a single evaluation
    assert targets_beside([learn([None, None])]) == (None, "")
    one, other = learn([0.5, 0.6]), learn([0.5, 0.6], protocol="lotto", workload={"dataset": "spirals"})
    frame, why = targets_beside([one])
    assert frame is not None
    assert (frame["target"].tolist(), why) == (["accuracy>=0.6"], "")
    assert targets_beside([one, other])[1].startswith("the runs are evaluated on different data")
    frame, _ = targets_beside([learn([0.1, 0.5, 0.7], targets=["50%"])])
    assert frame is not None
    assert frame["rounds_to_target"].tolist() == [2]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(runs: list[RunRecords], tmp_path: Path) -> None:
    table = render(compare_targets(runs, ["50%", "best"], baseline="lotto"), "latex")
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{table}\end{{document}}"
    (tmp_path / "table.tex").write_text(document)
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "table.tex"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("narrow", [True, False])
def test_several_targets_fit_the_columns_of_a_page(learn: Learn, tmp_path: Path, narrow: bool) -> None:
    accuracies = {"random": [0.3, 0.5, 0.6, 0.7], "lotto-client-centric": [0.1, 0.4, 0.4, 0.5]}
    runs = [
        learn([value + seed / 50 for value in values], protocol=protocol, seed=seed)
        for protocol, values in accuracies.items()
        for seed in range(3)
    ]
    targets = compare_targets(runs, ["60%", "best"])
    table = render_both(compare(runs), "latex", targets, narrow=narrow)
    document = rf"\documentclass[twocolumn]{{article}}\usepackage{{booktabs}}\begin{{document}}{table}\end{{document}}"
    (tmp_path / "table.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_a_narrow_table_has_the_time_to_each_target(runs: list[RunRecords]) -> None:
    targets = compare_targets(runs, ["50%", "60%"])
    table = render_both(compare(runs), "latex", targets, narrow=True)
    heads = table.replace(r" \\ ", " ")
    assert all(rf"Time to accuracy $\geq$ {share} \%" in heads for share in (50, 60))


def test_a_heading_of_a_narrow_table_is_no_wider_than_it_must_be(runs: list[RunRecords]) -> None:
    targets = compare_targets(runs, ["50%"])
    narrow = render_both(compare(runs), "latex", targets, narrow=True)
    assert r"\multicolumn{2}{c}{\shortstack{Time to accuracy \\ $\geq$ 50 \%" in narrow
    assert r"\shortstack{Round" not in narrow  # its cells are wider
    assert "shortstack" not in render_both(compare(runs), "latex", targets)


@pytest.mark.parametrize("kind", ["text", "markdown", "latex"])
def test_a_single_row_has_no_ratios(learn: Learn, kind: str) -> None:
    sign = r"\times" if kind == "latex" else "×"
    one, other = learn([0.1, 0.5]), learn([0.1, 0.6], protocol="lotto")
    assert sign not in render_both(compare([one]), kind, compare_targets([one]))
    assert sign in render_both(compare([one, other]), kind)
    assert sign in render(compare_targets([one, other]), kind)
    (row,) = json.loads(render_both(compare([one]), "json"))["rows"]
    assert row["round_s_ratio"] == 1
