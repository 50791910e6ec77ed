"""The points of a sweep: the grid, how values are merged, labels, and mistakes by point."""

import re
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ExperimentError
from testbed.experiment import Experiment
from testbed.experiment.reading import MAXIMUM_POINTS, set_key
from testbed.experiment.schema import Point, points, validated
from testbed.files.names import directory_names
from testbed.selection.lotto.variants import ServerCentricParameters


def points_of(experiment: Experiment) -> list[Point]:
    return list(points(experiment, "here"))


def labels(experiment: Experiment) -> list[str]:
    return [point.label for point in points_of(experiment)]


def test_without_a_sweep_there_is_one_point_without_a_label(load_text: Callable[..., Experiment]) -> None:
    experiment = load_text("rounds: 3")
    assert points_of(experiment) == [Point("", {}, experiment)]


def test_the_grid_is_in_the_order_of_the_file(load_text: Callable[..., Experiment]) -> None:
    experiment = load_text("seed: 4\nsweep: {selection.participants: [5, 10], rounds: [1, 2]}")
    grid = points_of(experiment)
    assert [(p.experiment.selection.participants, p.experiment.rounds) for p in grid] == [
        (5, 1), (5, 2), (10, 1), (10, 2)
    ]  # fmt: skip
    assert [p.values for p in grid][1] == {"selection.participants": 5, "rounds": 2}
    assert labels(experiment) == [
        "participants=5,rounds=1", "participants=5,rounds=2", "participants=10,rounds=1", "participants=10,rounds=2"
    ]  # fmt: skip
    assert all(p.experiment.sweep == {} and p.experiment.seed == 4 for p in grid)


def test_a_mapping_is_merged_and_anything_else_replaces(load_text: Callable[..., Experiment]) -> None:
    experiment = load_text(
        """
        selection: {participants: 20}
        links: {latency_ms: [1, 2, 3], up_mbit_s: 5}
        availability: {dropout: {rate: 0.1}}
        sweep:
          selection: [{protocol: random}, {protocol: batch-partition, privacy: 4}]
          links: [{latency_ms: [9]}]
          availability: [{dropout: {stage: train}}, {model: bernoulli, unavailable: [0.1, 0.5]}]
        """
    )
    grid = points_of(experiment)
    assert [p.experiment.selection.participants for p in grid] == [20] * 4
    assert [p.experiment.selection.protocol for p in grid] == ["random"] * 2 + ["batch-partition"] * 2
    assert all(p.experiment.links.latency_ms == [9] for p in grid)
    assert all(p.experiment.links.up_mbit_s == 5 for p in grid)
    assert all(p.experiment.availability.dropout.rate == 0.1 for p in grid)
    assert [p.experiment.availability.dropout.stage for p in grid] == ["train", "random"] * 2
    assert grid[1].experiment.availability.unavailable == [0.1, 0.5]
    assert len(set(labels(experiment))) == 4
    # One point's values never leak into another's.
    assert points_of(experiment) == grid


def test_a_whole_section_that_is_no_mapping_is_a_mistake_of_its_point(mistake: Callable[..., str]) -> None:
    line = mistake("sweep: {selection: [{protocol: random}, random]}")
    assert line == (
        "sweep point selection=random: selection: should be a mapping of keys to values, not 'random'; "
        "its keys: participants, protocol, recorded"
    )


@pytest.mark.parametrize(
    ("sweep", "line"),
    [
        ("{selection.participants: [5, 200]}",
         "sweep point participants=200: selection.participants: 200 of a population of 100; at most 100"),
        ("{selection: [{protocol: random}, {protocol: batch-partition, privacy: 3}]}",
         "sweep point batch-partition: selection.privacy: T = 3 does not divide participants K = 10"),
        ("{selection: [{protocol: random, privacy: 3}]}",
         "sweep point random: selection.privacy: unknown key; it is a key of batch-partition, "),
        ("{selction.participants: [5]}",
         "sweep point participants=5: selction: unknown key; did you mean 'selection'?"),
        ("{links.latency_ms: [5, -5]}", "sweep point latency_ms=-5: links.latency_ms: should be greater than or"),
        ("{links.latency_ms: [.nan]}", "sweep.links.latency_ms.0: must be a finite number"),
        ("{rounds.x: [5]}", "sweep point x=5: rounds: should be a valid integer"),
        ("{rounds: [1], rounds.x: [5]}", "sweep.rounds.x: rounds is not a section and has no key x"),
        ("{a..b: [5]}", "sweep.a..b: 'a..b' is not a key"),
        ("{sweep: [{rounds: [1]}]}", "sweep.sweep: cannot be swept"),
        ("{sweep.rounds: [[1]]}", "sweep.sweep.rounds: cannot be swept"),
        ("{provenance.label: [a]}", "sweep.provenance.label: cannot be swept"),
        ("{rounds: [5, 6, 5]}", "sweep: the point rounds=5 occurs 2 times"),
        ("{selection: [{protocol: random}, {protocol: random}]}",
         "sweep: the point selection.protocol=random occurs 2 times"),
        (f"{{rounds: {list(range(1, 202))}, seed: {list(range(50))}}}", "sweep: a grid of 10050 points; at most"),
    ],
)  # fmt: skip
def test_mistakes_name_the_point(sweep: str, line: str, mistake: Callable[..., str]) -> None:
    assert mistake(f"sweep: {sweep}").startswith(line)


def test_a_huge_grid_is_refused_before_it_is_made(mistake: Callable[..., str]) -> None:
    keys = [f"devices.options.a{number}" for number in range(40)]
    line = mistake("sweep: {" + ", ".join(f"{key}: [1, 2, 3]" for key in keys) + "}")
    assert line == f"sweep: a grid of {3**40} points; at most {MAXIMUM_POINTS} are allowed"


def test_what_holds_only_at_the_points_need_not_hold_without_them(load_text: Callable[..., Experiment]) -> None:
    """10 participants, the default, of a population of 5: the sweep sets both."""
    experiment = load_text("population: 5\nsweep: {selection: [{participants: 2}, {participants: 3}]}")
    assert labels(experiment) == ["participants=2", "participants=3"]


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("{selection: [{protocol: random}, {protocol: partition}]}", ["random", "partition"]),
        ("{selection.protocol: [random, partition]}", ["random", "partition"]),
        ("{selection: [{protocol: random}, {protocol: batch-partition, privacy: 5}, "
         "{protocol: batch-partition, privacy: 2}]}",
         ["random", "batch-partition,privacy=5", "batch-partition,privacy=2"]),
        ("{selection: [{}, {protocol: partition}]}", ["selection={}", "partition"]),
        ("{availability: [{dropout: {rate: 0.1}}, {dropout: {rate: 0.2}}]}", ["rate=0.1", "rate=0.2"]),
        ("{links.latency_ms: [5, [1, 2]]}", ["latency_ms=5", "latency_ms=[1, 2]"]),
        ("{links: [{down_mbit_s: 5}], devices.options: [{a: {x: 1}, b: {x: 2}}, {a: {x: 2}, b: {x: 1}}]}",
         ["a.x=1", "a.x=2"]),
        ("{devices.options: [{a: {x: 1}}, {b: {x: 1}}]}", ["a.x=1", "b.x=1"]),
        ("{aggregation: [{protocol: plain}, {protocol: secagg, threshold: 0.7, bits: 28}, "
         "{protocol: secagg, threshold: 0.6, bits: 28}], rounds: [5]}",
         ["plain", "secagg,threshold=0.7", "secagg,threshold=0.6"]),
        ("{aggregation: [{protocol: secagg, threshold: 0.7, bits: 28}, {protocol: secagg, threshold: 0.6, bits: 28}]}",
         ["threshold=0.7", "threshold=0.6"]),
        ("{availability.dropout: [{rate: 0.1, stage: random}, {rate: 0.2, stage: train}]}", ["rate=0.1", "rate=0.2"]),
        ('{name: ["a", "b\\nc", ""]}', None),
    ],
)  # fmt: skip
def test_labels_are_short_and_unique(sweep: str, expected: list[str] | None, load_text: Callable) -> None:
    if expected is None:
        with pytest.raises(ExperimentError, match="name"):
            load_text(f"sweep: {sweep}")
        return
    assert labels(load_text(f"sweep: {sweep}")) == expected


_leaf = st.integers(0, 2) | st.sampled_from(["a", "b"]) | st.booleans()
_value = _leaf | st.dictionaries(st.sampled_from(["x", "y"]), _leaf | st.dictionaries(st.just("z"), _leaf), max_size=2)


@given(
    sweep=st.dictionaries(
        st.sampled_from(["devices.options.p", "devices.options.q.r", "workload.options"]),
        st.lists(_value, min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    )
)
def test_labels_are_unique_printable_and_never_empty_or_the_sweep_is_refused(sweep: dict) -> None:
    section = {"dataset": "their.module:Data"}
    experiment = Experiment.model_validate({"sweep": sweep, "workload": section, "devices": {"model": "a.b:C"}})
    refused = ""
    try:
        found = points_of(experiment)
    except ExperimentError as error:
        found, refused = [], str(error)
    assert bool(found) != bool(refused)
    for line in refused.splitlines():
        assert re.search(r"the point .* occurs \d+ times|workload\.options: should be a mapping", line)
    names = [point.label for point in found]
    assert len(set(names)) == len(names)
    assert all(name and name.isprintable() for name in names)
    for point in found:
        for key, value in point.values.items():
            target = point.experiment.model_dump()
            for part in key.split("."):
                target = target[part]
            if not isinstance(value, dict):
                assert target == value


def test_values_are_called_by_their_names(load_text: Callable[..., Experiment]) -> None:
    experiment = load_text(
        """
        sweep:
          selection:
            - {label: "Anybody / random", protocol: random}
            - {protocol: batch-partition, privacy: 5}
          links: [{label: 3G, latency_ms: 200}, {label: wired, value: {latency_ms: 5}}]
          rounds: [{label: short, value: 2}, 9]
        """
    )
    grid = points_of(experiment)
    names = ("Anybody / random", "batch-partition"), ("3G", "wired"), ("short", "rounds=9")
    assert labels(experiment) == [",".join(point) for point in product(*names)]
    assert grid[0].names == {"selection": "Anybody / random", "links": "3G", "rounds": "short"}
    assert grid[-1].names == {"links": "wired"}
    assert grid[0].values == {"selection": {"protocol": "random"}, "links": {"latency_ms": 200}, "rounds": 2}
    assert [point.experiment.links.latency_ms for point in grid[::2]] == [200, 5, 200, 5]
    assert [point.experiment.rounds for point in grid[:2]] == [2, 9]
    assert directory_names(labels(experiment))[0] == "Anybody-random,3G,short"


@pytest.mark.parametrize(
    ("sweep", "line"),
    [
        ("{rounds: [{label: short}]}",
         "sweep.rounds: label: short names no value; add value: or the keys that it stands for"),
        ("{rounds: [{label: [1], value: 2}]}", "sweep.rounds: label: must be a name, not [1]"),
        ("{rounds: [{label: ' ', value: 2}]}", "sweep.rounds: label: must be a name, not ' '"),
        ("{rounds: [{label: true, value: 2}]}", "sweep.rounds: label: must be a name, not True"),
        ("{rounds: [{label: a, value: 2}, {label: a, value: 3}]}",
         "sweep: the point a occurs 2 times; remove the duplicates"),
        ("{rounds: [{label: a, value: x}]}",
         "sweep point a: rounds: should be a valid integer, not 'x'"),
    ],
)  # fmt: skip
def test_names_that_are_none(mistake: Callable[..., str], sweep: str, line: str) -> None:
    assert mistake(f"sweep: {sweep}") == line


def test_setting_keys() -> None:
    data: dict = {"a": {"b": 1, "c": {"d": 2}}, "e": None}
    set_key(data, "a.b", 5, "here")
    set_key(data, "a.c", {"f": 3}, "here")
    set_key(data, "e.g.h", [1], "here")
    set_key(data, "a.c.d", {"i": 1}, "here")
    set_key(data, "a.x.y", {"dotted.name": 1}, "here")
    assert data == {
        "a": {"b": 5, "c": {"d": {"i": 1}, "f": 3}, "x": {"y": {"dotted.name": 1}}}, "e": {"g": {"h": [1]}}
    }  # fmt: skip


def test_another_protocol_drops_what_only_the_one_before_knew() -> None:
    base = {"selection": {"protocol": "lotto-client-centric", "participants": 4, "over_selection": 2.0}}
    for key, value in (("selection.protocol", "random"), ("selection", {"protocol": "batch-partition", "privacy": 2})):
        data = {"selection": dict(base["selection"])}
        set_key(data, key, value, "test")
        section = validated(data, "test").selection
        assert section.participants == 4
        assert not hasattr(section, "over_selection")
    set_key(base, "selection", {"protocol": "lotto-server-centric"}, "test")
    centric = validated(base, "test").selection
    assert isinstance(centric, ServerCentricParameters)
    assert centric.over_selection == 2.0
