"""The `asynchronous` section: valid settings, and one line for excluded options."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.errors import ExperimentError
from testbed.experiment import Experiment
from testbed.experiment.asynchronous import notes
from testbed.experiment.inputs import secrets_context
from testbed.experiment.schema import check_points, validated
from testbed.running.execution import with_values
from testbed.selection.catalogue import PROTOCOLS

FITTING: dict[str, Any] = {
    "population": 40,
    "selection": {"protocol": "random", "participants": 4},
    "aggregation": {"protocol": "plain"},
    "links": {"transport": "none"},
    "asynchronous": {"concurrency": 10},
}


def refused(keys: dict[str, Any]) -> str:
    with pytest.raises(ExperimentError) as caught:
        validated(FITTING | keys, "file")
    (line,) = str(caught.value).splitlines()
    return line.removeprefix("file: asynchronous").lstrip(".: ")


def test_it_fits() -> None:
    section = validated(FITTING, "file").asynchronous
    assert section is not None
    assert (section.concurrency, section.staleness_exponent, section.max_staleness) == (10, 0.5, None)


def test_without_it_nothing_of_it_is_recorded() -> None:
    assert "asynchronous" not in Experiment().plain()
    without = validated(FITTING | {"asynchronous": None}, "file")
    assert secrets_context(without) != secrets_context(validated(FITTING, "file"))


@pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.model_fields["protocol"].default)
def test_selections_that_need_rounds_say_so(kind: Any) -> None:
    name = kind.model_fields["protocol"].default
    if name in ("random", "weighted-random"):
        validated(FITTING | {"selection": {"protocol": name, "participants": 4}}, "file")
        return
    sizes = {"participants": 10} if "partition" in name else {"participants": 4}
    sizes |= {"separation": 2} if name == "min-separation" else {}
    sizes = {"bins": 4} if name == "balls-in-bins" else sizes
    line = refused({"selection": {"protocol": name, **sizes}})
    assert line == f"excludes selection.protocol: {name}: {kind.needs_rounds}; use random or weighted-random"
    assert kind.needs_rounds


SECAGG = {"protocol": "secagg", "threshold": 0.75}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"asynchronous": {}}, "concurrency: is required"),
        ({"asynchronous": {"concurrency": 0}}, "concurrency: should be greater than 0, not 0"),
        ({"asynchronous": {"concurrency": 41}}, "concurrency: 41"),
        ({"asynchronous": {"concurrency": 4, "max_staleness": -1}}, "max_staleness: should be"),
        ({"selection": {"protocol": "tests.nothing:Here"}}, "excludes selection.protocol: tests.nothing:Here:"),
        ({"selection": {"recorded": "x.parquet"}}, "excludes selection.recorded: a"),
        ({"aggregation": {"protocol": "tests.nothing:Here"}}, "excludes aggregation.protocol: tests.nothing:Here"),
        (
            {"aggregation": SECAGG | {"model_binding": "signed"}},
            "excludes aggregation.model_binding: signed: clients of one buffer",
        ),
        (
            {"aggregation": SECAGG | {"model_binding": "none"}, "asynchronous": {"concurrency": 3}},
            "concurrency: 3; must be at least selection.participants (4), as under secure aggregation",
        ),
        (
            {"workload": {"momentum": 0, "drift_correction": {"name": "scaffold"}}},
            "excludes workload.drift_correction: scaffold",
        ),
        ({"workload": {"local_layers": {"last": 1}}}, "excludes workload.local_layers"),
        ({"time": {"clock": "wall"}}, "excludes time.clock: wall:"),
        ({"time": {"stage_quorums": {"train": 0.5}}}, "excludes time.stage_quorums: train:"),
        ({"links": {"transport": "auto"}}, "excludes links.transport: auto:"),
        ({"links": {"transport": "tls"}}, "excludes links.transport: tls:"),
        ({"adversary": {"dishonest": 1, "clients": ["inflate-utility"]}}, "excludes adversary"),
        ({"availability": {"model": "schedule", "path": "x.parquet"}}, "excludes availability.model: schedule"),
    ],
)  # fmt: skip
def test_what_it_goes_without(keys: dict[str, Any], line: str) -> None:
    assert refused(keys).startswith(line)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"availability": {"dropout": {"rate": 0.9, "stage": "check-in"}}}, "availability.dropout.stage"),
        ({"availability": {"dropout": {"hazard": {"check-in": 0.9}}}}, "availability.dropout.hazard"),
        ({"time": {"stage_deadlines": {"check-in": 5}}}, "time.stage_deadlines"),
        ({"time": {"stage_quorums": {"check-in": 0.5}}}, "time.stage_quorums"),
    ],
)
def test_nobody_is_asked_to_check_in(keys: dict[str, Any], key: str) -> None:
    experiment = validated(FITTING | keys, "file")
    with pytest.raises(ExperimentError) as caught:
        check_points([("file", experiment)])
    assert str(caught.value).startswith(f"file: {key}: 'check-in' is no stage of selection random with aggregation pla")
    assert "in asynchronous rounds" in str(caught.value)
    check_points([("file", validated(FITTING | keys | {"asynchronous": None}, "file"))])


def test_noise_is_not_accounted_for() -> None:
    noise = {"mechanism": "skellam", "clip": 1.0, "noise_multiplier": 1.0}
    line = refused({"aggregation": SECAGG | {"model_binding": "none", "weights": "equal", "noise": noise}})
    assert line.startswith("excludes aggregation.noise: the")


def test_what_nobody_has_written_takes_what_it_can_have_and_a_note_says_so() -> None:
    unwritten = FITTING | {"links": {"latency_ms": 20}, "aggregation": SECAGG}
    experiment = validated(unwritten, "file")
    assert experiment.links.transport == "none"
    written = validated(FITTING | {"links": {"latency_ms": 20, "transport": "none"}}, "file")
    binding = validated(FITTING | {"aggregation": SECAGG | {"model_binding": "none"}}, "file")
    assert experiment.plain() == binding.plain() | {"links": written.plain()["links"]}

    def noted(one: Experiment) -> list[str]:
        return notes(one.asynchronous, one.links, one.aggregation)

    assert ["links.transport" in line for line in noted(experiment)] == [True, False]
    assert "aggregation.model_binding" in noted(experiment)[1]
    assert noted(validated(FITTING | {"asynchronous": None, "links": {}}, "file")) == []
    assert noted(binding) == noted(validated(experiment.plain(), "file")) == []
    assert noted(with_values(experiment, {"cluster.network": "in-process"}, "file")) == noted(experiment)
    assert validated(unwritten | {"asynchronous": None}, "file").links.transport == "auto"


def test_headers_alone_are_no_obstacle(load_text: Callable[..., Experiment]) -> None:
    links = {"links": {"transport": {"preset": "tls", "congestion_control": "none", "handshake": "none"}}}
    assert validated(FITTING | links, "file").asynchronous is not None
