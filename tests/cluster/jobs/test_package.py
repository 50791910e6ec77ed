"""The package sent to a cluster: all needed files, with the same bytes for the same experiment in any folder."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.jobs import package
from cluster.jobs.package import EXPERIMENT, METADATA, Packed, own_modules, pack, pack_code
from testbed.errors import ExperimentError
from testbed.experiment import load
from testbed.experiment.inputs import digests
from testbed.plugins.sources import PRODUCT
from tests.messages_named import naming

TRACE = "client,start_s,end_s\na,0,1000\nb,0,2000\n"


def folder(base: Path, name: str, **changes: Any) -> Path:
    """A folder with an experiment that reads a trace below it; returns the experiment's file."""
    where = base / name
    (where / "data").mkdir(parents=True)
    (where / "data" / "trace.csv").write_text(TRACE)
    data = {"name": "replayed", "population": 8, "selection": {"participants": 4}} | changes
    file = where / "experiment.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Packed]:
    """Pack an experiment from its own folder."""

    def packed(file: Path, *overrides: str, **more: Any) -> Packed:
        monkeypatch.chdir(file.parent)
        into = tmp_path / f"packed-{len(list(tmp_path.iterdir()))}"
        into.mkdir()
        return pack(Path(file.name), overrides, into, **more)

    return packed


def unzipped(packed: Packed) -> Path:
    where = packed.path.parent / "working-directory"
    with zipfile.ZipFile(packed.path) as archive:
        archive.extractall(where)
    return where


def traced(path: str) -> dict[str, Any]:
    return {"availability": {"model": "trace", "path": path}}


def test_two_people_send_the_same_bytes(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    mine = packed(folder(tmp_path, "mine", **traced("data/trace.csv")))
    other = folder(tmp_path, "other")
    theirs = packed(other, f"availability={{model: trace, path: {other.parent / 'data' / 'trace.csv'}}}")
    assert mine.experiment == theirs.experiment
    assert mine.path.read_bytes() == theirs.path.read_bytes()


def test_the_packed_experiment_reads_the_same_contents(
    tmp_path: Path, packed: Callable[..., Packed], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder(tmp_path, "mine", **traced("data/trace.csv"))
    where = unzipped(packed(file))
    here = digests(load(file))
    monkeypatch.chdir(where)
    there = load(Path(EXPERIMENT))
    assert digests(there) == {"inputs/trace.csv": hashlib.sha256(TRACE.encode()).hexdigest()}
    assert list(digests(there).values()) == list(here.values())
    assert there.model_copy(update={"availability": None}) == load(file).model_copy(update={"availability": None})


def test_a_changed_file_keeps_its_name(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    file = folder(tmp_path, "mine", **traced("data/trace.csv"))
    before = packed(file)
    (file.parent / "data" / "trace.csv").write_text(TRACE + "c,0,5\n")
    after = packed(file)
    assert before.experiment == after.experiment  # --resume tells by the digest, and says so
    assert before.path.read_bytes() != after.path.read_bytes()


def test_files_of_one_name_and_folders(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    file = folder(tmp_path, "mine")
    for name in ("up", "down"):
        (file.parent / name / "rates").mkdir(parents=True)
        (file.parent / name / "rates" / "a.txt").write_text(f"0 1\n1 {len(name)}\n")
    made = packed(file, "links.up_mbit_s={trace: up/rates}", "links.down_mbit_s={trace: down/rates}")
    assert sorted(made.files) == ["inputs/2-rates/a.txt", "inputs/rates/a.txt"]
    where = unzipped(made)
    plain = yaml.safe_load((where / EXPERIMENT).read_text())
    for side, name in (("up_mbit_s", "up"), ("down_mbit_s", "down")):
        sent = where / plain["links"][side]["trace"] / "a.txt"
        assert sent.read_text() == (file.parent / name / "rates" / "a.txt").read_text()


def test_paths_in_a_sweep_are_sent(
    tmp_path: Path, packed: Callable[..., Packed], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder(
        tmp_path,
        "mine",
        sweep={
            "availability": [{"model": "always"}, {"model": "trace", "path": "data/trace.csv"}],
            "time.costs": [{"label": "slow", "value": "data/costs.yaml"}],
        },
    )
    (file.parent / "data" / "costs.yaml").write_text("hmac: 0.5\n")
    monkeypatch.chdir(file.parent)
    original = load(file)
    made = packed(file)
    where = unzipped(made)
    monkeypatch.chdir(where)
    plain = load(Path(EXPERIMENT))
    assert plain.sweep["availability"][1]["path"] == "inputs/trace.csv"
    assert plain.sweep["time.costs"] == [{"label": "slow", "value": "inputs/costs.yaml"}]
    assert len(plain.sweep) == len(original.sweep)
    assert (where / "inputs" / "costs.yaml").read_text() == "hmac: 0.5\n"


def test_a_missing_file_and_a_file_on_the_cluster(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    with pytest.raises(ExperimentError, match=r"nowhere\.csv.*absolute path"):
        packed(folder(tmp_path, "one", **traced("data/nowhere.csv")))
    there = packed(folder(tmp_path, "two", **traced("/no/such/trace.csv")))
    assert [note for note in there.notes if "/no/such/trace.csv" in note]
    assert not there.files
    file = folder(tmp_path, "three", **traced("data/trace.csv"))
    told = packed(file, on_cluster=[Path("data/trace.csv")])
    assert not told.files
    assert str(told.experiment.availability.path) == "data/trace.csv"


def test_too_large_names_the_largest(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    file = folder(tmp_path, "mine", **traced("data/trace.csv"))
    with pytest.raises(ExperimentError, match=r"trace\.csv.*--on-cluster") as caught:
        packed(file, maximum=1000)
    assert "\n" not in str(caught.value)


def test_own_classes_come_with_their_imports(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    file = folder(tmp_path, "mine", selection={"protocol": "mine.lottery:Lottery", "participants": 4})
    (file.parent / "mine").mkdir()
    (file.parent / "mine" / "__init__.py").write_text("")
    (file.parent / "mine" / "lottery.py").write_text("import json\nfrom beside import x\nraise SystemExit\n")
    (file.parent / "beside.py").write_text("import numpy\nx = 1\n")
    (file.parent / "unrelated.py").write_text("")
    made = packed(file)
    assert sorted(made.files) == ["beside.py", "mine/__init__.py", "mine/lottery.py"]


def test_own_misbehaviours_come_too(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    """By name, with options, and in the lists of a sweep."""
    adversary = {"server": ["one:A", {"two:B": {"x": 1}}], "clients": "three:C"}
    sweep = {"adversary.server": [["four:D", {"five:E": {}}], "six:F"]}
    for place, keys in enumerate(({"adversary": adversary}, {"sweep": sweep})):
        file = folder(tmp_path, f"mine{place}", **keys)
        for name in ("one", "two", "three", "four", "five", "six"):
            (file.parent / f"{name}.py").write_text("")
        named = ["one.py", "two.py", "three.py"] if place == 0 else ["four.py", "five.py", "six.py"]
        assert sorted(packed(file).files) == sorted(named)


def test_own_losses_and_metrics_come_too(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    workload = {"dataset": "own:load", "model": "logistic", "loss": "losses:Huber", "metrics": ["scores:f1"]}
    file = folder(tmp_path, "mine", workload=workload)
    for name in ("own", "losses", "scores"):
        (file.parent / f"{name}.py").write_text("")
    assert sorted(packed(file).files) == ["losses.py", "own.py", "scores.py"]


def test_own_classes_that_are_not_here_are_named(tmp_path: Path) -> None:
    found, missing = own_modules(["elsewhere.module:Name", "workloads.contract:X"], [tmp_path])
    assert found == {}
    assert missing == ["elsewhere.module:Name"]
    (tmp_path / "broken.py").write_text("def\n")
    with pytest.raises(ExperimentError, match=r"broken\.py"):
        own_modules(["broken:X"], [tmp_path])


def test_the_code_runs_from_the_zip_with_its_own_entry_points(tmp_path: Path) -> None:
    """Although the node has a version installed that had none."""
    about = tmp_path / "node" / "sortition_testbed-0.1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sortition-testbed\nVersion: 0.1.0\n")
    with zipfile.ZipFile(pack_code(tmp_path)) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "code")
    assert {name.partition("/")[0] for name in names} == {*PRODUCT, METADATA}
    assert not [name for name in names if "__pycache__" in name]
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "schema"],  # verbs and data sets are entry points
        cwd=tmp_path / "code",
        env=os.environ | {"PYTHONPATH": str(tmp_path / "node")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert '"$schema"' in done.stdout


def test_the_folder_of_a_workload_is_sent(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    file = folder(tmp_path, "mine", workload={"dataset": "femnist", "path": "data/femnist"})
    for part in ("train", "test"):
        (file.parent / "data" / "femnist" / part).mkdir(parents=True)
        (file.parent / "data" / "femnist" / part / "all_data_0.json").write_text("{}")
    made = packed(file)
    assert sorted(made.files) == ["inputs/femnist/test/all_data_0.json", "inputs/femnist/train/all_data_0.json"]
    assert str(made.experiment.workload.path) == "inputs/femnist"
    assert (unzipped(made) / "inputs" / "femnist" / "train" / "all_data_0.json").read_text() == "{}"


def test_links_within_folders_are_reported_and_not_followed(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("mine")
    file = folder(tmp_path, "mine", workload={"dataset": "own:Data", "model": "linear", "path": "data"})
    data = file.parent / "data"
    (data / "linked").symlink_to(secrets / "key")
    (data / "folder").symlink_to(secrets)
    package = file.parent / "own"
    package.mkdir()
    (package / "__init__.py").write_text("Data = object\n")
    (package / "also.py").symlink_to(secrets / "key")
    made = packed(file)
    sent = unzipped(made)
    assert sorted(made.files) == ["inputs/data/trace.csv", "own/__init__.py"]
    assert not any(path.is_file() and path.read_bytes() == b"mine" for path in sent.rglob("*"))
    links = [note for note in made.notes if note.endswith("a symbolic link, not sent; replace it by the file itself")]
    assert sorted(Path(note.partition(":")[0]).name for note in links) == ["also.py", "folder", "linked"]


def test_a_link_that_the_experiment_names_is_followed(tmp_path: Path, packed: Callable[..., Packed]) -> None:
    file = folder(tmp_path, "mine", **traced("trace.csv"))
    (file.parent / "trace.csv").symlink_to(file.parent / "data" / "trace.csv")
    made = packed(file)
    assert (unzipped(made) / "inputs" / "trace.csv").read_text() == TRACE


@pytest.fixture
def impatient() -> Iterator[None]:
    """End a test that hangs."""

    def stop(*_: object) -> None:
        raise AssertionError("it waits for a writer that does not exist")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("endless", ["pipe", "device"])
def test_only_regular_files_are_opened(tmp_path: Path, packed: Callable[..., Packed], endless: str) -> None:
    """A pipe without a writer would be waited for, and a device of zeros compressed for ever."""
    named = "/dev/zero"
    if endless == "pipe":
        named = str(tmp_path / "pipe")
        os.mkfifo(named)
    file = folder(tmp_path, "piped", workload={"dataset": "mnist", "path": named})
    with pytest.raises(ExperimentError) as caught:
        packed(file)
    assert re.search(naming(named, "regular file"), str(caught.value))
    with pytest.raises(ExperimentError, match=naming("regular file")):
        digests(load(file))


def test_sizes_are_looked_at_before_anything_is_compressed(
    tmp_path: Path, packed: Callable[..., Packed], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(4 * 1024**3)  # sparse: it takes no room here, and hours of compressing

    def compress(*_: object) -> None:
        raise AssertionError("compressed before its size was looked at")

    monkeypatch.setattr(package, "_write", compress)
    with pytest.raises(ExperimentError, match=naming("upload", "4096.0 MiB", "2048.0 MiB")):
        packed(folder(tmp_path, "sparse", workload={"dataset": "mnist", "path": str(tmp_path / "zeros")}))
