"""What a run survives on several Ray nodes; `benchmarks.faults` has more, and prints the table in the docs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import breaking
from benchmarks.breaking import SUM, Poison
from benchmarks.faults import HOSTS, Nodes, Trials, experiment, identical, node_lost, undisturbed
from cluster.hosts.session import RaySession
from testbed.records import RunDirectory, RunRecords

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """Three Ray nodes on this machine."""
    with Nodes() as nodes:
        yield Trials(nodes, tmp_path_factory.mktemp("trials"))


def test_a_host_is_killed_in_the_middle_of_every_stage(trials: Trials) -> None:
    stages = [*trials.plan.selection.stages, "train", *trials.plan.aggregation.stages, SUM]
    # At most two deaths of a host in a round: a host that dies four times in one round ends the run.
    victims = [breaking.host((number + number // 3) % HOSTS) for number in range(len(stages))]
    faults = [(2 + number % 3, stage, victims[number], 1) for number, stage in enumerate(stages)]
    row = trials.fault("a host's process", "every stage", *faults)
    assert row.identical
    assert row.outcome == "continued"
    assert row.hosts_restarted == len(stages)


def test_hosts_are_on_different_nodes_and_a_lost_node_changes_nothing(trials: Trials) -> None:
    row = node_lost(trials, "secagg/masked-input")
    assert row.identical
    assert row.outcome == "continued"
    assert row.hosts_restarted == 1


def test_a_replacing_host_has_the_clients_kept_state(trials: Trials) -> None:
    keeping = {"dataset": "digits", "model": "logistic", "momentum": 0, "drift_correction": {"name": "scaffold"}}
    described = experiment(workload=keeping)
    reference = undisturbed(described, trials.directory / "reference-scaffold")
    faults = [(3, "train", breaking.host(0), 1), (4, "secagg/masked-input", breaking.host(1), 1)]
    row = trials.fault("a host's process", "two stages", *faults, described=described, reference=reference)
    assert row.identical
    assert row.outcome == "continued"
    assert row.hosts_restarted == 2


def test_a_replacing_host_has_the_clients_round_state(trials: Trials) -> None:
    """A server that asks clients again before their turn gains nothing from the death of their host."""
    rests = {"protocol": "min-separation", "separation": 3, "participants": 6}
    early = {"dishonest": 0, "server": "reselect-early"}
    described = experiment(selection=rests, adversary=early, availability={"model": "always"})
    reference = undisturbed(described, trials.directory / "reference-early")
    assert (reference.events["detail"].str.startswith("train.too-early")).sum() >= 3
    faults = [
        (2, "train", breaking.host(0), 1),
        (2, "check-in", breaking.host(1), 1),
        (3, "train", breaking.host(2), 1),
    ]
    row = trials.fault("a host's process", "two stages", *faults, described=described, reference=reference)
    assert row.identical
    assert row.outcome == "continued"
    assert row.hosts_restarted == 3


def test_a_coordinator_killed_mid_round_repeats_that_round(trials: Trials) -> None:
    row = trials.fault("the coordinator", "", (3, "secagg/unmask", breaking.coordinator, 1))
    assert row.identical
    assert row.outcome == "continued"
    assert row.rounds_repeated == 1


def test_a_host_that_dies_again_and_again_stops_the_run_and_resume_goes_on(trials: Trials) -> None:
    row = trials.fault("a host, again and again", "", (2, "train", breaking.host(1), 5))
    assert "died 4 times" in row.outcome
    assert row.identical


def test_a_client_that_kills_its_host_is_quarantined_also_after_resume(ray_here: None, tmp_path: Path) -> None:
    described = experiment(
        workload={"dataset": "benchmarks.breaking:Poison"},
        on_crash="drop",
        population=10,
        selection={"protocol": "random", "participants": 8},
        aggregation={"protocol": "plain"},
    )
    runs = {name: tmp_path / name for name in ("whole", "interrupted")}
    for run in runs.values():
        RunDirectory.create(run, described.plain())
    with RaySession(None, 2) as session:
        session.run(described, 0, runs["whole"], lambda progress: None)
        session.run(described.model_copy(update={"rounds": 3}), 0, runs["interrupted"], lambda progress: None)
    with RaySession(None, 2) as session:  # new processes: all state in memory is gone
        session.run(described, 0, runs["interrupted"], lambda progress: None)
    whole, interrupted = (RunRecords(run) for run in runs.values())
    assert identical(interrupted, whole)
    left_out = interrupted.events[interrupted.events["kind"] == "quarantined"]
    assert left_out["party"].tolist() == [f"client:{Poison.KILLS}"]
    crashed = interrupted.events[interrupted.events["kind"] == "crash"]
    assert set(crashed["party"]) == {f"client:{Poison.RAISES}"}  # a handler that raises costs its client the stage
