"""YAML that is small and stands for much: refused in one line before anything of it is built."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from testbed.emulation.compute.cost import read_costs
from testbed.errors import ExperimentError, RunError
from testbed.experiment import load
from testbed.files import limits, plain_yaml
from testbed.records import RunRecords
from testbed.running.status import status
from tests.messages_named import naming

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 12))
HOSTILE = {
    "aliases": (LAUGHS, "more than 2000000 values with aliases expanded"),
    "merged": (MERGES, "more than 2000000 values with aliases expanded"),
    "itself": ("a: &a {b: *a}\n", r"the alias \*a is part of its own value"),
    "digits": ("rounds: " + "9" * 10**6, "a number of 1000000 characters; at most 200"),
    "hexadecimal": ("rounds: 0x" + "f" * 10**6, "a number of 1000002 characters; at most 200"),
    "base 60": ("rounds: 1" + ":59" * 10**5, "a number of 300001 characters; at most 200"),
    "tagged": ("rounds: !!int '" + "9" * 10**6 + "'", "a number of 1000000 characters; at most 200"),
    "key": ("? " + "9" * 1000 + "\n: 1", "a number of 1000 characters; at most 200"),
    "depth": ("a: " + "[" * 10**5, "more than 64 nested sections and lists"),
    "block depth": ("- " * 10**5, "more than 64 nested sections and lists"),
    "colliding keys": (
        "".join(f"{i * (2**61 - 1)}: 1\n" for i in range(50_000)), "more than 1000 keys that are numbers",
    ),
}  # fmt: skip


@pytest.fixture
def hostile_run(tmp_path: Path) -> Callable[[str], Path]:
    """A run directory whose experiment.yaml has this text."""

    def make(text: str) -> Path:
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "experiment.yaml").write_text(text)
        return tmp_path / "run"

    return make


@pytest.mark.parametrize("name", HOSTILE)
def test_every_reader_refuses_it_in_one_line(hostile_run: Callable[[str], Path], name: str) -> None:
    text, says = HOSTILE[name]
    path = hostile_run(text)
    readers: list[tuple[type[Exception], Callable[[], object]]] = [
        (ExperimentError, lambda: load(path / "experiment.yaml")),
        (ExperimentError, lambda: read_costs(path / "experiment.yaml")),
        (RunError, lambda: RunRecords(path).experiment),
        (RunError, lambda: status(path)),
    ]
    for kind, read in readers:
        with pytest.raises(kind, match=says) as error:
            read()
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 400


def test_nothing_is_built_of_it() -> None:
    tracemalloc.start()
    for text, says in HOSTILE.values():
        with pytest.raises(yaml.MarkedYAMLError, match=says):
            plain_yaml.parsed(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_the_size_of_a_file(hostile_run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "YAML_BYTES", 1000)
    path = hostile_run("name: x\n" + "# \n" * 1000)
    for kind, read in ((ExperimentError, lambda: load(path / "experiment.yaml")),
                       (RunError, lambda: RunRecords(path).experiment), (RunError, lambda: status(path))):  # fmt: skip
        with pytest.raises(kind, match="larger than"):
            read()


def test_a_file_without_an_end() -> None:
    with pytest.raises(ExperimentError, match=naming("/dev/zero", "a pipe or a device")):
        load(Path("/dev/zero"))


def test_what_honest_files_need_is_read() -> None:
    text = "a: &a {x: [1, 2], y: 1e-3}\nb: [*a, *a]\nc: {<<: *a, z: 2}\nseed: " + "9" * 70 + "\n"
    assert plain_yaml.parsed(text)["b"][1]["x"] == [1, 2]
    assert plain_yaml.parsed(text)["c"] == {"x": [1, 2], "y": "1e-3", "z": 2}
    assert len(plain_yaml.parsed(f"name: {'1' * 150} {'word ' * 1000}")["name"]) > 5000
