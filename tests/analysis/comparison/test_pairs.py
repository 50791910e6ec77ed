"""Round by round against the baseline: which rounds are paired, the paired ratio, and whether the same happened."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from analysis.comparison.measures import per_round
from analysis.comparison.notes import notes
from analysis.comparison.overhead import PAIRED, compare_paired
from analysis.comparison.report import render
from analysis.statistics import ratio_interval
from testbed.network.exchanges import OUTCOMES
from testbed.records import RunRecords
from tests.analysis import recorded
from tests.messages_named import naming

MakeRun = Callable[..., RunRecords]
FORMATS = ("text", "markdown", "csv", "latex", "json")


def test_only_rounds_that_both_completed_are_paired_by_their_number(make_run: MakeRun) -> None:
    base = make_run("random", "random", rounds=8, failing={2: "skipped"})
    other = make_run("lotto", "lotto-client-centric", rounds=7, failing={5: "aborted"})
    frame = compare_paired([other, base], "random").set_index("protocol")
    assert frame["pairs"].to_dict() == {"random": 7, "lotto-client-centric": 5}
    rounds = [1, 3, 4, 6, 7]
    mine, theirs = (per_round(run).set_index("round").loc[rounds] for run in (other, base))
    row = frame.loc["lotto-client-centric"]
    for cost in PAIRED:
        assert row[cost] == pytest.approx(mine[cost].mean())
        assert row[f"{cost}_baseline"] == pytest.approx(theirs[cost].mean())
        assert row[f"{cost}_ratio"] == pytest.approx(mine[cost].mean() / theirs[cost].mean())
        low, high = stats.t.interval(0.95, 4, mine[cost].mean(), stats.sem(mine[cost]))
        assert row[f"{cost}_half_width"] == pytest.approx((high - low) / 2)
    assert frame.loc["random", [f"{cost}_ratio" for cost in PAIRED]].tolist() == [1.0] * 4
    assert frame.loc["random", "round_s_ratio_half_width"] == 0
    assert frame["rounds_completed"].to_dict() == {"random": 7, "lotto-client-centric": 6}  # the others: all rounds


def test_the_interval_of_the_ratio_is_that_of_the_estimator() -> None:
    x, y = np.array([10.0, 12.0, 50.0, 11.0]), np.array([11.0, 13.5, 54.0, 12.0])
    ratio = y.mean() / x.mean()
    found = ratio_interval(y, x)
    assert found.mean == pytest.approx(ratio)
    residuals = y - ratio * x
    expected = stats.t.ppf(0.975, 3) * residuals.std(ddof=1) / np.sqrt(4) / x.mean()
    assert found.half_width == pytest.approx(expected)
    assert ratio_interval(2 * x, x).half_width == pytest.approx(0)  # a common cause of slow rounds cancels out
    assert ratio_interval(y[:1], x[:1]).half_width is None
    assert ratio_interval(y[:0], x[:0]).mean is None
    assert ratio_interval(y, 0 * x).mean is None


def test_the_interval_of_the_ratio_covers_it_as_often_as_it_says() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(2000):
        x = generator.gamma(4.0, 10.0, 30)
        y = 1.2 * x + generator.normal(0, 3, 30)
        found = ratio_interval(y, x)
        covered += abs(found.mean - 1.2) <= found.half_width
    assert 0.93 <= covered / 2000 <= 0.97


@pytest.fixture
def met(tmp_path: Path) -> Callable[..., RunRecords]:
    """A run with the given participants in its rounds, some of them lost at a stage."""

    def met(protocol: str, rounds: Sequence[dict[int, tuple[str, str]]], seed: int = 1) -> RunRecords:
        made = []
        for number, fates in enumerate(rounds, start=1):
            clients = sorted(fates)
            exchanges = [
                recorded.asked(
                    stage, number + place / 4, clients, [number + 0.9] * len(clients), down=10,
                    outcome=[OUTCOMES.index(fates[c][1] if fates[c][0] == stage else "answered") for c in clients],
                )
                for place, stage in enumerate(("check-in", "train", "plain/update"))
            ]  # fmt: skip
            made.append(recorded.RecordedRound(float(number), number + 1.0, exchanges, clients, clients))
        experiment = {"name": protocol, "seed": seed, "population": 9, "selection": {"protocol": protocol}}
        return recorded.write_run(tmp_path / f"{protocol}-{seed}", experiment, made)

    return met


def test_pairs_with_the_same_participants_and_dropouts_are_counted(met: Callable[..., RunRecords]) -> None:
    fine = ("", "")
    base = [
        {1: fine, 2: ("train", "dropped")},
        {1: fine, 2: ("train", "dropped")},
        {1: fine, 2: ("train", "dropped")},
        {1: fine, 2: ("train", "dropped")},
        {1: fine, 2: ("train", "late")},
    ]
    other = [
        {1: fine, 2: ("train", "dropped")},  # the same
        {1: fine, 2: ("plain/update", "dropped")},  # in another stage
        {1: fine, 2: ("train", "offline")},  # another fate
        {1: fine, 2: ("train", "dropped"), 3: fine},  # one more takes part
        {1: ("train", "refused"), 2: fine},  # no dropout in either: late and refused are the protocol's doing
    ]
    frame = compare_paired([met("random", base), met("lotto", other)]).set_index("protocol")
    assert frame.loc["lotto", ["pairs", "pairs_identical", "pairs_same_stages"]].tolist() == [5, 3, 2]
    assert frame.loc["random", ["pairs", "pairs_identical", "pairs_same_stages"]].tolist() == [5, 5, 5]
    text = render(compare_paired([met("random2", base), met("lotto2", other)], "random2"), "text")
    assert "3/5" in text
    assert re.search(naming("Identical", "other stages"), text)


def test_seeds_are_paired_and_intervals_are_over_them(make_run: MakeRun) -> None:
    runs = {
        (name, seed): make_run(
            f"{name}-{seed}", name, seed=seed, rounds=4, sweep={"selection.protocol": name, "seed": seed}
        )
        for name, seeds in (("random", (1, 2, 3)), ("batch-partition", (2, 3, 4)))
        for seed in seeds
    }
    frame = compare_paired(list(runs.values())).set_index("protocol")
    row = frame.loc["batch-partition"]
    assert row["pairs"] == 8  # seeds 2 and 3, four rounds each
    mine, theirs = (
        np.array([per_round(runs[name, seed])["round_s"].mean() for seed in (2, 3)])
        for name in ("batch-partition", "random")
    )
    expected = ratio_interval(mine, theirs)
    assert row["round_s_ratio"] == pytest.approx(expected.mean)
    assert row["round_s_ratio_half_width"] == pytest.approx(expected.half_width)


def test_single_runs_are_paired_with_any_seeds(make_run: MakeRun) -> None:
    frame = compare_paired([make_run("a", seed=1, rounds=3), make_run("b", "batch-partition", seed=None, rounds=3)])
    assert frame["pairs"].tolist() == [3, 3]
    assert frame["pairs_same_seed"].tolist() == [3, 0]


def test_runs_without_a_seed_are_paired_by_their_simulation_seed(learn: Callable[..., RunRecords]) -> None:
    def run(protocol: str, simulation_seed: int) -> RunRecords:
        return learn([0.1, 0.2], protocol=protocol, seed=None, provenance={"simulation_seed": simulation_seed})

    base = run("random", 7)
    same = compare_paired([base, run("batch-partition", 7)])
    other = compare_paired([base, run("batch-partition", 8)])
    assert same["pairs_same_seed"].tolist() == [2, 2]
    assert other["pairs_same_seed"].tolist() == [2, 0]
    assert len(notes(other)) == len(notes(same)) + 1


def test_without_a_pair_the_numbers_are_missing(make_run: MakeRun) -> None:
    runs = [make_run("random", rounds=2, failing={1: "skipped"}), make_run("b", "batch-partition", rounds=1)]
    frame = compare_paired(runs).set_index("protocol")
    assert frame.loc["batch-partition", "pairs"] == 0
    assert frame.loc["batch-partition", [f"{cost}_ratio" for cost in PAIRED]].isna().all()
    for kind in FORMATS:
        assert render(compare_paired(runs), kind)


@pytest.mark.parametrize("kind", FORMATS)
def test_all_formats_show_the_pairs(make_run: MakeRun, kind: str) -> None:
    runs = [make_run("random", rounds=5), make_run("l", "lotto-client-centric", rounds=5, failing={3: "aborted"})]
    frame = compare_paired(runs)
    printed = render(frame, kind)
    assert "/update" not in printed
    if kind == "json":
        assert [row["pairs"] for row in json.loads(printed)["rows"]] == [5, 4]
    elif kind == "csv":
        assert printed.splitlines()[0].split(",") == frame.columns.tolist()
    else:
        assert "0/4" in printed
        interval = f"{frame['round_s_ratio'][1]:.3f}±{frame['round_s_ratio_half_width'][1]:.3f}×"
        assert (interval.replace("±", r"$\pm$").replace("×", r"$\times$") if kind == "latex" else interval) in printed
    if kind == "text":
        assert max(map(len, printed.splitlines())) <= 118


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX on this machine")
def test_latex_compiles(make_run: MakeRun, tmp_path: Path) -> None:
    table = render(compare_paired([make_run("random"), make_run("b", "batch-partition")]), "latex")
    document = "\\documentclass[twocolumn]{article}\\usepackage{booktabs}\\begin{document}\n%s\\end{document}\n"
    (tmp_path / "table.tex").write_text(document % table)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
