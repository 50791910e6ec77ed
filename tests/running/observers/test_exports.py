"""Exports of observers, read back by their libraries; each test skips if its extra is missing."""

import csv
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from testbed.cli import main
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.records import RunRecords, find_runs
from testbed.records.log import RunLog
from testbed.running import Observer, run
from testbed.running.observers import Exporter
from testbed.running.observers.catalogue import made
from testbed.running.observers.csv_rounds import CsvRounds
from testbed.running.observers.export import COLUMNS, identity
from testbed.running.observers.mlflow_runs import MlflowRuns
from tests.observers import StopIn, Warnings

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "rounds": 4,
    "population": 8,
    "workload": {"dataset": "digits", "model": "logistic"},
    "selection": {"participants": 4},
    "aggregation": {"protocol": "plain"},
    "cluster": {"network": "in-process"},
}
NOISE = {"aggregation": {"protocol": "plain", "weights": "equal", "noise": {"noise_multiplier": 2.0}}}
Points = list[dict[str, float]]
"""Of each round, in the order in which they were written: `round` and the other columns."""


def read_csv(directory: Path) -> Points:
    with (directory / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(list(row) == list(COLUMNS) for row in rows)
    texts = {"outcome", "reason"}
    return [{key: float(value) for key, value in row.items() if value and key not in texts} for row in rows]


def read_tensorboard(directory: Path) -> Points:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = module.EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    rows: Points = [{"round": point.step} for point in accumulator.Scalars("round/round_s")]
    for tag in accumulator.Tags()["scalars"]:
        if tag.startswith("round/"):
            for point in accumulator.Scalars(tag):
                (row,) = [one for one in rows if one["round"] == point.step]
                assert tag not in row
                row[tag.removeprefix("round/")] = point.value
    return rows


def read_mlflow(directory: Path) -> Points:
    client, found = mlflow_run(directory)
    points = client.get_metric_history(found.info.run_id, "round_s")
    rows = {point.step: {"round": point.step} for point in points}
    assert len(rows) == len(points)
    for name in found.data.metrics:
        history = client.get_metric_history(found.info.run_id, name)
        assert len({point.step for point in history}) == len(history)
        for point in history:
            rows[point.step][name] = point.value
    return [rows[step] for step in sorted(rows)]


def mlflow_run(directory: Path) -> tuple[Any, Any]:
    tracking = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("sqlalchemy")
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{directory.parent / 'mlflow.db'}")
    experiments = [one.experiment_id for one in client.search_experiments()]
    (found,) = [one for one in client.search_runs(experiments) if one.data.tags["testbed.directory"] == directory.name]
    return client, found


def wandb_files(directory: Path) -> list[Path]:
    """In the order in which they were begun."""
    return sorted((directory / "wandb").glob("*run-*/run-*.wandb"), key=lambda file: file.parent.name)


def read_wandb(directory: Path) -> Points:
    """Read the file like `wandb sync`: the library's messages in LevelDB's log format, all files of the run in order.

    An incomplete record ends a file, as for every reader of that format: the library's service may still write the tail
    of an interrupted run.
    """
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    rows: Points = []
    for file in wandb_files(directory):
        data, at, message = file.read_bytes(), 7, b""
        assert data[:4] == b":W&B"
        while at + 7 <= len(data):
            length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
            if at + 7 + length > len(data):
                break
            message += data[at + 7 : at + 7 + length]
            at += 7 + length
            if 32768 - at % 32768 < 7:
                at += 32768 - at % 32768
            if kind in (1, 4):
                record, message = messages.Record.FromString(message), b""
                if record.HasField("history"):
                    items = [(item.key or "/".join(item.nested_key), item.value_json) for item in record.history.item]
                    rows.append({key: json.loads(value) for key, value in items})
                    rows[-1]["round"] = rows[-1]["_step"]
    return rows


READERS: dict[str, Callable[[Path], Points]] = {
    "csv": read_csv,
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
    "wandb": read_wandb,
}
NEEDS = {"csv": "csv", "tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


@pytest.fixture(params=list(READERS))
def name(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(NEEDS[request.param])
    return str(request.param)


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes the small experiment with changes; the working directory is its own."""
    monkeypatch.chdir(tmp_path)

    def written(**changes: Any) -> Path:
        path = tmp_path / "small.yaml"
        path.write_text(yaml.safe_dump(SMALL | changes))
        return path

    return written


@pytest.fixture(autouse=True, scope="module")
def _tables_of_mlflow_made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MLflow takes seconds to make the tables of a new store: the first one is kept, and copied for the others."""
    empty, client = tmp_path_factory.mktemp("mlflow") / "empty.db", MlflowRuns._client

    def with_tables(self: MlflowRuns, uri: str) -> Any:
        file = Path(uri.removeprefix("sqlite:///"))
        if not empty.exists():
            client(MlflowRuns(), f"sqlite:///{empty}").search_experiments()
        if not file.exists():
            shutil.copyfile(empty, file)
        return client(self, uri)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MlflowRuns, "_client", with_tables)
        yield


def check(name: str, directory: Path) -> Points:
    """Check that each recorded round is exported once, with the recorded values."""
    rows, rounds = READERS[name](directory), RunRecords(directory).rounds
    assert [row["round"] for row in rows] == rounds["round"].tolist()
    expected = rounds.assign(round_s=rounds["ended_s"] - rounds["started_s"], time_s=rounds["ended_s"])
    for row, wanted in zip(rows, expected.to_dict("records"), strict=True):
        for column in ("accuracy", "loss", "round_s", "time_s", "bytes_down", "bytes_up", "participants", "survivors"):
            if math.isnan(wanted[column]):
                assert column not in row
            else:
                assert math.isclose(row[column], wanted[column], rel_tol=1e-6), column  # TensorBoard has float32
    return rows


def test_every_round_is_written_once(name: str, experiment: Callable[..., Path], tmp_path: Path) -> None:
    file = experiment(workload=SMALL["workload"] | {"evaluate_every": 2})
    assert main(["run", str(file), "--out", "runs/one", "--quiet", "--observe", name]) == 0
    check(name, tmp_path / "runs" / "one")


def test_a_stopped_and_resumed_run_has_no_duplicate_rows(
    name: str, experiment: Callable[..., Path], tmp_path: Path
) -> None:
    file = experiment(output={"observers": [name]})
    directory = tmp_path / "runs" / "one"
    with pytest.raises(KeyboardInterrupt):
        run(file, directory, observer=StopIn(2, ended=True))
    assert [row["round"] for row in READERS[name](directory)] == [1, 2]
    run(file, directory, resume=True)
    check(name, directory)
    run(file, directory, resume=True)
    check(name, directory)


def test_rounds_from_before_an_observer_are_exported_on_resumption(
    name: str, experiment: Callable[..., Path], tmp_path: Path
) -> None:
    file = experiment()
    with pytest.raises(KeyboardInterrupt):
        run(file, tmp_path / "runs" / "stopped", observer=StopIn(3, ended=True))
    run(file, tmp_path / "runs" / "ended")
    for directory in (tmp_path / "runs" / "stopped", tmp_path / "runs" / "ended"):
        assert main(["run", str(file), "--out", str(directory), "--quiet", "--resume", "--observe", name]) == 0
        check(name, directory)


def test_the_points_of_a_sweep_are_kept_apart(name: str, experiment: Callable[..., Path], tmp_path: Path) -> None:
    file = experiment(sweep={"seed": [1, 2]}, output={"observers": name})
    run(file, tmp_path / "sweep")
    directories = [one.path for one in find_runs(tmp_path / "sweep")]
    assert len(directories) == 2
    accuracies = [[row["accuracy"] for row in check(name, one)] for one in directories]
    assert accuracies[0] != accuracies[1]


@pytest.mark.ray
def test_points_that_run_at_the_same_time_are_kept_apart(
    name: str, experiment: Callable[..., Path], tmp_path: Path, ray_here: None
) -> None:
    cluster = {"network": "ray", "hosts": 1, "parallel_runs": 2, "address": "auto"}
    run(experiment(sweep={"seed": [1, 2]}, output={"observers": name}, cluster=cluster), tmp_path / "sweep")
    for one in find_runs(tmp_path / "sweep"):
        check(name, one.path)


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_half_written_end_is_no_round(name: str, experiment: Callable[..., Path], tmp_path: Path, cut: int) -> None:
    """As a killed process leaves it; MLflow's store has transactions of its own."""
    file = experiment(output={"observers": [name]})
    directory = tmp_path / "one"
    with pytest.raises(KeyboardInterrupt):
        run(file, directory, observer=StopIn(3, ended=True))
    files = {"csv": "rounds.csv", "tensorboard": "tensorboard/*", "wandb": "wandb/*run-*/*.wandb", "mlflow": "none"}
    for one in directory.glob(files[name]):
        os.truncate(one, one.stat().st_size - cut)
    run(file, directory, resume=True)
    if name == "wandb":  # its reader skips unreadable records
        from testbed.running.observers.wandb_runs import steps

        assert [step for one in wandb_files(directory) for step in steps(one)] == [1, 2, 3, 4]
    else:
        check(name, directory)


def test_epsilon_is_the_largest_so_far_also_across_a_stop(experiment: Callable[..., Path], tmp_path: Path) -> None:
    file = experiment(**NOISE, output={"observers": ["csv"]})
    with pytest.raises(KeyboardInterrupt):
        run(file, tmp_path / "one", observer=StopIn(2, ended=True))
    run(file, tmp_path / "one", resume=True)
    found = RunRecords(tmp_path / "one").frame("privacy")
    expected = found.groupby("round")["epsilon"].max().cummax()
    assert [row["epsilon_max"] for row in read_csv(tmp_path / "one")] == pytest.approx(expected.tolist())
    summary = json.loads((tmp_path / "one" / "summary.json").read_text())
    assert summary["epsilon_max"] == pytest.approx(read_csv(tmp_path / "one")[-1]["epsilon_max"])


def test_mlflow_has_parameters_tags_and_how_it_ended(experiment: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    file = experiment(output={"observers": [{"name": "mlflow", "experiment": "comparison"}]})
    with pytest.raises(KeyboardInterrupt):
        run(file, tmp_path / "one", observer=StopIn(2, ended=True))
    assert mlflow_run(tmp_path / "one")[1].info.status == "KILLED"
    run(file, tmp_path / "one", resume=True)
    client, found = mlflow_run(tmp_path / "one")
    assert found.info.status == "FINISHED"
    assert client.get_experiment(found.info.experiment_id).name == "comparison"
    assert found.data.params["selection.participants"] == "4"
    assert not [key for key in found.data.params if key.startswith(("provenance", "output"))]
    assert found.data.tags["testbed.version.testbed"]
    assert found.data.tags["mlflow.runName"] == "small"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mlflow.db", "one", "small.yaml"]


def test_tensorboard_has_accuracy_by_the_runs_clock(experiment: Callable[..., Path], tmp_path: Path) -> None:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(experiment(output={"observers": [{"name": "tensorboard", "directory": "boards"}]}), tmp_path / "one")
    (board,) = (tmp_path / "boards").iterdir()
    assert board.name.startswith("small-")
    accumulator = module.EventAccumulator(str(board))
    accumulator.Reload()
    ended_s = RunRecords(tmp_path / "one").rounds["ended_s"]
    assert [one.step for one in accumulator.Scalars("clock/accuracy")] == [round(at * 1000) for at in ended_s]


def test_nothing_of_the_environment_is_written(
    name: str, experiment: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "sesame-open-8192")
    run(experiment(output={"observers": [name]}), tmp_path / "one")
    assert not [one for one in tmp_path.rglob("*") if one.is_file() and b"sesame-open-8192" in one.read_bytes()]


def test_a_run_that_is_moved_stays_itself_and_a_copy_of_its_file_does_not_collide(
    experiment: Callable[..., Path], tmp_path: Path
) -> None:
    file = experiment(output={"observers": [{"name": "csv", "directory": "all"}]})
    with pytest.raises(KeyboardInterrupt):
        run(file, tmp_path / "one", observer=StopIn(2, ended=True))
    shutil.move(tmp_path / "one", tmp_path / "moved")
    run(file, tmp_path / "moved", resume=True)
    run(file, tmp_path / "two")
    names = sorted(one.name for one in (tmp_path / "all").iterdir())
    assert len(names) == 2
    assert [(tmp_path / "all" / one).read_text().count("\n") for one in names] == [5, 5]


def test_runs_of_earlier_versions_have_an_identity_too(experiment: Callable[..., Path], tmp_path: Path) -> None:
    directory = run(experiment(), tmp_path / "one")
    file = directory / "experiment.yaml"
    stored = yaml.safe_load(file.read_text())
    del stored["provenance"]["id"]
    file.write_text(yaml.safe_dump(stored))
    found: list[str] = []

    class Looks(Observer):
        def planned(self, runs: Any) -> None:
            found.append(identity(runs[0]))

    for _ in range(2):
        run(tmp_path / "small.yaml", directory, resume=True, observer=Looks())
    assert found[0] == found[1]
    assert len(found[0]) == 12


class Failing(Exporter):
    """Its place is out of reach in some rounds."""

    def __init__(self, rounds: Any = (2, 3)) -> None:
        super().__init__()
        self.rounds = list(rounds)

    def opened(self, run: Any) -> int:
        return 0

    def write(self, run: Any, row: Any) -> None:
        SEEN.append(row["round"])
        if row["round"] in self.rounds:
            self.rounds.remove(row["round"])
            raise OSError("no route to the server")


SEEN: list[int] = []


def test_an_exporter_that_fails_loses_no_run_and_no_round(
    experiment: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    import failing  # type: ignore[import-not-found]

    warned = Warnings()
    run(experiment(output={"observers": ["failing:Failing", "csv"]}), tmp_path / "one", observer=warned)
    assert failing.SEEN == [1, 2, 2, 3, 3, 4]
    assert warned.lines == [
        "observer failing:Failing: no route to the server; the run goes on, the log has all such failures",
        "observer failing:Failing failed 2 times in all runs",
    ]
    failures = [line for line in RunLog(tmp_path / "one").read() if line["event"] == "observer-failed"]
    assert len(failures) == 2
    assert len(read_csv(tmp_path / "one")) == 4


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("tensorbord", "output.observers: unknown 'tensorbord'; did you mean 'tensorboard'?"),
        ({"name": "csv", "folder": "x"}, "output.observers.csv.folder: unknown option"),
        ({"name": "csv", "directory": 3}, "output.observers.csv.directory: should be a valid string, not 3"),
        ({"directory": "x"}, "an entry must be a name, or {name: NAME, OPTION: VALUE}"),
        ("nowhere:Class", "output.observers: nowhere:Class: no module 'nowhere'"),
        ("testbed.errors:RunError", "must be a class that inherits from testbed.running.observers.contract.Observer"),
        ({"name": "wandb", "mode": "loud"}, "output.observers.wandb.mode: should be 'offline' or 'online'"),
        ({"name": "mlflow", "tracking_uri": "https://me:secret@host"}, "tracking_uri: must hold no password"),
    ],
)
def test_a_wrong_entry_is_one_line_and_nothing_runs(
    experiment: Callable[..., Path], capsys: pytest.CaptureFixture[str], entry: Any, said: str
) -> None:
    if isinstance(entry, dict) and entry.get("name") in ("wandb", "mlflow"):
        pytest.importorskip(entry["name"])
    file = experiment(output={"observers": [entry]})
    for command in (["run", str(file), "--out", "out"], ["validate", str(file), "--import-classes"]):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
        assert "secret" not in line
    assert not Path("out").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(ExperimentError, match=rf"{name} needs \w+: pip install '.*\[{name}\]'"):
        made([name], "small.yaml")


def test_a_duplicate_observer_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"output\.observers: csv"):
        validated(SMALL | {"output": {"observers": ["csv", {"name": "csv"}]}}, "small.yaml")


def test_a_recorded_setting_may_be_requested_again(experiment: Callable[..., Path], tmp_path: Path) -> None:
    file = experiment(output={"observers": [{"name": "csv", "directory": str(tmp_path / "rows")}]})
    command = ["run", str(file), "--out", str(tmp_path / "run"), "--quiet", "--observe", "csv", "--observe", "csv"]
    assert main(command) == 0
    assert main([*command, "--resume"]) == 0
    (written,) = (tmp_path / "rows").iterdir()
    assert len(written.read_text().splitlines()) == 1 + SMALL["rounds"]
    assert not (tmp_path / "run" / "rounds.csv").exists()


def test_csv_goes_on_after_a_reason_of_several_lines(tmp_path: Path) -> None:
    row = dict.fromkeys(COLUMNS) | {"round": 7, "outcome": "aborted", "reason": "one\ntwo\u2028three"}
    planned: Any = SimpleNamespace(path=tmp_path)
    observer = CsvRounds()
    assert observer.opened(planned) == 0
    observer.write(planned, row)
    assert CsvRounds().opened(planned) == 7


def test_wandb_takes_any_name_of_an_experiment(experiment: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    file = experiment(name="a/b:c#1?%", rounds=1, output={"observers": ["wandb"]})
    assert main(["run", str(file), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert [point["round"] for point in read_wandb(tmp_path / "run")] == [1]


OWN = """from testbed import Exporter


class Forgets(Exporter):
    def __init__(self, file="x"):
        self.file = file

    def opened(self, run):
        return 0

    def write(self, run, row):
        pass


class Opens(Exporter):
    def __init__(self, last=0):
        super().__init__()
        self.last = last

    def opened(self, run):
        return self.last

    def write(self, run, row):
        raise SystemExit(3)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_exporters.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_exporters", raising=False)


def test_an_observer_that_does_not_call_its_base_is_refused_before_the_first_round(own: None, tmp_path: Path) -> None:
    asked = validated({**SMALL, "output": {"observers": ["own_exporters:Forgets"]}}, "e.yaml")
    with pytest.raises(ExperimentError) as refused:
        run(asked, out=tmp_path / "run")
    line = "output.observers: own_exporters:Forgets: its __init__ must call super().__init__()"
    assert str(refused.value) == f"small: {line}"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (0, "SystemExit: 3"),
        (None, "opened returned None: should be the last round that is there, 0 to 4"),
        (99, "opened returned 99: should be the last round that is there, 0 to 4"),
        ("2", "opened returned '2': should be the last round that is there, 0 to 4"),
    ],
)
def test_a_failing_observer_is_reported_and_ends_no_run(last: Any, says: str, own: None, tmp_path: Path) -> None:
    entry = {"name": "own_exporters:Opens", "last": last}
    run(validated({**SMALL, "output": {"observers": [entry]}}, "e.yaml"), out=tmp_path / "run")
    (found,) = find_runs(tmp_path / "run")
    assert len(found.rounds) == 4
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert {one["error"] for one in log if one["event"] == "observer-failed"} == {says}
