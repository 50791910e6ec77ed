"""SCAFFOLD and FedDyn against the papers' formulas, on clients with a known optimum, under every aggregation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.attacks.reconstruction import reconstruct
from testbed.engine.in_process import run_in_process
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError, RunError
from testbed.experiment.schema import Experiment, validated
from testbed.messages import Vector, encode
from testbed.records import RunDirectory, RunRecords
from testbed.records.arrays import CHECKPOINT
from testbed.training import StateReference, TrainWithState
from testbed.workload.client_algorithm import LAST_ROUND
from testbed.workload.client_states import FOLDER
from tests.engine.federations import Run
from tests.engine.quadratics import Quadratics, common_of, of_papers
from tests.engine.test_server_optimizers import PROTOCOLS
from tests.thoroughness import each_pair

ALGORITHMS: dict[str, dict[str, Any]] = {
    "scaffold": {"name": "scaffold"},
    "feddyn": {"name": "feddyn", "alpha": 0.4},
}
WORKLOAD = {"momentum": 0, "learning_rate": 0.2, "epochs": 2}


def keys(algorithm: str | None, **more: Any) -> dict[str, Any]:
    workload = WORKLOAD | {"drift_correction": None if algorithm is None else ALGORITHMS[algorithm]}
    return {
        "population": 12, "rounds": 8, "selection": {"participants": 6}, "aggregation": {"protocol": "plain"},
        "workload": workload,
    } | more  # fmt: skip


def quadratics(run: Callable[..., Run], asked: dict[str, Any], **options: Any) -> Run:
    section = Experiment.model_validate({"seed": 3} | asked).workload
    return run(asked, workload=lambda population: Quadratics.drawn(section, population), **options)


def weights_of(one: Run) -> np.ndarray:
    equal = one.experiment.aggregation.weights == "equal"
    return np.ones(one.experiment.population) if equal else one.workload.sample_counts.astype(float)


# -- purpose -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_clients_that_pull_apart_reach_the_optimum(run: Callable[..., Run], algorithm: str) -> None:
    """f_1 = x^2 + x, f_2 = -x: FedAvg with more than one step does not (SCAFFOLD, appendix D)."""

    class Two(Quadratics):
        statistics = 0

        def gradient(self, client: int, parameters: np.ndarray) -> np.ndarray:
            return 2 * parameters + 1 if client == 0 else -np.ones_like(parameters)

        def steps_of(self, client: int) -> int:
            return self.section.epochs

        def initial_model(self) -> np.ndarray:
            return np.full(1, 2.0, np.float32)

    both: dict[str | None, float] = {}
    for name in (None, algorithm):
        asked = keys(name, population=2, rounds=200, selection={"participants": 2})
        asked["workload"] = asked["workload"] | {"epochs": 5, "learning_rate": 0.1}
        section = Experiment.model_validate({"seed": 3} | asked).workload
        arrays = np.ones((2, 1)), np.zeros((2, 1)), np.ones(2, np.int64)
        one = run(asked, workload=lambda population, section=section, arrays=arrays: Two(section, *arrays))
        both[name] = float(one.rounds().federation.state.model[0])
    assert abs(both[None]) > 0.05
    assert abs(both[algorithm]) < 1e-4


@pytest.mark.parametrize("weights", ["samples", "equal"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_half_of_unlike_clients_a_round_reach_the_weighted_optimum(
    run: Callable[..., Run], algorithm: str, weights: str
) -> None:
    errors = []
    for name in (None, algorithm):
        asked = keys(name, rounds=400, aggregation={"protocol": "plain", "weights": weights})
        one = quadratics(run, asked).rounds()
        p = one.workload.corrected
        errors.append(np.abs(one.federation.state.model[:p] - one.workload.optimum(weights_of(one))).max())
    assert errors[0] > 0.02
    assert errors[1] < 1e-4


# -- the papers, round by round ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "protocol", "stage"), each_pair(ALGORITHMS, PROTOCOLS, ["train", "last", "random"])
)
def test_it_equals_the_papers_for_any_dropouts(
    run: Callable[..., Run], algorithm: str, protocol: str, stage: str
) -> None:
    """Training of a client outside the sum leaves no trace in its state: the next rounds would differ."""
    given = {"clip": 2.0, "levels_bits": 20} if protocol not in ("plain", "pine") else {}
    of_update = {
        "plain": "plain/update", "lightsecagg": "lightsecagg/masked-input", "flamingo": "flamingo/report",
        "one-shot": "one-shot/masked-input", "pine": "pine/report",
    }  # fmt: skip
    lost = {"rate": 0.15, "stage": of_update.get(protocol, "secagg/masked-input") if stage == "last" else stage}
    asked = keys(
        algorithm, population=24, selection={"participants": 14}, aggregation=PROTOCOLS[protocol] | given,
        availability={"dropout": lost},
    )  # fmt: skip
    one = quadratics(run, asked).rounds()
    survivors = [len(outcome.survivors) for outcome in one.outcomes if outcome.state == "completed"]
    assert len(survivors) > 4
    assert min(survivors) < 14
    papers = of_papers(one.workload, one.experiment.workload, weights_of(one), one.outcomes)
    tolerance = 1e-5 if protocol == "plain" else 2e-4
    assert one.federation.state.model == pytest.approx(papers.model, abs=tolerance)
    assert common_of(one.federation.state.memory) == pytest.approx(papers.common, abs=5 * tolerance)
    last = one.federation.state.memory[LAST_ROUND]
    assert set(np.flatnonzero(last).tolist()) == set(papers.own)


def total(one: Run, stage: str, column: str) -> int:
    return sum(row[column] for row in one.rows("exchanges") if row["stage"] == stage)


def test_every_byte_is_counted(run: Callable[..., Run]) -> None:
    one = quadratics(run, keys("scaffold"), name="run").rounds(1)
    d, p = one.workload.dimension, one.workload.corrected
    question = len(encode(TrainWithState(1, Vector(np.zeros(d + p, np.float32), 0)))) + len(encode(StateReference(0)))
    assert total(one, "train", "bytes_down") == 6 * question
    without = quadratics(run, keys(None), name="without").rounds(1)
    more = total(one, "plain/update", "bytes_up") - total(without, "plain/update", "bytes_up")
    assert more == 6 * 4 * p


def test_a_servers_learning_rate_is_scaffolds(run: Callable[..., Run]) -> None:
    asked = keys("scaffold", rounds=1)
    full = quadratics(run, asked).rounds()
    asked["aggregation"] = {
        "protocol": "plain",
        "server_optimizer": {"name": "momentum", "beta1": 0, "learning_rate": 0.5},
    }
    half = quadratics(run, asked).rounds()
    start = full.workload.initial_model()
    assert half.federation.state.model - start == pytest.approx((full.federation.state.model - start) / 2, abs=1e-6)
    assert common_of(half.federation.state.memory) == pytest.approx(common_of(full.federation.state.memory))


# -- resumed, on other hosts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_resumed_on_other_hosts_it_is_the_run_in_one_go(
    run: Callable[..., Run], tmp_path: Path, algorithm: str, damaged: bool
) -> None:
    """Also where the last checkpoint is lost, and the one before stands in."""
    asked = keys(
        algorithm, rounds=9, aggregation=PROTOCOLS["secagg"], selection={"participants": 9},
        availability={"dropout": {"rate": 0.15, "stage": "random"}},
    )  # fmt: skip
    whole = quadratics(run, asked, name="whole").rounds()
    quadratics(run, asked, name="stopped").rounds(6)
    if damaged:
        (tmp_path / "stopped" / CHECKPOINT).write_bytes(b"nothing")
    resumed = quadratics(run, asked, name="stopped", resume=True, hosts=3).rounds()
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    memory, kept = whole.federation.state.memory, resumed.federation.state.memory
    assert memory.keys() == kept.keys()
    assert all(memory[one].tobytes() == kept[one].tobytes() for one in memory)
    assert resumed.rows("exchanges") == whole.rows("exchanges")
    files = [[(file.name, file.read_bytes()) for file in sorted(one.rglob("*.f32"))] for one in (
        tmp_path / "whole" / FOLDER, tmp_path / "stopped" / FOLDER,
    )]  # fmt: skip
    assert files[0] == files[1] != []


def test_a_round_that_is_aborted_leaves_everything_as_it_was(run: Callable[..., Run]) -> None:
    asked = keys("scaffold", rounds=10, aggregation=PROTOCOLS["secagg"], selection={"participants": 8})
    asked["availability"] = {"dropout": {"rate": 0.35, "stage": "secagg/masked-input"}}
    one, seen = quadratics(run, asked), set()
    for _ in range(10):
        before = one.federation.state
        one.rounds(1)
        seen.add(one.outcomes[-1].state)
        after = {name: array for name, array in one.federation.state.memory.items() if not name.endswith("/length")}
        same = {array.tobytes() == before.memory[name].tobytes() for name, array in after.items()}
        assert same == {one.outcomes[-1].state == "aborted"}
    assert seen == {"aborted", "completed"}
    papers = of_papers(one.workload, one.experiment.workload, weights_of(one), one.outcomes)
    assert one.federation.state.model == pytest.approx(papers.model, abs=2e-3)


def test_on_the_wall_clock_it_is_the_model_of_the_virtual_one(tmp_path: Path) -> None:
    models = []
    for clock in ("virtual", "wall"):
        asked = keys("scaffold", population=5, rounds=2, selection={"participants": 3})
        asked |= {"seed": 3, "time": {"clock": clock, "compute": "modelled"}, "links": {"latency_ms": 1}}
        experiment = Experiment.model_validate(asked)
        records = RunDirectory.create(tmp_path / clock, experiment.plain())
        made = Quadratics.drawn(experiment.workload, 5)
        run_in_process(experiment, made, 0, records, lambda progress: None)
        checkpoint = records.checkpoint()
        assert checkpoint is not None
        models.append(checkpoint.model.tobytes() + common_of(checkpoint.memory).tobytes())
    assert models[0] == models[1]


# -- invalid settings --------------------------------------------------------------------------------------------------


def said(call: Callable[[], Any], error: type[Exception]) -> str:
    with pytest.raises(error) as raised:
        call()
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(("began", "goes_on"), [("scaffold", "feddyn"), ("feddyn", None), (None, "scaffold")])
def test_a_checkpoint_of_another_algorithm(
    run: Callable[..., Run], tmp_path: Path, began: str | None, goes_on: str | None
) -> None:
    quadratics(run, keys(began), name="run").rounds(2)
    line = said(lambda: quadratics(run, keys(goes_on), name="run", resume=True), RunError)
    names = [name or "no client states" for name in (began, goes_on)]
    assert line == (
        f"{tmp_path / 'run'}: the checkpoint was written with {names[0]}, but the experiment has {names[1]}; "
        "resume with the experiment that began the run"
    )


def test_states_that_are_lost(run: Callable[..., Run], tmp_path: Path) -> None:
    quadratics(run, keys("feddyn"), name="run").rounds(3)
    files = sorted((tmp_path / "run" / FOLDER).rglob("*0000003.f32"))
    files[0].write_bytes(files[0].read_bytes()[:-1])
    line = said(lambda: quadratics(run, keys("feddyn"), name="run", resume=True), RunError)
    assert line.startswith(
        f"{files[0]}: the client's state is lost (has 19 bytes, not 20), and the run cannot be resumed without it"
    )
    files[0].unlink()
    assert "is lost (No such file" in said(lambda: quadratics(run, keys("feddyn"), name="run", resume=True), RunError)


@pytest.mark.parametrize("on_crash", ["stop", "drop"])
def test_a_state_that_is_lost_meanwhile_ends_the_run(run: Callable[..., Run], tmp_path: Path, on_crash: str) -> None:
    """It is no crash of the client's code, which an experiment may live with."""
    one = quadratics(run, keys("feddyn", on_crash=on_crash, selection={"participants": 12}), name="run").rounds(2)
    for file in (tmp_path / "run" / FOLDER).rglob("*0000002.f32"):
        file.unlink()
    assert "the client's state is lost" in said(lambda: one.rounds(1), RunError)


MOMENTUM = "workload: drift_correction: scaffold corrects plain gradient steps, not momentum: 0.9; set optimizer: sgd"
NOISE = {"mechanism": "skellam", "clip": 1.0, "noise_multiplier": 1.0}
SCAFFOLD = {"drift_correction": {"name": "scaffold"}}
FEDDYN = {"drift_correction": {"name": "feddyn", "alpha": 0.1}}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"workload": SCAFFOLD | {"momentum": 0.9}}, MOMENTUM),
        ({"workload": SCAFFOLD | {"optimizer": "adamw"}}, "corrects plain gradient steps, not adamw"),
        ({"workload": SCAFFOLD | {"training": "simulated"}}, "drift_correction: has no effect on simulated training"),
        (
            {"workload": SCAFFOLD | {"learning_rate_schedule": {"rounds": 5, "last": 0}}},
            "learning_rate_schedule.last: 0, but scaffold divides by the learning rate",
        ),
        ({"workload": {"drift_correction": {"name": "feddyn"}}}, "drift_correction: alpha: required for feddyn"),
        ({"workload": {"drift_correction": {"name": "scaffold", "alpha": 1}}}, "alpha: only feddyn"),
        ({"workload": {"drift_correction": {"name": "scafold"}}}, "drift_correction.name: should be 'scaffold'"),
        ({"workload": {"drift_correction": {"name": "feddyn", "alpha": 0}}}, "alpha: should be greater than 0, not 0"),
        ({"workload": {"local_layers": {}}}, "workload.local_layers: needs last or first"),
        ({"workload": {"local_layers": {"last": -1}}}, "local_layers.last: should be greater than or equal to 0"),
        ({"workload": {"flower": {"app": "x:app"}} | SCAFFOLD}, "drift_correction has no effect on a Flower app"),
        (
            {
                "workload": SCAFFOLD,
                "aggregation": {"protocol": "secagg", "weights": "equal", "noise": NOISE},
            },
            "workload.drift_correction: scaffold excludes aggregation.noise",
        ),
        (
            {
                "workload": {"local_layers": {"last": 1}},
                "aggregation": {"protocol": "plain", "weights": "equal", "noise": NOISE},
            },
            "workload.local_layers excludes aggregation.noise",
        ),
        (
            {
                "workload": FEDDYN,
                "aggregation": {"protocol": "plain", "server_optimizer": {"name": "adam"}},
            },
            "workload.drift_correction: feddyn excludes aggregation.server_optimizer: adam",
        ),
        (
            {
                "workload": SCAFFOLD,
                "aggregation": {"protocol": "secagg", "compression": {"name": "random-k", "share": 0.1}},
            },
            "workload.drift_correction: scaffold excludes aggregation.compression: random-k",
        ),
        (
            {
                "workload": FEDDYN,
                "aggregation": {"protocol": "plain", "compression": {"name": "quantise", "bits": 8}},
            },
            "workload.drift_correction: feddyn excludes aggregation.compression: quantise",
        ),
        (
            {
                "workload": SCAFFOLD,
                "selection": {"protocol": "bernoulli", "client_rate": 0.3},
                "aggregation": {"protocol": "dp-sgd-random-participation", "sample_rate": 0.2, "sigma": 1.0},
            },
            "excludes workload.drift_correction: scaffold: clients send one gradient",
        ),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused_in_one_line(given: dict[str, Any], says: str) -> None:
    assert says in said(lambda: validated(given, "mine.yaml"), ExperimentError)


def test_a_workload_that_trains_without_it(run: Callable[..., Run]) -> None:
    line = said(lambda: run(keys("scaffold")), ExperimentError)
    assert line.startswith("workload.drift_correction: digits trains without it; leave the key out, or see")


def test_a_server_that_sends_other_models() -> None:
    asked = keys("scaffold") | {"adversary": {"dishonest": 1, "server": ["send-different-models"]}}
    experiment = Experiment.model_validate({"seed": 1} | asked)
    line = said(lambda: RunPlan(experiment, 1), ExperimentError)  # before data are read, as surveys check combinations
    assert line.startswith("workload.drift_correction excludes adversary.server")


def test_an_attack_that_needs_the_truth(run: Callable[..., Run], tmp_path: Path) -> None:
    """The attack would train a client again without its state, and read (x, c) as x."""
    quadratics(run, keys("scaffold", rounds=2, records={"aggregates": "all"}), name="run").rounds()
    line = said(lambda: reconstruct(RunRecords(tmp_path / "run"), 1, 2), ExperimentError)
    assert line.startswith(f"{tmp_path / 'run'}: its clients trained with workload.drift_correction")


def test_it_is_written_only_where_it_is_set() -> None:
    without, with_it = (Experiment.model_validate(keys(name)) for name in (None, "feddyn"))
    assert "drift_correction" not in without.plain()["workload"]
    assert with_it.plain()["workload"]["drift_correction"] == {"name": "feddyn", "alpha": 0.4}
