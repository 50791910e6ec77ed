"""Which runs are repetitions, which share a setting, and which is the baseline."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from analysis.comparison.overhead import compare
from analysis.comparison.rows import ComparisonRow, baselines_of, rows_of
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.messages_named import naming

MakeRun = Callable[..., RunRecords]
PROTOCOLS = ("batch-partition", "lotto-client-centric", "random")


@pytest.fixture
def quick(make_run: MakeRun) -> MakeRun:
    """Runs of one round and few clients."""

    def make(name: str, protocol: str = "random", **options: object) -> RunRecords:
        return make_run(name, protocol, **{"population": 20, "participants": 4, "rounds": 1, **options})

    return make


def named(rows: Sequence[ComparisonRow | None]) -> list[str | None]:
    return [None if row is None else row.full_label for row in rows]


def test_a_sweep_over_protocols_is_one_setting(quick: MakeRun) -> None:
    rows = rows_of([quick(name, name, sweep={"selection.protocol": name}) for name in PROTOCOLS])
    assert named(rows) == list(PROTOCOLS)
    assert {row.setting for row in rows} == {""}
    assert named(baselines_of(rows)) == ["batch-partition"] * 3  # the first
    assert named(baselines_of(rows, "random")) == ["random"] * 3


def test_seeds_are_pooled_and_populations_are_settings_in_the_order_of_the_runs(quick: MakeRun) -> None:
    runs = [
        quick(
            f"{name}-{population}-{seed}", name, population=population, seed=seed, label=f"{name},{population},{seed}",
            sweep={"selection": {"protocol": name}, "population": population, "seed": seed},
        )
        for name, population, seed in product(PROTOCOLS, (100, 20), (1, 2, 3))
    ]  # fmt: skip
    rows = rows_of(runs)
    assert [row.setting for row in rows] == ["population=100"] * 3 + ["population=20"] * 3
    assert [row.label for row in rows] == list(PROTOCOLS) * 2
    assert [[run.experiment["seed"] for run in row.runs] for row in rows] == [[1, 2, 3]] * 6
    baselines = baselines_of(rows)
    assert named(baselines) == ["batch-partition,population=100"] * 3 + ["batch-partition,population=20"] * 3
    assert baselines_of(rows, "batch-partition") == baselines
    assert named(baselines_of(rows, "random")) == ["random,population=100"] * 3 + ["random,population=20"] * 3
    assert named(baselines_of(rows, "random,population=20")) == ["random,population=20"] * 6
    assert named(baselines_of(rows, "lotto-client-centric,20,2")) == ["lotto-client-centric,population=20"] * 6


def test_populations_of_separate_sweeps_are_settings_too(quick: MakeRun) -> None:
    runs = [
        quick(f"{name}-{population}", name, population=population, sweep={"selection.protocol": name})
        for population, name in product((100, 20), PROTOCOLS)
    ]
    rows = rows_of(runs)
    assert [row.setting for row in rows] == ["population=100"] * 3 + ["population=20"] * 3


def test_the_same_seed_twice_is_not_a_repetition(quick: MakeRun) -> None:
    rows = rows_of([quick("before"), quick("after")])
    assert named(rows) == ["random [before]", "random [after]"]
    assert named(baselines_of(rows, "after")) == ["random [after]"] * 2


def test_directories_of_the_same_name_are_told_by_those_they_lie_in(quick: MakeRun) -> None:
    """`testbed compare runs/monday runs/tuesday`: a lookup by label would return the other row."""
    runs = [quick(f"{day}/sweep/random") for day in ("monday", "tuesday")]
    rows = rows_of(runs)
    assert named(rows) == ["random [monday/sweep/random]", "random [tuesday/sweep/random]"]
    assert baselines_of(rows, "random [tuesday/sweep/random]") == [rows[1], rows[1]]


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
    assert named(baselines_of(rows, "random")) == ["random,participants=2", "random,participants=4"] * 2
    lotto = ["lotto-client-centric,participants=2", "lotto-client-centric,participants=4"] * 2
    assert named(baselines_of(rows)) == lotto  # the protocol of the first row


def test_the_first_of_several_with_keys_of_their_own_is_the_baseline_of_all(quick: MakeRun) -> None:
    runs = [
        quick(
            f"batch-{privacy}", "batch-partition", selection={"privacy": privacy},
            sweep={"selection": {"protocol": "batch-partition", "privacy": privacy}},
            label=f"batch-partition,privacy={privacy}",
        )
        for privacy in (2, 1)
    ] + [quick("random", sweep={"selection": {"protocol": "random"}})]  # fmt: skip
    rows = rows_of(runs)
    assert named(rows) == ["batch-partition,privacy=2", "batch-partition,privacy=1", "random"]
    assert named(baselines_of(rows)) == ["batch-partition,privacy=2"] * 3


def test_a_sweep_over_aggregation_alone_is_one_setting(quick: MakeRun) -> None:
    runs = [
        quick(f"{name}-{seed}", aggregation=name, seed=seed, sweep={"aggregation.protocol": name, "seed": seed})
        for name, seed in product(("plain", "secagg"), (1, 2))
    ]
    rows = rows_of(runs)
    assert named(rows) == ["plain", "secagg"]
    assert named(baselines_of(rows)) == ["plain"] * 2  # all are random: the first


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


# -- grouped ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def latencies(quick: MakeRun) -> list[RunRecords]:
    """Two aggregations, two latencies, two seeds."""
    return [
        quick(
            f"{name}-{latency}-{seed}", aggregation=name, latency_ms=latency, seed=seed,
            sweep={"aggregation.protocol": name, "links.latency_ms": latency, "seed": seed},
        )
        for name, latency, seed in product(("plain", "secagg"), (100.0, 10.0), (1, 2))
    ]  # fmt: skip


def test_rows_are_grouped_by_a_key(latencies: list[RunRecords]) -> None:
    assert {row.setting for row in rows_of(latencies)} == {""}
    rows = rows_of(latencies, ["links.latency_ms"])
    assert [row.setting for row in rows] == ["latency_ms=100.0"] * 2 + ["latency_ms=10.0"] * 2
    assert [row.label for row in rows] == [
        "plain",
        "secagg",
    ] * 2
    assert [len(row.runs) for row in rows] == [2] * 4
    first = [f"plain,latency_ms={latency}" for latency in (100.0, 10.0)]
    assert named(baselines_of(rows)) == [first[0]] * 2 + [first[1]] * 2


def test_a_row_of_one_group_is_the_baseline_of_all(latencies: list[RunRecords]) -> None:
    rows = rows_of(latencies, ["links.latency_ms"])
    name = "secagg,latency_ms=10.0"
    assert named(baselines_of(rows, name)) == [name] * 4
    frame = compare(latencies, name, group_by=["links.latency_ms"])
    assert frame["baseline"].tolist() == [name] * 4
    assert frame["is_baseline"].tolist() == [False] * 3 + [True]


def test_rows_are_grouped_by_several_keys_also_by_the_protocol(latencies: list[RunRecords]) -> None:
    rows = rows_of(latencies, ["aggregation.protocol", "links.latency_ms"])
    assert [row.setting for row in rows] == [
        f"{name},latency_ms={latency}" for name in ("plain", "secagg") for latency in (100.0, 10.0)
    ]
    assert {row.label for row in rows} == {"random"}
    by_selection = rows_of(latencies, ["selection.protocol"])
    assert {row.setting for row in by_selection} == {"random"}
    assert len({row.label for row in by_selection}) == 4


def test_a_section_that_is_swept_is_grouped_by_a_key_in_it(quick: MakeRun) -> None:
    runs = [
        quick(
            f"{name}-{latency}", name, latency_ms=latency,
            sweep={"selection.protocol": name, "links": {"latency_ms": latency, "down_mbit_s": 2 * latency}},
        )
        for name, latency in product(("random", "batch-partition"), (1, 2))
    ]  # fmt: skip
    rows = rows_of(runs, ["links.latency_ms"])
    assert [row.setting for row in rows] == ["latency_ms=1", "latency_ms=1", "latency_ms=2", "latency_ms=2"]
    assert [row.label for row in rows] == ["random", "batch-partition"] * 2  # nothing else varies within a group


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("links.latency", "aggregation.protocol, links.latency_ms"),
        ("latency_ms", "links.latency_ms"),
        ("links.latency_ms.x", "links.latency_ms"),
        ("", "links.latency_ms"),
        ("seed", "one row"),
        ("provenance.label", "one row"),
    ],
)
def test_a_key_that_makes_no_groups_is_refused(latencies: list[RunRecords], key: str, part: str) -> None:
    with pytest.raises(ExperimentError, match=naming(f"--group-by {key}:", part)):
        rows_of(latencies, [key])


# -- named points -----------------------------------------------------------------------------------------------------


def test_named_points_are_called_by_their_names(quick: MakeRun) -> None:
    runs = [
        quick(
            f"{name}-{place}-{seed}", protocol, latency_ms=latency, seed=seed, label=f"{name},{place},{seed}",
            sweep={"selection": {"protocol": protocol}, "links.latency_ms": latency, "seed": seed},
            sweep_labels={"selection": name, "links.latency_ms": place},
        )
        for (name, protocol), (place, latency), seed in product(
            (("Anybody", "random"), ("By lot", "lotto-client-centric")), (("near", 5), ("far", 200)), (1, 2)
        )
    ]  # fmt: skip
    rows = rows_of(runs)
    assert [row.full_label for row in rows] == ["Anybody,near", "By lot,near", "Anybody,far", "By lot,far"]
    assert named(baselines_of(rows, "By lot")) == ["By lot,near"] * 2 + ["By lot,far"] * 2
    grouped = rows_of(runs, ["selection.protocol"])
    assert [row.full_label for row in grouped] == [
        "near,random", "far,random",
        "near,lotto-client-centric", "far,lotto-client-centric",
    ]  # fmt: skip


def test_names_distinguish_the_variants_of_a_protocol(quick: MakeRun) -> None:
    runs = [
        quick(
            f"batch-{privacy}-{seed}", "batch-partition", selection={"privacy": privacy}, seed=seed,
            sweep={"selection": {"protocol": "batch-partition", "privacy": privacy}, "seed": seed},
            sweep_labels={"selection": f"T={privacy}"},
        )
        for privacy, seed in product((2, 1), (1, 2))
    ]  # fmt: skip
    assert [row.label for row in rows_of(runs)] == ["T=2", "T=1"]


# -- labels name only differences -------------------------------------------------------------------------------------

THRESHOLDS = [
    {"protocol": "plain"},
    {"protocol": "secagg", "threshold": 0.5, "bits": 16},
    {"protocol": "secagg", "threshold": 0.6, "bits": 16},
]


def test_a_mapping_shows_only_its_differences_from_the_others(quick: MakeRun) -> None:
    runs = [
        quick(
            f"{place}-{rate}",
            sweep={"aggregation": value, "availability.dropout.rate": rate},
            extra={"x": [place], "availability": {"dropout": {"rate": rate}}},
        )
        for place, value in enumerate(THRESHOLDS)
        for rate in (0.1, 0.2)
    ]
    assert [row.full_label for row in rows_of(runs, ["availability.dropout.rate"])] == [
        f"{name},rate={rate}"
        for rate in (0.1, 0.2)
        for name in ("plain", "secagg,threshold=0.5", "secagg,threshold=0.6")
    ]
    several = rows_of(runs[2:], ["availability.dropout.rate"])  # only SecAgg's: its name does not vary
    assert [row.label for row in several] == ["threshold=0.5", "threshold=0.6"] * 2


def test_runs_beside_a_labelled_sweep_are_called_by_their_experiments_name(quick: MakeRun) -> None:
    """As FedBuff beside a sweep over learning algorithms, with seeds of its own."""
    workload = {
        "dataset": "digits",
        "model": "auto",
        "partition": {"alpha": 0.5, "minimum_samples": 1},
        "momentum": 0.9,
    }
    sweep = [
        quick(
            f"{label}-{seed}", seed=seed, extra={"workload": workload, "training": value},
            sweep={"training": value, "seed": seed}, sweep_labels={"training": label},
        )
        for label, value in (("FedAvg", {"protocol": "sgd"}), ("FedProx", {"protocol": "fedprox", "mu": 0.1}))
        for seed in (1, 2)
    ]  # fmt: skip
    beside = [
        quick(
            f"buffered-{seed}", seed=seed, sweep={"seed": seed},
            extra={"name": "fedbuff", "workload": workload, "training": {"protocol": "sgd"}, "buffer": {"k": 4}},
        )
        for seed in (1, 2)
    ]  # fmt: skip
    rows = rows_of([*sweep, *beside])
    assert named(rows) == ["FedAvg", "FedProx", "fedbuff"]
    assert named(baselines_of(rows, "fedbuff")) == ["fedbuff"] * 3
    assert named(rows_of([*sweep, quick("alone", label="alone", extra={"name": "alone", "workload": workload})])) == [
        "FedAvg", "FedProx", "alone",
    ]  # fmt: skip


def test_the_same_sweep_with_another_setting_is_told_by_the_setting(quick: MakeRun) -> None:
    runs = [
        quick(f"{day}/{name}", name, sweep={"selection.protocol": name}, extra={"rounds": rounds, "links": links})
        for day, rounds, links in (("monday", 10, {"latency_ms": 5}), ("tuesday", 20, {"latency_ms": 5}))
        for name in ("random", "batch-partition")
    ]
    assert named(rows_of(runs)) == [
        f"{name},rounds={rounds}" for rounds in (10, 20) for name in ("random", "batch-partition")
    ]


def test_the_same_sweep_of_experiments_with_names_is_told_by_these(quick: MakeRun) -> None:
    runs = [
        quick(f"{day}/{name}", name, sweep={"selection.protocol": name}, extra={"name": day})
        for day in ("monday", "tuesday")
        for name in ("random", "batch-partition")
    ]
    assert named(rows_of(runs)) == [
        f"{day},{name}" for day in ("monday", "tuesday") for name in ("random", "batch-partition")
    ]
