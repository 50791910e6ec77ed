"""Differences to the baseline, paired by seed: which runs are paired, the test, and the printed table."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.comparison.overhead import compare
from analysis.comparison.report import render
from analysis.comparison.seed_pairs import MEASURES, compare_seeds
from analysis.comparison.summary import summarise
from analysis.statistics import paired_difference
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.messages_named import naming
from tests.thoroughness import examples

MakeRun = Callable[..., RunRecords]


@pytest.fixture
def seeded(make_run: MakeRun) -> dict[tuple[str, int], RunRecords]:
    """Two protocols; seeds 2, 3 and 4 are in both."""
    return {
        (name, seed): make_run(
            f"{name}-{seed}", name, seed=seed, rounds=4, sweep={"selection.protocol": name, "seed": seed}
        )
        for name, seeds in (("random", (1, 2, 3, 4)), ("batch-partition", (4, 3, 2, 5)))
        for seed in seeds
    }


def test_runs_of_the_same_seed_are_paired(seeded: dict[tuple[str, int], RunRecords]) -> None:
    frame = compare_seeds(list(seeded.values())).set_index("label")
    assert frame["seed_pairs"].to_dict() == {"random": 0, "batch-partition": 3}
    assert frame["test"].to_dict() == {"random": "", "batch-partition": "paired t"}
    row = frame.loc["batch-partition"]
    for name in ("round_s", "client_s", "final_accuracy"):
        mine, theirs = (
            np.array([summarise(seeded[protocol, seed])[MEASURES[name]] for seed in (2, 3, 4)])
            for protocol in ("batch-partition", "random")
        )
        expected = stats.ttest_rel(mine, theirs)
        assert row[f"{name}_difference"] == pytest.approx(np.mean(mine - theirs))
        assert row[f"{name}_difference_p"] == pytest.approx(expected.pvalue)
        low, high = expected.confidence_interval(0.95)
        assert row[f"{name}_difference_half_width"] == pytest.approx((high - low) / 2)
    assert frame.loc["random", [f"{name}_difference" for name in MEASURES]].isna().all()
    assert np.isnan(row["final_perplexity_difference"])


def test_the_other_columns_are_those_of_compare(seeded: dict[tuple[str, int], RunRecords]) -> None:
    runs = list(seeded.values())
    plain, paired = compare(runs), compare_seeds(runs)
    assert paired[plain.columns.tolist()].equals(plain)


def test_every_format_shows_the_differences(seeded: dict[tuple[str, int], RunRecords]) -> None:
    frame = compare_seeds(list(seeded.values()))
    for kind in ("text", "markdown", "latex"):
        said = " ".join(render(frame, kind).split())
        assert "Differences to the baseline, paired by seed" in said
        assert "paired t-test" in said
        assert "n = 3 seeds" in said
        assert "Fewer than 5 seeds" in said
    text = render(frame, "text")
    assert max(map(len, text.splitlines())) <= 118
    assert f"{100 * frame.loc[1, 'final_accuracy_difference']:+.1f}" in text
    assert f"p={frame.loc[1, 'round_s_difference_p']:.3f}" in text
    (base, row) = json.loads(render(frame, "json"))["rows"]
    assert base["round_s_difference"] is None
    assert row["test"] == "paired t"
    assert row["round_s_difference_half_width"] > 0
    assert "final_accuracy_difference_p" in render(frame, "csv").splitlines()[0]


def test_rows_without_a_common_seed_are_refused(make_run: MakeRun) -> None:
    runs = [make_run(name, name, seed=seed, rounds=2) for seed, name in enumerate(("random", "batch-partition"))]
    with pytest.raises(ExperimentError, match=naming("--paired-seeds:", "seed", "baseline")):
        compare_seeds(runs)


def test_one_pair_has_a_difference_and_no_test(make_run: MakeRun) -> None:
    frame = compare_seeds([make_run(name, name, rounds=2) for name in ("random", "batch-partition")])
    row = frame.loc[1]
    assert row["seed_pairs"] == 1
    assert row["round_s_difference"] == pytest.approx(frame.loc[1, "round_s"] - frame.loc[0, "round_s"])
    assert np.isnan(row["round_s_difference_half_width"])
    assert np.isnan(row["round_s_difference_p"])
    assert "p=" not in render(frame, "text")


_numbers = st.floats(-1e3, 1e3, allow_subnormal=False)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(_numbers, _numbers), min_size=2, max_size=8))
def test_the_test_is_scipys(pairs: list[tuple[float, float]]) -> None:
    mine, theirs = np.array(pairs).T
    found = paired_difference(mine, theirs)
    assert found.pairs == len(pairs)
    assert found.mean == pytest.approx(np.mean(mine - theirs))
    spread = np.std(mine - theirs)
    if spread <= 1e-6 * np.max(np.abs(mine - theirs)):
        return  # next to no chance in it: see below
    expected = stats.ttest_rel(mine, theirs)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)


def test_differences_without_chance() -> None:
    assert paired_difference([1.0, 2.0], [1.0, 2.0]).p is None
    same = paired_difference([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
    assert (same.mean, same.half_width, same.p) == (1.0, 0.0, 0.0)
    assert paired_difference([], []).mean is None
    assert paired_difference([1.0], [0.5]).p is None
