"""Which runs are repetitions, which share a setting, and which is the baseline."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from analysis.comparison.rows import Row, baselines_of, rows_of
from testbed.errors import ExperimentError
from testbed.records import RunRecords

MakeRun = Callable[..., RunRecords]
PROTOCOLS = ("batch-partition", "lotto-client-centric", "random")


@pytest.fixture
def quick(make_run: MakeRun) -> MakeRun:
    """Runs of one round and few clients."""

    def make(name: str, protocol: str = "random", **options: object) -> RunRecords:
        return make_run(name, protocol, **{"population": 20, "participants": 4, "rounds": 1, **options})

    return make


def named(rows: Sequence[Row | None]) -> list[str | None]:
    return [None if row is None else row.full_label for row in rows]


def test_a_sweep_over_protocols_is_one_setting(quick: MakeRun) -> None:
    rows = rows_of([quick(name, name, sweep={"selection.protocol": name}) for name in PROTOCOLS])
    assert named(rows) == list(PROTOCOLS)
    assert {row.setting for row in rows} == {""}
    assert named(baselines_of(rows)) == ["random"] * 3
    assert named(baselines_of(rows, "batch-partition")) == ["batch-partition"] * 3


def test_seeds_are_pooled_and_populations_are_settings_in_numeric_order(quick: MakeRun) -> None:
    runs = [
        quick(
            f"{name}-{population}-{seed}", name, population=population, seed=seed, label=f"{name},{population},{seed}",
            sweep={"selection": {"protocol": name}, "population": population, "seed": seed},
        )
        for name, population, seed in product(PROTOCOLS, (100, 20), (1, 2, 3))
    ]  # fmt: skip
    rows = rows_of(runs)
    assert [row.setting for row in rows] == ["population=20"] * 3 + ["population=100"] * 3
    assert [row.label for row in rows] == list(PROTOCOLS) * 2
    assert [[run.experiment["seed"] for run in row.runs] for row in rows] == [[1, 2, 3]] * 6
    baselines = baselines_of(rows)
    assert named(baselines) == ["random,population=20"] * 3 + ["random,population=100"] * 3
    assert baselines_of(rows, "random") == baselines
    assert named(baselines_of(rows, "random,population=20")) == ["random,population=20"] * 6
    assert named(baselines_of(rows, "lotto-client-centric,20,2")) == ["lotto-client-centric,population=20"] * 6


def test_populations_of_separate_sweeps_are_settings_too(quick: MakeRun) -> None:
    runs = [
        quick(f"{name}-{population}", name, population=population, sweep={"selection.protocol": name})
        for population, name in product((100, 20), PROTOCOLS)
    ]
    rows = rows_of(runs)
    assert [row.setting for row in rows] == ["population=20"] * 3 + ["population=100"] * 3


def test_the_same_seed_twice_is_not_a_repetition(quick: MakeRun) -> None:
    rows = rows_of([quick("before"), quick("after")])
    assert named(rows) == ["random [before]", "random [after]"]
    assert named(baselines_of(rows, "after")) == ["random [after]"] * 2


def test_runs_without_a_seed_are_repetitions(quick: MakeRun) -> None:
    assert [len(row.runs) for row in rows_of([quick("a", seed=None), quick("b", seed=None)])] == [2]


def test_other_parameters_of_a_protocol_are_other_rows(quick: MakeRun) -> None:
    runs = [quick("random", sweep={"selection": {"protocol": "random"}, "seed": 1})] + [
        quick(
            f"batch-{privacy}", "batch-partition", selection={"privacy": privacy},
            sweep={"selection": {"protocol": "batch-partition", "privacy": privacy}, "seed": 1},
        )
        for privacy in (1, 2)
    ]  # fmt: skip
    rows = rows_of(runs)
    assert named(rows) == ["random", "batch-partition,privacy=1", "batch-partition,privacy=2"]
    assert named(baselines_of(rows)) == ["random"] * 3
    with pytest.raises(ExperimentError, match=r"ambiguous.*'batch-partition,privacy=1', 'batch-partition,privacy=2'"):
        baselines_of(rows, "batch-partition")
    assert named(baselines_of(rows, "batch-partition,privacy=2")) == ["batch-partition,privacy=2"] * 3


def test_a_grid_of_selection_keys_finds_the_baseline_with_the_same_values(quick: MakeRun) -> None:
    runs = [
        quick(
            f"{name}-{count}", name, participants=count, label=f"{name},participants={count}",
            sweep={"selection.protocol": name, "selection.participants": count},
        )
        for name, count in product(("lotto-client-centric", "random"), (2, 4))
    ]  # fmt: skip
    rows = rows_of(runs)
    assert named(baselines_of(rows)) == ["random,participants=2", "random,participants=4"] * 2
    assert named(baselines_of(rows, "random")) == named(baselines_of(rows))


def test_a_sweep_over_aggregation_alone_is_one_setting(quick: MakeRun) -> None:
    runs = [
        quick(f"{name}-{seed}", aggregation=name, seed=seed, sweep={"aggregation.protocol": name, "seed": seed})
        for name, seed in product(("plain", "secagg"), (1, 2))
    ]
    rows = rows_of(runs)
    assert named(rows) == ["random,aggregation.protocol=plain", "random,aggregation.protocol=secagg"]
    assert named(baselines_of(rows)) == ["random,aggregation.protocol=plain"] * 2  # all are random: the first


def test_without_random_the_first_is_the_baseline(quick: MakeRun) -> None:
    rows = rows_of([quick(name, name) for name in PROTOCOLS[:2]])
    assert named(baselines_of(rows)) == ["batch-partition"] * 2


def test_a_setting_without_the_baseline_has_none(quick: MakeRun) -> None:
    points = [("random", 20), ("lotto-client-centric", 20), ("lotto-client-centric", 40)]
    runs = [
        quick(f"{name}-{n}", name, population=n, sweep={"selection.protocol": name, "population": n})
        for name, n in points
    ]
    assert named(baselines_of(rows_of(runs))) == ["random,population=20"] * 2 + [None]


def test_an_unknown_baseline_names_those_there_are(quick: MakeRun) -> None:
    rows = rows_of([quick(name, name) for name in PROTOCOLS])
    with pytest.raises(ExperimentError, match=r"'rnd'.*'batch-partition', 'lotto-client-centric', 'random'"):
        baselines_of(rows, "rnd")


def test_no_runs_is_an_error() -> None:
    with pytest.raises(ExperimentError, match="no runs"):
        rows_of([])
