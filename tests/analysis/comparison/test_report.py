"""The table in its five formats."""

import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import yaml

from analysis.comparison.columns import COLUMNS, parse_column_names
from analysis.comparison.overhead import compare
from analysis.comparison.report import render
from analysis.comparison.time_to_target import compare_targets
from analysis.tables import bytes_unit, seconds_unit
from testbed.errors import ExperimentError
from testbed.records import RunRecords, find_runs
from tests.messages_named import naming

MakeRun = Callable[..., RunRecords]
FORMATS = ("text", "markdown", "csv", "latex", "json")
PROTOCOLS = ("random", "lotto-client-centric", "batch-partition")


@pytest.fixture
def sweep(make_run: MakeRun) -> list[RunRecords]:
    """Three protocols; one has failed rounds, one label is hard to typeset."""
    labels = dict(zip(PROTOCOLS, ("random", "lotto_100% & more | $x$", "batch-partition"), strict=True))
    return [
        make_run(
            name, name, label=labels[name], sweep={"selection.protocol": name}, rounds=5,
            failing={} if name == "random" else {2: "aborted"},
        )
        for name in PROTOCOLS
    ]  # fmt: skip


@pytest.fixture
def grid(make_run: MakeRun) -> list[RunRecords]:
    """Two populations, three protocols, two seeds, long labels, plain aggregation."""
    return [
        make_run(
            f"{name}-{population}-{seed}", name, population=population, seed=seed, rounds=2, aggregation="plain",
            sweep={"selection.protocol": name, "population": population, "seed": seed},
        )
        for name, population, seed in product(PROTOCOLS, (40, 100), (1, 2))
    ]  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_records_give_the_same_bytes(sweep: list[RunRecords], tmp_path: Path, kind: str) -> None:
    first = render(compare(sweep), kind)
    assert first.endswith("\n")
    again = sorted(find_runs(tmp_path), key=lambda run: PROTOCOLS.index(run.path.name))
    assert render(compare(again), kind) == first


def test_csv_and_json_hold_every_column_in_base_units(sweep: list[RunRecords]) -> None:
    frame = compare(sweep)
    table = pd.read_csv(io.StringIO(render(frame, "csv")))
    assert table.columns.tolist() == frame.columns.tolist()
    pd.testing.assert_series_equal(table["round_s"], frame["round_s"])
    pd.testing.assert_series_equal(table["client_bytes_ratio"], frame["client_bytes_ratio"])
    found = json.loads(render(frame, "json"))
    assert found["baseline"] == "random"
    assert [row["server_bytes"] for row in found["rows"]] == frame["server_bytes"].tolist()
    assert all(list(row) == frame.columns.tolist() for row in found["rows"])


def test_json_has_null_for_unknown_values(make_run: MakeRun) -> None:
    (row,) = json.loads(render(compare([make_run("run", rounds=0)]), "json"))["rows"]
    assert row["round_s"] is None
    assert row["multi_round_privacy_weak"] is None
    assert row["rounds_completed"] == 0


def test_text_shows_the_numbers_in_scaled_units(sweep: list[RunRecords]) -> None:
    frame = compare(sweep)
    text = render(frame, "text")
    assert max(map(len, text.splitlines())) <= 118
    first = next(line for line in text.splitlines() if line.startswith("random"))
    numbers = re.findall(r"[\d.]+", first)
    assert numbers[:3] == [f"{frame.loc[0, 'round_s']:.1f}", f"{frame.loc[0, 'round_s_half_width']:.1f}", "1.000"]
    assert numbers[6] == f"{frame.loc[0, 'server_bytes'] / 1e6:.1f}"
    assert "Server traffic [MB]" in text
    assert "4/0/1" in text
    assert "Per update:" in text
    assert "ratio to random" in text


def test_per_update_is_shown_only_where_a_round_failed(make_run: MakeRun) -> None:
    frame = compare([make_run("run", rounds=2)])
    for kind in ("text", "markdown", "latex"):
        assert "/update" not in render(frame, kind)
    assert "round_s_per_update" in render(frame, "csv")


@pytest.mark.parametrize("rounds", [0, 1])
def test_without_an_interval_or_a_mean_nothing_is_made_up(make_run: MakeRun, rounds: int) -> None:
    frame = compare([make_run("run", rounds=rounds)])
    for kind in ("text", "markdown", "latex"):
        assert "nan" not in render(frame, kind).lower()
    row = next(line for line in render(frame, "text").splitlines() if line.startswith("random"))
    assert "±" not in row
    assert ("–" in row) == (rounds == 0)


def test_settings_seeds_and_plain_aggregation_are_named(grid: list[RunRecords]) -> None:
    frame = compare(grid)
    text = render(frame, "text")
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("population=")] == ["population=40", "population=100"] * 2
    assert "over 2 seeds" in text
    assert re.search(naming("plain aggregation", "update", "T"), text)
    markdown = render(frame, "markdown").splitlines()
    assert markdown[0].startswith("| Setting | Protocol | Round time [s] |")
    assert sum(line.startswith("| population=40 | ") for line in markdown) == 3


def test_long_labels_are_wrapped_to_fit_and_never_look_alike(make_run: MakeRun) -> None:
    label = "a-selection-protocol-of-somebody-who-likes-long-names,over_selection=1.3,participants=100"
    runs = [
        make_run(name, label=f"{label},{name}", rounds=3, failing={1: "aborted"}, selection={"name": name})
        for name in ("one", "two")
    ]
    frame = compare(runs)
    text = render(frame, "text")
    assert max(map(len, text.splitlines())) <= 118
    assert "…" not in text
    for table in text.split("\n\n")[:2]:
        beginnings = "".join(line.split("  ")[0] for line in table.splitlines()[2:])
        assert f"{label},one" in beginnings
        assert f"{label},two" in beginnings
    assert label in render(frame, "markdown")


def test_overhead_and_costs_per_update_make_a_table_of_their_own_where_room_is_short(make_run: MakeRun) -> None:
    runs = [
        make_run(f"{name}-{seed}", name, seed=seed, rounds=12, failing={2: "aborted"}, sweep={"seed": seed})
        for name, seed in product(PROTOCOLS, (1, 2))
    ]
    frame = compare(runs)
    frame["transport_bytes"] = 64_000.0
    frame["transport_bytes_half_width"], frame["transport_bytes_ratio"] = 1600.0, 1.0
    costs, results, more, _ = render(frame, "text").split("\n\n")[:4]
    for table in (costs, results, more):
        assert all(f"\n{name} " in table for name in PROTOCOLS)
        assert max(map(len, table.splitlines())) <= 118
    assert "Accuracy" in results
    assert "Overhead" not in results
    assert "Overhead" in more


def test_results_of_several_seeds_have_intervals_and_a_note_on_pooling(make_run: MakeRun) -> None:
    frame = compare([make_run(f"seed-{seed}", seed=seed, rounds=4) for seed in (1, 2, 3)])
    mean, half = 100 * frame.loc[0, "final_accuracy"], 100 * frame.loc[0, "final_accuracy_half_width"]
    assert f"{mean:.1f}% ±{half:.1f}" in render(frame, "text")
    assert f"{mean:.1f}% ± {half:.1f}" in render(frame, "markdown")
    assert rf"{mean:.1f}\% $\pm$ {half:.1f}" in render(frame, "latex")
    said = " ".join(render(frame, "text").split())
    assert "F and C: means over the seeds." in said
    assert "(weak multi-round privacy), the smallest of any seed" in said
    alone = compare([make_run("alone", rounds=4)])
    assert alone["final_accuracy_half_width"].isna().all()
    assert "seed" not in render(alone, "text")


def test_a_bound_is_marked(sweep: list[RunRecords]) -> None:
    frame = compare(sweep)
    frame["multi_round_privacy_weak_certified"] = frame["label"] == "random"
    frame["multi_round_privacy_weak_lower_bound"] = 3
    for kind, mark in (("text", "≥3"), ("markdown", "≥3"), ("latex", r"$\geq$3")):
        assert render(frame, kind).count(mark) == 2


def test_every_markdown_row_has_all_cells(sweep: list[RunRecords]) -> None:
    table, note = render(compare(sweep), "markdown").split("\n\n")
    cells = [len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()]
    assert len(cells) == 5
    assert len(set(cells)) == 1
    assert note.startswith("Means over completed rounds")


def test_every_latex_row_has_all_cells(sweep: list[RunRecords], grid: list[RunRecords]) -> None:
    for runs in (sweep, grid):
        source = render(compare(runs), "latex")
        for columns, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", source, re.DOTALL):
            rows = [line for line in body.splitlines() if line.endswith(r"\\")]
            for row in rows:
                spans = sum(int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", row))
                assert len(re.split(r"(?<!\\)&", row)) + spans == len(columns)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX on this machine")
def test_latex_compiles(sweep: list[RunRecords], grid: list[RunRecords], tmp_path: Path) -> None:
    tables = "".join(render(compare(runs), "latex") for runs in (sweep, grid))
    document = "\\documentclass[twocolumn]{article}\\usepackage{booktabs}\\begin{document}\n%s\\end{document}\n"
    (tmp_path / "table.tex").write_text(document % tables)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX on this machine")
@pytest.mark.parametrize("narrow", [True, False])
def test_latex_fits_the_columns_of_a_page(sweep: list[RunRecords], tmp_path: Path, narrow: bool) -> None:
    table = render(compare(sweep), "latex", narrow=narrow)
    document = "\\documentclass[twocolumn]{article}\\usepackage{booktabs}\\begin{document}\n%s\\end{document}\n"
    (tmp_path / "table.tex").write_text(document % table)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


@pytest.mark.parametrize("narrow", [True, False])
def test_a_latex_float_has_a_caption_of_one_sentence_and_notes_beneath(sweep: list[RunRecords], narrow: bool) -> None:
    source = render(compare(sweep), "latex", narrow=narrow)
    assert source.count(r"\begin{table}") == narrow
    assert source.count(r"\begin{table*}") == (not narrow)
    caption = re.search(r"\\caption\{(.*)\}", source)
    assert caption is not None
    assert caption[1].count(".") == 1
    assert caption[1].endswith(".")
    assert source.index(r"\begin{minipage}") > source.rindex(r"\end{tabular}")


CHOSEN = ["final_accuracy", "round_s", "fairness_gap"]


@pytest.mark.parametrize("kind", ["text", "markdown", "latex"])
def test_columns_are_chosen_and_ordered(sweep: list[RunRecords], kind: str) -> None:
    found = render(compare(sweep), kind, columns=CHOSEN)
    heads = [found.index(head) for head in ("Accuracy", "Round time", "Fairness gap F")]
    assert heads == sorted(heads)
    assert "traffic" not in found
    assert "C:" not in found  # no note on a column that is not there
    assert "T:" not in found


def test_chosen_columns_for_programs_keep_their_intervals_and_ratios(sweep: list[RunRecords]) -> None:
    frame = compare(sweep)
    table = pd.read_csv(io.StringIO(render(frame, "csv", columns=CHOSEN)))
    assert table.columns.tolist() == [
        "setting", "label", "final_accuracy", "final_accuracy_half_width", "round_s", "round_s_half_width",
        "round_s_ratio", "fairness_gap",
    ]  # fmt: skip
    pd.testing.assert_series_equal(table["round_s"], frame["round_s"])
    rows = json.loads(render(frame, "json", columns=CHOSEN))["rows"]
    assert [list(row) for row in rows] == [table.columns.tolist()] * len(frame)


def test_the_time_to_a_target_stands_beside_the_other_columns(sweep: list[RunRecords]) -> None:
    targets = compare_targets(sweep, ["accuracy>=0.2"])
    found = render(compare(sweep), "text", targets, columns=["round_s", "time_to_target_s"])
    assert len(found.split("\n\n")) == 2  # one table, and the notes
    assert "Time to accuracy" in found.splitlines()[0]
    with pytest.raises(ExperimentError, match=naming("--columns reached", "--target")):
        render(compare(sweep), "text", None, columns=["reached"])


def test_an_unknown_column_is_refused_in_one_line() -> None:
    assert parse_column_names(" round_s , rounds,") == ["round_s", "rounds"]
    with pytest.raises(ExperimentError, match=naming("--columns round:", "did you mean rounds?", "final_accuracy")):
        parse_column_names("round")
    for names in ("", ",,"):
        with pytest.raises(ExperimentError, match=naming(f"--columns {names}:", "aggregation, ")):
            parse_column_names(names)
    with pytest.raises(ExperimentError, match=naming("rounds,round_s, rounds:", "2 times")):
        parse_column_names("rounds,round_s, rounds")


def test_every_column_is_explained_and_can_be_shown(sweep: list[RunRecords]) -> None:
    frame, targets = compare(sweep), compare_targets(sweep, ["accuracy>=0.2"])
    assert all(meaning for meaning in COLUMNS.values())
    for kind in FORMATS:
        assert render(frame, kind, targets, columns=list(COLUMNS))


def test_unfinished_runs_are_marked(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("done", rounds=3), make_run("stopped", "lotto-client-centric", rounds=3, failing={2: "aborted"})]
    for kind in ("text", "markdown", "latex"):
        assert "nfinished" not in render(compare(runs), kind)
    file = tmp_path / "stopped" / "experiment.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"rounds": 10}))
    frame = compare([RunRecords(run.path) for run in runs])
    assert frame["rounds_planned"].tolist() == [3, 10]
    for kind in ("text", "markdown", "latex"):
        rendered = render(frame, kind)
        assert "2/0/1 of 10" in rendered
        assert "3/0/0 of" not in rendered
        assert re.search(naming("Unfinished", "rounds"), rendered)


def test_an_unknown_format_is_an_error(make_run: MakeRun) -> None:
    with pytest.raises(ExperimentError, match="text, markdown, csv, latex, json"):
        render(compare([make_run("run", rounds=1)]), "html")


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.0042], "4.20 ms"), ([0.5], "500.0 ms"), ([1.5, 90.0], "1.50 s"), ([105.6, 3000.0], "105.6 s"),
     ([0.9, 100.8], "0.900 s"), ([0.0009, 100.8], "0.900 ms"), ([150.0], "2.50 min"),
     ([9000.0], "2.50 h"), ([], "1.00 s")],
)  # fmt: skip
def test_seconds(values: list[float], expected: str) -> None:
    assert seconds_unit(values).text(min(values, default=1.0)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [([12.0], "12 B"), ([1500.0, 9e9], "1.50 kB"), ([64.88e6], "64.9 MB"), ([6.56e9, 0.0], "6.56 GB")],
)
def test_bytes(values: list[float], expected: str) -> None:
    assert bytes_unit(values).text(values[0]) == expected
