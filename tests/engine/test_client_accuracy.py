"""Accuracy per client: against torch written out, with local layers, on any hosts; nothing else changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from analysis.comparison.columns import shown
from analysis.comparison.overhead import compare
from analysis.comparison.summary import summarise
from analysis.figures.swept import swept
from benchmarks.floors import plain_network
from testbed.errors import ExperimentError
from testbed.records import RunDirectory, RunRecords
from testbed.records.last_evaluations import more_rounds_entry
from testbed.records.schemas import SCHEMAS
from testbed.workload.client_accuracy import CLIENT_ACCURACY
from testbed.workload.client_algorithm import LAST_ROUND
from testbed.workload.section import WorkloadSection
from tests.engine.federations import Pulling, Quality, Run
from tests.engine.test_clients_at_once import learned
from workloads import build

DIGITS = {
    "dataset": "digits", "model": "mlp", "partition": {"scheme": "label-shards"}, "batch_size": 10, "momentum": 0,
    "client_accuracy": True,
}  # fmt: skip
KEYS: dict[str, Any] = {"rounds": 3, "aggregation": {"protocol": "plain"}, "workload": DIGITS}


class Marked(Pulling):
    """Client i classifies i of its twelve samples correctly, and one more after each round; client 0 has no samples."""

    def __init__(self, population: int) -> None:
        super().__init__(population)
        self.sample_counts = np.where(np.arange(population) == 0, 0, 12)
        self.asked: list[np.ndarray] = []

    def client_accuracies(self, clients: np.ndarray, model: np.ndarray) -> np.ndarray:
        self.asked.append(clients)
        right = np.minimum(clients + len(self.asked) - 1, 12)  # the first call is the check before the first round
        return np.where(clients == 0, np.nan, right / 12)

    def evaluate(self, model: np.ndarray) -> Quality:
        return Quality(1.0, 0.5)


def test_it_is_recorded_whenever_the_model_is_evaluated(run: Callable[..., Run]) -> None:
    asked = {"population": 12, "rounds": 5, "selection": {"participants": 4}, "aggregation": {"protocol": "plain"}}
    asked |= {"workload": {"client_accuracy": True, "evaluate_every": 2}}
    one = run(asked, name="run", workload=Marked).rounds()
    assert [len(clients) for clients in one.workload.asked] == [1, 12, 12, 12]
    rows = one.rows("rounds")
    for name in CLIENT_ACCURACY:
        assert [row[name] is None for row in rows] == [True, False, True, False, False]
    first = (np.arange(1, 12) + 1) / 12
    assert rows[1]["client_accuracy_mean"] == pytest.approx(first.mean())
    assert rows[1]["client_accuracy_worst_decile"] == pytest.approx((2 + 3) / 2 / 12)  # 2 of 11 clients
    assert rows[1]["client_accuracy_std"] == pytest.approx(np.sqrt(((first - first.mean()) ** 2).mean()))


def by_hand(workload: Any, client: int, model: np.ndarray) -> float:
    images, labels = workload.data.shard(client)
    network = plain_network("mlp", images.shape[1], images.shape[2], 10)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(model.copy()), network.parameters())
    with torch.no_grad():
        return float((network(images.float().flatten(1)).argmax(1) == labels).double().mean())


@pytest.mark.parametrize("at_once", [1, 50, 4000])
def test_all_clients_together_are_each_by_itself(run: Callable[..., Run], at_once: int) -> None:
    one = learned(run, KEYS, name="run").rounds(1)
    workload, model = one.workload, one.federation.state.model
    workload._samples_at_once = at_once
    clients = np.array([0, 3, 4, 29])
    found = workload.client_accuracies(clients, model)
    assert found == pytest.approx([by_hand(workload, client, model) for client in clients.tolist()])
    assert len(set(found)) > 1
    everyone = [by_hand(workload, client, model) for client in range(30)]
    (row,) = one.rows("rounds")
    worst = np.sort(everyone)[:3]
    expected = [np.mean(everyone), worst.mean(), np.std(everyone)]
    assert [row[name] for name in CLIENT_ACCURACY] == pytest.approx(expected)


def test_clients_without_samples_do_not_count(run: Callable[..., Run]) -> None:
    workload: Any = learned(run, KEYS).workload
    workload.sample_counts = workload.sample_counts.copy()
    workload.sample_counts[[0, 7, 29]] = 0
    found = workload.client_accuracies(np.array([0, 1, 7, 8, 29]), workload.initial_model())
    assert np.isnan(found).tolist() == [True, False, True, False, True]
    assert np.isnan(workload.client_accuracies(np.array([7]), workload.initial_model())).all()


def test_nothing_else_of_the_run_changes(run: Callable[..., Run]) -> None:
    keys = KEYS | {"aggregation": {"protocol": "secagg", "threshold": 0.6}}
    with_it = learned(run, keys, name="with").rounds()
    workload = {key: value for key, value in DIGITS.items() if key != "client_accuracy"}
    without = learned(run, keys | {"workload": workload}, name="without").rounds()
    assert with_it.federation.state.model.tobytes() == without.federation.state.model.tobytes()
    for table in SCHEMAS:
        rows = [{**row, **dict.fromkeys(CLIENT_ACCURACY)} for row in with_it.rows(table)]
        assert rows == [{**row, **dict.fromkeys(CLIENT_ACCURACY)} for row in without.rows(table)]
    assert all(row[name] is not None for row in with_it.rows("rounds") for name in CLIENT_ACCURACY)
    assert all(row[name] is None for row in without.rows("rounds") for name in CLIENT_ACCURACY)


@pytest.mark.parametrize("layers", [None, {"last": 1}])
def test_the_same_on_three_hosts_and_resumed(run: Callable[..., Run], layers: dict[str, int] | None) -> None:
    keys = KEYS | {"workload": DIGITS | {"local_layers": layers}}
    whole = learned(run, keys, name="whole").rounds()
    assert learned(run, keys, name="spread", hosts=3).rounds().rows("rounds") == whole.rows("rounds")
    learned(run, keys, name="stopped").rounds(2)
    resumed = learned(run, keys, name="stopped", resume=True, hosts=2).rounds()
    assert resumed.rows("rounds") == whole.rows("rounds")


def test_with_local_layers_each_client_has_its_own(run: Callable[..., Run]) -> None:
    one = learned(run, KEYS | {"workload": DIGITS | {"local_layers": {"last": 1}}}, name="run").rounds()
    federation, workload = one.federation, one.workload
    local = workload.local_numbers(0, 1)
    last = federation.state.memory[LAST_ROUND]
    assert 0 < (last > 0).sum() < 30
    expected = []
    for client in range(30):
        model = federation.state.model.copy()
        model[local] = workload.initial_model()[local]
        if last[client]:
            model[local] = federation._states.read(client, int(last[client]), int(local.sum()))
        expected.append(by_hand(workload, client, model))
    row = one.rows("rounds")[-1]
    assert row["client_accuracy_mean"] == pytest.approx(np.mean(expected))
    shared = [by_hand(workload, client, federation.state.model) for client in range(30)]
    assert row["client_accuracy_mean"] != pytest.approx(np.mean(shared))


def test_values_are_neither_right_nor_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    (tmp_path / "client_accuracy_lines.py").write_text(
        "import numpy as np\n\ndef load():\n    x = np.linspace(-1, 1, 200, dtype=np.float32)[:, None]\n"
        "    return x, 2 * x[:, 0]\n"
    )
    (tmp_path / "client_accuracy_nets.py").write_text(
        "import torch\n\nclass Line(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(1, 1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = {
        "dataset": "client_accuracy_lines:load", "model": "client_accuracy_nets:Line", "loss": "mse",
        "client_accuracy": True,
    }  # fmt: skip
    with pytest.raises(ExperimentError) as refused:
        learned(run, {"rounds": 1, "workload": workload})
    assert str(refused.value) == ("workload.client_accuracy: a regression has no accuracy; leave the key out")


def test_of_text_the_positions_of_a_client_count() -> None:
    section = WorkloadSection.model_validate(
        {"dataset": "synthetic-reddit", "sequence_length": 8, "vocabulary_size": 64, "samples_per_client": 3}
    )
    workload: Any = build(section, 4, 3)
    model = workload.initial_model()
    together = workload.client_accuracies(np.arange(4), model)
    singles = [workload._trainer.evaluate(*workload._on_device(workload.data.shard(one)), model) for one in range(4)]
    assert together == pytest.approx([single.accuracy for single in singles])


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(run: Callable[..., Run], tmp_path: Path) -> list[RunRecords]:
    for participants in (4, 8):
        keys = KEYS | {"rounds": 2, "selection": {"participants": participants}}
        learned(run, keys, name=f"of-{participants}").rounds()
    return [RunRecords(tmp_path / f"of-{participants}") for participants in (4, 8)]


def test_the_last_is_in_the_comparison_and_in_figures(recorded: list[RunRecords]) -> None:
    frame = compare(recorded)
    for name in CLIENT_ACCURACY:
        last = [run.rounds[name].iloc[-1] for run in recorded]
        assert [summarise(run)[f"final_{name}"] for run in recorded] == last
        assert frame[f"final_{name}"].tolist() == last
    (column,) = shown(frame, None, ["final_client_accuracy_worst_decile"])
    assert column.heading == "Client accuracy, worst 10%"
    assert column.rows[0][0] == f"{100 * recorded[0].rounds['client_accuracy_worst_decile'].iloc[-1]:.1f}%"
    drawn = swept(recorded, "selection.participants", ["final_client_accuracy_worst_decile"])
    assert drawn.figure.axes[0].get_ylabel().replace("\n", " ") == "Client accuracy, worst 10% [%]"
    assert drawn.data["value"].tolist() == frame["final_client_accuracy_worst_decile"].tolist()


def test_records_of_an_earlier_version_have_none(run: Callable[..., Run], tmp_path: Path) -> None:
    learned(run, KEYS, name="run").rounds()
    RunDirectory.reopen(tmp_path / "run").finish()
    file = tmp_path / "run" / "rounds.parquet"
    whole = pa.parquet.read_table(file)
    pa.parquet.write_table(whole.drop_columns(list(CLIENT_ACCURACY)), file)
    records = RunRecords(tmp_path / "run")
    assert records.rounds["accuracy"].notna().all()
    for name in CLIENT_ACCURACY:
        assert records.rounds[name].isna().all()
        assert summarise(records)[f"final_{name}"] is None


def test_the_last_evaluation_of_a_run_that_gets_more_rounds_keeps_it() -> None:
    row = dict.fromkeys(SCHEMAS["rounds"].names) | {"round": 1, "accuracy": 0.5} | dict.fromkeys(CLIENT_ACCURACY, 0.25)
    rounds = pa.Table.from_pylist([row], schema=SCHEMAS["rounds"])
    entry = more_rounds_entry(rounds, former=1, to=3, evaluate_every=2, at="")
    assert entry["evaluation"] == {"accuracy": 0.5} | dict.fromkeys(CLIENT_ACCURACY, 0.25)
