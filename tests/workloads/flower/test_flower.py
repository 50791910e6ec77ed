"""Flower apps train here as they are, or are refused in one line."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from testbed import run
from testbed.cli import main
from testbed.engine.federation import RunProgress
from testbed.errors import CodeCrashed, ExperimentError
from testbed.records import RunRecords
from testbed.running import Observer, PlannedRun
from testbed.workload.flower import FlowerSection
from testbed.workload.section import WorkloadSection
from tests.fingerprints import fingerprint
from tests.messages_named import naming
from tests.repository import ROOT
from tests.workloads.flower.conftest import EVALUATE, OLDER, AppWriter, experiment, newer, workload
from workloads.flower.app import FlowerProcess

DIGITS = ROOT / "examples" / "flower"


def test_the_older_api_in_numbers(app: AppWriter, flower_python: str) -> None:
    """Its clients' answers are known: a round's mean is that of their numbers, weighted by their samples."""
    flower = app(OLDER) | {"python": flower_python}
    found = workload(flower, samples_per_client=10)
    assert found.dimension == 14
    assert found.description["participants"] == 3
    assert found.notes == ["workload.flower: float64 arrays are aggregated as float32"]
    model = found.initial_model()
    assert not model.any()
    for round_number, rate in ((1, 0.5), (2, 1.0), (7, 1.0)):  # what it sends after its two rounds is the last
        update = found.train(3, model, round_number)
        np.testing.assert_array_equal(update.delta, np.full(14, 3 * rate, np.float32))
        assert (update.samples, update.loss, update.examples_processed) == (8, 2.0, 8)
    evaluation = found.evaluate(model)
    assert evaluation is not None
    assert (evaluation.loss, evaluation.accuracy, evaluation.samples) == (2.5, 0.25, 60)
    out = run(experiment(flower, rounds=1, workload={"flower": flower, "samples_per_client": 10}), out="out")
    records = RunRecords(out)
    members = records.frame("participation").query("survived").client.to_numpy()
    assert records.model is not None
    expected = 0.5 * float(np.average(members, weights=5 + members))
    np.testing.assert_allclose(records.model, expected, rtol=1e-6)


def test_the_first_model_without_a_server(app: AppWriter, flower_python: str) -> None:
    app(OLDER.replace('config["rate"]', "2.0"))
    found = workload({"client": "theirs:client", "python": flower_python}, samples_per_client=10)
    np.testing.assert_array_equal(found.train(1, found.initial_model(), 1).delta, np.full(14, 2.0, np.float32))


def test_generators_are_seeded_by_seed_client_and_round(app: AppWriter, flower_python: str) -> None:
    flower = app(newer()) | {"python": flower_python}
    first, second = workload(flower), workload(flower)
    model = first.initial_model()
    assert first.evaluate(model) is None  # it evaluates nothing
    second.train(5, model, 4)
    updates = [one.train(2, model, 3).delta for one in (first, second)]
    np.testing.assert_array_equal(updates[0], updates[1])
    assert (updates[0] >= 3).all()  # the round's number is in the configuration
    assert not np.array_equal(updates[0], first.train(1, model, 3).delta)
    assert not np.array_equal(updates[0] + 1, first.train(2, model, 4).delta)


def test_counters_stay_as_they_were_and_names_may_come_in_another_order(app: AppWriter, flower_python: str) -> None:
    """As those of batch normalisation."""
    text = newer(
        arrays="{'b': np.ones(2, np.float32), 'batches': np.int64(3), 'a': np.zeros(1)}",
        train="arrays = {'a': arrays['a'] + 1, 'batches': arrays['batches'] + 1, 'b': arrays['b'] + arrays['batches']}",
    )
    found = workload(app(text) | {"python": flower_python})
    assert found.notes[0] == "workload.flower: not aggregated, but constant: batches"
    np.testing.assert_array_equal(found.initial_model(), [1, 1, 0])
    np.testing.assert_array_equal(found.train(0, found.initial_model(), 1).delta, [3, 3, 1])


GLOBAL = "global calls; calls = globals().get('calls', 0) + 1; arrays['weight'] = arrays['weight'] + calls"
SILENT = "type('Silent', (), {'start': lambda self, **keywords: None})()"
WAITING = "FedAvg(min_available_nodes=7)"
DIFFERENT = """type('Own', (FedAvg,), {'_construct_messages': lambda self, record, nodes, kind: [
        Message(RecordDict({**record, 'config': ConfigRecord({'node': node})}), message_type=kind, dst_node_id=node)
        for node in nodes]})()"""


REFUSED = {
    "client 0 trains differently the second time, from the same model and the same seed": newer(train=GLOBAL),
    "keeps mine in context.state for later rounds": newer(train="context.state['mine'] = MetricRecord({'a': 1})"),
    "array table has 9 elements of type int64": newer(arrays="{'a': np.zeros(1), 'table': np.zeros(9, np.int64)}"),
    "sends a model without floating-point parameters, such as trees": newer(arrays="{'counter': np.int64(9)}"),
    "returns arrays of other shapes": newer(train="arrays['weight'] = np.zeros(4, np.float32)"),
    "client 0 reports num-examples = None; report a whole number": newer(metrics="{'loss': 1.0}"),
    "client 0 reports num-examples = 2.5; report a whole number": newer(metrics="{'num-examples': 2.5}"),
    "theirs.py:14)": newer(train="raise KeyError('no such file')"),
    "the app's server sends no model to train; apps that only": newer(strategy=SILENT),
    "NameError: name 'undefined' is not defined": newer(strategy="undefined"),
    "the app's server waits for more clients than the 6 of this experiment": newer(strategy=WAITING),
    "waits for more clients than the 6": OLDER.replace("fraction_fit=0.5", "min_available_clients=7"),
    "sends its clients different configurations (train)": newer(strategy=DIFFERENT),
    "No module named 'nowhere_to_be_found'; workload.flower.python must be the": "import nowhere_to_be_found",
    "module theirs has no server": "client = 1",
    "the app's process has ended (exit code 7)": newer(train="import os; os._exit(7)"),
    "exit code 3): no memory": newer(train="import sys; print('no memory', file=sys.stderr); os = sys.exit(3)"),
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_carried_over_is_refused(line: str, app: AppWriter, flower_python: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        workload(app(REFUSED[line]) | {"python": flower_python})
    assert str(caught.value).startswith("workload.flower: theirs:client: ")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_state_that_is_discarded(app: AppWriter, flower_python: str) -> None:
    """Each training adds 1 and what it finds in the state; without the key it is refused."""
    counting = "arrays['weight'] += 1 + len(context.state); context.state['mine'] = MetricRecord({'a': 1})"
    flower = app(newer(train=counting)) | {"python": flower_python}
    with pytest.raises(ExperimentError, match=naming("context.state", "workload.flower.discard_state: true")):
        workload(flower)
    found = workload(flower | {"discard_state": True})
    assert found.notes[0] == "workload.flower: data that clients keep in context.state are discarded after each call"
    for _ in range(2):
        np.testing.assert_array_equal(found.train(0, found.initial_model(), 1).delta, np.ones(3))


def test_an_app_that_fails_in_a_round_is_located(app: AppWriter, flower_python: str) -> None:
    text = newer(train="assert message.content['config']['server-round'] < 2, 'too late'")
    with pytest.raises(CodeCrashed, match=r"round 2.*AssertionError: too late \(.*theirs.py:14\)"):
        run(experiment(app(text) | {"python": flower_python}), out="out")


def test_a_process_that_is_killed(app: AppWriter, flower_python: str) -> None:
    flower = app(newer()) | {"python": flower_python}
    found = workload(flower)
    os.kill(found._process._process.pid, signal.SIGKILL)
    with pytest.raises(Exception, match=r"exit code -9\)"):
        found.train(0, found.initial_model(), 1)


@pytest.mark.parametrize(
    ("flower", "line"),
    [
        ({}, "flower needs app (the app's folder) or client"),
        ({"app": "a", "client": "a:b"}, "flower needs app (the app's folder) or client"),
        ({"app": "a", "server": "a:b"}, "server goes with client"),
        ({"client": "no name"}, "String should match pattern"),
    ],
)
def test_sections_that_do_not_fit(flower: dict[str, str], line: str) -> None:
    with pytest.raises(ValidationError) as caught:
        FlowerSection.model_validate(flower)
    assert line in str(caught.value)


def test_short_forms() -> None:
    assert WorkloadSection.model_validate({"flower": "some/folder"}).flower == FlowerSection(app=Path("some/folder"))
    assert WorkloadSection.model_validate({"flower": "their.module:app"}).flower == FlowerSection(
        client="their.module:app"
    )


@pytest.mark.parametrize("key", ["batch_size", "model", "dataset", "learning_rate"])
def test_keys_that_an_app_would_not_read(key: str) -> None:
    value = {"batch_size": 3, "model": "cnn", "dataset": "mnist", "learning_rate": 0.5}[key]
    with pytest.raises(ValidationError, match=f"{key} has no effect on a Flower app"):
        WorkloadSection.model_validate({"flower": "folder", key: value})


def test_interpreters_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=naming("workload.flower.python", "/no/such", "No such file")):
        FlowerProcess(FlowerSection(client="a:b", python="/no/such"), 3, 1)
    with pytest.raises(ExperimentError, match=naming("No module named 'flwr'", "workload.flower.python")):
        FlowerProcess(FlowerSection(client="a:b", python=sys.executable), 3, 1)


def test_folders_that_do_not_fit(tmp_path: Path, flower_python: str) -> None:
    section = FlowerSection(app=tmp_path, python=flower_python)
    with pytest.raises(ExperimentError, match=naming("pyproject.toml", "No such file")):
        FlowerProcess(section, 3, 1)
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app.components]\nclientapp = 'a:b'\n")
    with pytest.raises(ExperimentError, match=naming("tool.flwr.app.components", "clientapp", "serverapp")):
        FlowerProcess(section, 3, 1)
    unknown = FlowerSection(app=DIGITS, python=flower_python, run_config={"learning-rat": 1})
    with pytest.raises(ExperimentError, match=naming("learning-rat", "allowed: fraction-train, learning-rate")):
        FlowerProcess(unknown, 3, 1)


def test_under_secagg_with_dropouts_and_resumed(app: AppWriter, flower_python: str, tmp_path: Path) -> None:
    """What is summed under masks is what the clients trained; stopped after a round and resumed, it is the same."""
    flower = app(newer(evaluate=EVALUATE)) | {"python": flower_python, "accuracy": "share-right"}
    rest: dict[str, Any] = {
        "rounds": 3,
        "selection": {"protocol": "random", "participants": 5},
        "availability": {"dropout": {"rate": 0.2}},
    }
    secagg = {"protocol": "secagg", "clip": 12.0, "threshold": 3}
    run(experiment(flower, aggregation=secagg, **rest), out="whole")
    run(experiment(flower, **rest), out="plain")

    class Stopped(Observer):
        def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
            if progress.round_number == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment(flower, aggregation=secagg, **rest), out="parts", observer=Stopped())
    run(experiment(flower, aggregation=secagg, **rest), out="parts", resume=True)
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "parts")
    secured, plain = (RunRecords(tmp_path / name).model for name in ("whole", "plain"))
    assert secured is not None
    assert plain is not None
    assert plain.min() > 6  # three rounds add their numbers, and more
    np.testing.assert_allclose(secured, plain, atol=1.0)  # others drop out there: stages differ


def test_the_example_by_the_file_that_is_printed(
    flower_python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An app of PyTorch in the message API, as Flower's quickstart is."""
    capsys.readouterr()
    assert main(["flower", str(DIGITS), "--python", flower_python]) == 0
    file = tmp_path / "digits.yaml"
    file.write_text(capsys.readouterr().out)
    written = yaml.safe_load(file.read_text())
    assert (written["rounds"], written["population"], written["selection"]["participants"]) == (10, 40, 10)
    changed = [
        "--set",
        "rounds=2",
        "--network",
        "in-process",
        "--set",
        "workload.flower.evaluate_clients=40",
        "--quiet",
    ]
    assert main(["run", str(file), "--out", str(tmp_path / "out"), *changed]) == 0
    rounds = RunRecords(tmp_path / "out").frame("rounds")
    assert rounds.accuracy.iloc[1] > rounds.accuracy.iloc[0]


@pytest.mark.ray
def test_an_app_on_two_hosts(app: AppWriter, flower_python: str, ray_here: None, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "theirs.py").write_text(newer())
    (tmp_path / "app" / "pyproject.toml").write_text(
        "[tool.flwr.app.components]\nclientapp = 'theirs:client'\nserverapp = 'theirs:server'\n"
    )
    flower = {"app": str(tmp_path / "app"), "python": flower_python}
    for name, cluster in (("here", {"network": "in-process"}), ("hosts", {"network": "ray", "hosts": 2})):
        run(experiment(flower, rounds=1, cluster=cluster), out=tmp_path / name)
    assert fingerprint(tmp_path / "here") == fingerprint(tmp_path / "hosts")
