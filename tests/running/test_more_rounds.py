"""More rounds for a run that is there: it equals one that had them from the beginning, or is refused in a line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from testbed import run
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords
from testbed.records.schemas import SCHEMAS
from testbed.running import Observer
from tests.messages_named import naming
from tests.observers import StopIn, Warnings

KEYS: dict[str, Any] = {
    "name": "more",
    "seed": 7,
    "rounds": 3,
    "population": 12,
    "workload": {"dataset": "benchmarks.breaking:Means"},
    "selection": {"participants": 5},
    "aggregation": {"protocol": "secagg"},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
    "time": {"deadline_s": 10},
    "cluster": {"network": "in-process"},
}
NOISE = {"weights": "equal", "noise": {"noise_multiplier": 0.5}}
KINDS: dict[str, dict[str, Any]] = {
    "secagg": {},
    "noise": {"aggregation": {"protocol": "secagg", **NOISE}},
    "lotto": {"selection": {"protocol": "lotto-client-centric", "participants": 4, "over_selection": 2}},
    "bins": {"selection": {"protocol": "balls-in-bins", "bins": 3}, "aggregation": {"protocol": "plain"}},
    "scaffold": {
        "workload": {"dataset": "digits", "model": "logistic", "momentum": 0, "drift_correction": {"name": "scaffold"}},
        "aggregation": {"protocol": "plain", "weights": "equal"},
    },
    "oort": {"selection": {"protocol": "oort", "participants": 4}, "records": {"aggregates": "all"}},
    "decay": {
        "workload": {
            "dataset": "digits",
            "model": "logistic",
            "learning_rate_schedule": {"shape": "cosine", "rounds": 5},
            "evaluate_every": 2,
        }
    },
    "buffers": {
        "asynchronous": {"concurrency": 6},
        "links": {"transport": "none"},
        "aggregation": {"protocol": "plain"},
    },
}


def started(path: Path, **keys: Any) -> Callable[..., RunRecords]:
    """Run an experiment there, and return a function that runs it again with other keys."""

    def again(resume: bool = True, observer: Observer | None = None, **changes: Any) -> RunRecords:
        run(Experiment(**KEYS | keys | changes), path, resume=resume, observer=observer)
        return RunRecords(path)

    again(resume=False)
    return again


def rows(records: RunRecords, table: str) -> list[dict[Any, Any]]:
    found = records.frame(table).replace({np.nan: None}).to_dict("records")
    return [row for row in found if row.get("kind") != "resume"]


def assert_same(one: RunRecords, other: RunRecords) -> None:
    for table in SCHEMAS:
        assert repr(rows(one, table)) == repr(rows(other, table)), table
    assert one.model is not None
    np.testing.assert_array_equal(one.model, other.model)


@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_a_run_that_had_them_from_the_beginning(kind: str, tmp_path: Path) -> None:
    whole = started(tmp_path / "whole", **KINDS[kind], rounds=6)(rounds=6)
    extended = started(tmp_path / "parts", **KINDS[kind])(rounds=6)
    assert_same(extended, whole)
    aggregates = [one.aggregate(5) for one in (extended, whole)]
    assert repr(aggregates[0]) == repr(aggregates[1])
    assert (kind == "oort") == (aggregates[0] is not None)


def test_it_equals_one_also_when_it_is_killed_before_and_after(tmp_path: Path) -> None:
    keys = KINDS["noise"]
    whole = started(tmp_path / "whole", **keys, rounds=6)(rounds=6)
    with pytest.raises(KeyboardInterrupt):
        run(Experiment(**KEYS | keys), tmp_path / "parts", observer=StopIn(3))
    for round_number in (4, 6):
        with pytest.raises(KeyboardInterrupt):
            run(
                Experiment(**KEYS | keys | {"rounds": 6}),
                tmp_path / "parts",
                resume=True,
                observer=StopIn(round_number),
            )
    run(Experiment(**KEYS | keys | {"rounds": 6}), tmp_path / "parts", resume=True)
    assert_same(RunRecords(tmp_path / "parts"), whole)


@pytest.mark.parametrize("kind", ["secagg", "noise"])
def test_an_interrupted_one_is_resumed_without_naming_the_rounds_again(kind: str, tmp_path: Path) -> None:
    whole = started(tmp_path / "whole", **KINDS[kind], rounds=6)(rounds=6)
    again = started(tmp_path / "parts", **KINDS[kind])
    with pytest.raises(KeyboardInterrupt):
        again(rounds=6, observer=StopIn(5))
    warned = Warnings()
    assert_same(again(observer=warned), whole)
    kept = "rounds: 3: this run was given 6 rounds since and keeps them"
    assert warned.lines[0] == kept
    assert len(again(observer=warned).rounds) == 6
    assert warned.lines.count(kept) == 2  # also where there is nothing left to run
    with pytest.raises(ExperimentError, match=naming("rounds: 6", 4, "--set rounds=6")):
        again(rounds=4)


def test_the_last_evaluation_moves_into_the_provenance_and_the_history_says_so(tmp_path: Path) -> None:
    workload = KEYS["workload"] | {"evaluate_every": 2}
    again = started(tmp_path / "run", workload=workload)
    measured = RunRecords(tmp_path / "run").rounds["accuracy"].iloc[-1]
    again(rounds=5)
    extended = again(rounds=6)
    assert extended.rounds["accuracy"].notna().tolist() == [False, True, False, True, False, True]
    stored = yaml.safe_load((tmp_path / "run" / "experiment.yaml").read_text())
    assert stored["rounds"] == 6
    first, second = stored["provenance"]["more_rounds"]
    assert (first["rounds"], first["to"], first["after_round"]) == (3, 5, 3)
    assert (second["rounds"], second["to"], second["after_round"]) == (5, 6, 5)
    assert first["evaluation"]["accuracy"] == measured


REFUSED = [
    ({}, {"rounds": 2}, "not fewer"),
    ({}, {"rounds": 6, "population": 13}, "population"),
    (
        {"aggregation": {"protocol": "secagg", "weights": "equal", "noise": {"epsilon": 8.0}}},
        {"rounds": 6},
        "--set aggregation.noise.rounds=3",
    ),
    (
        {
            "selection": {"protocol": "min-separation", "participants": 4, "separation": 2},
            "aggregation": {
                "protocol": "secagg",
                "weights": "equal",
                "noise": {"mechanism": "correlated", "strategy": "band", "noise_multiplier": 0.5},
            },
        },
        {"rounds": 6},
        "aggregation.noise.rounds: 3",
    ),
    (
        {
            "selection": {"protocol": "lotto-server-centric", "participants": 4, "over_selection": 2},
            "adversary": {"dishonest": 2, "server": ["grind-round"]},
        },
        {"rounds": 6},
        "adversary.server: grind-round",
    ),
    ({"stop_at": {"loss": 1000.0}, "rounds": 1}, {"rounds": 6}, "stop_at"),
]


@pytest.mark.parametrize(("keys", "changes", "named"), REFUSED)
def test_settings_that_depend_on_the_number_of_rounds_are_refused_in_one_line(
    keys: dict[str, Any], changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    again = started(tmp_path / "run", **keys)
    before = (tmp_path / "run" / "experiment.yaml").read_bytes()
    with pytest.raises(ExperimentError) as error:
        again(**changes)
    assert named in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert (tmp_path / "run" / "experiment.yaml").read_bytes() == before
    again(**{key: value for key, value in keys.items() if key == "rounds"})  # as it was, it is complete


def test_a_budget_that_is_spent_is_not_more_rounds(tmp_path: Path) -> None:
    noise = {"noise_multiplier": 2.0}
    keys: dict[str, Any] = {"aggregation": {"protocol": "secagg", "weights": "equal", "noise": noise}}
    keys |= {"privacy": {"budget": 8.0}, "availability": {"model": "always"}}
    started(tmp_path / "long", **keys, rounds=40)
    done = len(RunRecords(tmp_path / "long").rounds)
    assert 1 < done < 40
    again = started(tmp_path / "short", **keys, rounds=done)
    with pytest.raises(ExperimentError, match=r"privacy\.budget") as error:
        again(rounds=40)
    assert len(str(error.value).splitlines()) == 1


def test_with_the_noise_of_the_shorter_run_it_goes_on(tmp_path: Path) -> None:
    noise: dict[str, Any] = {"epsilon": 8.0, "rounds": 3}
    keys = {"aggregation": {"protocol": "secagg", "weights": "equal", "noise": noise}}
    whole = started(tmp_path / "whole", **keys, rounds=5)(rounds=5)
    unplanned = {"aggregation": {"protocol": "secagg", "weights": "equal", "noise": {"epsilon": 8.0}}}
    extended = started(tmp_path / "parts", **unplanned)(**keys, rounds=5)
    assert_same(extended, whole)


def test_a_run_that_its_target_has_ended_stays_as_it_is(tmp_path: Path) -> None:
    again = started(tmp_path / "run", stop_at={"loss": 1000.0})
    assert len(again(rounds=6).rounds) == 1


def test_every_point_of_a_sweep_goes_on(tmp_path: Path) -> None:
    sweep = {"selection.participants": [4, 5]}
    run(Experiment(**KEYS, sweep=sweep), tmp_path / "sweep")
    run(Experiment(**KEYS | {"rounds": 4}, sweep=sweep), tmp_path / "sweep", resume=True)
    assert [len(RunRecords(path.parent).rounds) for path in (tmp_path / "sweep").glob("*/rounds.parquet")] == [4, 4]


def test_a_run_of_an_earlier_version_keeps_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = KINDS["noise"]
    monkeypatch.setattr("testbed.experiment.inputs._WITHOUT_EFFECT", frozenset({"cluster", "output", "provenance"}))
    started(tmp_path / "new", **keys)
    file = tmp_path / "new" / "experiment.yaml"
    stored = yaml.safe_load(file.read_text())
    assert stored["provenance"].pop("secrets")
    contexts: list[bytes] = []
    from testbed.engine import plan as plans
    from testbed.experiment.inputs import secrets_context

    def noted(experiment: Experiment) -> bytes:
        contexts.append(secrets_context(experiment))
        return contexts[-1]

    file.write_text(yaml.safe_dump(stored))
    monkeypatch.setattr(plans, "secrets_context", noted)
    run(Experiment(**KEYS | keys | {"rounds": 5}), tmp_path / "new", resume=True)
    other = secrets_context(Experiment(**KEYS | keys | {"rounds": 5}))
    assert contexts[-1] != other
    run(Experiment(**KEYS | keys | {"rounds": 6}), tmp_path / "new", resume=True)
    assert contexts[-1] == contexts[1]
