"""No command that only reads runs code that a file names: a walk over commands and kinds of names.

A command of the command line must be in one of the lists below: a new one fails the first test until it is listed.
Modules and programs are planted where the records lie, which is the working directory and on the path; each leaves a
mark when it runs. The kinds of names come from the experiments' schema.
"""

import ast
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs._ext.commands import command_line, leaves
from testbed.cli import main
from testbed.errors import ExperimentError
from testbed.experiment import Experiment
from testbed.plugins.classes import IMPORT_CLASSES, PLUGIN_NAME, importing_classes
from testbed.plugins.installed import KINDS
from testbed.workload.flower import FlowerSection
from tests.commands.conftest import SMALL
from tests.repository import ROOT
from workloads.flower.app import FlowerProcess

pytestmark = pytest.mark.usefixtures("quick_fonts")

_SUMS = ["--from", "1", "--to", "2"]
READS_RECORDS = {
    "status": ["."],
    "compare": ["."],
    "plot": [".", "--only", "accuracy", "--format", "png", "--out", "out"],
    "report": [".", "--out", "out/report.html"],
    "dropouts": ["."],
    "metrics": ["."],
    "privacy": ["."],
    "timeline": [".", "--out", "out/timeline.json"],
    "attack summary": ["."],
    "attack models": ["."],
    "attack audit": ["."],
    "attack reconstruct": [".", *_SUMS],
    "attack disaggregate": [".", *_SUMS],
    "attack invert": [".", "--round", "1", "--client", "1"],
    "attack membership": [".", "--samples", "2"],
    "attack property": [".", "--shadows", "2"],
    "trace record": [".", "--out", "out/trace.csv"],
}
READS_EXPERIMENTS = {
    "validate": ["experiment.yaml"],
    "data inspect": ["experiment.yaml"],
    "bound privacy": ["experiment.yaml"],
    "attack registrations": ["experiment.yaml"],
    "cluster check": ["experiment.yaml", "--address", "127.0.0.1:1"],
    "submit": ["experiment.yaml", "--address", "http://127.0.0.1:1"],  # here nothing runs; on the cluster it does
}
READS_TRACES = {
    "trace convert": ["planted.pickle", "--from", "fedscale", "--out", "out/trace.parquet"],
    "trace inspect": ["planted.pickle"],
}
RUNS = {"run", "tune", "attack survey", "flower", "check"}
"""They exist to run what a file names."""
NAMES_NOTHING = {
    "list", "new", "schema", "calibrate", "reproduce", "bound lotto", "bound lotto-dp", "bound random-participation",
    "bound verifiable-batch-partition", "bound committee", "bound correlated", "bound participation",
    "bound moving-updates", "bound batch-partition", "plan lotto", "plan batch-partition", "plan committee",
    "trace synthesize", "jobs list", "jobs logs", "jobs stop", "jobs fetch",
}  # fmt: skip
"""They read no file that can name code: numbers, installed packages, the catalogue, a dashboard's answers."""
READS = {**READS_RECORDS, **READS_EXPERIMENTS, **READS_TRACES}


def test_every_command_is_known_to_read_or_to_run() -> None:
    there = {" ".join(words[1:]) for words, _ in leaves(command_line())}
    listed = [*READS, *RUNS, *NAMES_NOTHING]
    assert sorted(there) == sorted(listed)


# -- what a file can name ----------------------------------------------------------------------------------------------


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


_NAME = "planted:Anything"
_LISTS = ("workload.metrics", "adversary.server", "adversary.clients", "output.observers")
_BESIDE = {
    "aggregation.robust.rule": {"aggregation": {"weights": "equal"}},
    "adversary.server": {"adversary": {"dishonest": 1}},
    "adversary.clients": {"adversary": {"dishonest": 1}},
    "classes.*.device.model": {"classes": {"phone": {"share": 1.0}}},
}
PLUGIN_KEYS = [key for keys in KINDS.values() for key in keys]
APPS: dict[str, dict[str, Any]] = {
    "workload.flower.python": {"app": "app", "python": "./interpreter"},
    "workload.flower.app": {"app": "app"},
    "workload.flower.client": {"client": "planted:app"},
}


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in more.items():
        both[key] = _merged(both[key], value) if isinstance(value, dict) and isinstance(both.get(key), dict) else value
    return both


def _naming(key: str) -> dict[str, Any]:
    """The part of an experiment that names something at `key`."""
    if key in APPS:
        return {"workload": {"flower": APPS[key]}}
    made = _nested(key.replace("*", "phone"), [_NAME] if key in _LISTS else _NAME)
    return _merged(_BESIDE.get(key, {}), made)


def _with(base: dict[str, Any], key: str) -> dict[str, Any]:
    more = _naming(key)
    if key in APPS:  # a section of its own
        return {**base, **more}
    if key == "aggregation.protocol":
        return {**base, **more}
    return _merged(base, more)


def test_every_kind_that_the_schema_lets_a_file_name_is_planted() -> None:
    """A property that takes the name of code has the names' pattern, or says so in its description."""
    found = set()
    for section, shape in Experiment.model_json_schema()["$defs"].items():
        for name, one in shape.get("properties", {}).items():
            says = "options" not in name and re.search(r"package\.module|module:", one.get("description", ""))
            if says or PLUGIN_NAME in json.dumps(one).encode().decode("unicode_escape"):
                found.add((section, name))
    planted = {key.rpartition(".")[2] for key in (*PLUGIN_KEYS, *APPS)} | {"server", "flower"}
    assert {name for _, name in found} <= planted
    assert len(found) >= len(PLUGIN_KEYS)  # so it finds them


@pytest.mark.parametrize("key", PLUGIN_KEYS + list(APPS))
def test_what_is_planted_is_an_experiment(key: str) -> None:
    Experiment.model_validate(_with(SMALL, key))


def test_all_that_is_planted_is_an_experiment_at_once(recorded: Path) -> None:
    experiment = _all_at_once(recorded / "experiment.yaml")
    Experiment.model_validate({key: value for key, value in experiment.items() if key != "provenance"})


# -- who starts anything -----------------------------------------------------------------------------------------------

STARTS = {
    "testbed/__init__.py": "public names of the testbed",
    "testbed/cli/verbs.py": "verbs of installed packages, by entry points",
    "testbed/conformance/process.py": "the process in which testbed check runs the class that it was given",
    "testbed/plugins/classes.py": "user-defined classes, after check_allowed",
    "testbed/plugins/entry_points.py": "verbs and services of this project's own packages, by its entry points",
    "testbed/running/__init__.py": "public names of running",
    "testbed/running/observers/catalogue.py": "built-in observers",
    "testbed/running/open_runs.py": "git describe, of a run that begins",
    "cluster/hosts/leftovers.py": "a watchdog of our own, with Ray's processes",
    "cluster/probe.py": "user-defined classes, on nodes, after refuse_unless_imported",
    "workloads/__init__.py": "public names of workloads",
    "workloads/data/__init__.py": "built-in data sets",
    "workloads/flower/app.py": "the app's interpreter, after check_allowed",
    "workloads/flower/flower_bridge/environment.py": "the app, in its process",
    "workloads/models/hugging_face.py": "transformers and peft",
    "workloads/models/registry.py": "built-in models",
    "analysis/matplotlib_settings.py": "matplotlib, by the loader that was found for it",
    "analysis/reproduction/catalogue.py": "papers",
    "analysis/reproduction/commits.py": "git, which looks up commits",
}
_STARTING = re.compile(
    r"^(importlib\.)?import_module$|^__import__$|^(exec|eval)$|^runpy\.|^subprocess\.|^os\.(system|exec|spawn|posix_spawn|popen)"
    r"|^asyncio\.create_subprocess|^(multiprocessing|pty)\.|\.spec_from_file_location$|\.exec_module$|^points?(\[0\])?\.load$"
)


def test_only_known_files_start_or_import_what_is_not_written_in_them() -> None:
    found = set()
    for package in ("testbed", "cluster", "workloads", "analysis"):
        for file in sorted((ROOT / package).rglob("*.py")):
            calls = (node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Call))
            if any(_STARTING.search(ast.unparse(call.func)) for call in calls):
                found.add(file.relative_to(ROOT).as_posix())
            if "thread.submit(importlib.import_module" in file.read_text():
                found.add(file.relative_to(ROOT).as_posix())
    assert found == set(STARTS)


# -- the walk ----------------------------------------------------------------------------------------------------------


class _Planted:
    """Unpickled by `pickle.load`, it leaves the mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (str(self.mark), "w")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all that commands read: sums, noise, canaries."""
    folder = tmp_path_factory.mktemp("recorded")
    experiment = SMALL | {
        "rounds": 2,
        "population": 12,
        "selection": {"participants": 6},
        "aggregation": {"protocol": "plain", "weights": "equal", "noise": {"clip": 1.0, "noise_multiplier": 2.0}},
        "privacy": {"canaries": {"clients": 0.5}},
        "records": {"aggregates": "all"},
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    assert main(["run", str(folder / "experiment.yaml"), "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def mark(recorded: Path) -> Path:
    """The file that is there once anything planted has run; modules, an app and programs that write it."""
    mark = recorded.parent / "mark"
    leaving = f"open({str(mark)!r}, 'w').close()\n"
    for module in ("planted.py", "flwr/__init__.py", "sitecustomize.py", "flower_bridge/__init__.py", "app/planted.py"):
        (recorded / module).parent.mkdir(exist_ok=True)
        (recorded / module).write_text(f"{leaving}\nclass Anything:\n    pass\n\napp = None\n")
    (recorded / "app/pyproject.toml").write_text(
        '[tool.flwr.app.components]\nclientapp = "planted:app"\nserverapp = "planted:app"\n'
    )
    (recorded / "interpreter").write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    (recorded / "interpreter").chmod(0o755)
    (recorded / "matplotlibrc").write_text("backend: module://planted\n")
    (recorded / "planted.pickle").write_bytes(pickle.dumps({"1": _Planted(mark)}))
    (recorded / "out").mkdir()
    return mark


@pytest.fixture
def ends(
    recorded: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Call a command where the records lie; what it ends with, and whether anything planted has run is looked at."""
    monkeypatch.chdir(recorded)
    monkeypatch.syspath_prepend(str(recorded))
    file = recorded / "experiment.yaml"
    before = file.read_bytes()

    def ends(experiment: dict[str, Any], *arguments: str) -> tuple[int, str]:
        file.write_text(yaml.safe_dump(experiment))
        capsys.readouterr()
        code = main(arguments)
        ran = mark.exists()
        mark.unlink(missing_ok=True)
        errors = capsys.readouterr().err
        assert not ran, (arguments, errors)
        assert code in (0, 2, 3), (arguments, errors)
        assert "a bug in the testbed" not in errors, (arguments, errors)
        return code, errors

    yield ends
    file.write_bytes(before)
    for module in ("planted", "flwr"):
        sys.modules.pop(module, None)


Ends = Callable[..., tuple[int, str]]


def _experiments(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The recorded experiment, naming something: of each kind alone."""
    base = yaml.safe_load(file.read_text())
    for key in (*PLUGIN_KEYS, *APPS):
        yield key, _with(base, key)


def _all_at_once(file: Path) -> dict[str, Any]:
    base = yaml.safe_load(file.read_text())
    for key in PLUGIN_KEYS:
        base = _with(base, key)
    return base


@pytest.mark.parametrize("name", READS)
def test_no_command_that_reads_runs_anything_that_a_file_names(ends: Ends, recorded: Path, name: str) -> None:
    file = recorded / "experiment.yaml"
    command = [*name.split(), *READS[name]]
    if name in READS_TRACES:
        ends(yaml.safe_load(file.read_text()), *command)
        return
    experiments, together = dict(_experiments(file)), _all_at_once(file)
    if IMPORT_CLASSES not in ends(together, *command)[1]:  # it came to no code: one kind cannot hide another
        experiments = {key: experiments[key] for key in APPS}
    for key, experiment in experiments.items():
        _, errors = ends(experiment, *command)
        if IMPORT_CLASSES in errors:
            assert len(errors.splitlines()) == 1, (key, errors)


NEEDING = {
    "attack audit", "attack models", "attack reconstruct", "attack disaggregate", "attack membership",
    "attack property", "bound privacy", "data inspect", "cluster check", "attack registrations",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(NEEDING))
@pytest.mark.parametrize("key", APPS)
def test_commands_that_need_an_app_refuse_in_one_line(ends: Ends, recorded: Path, name: str, key: str) -> None:
    experiment = _with(yaml.safe_load((recorded / "experiment.yaml").read_text()), key)
    if name == "attack models":
        experiment["adversary"] = {"dishonest": 1, "server": ["send-crafted-model"]}
    code, errors = ends(experiment, *name.split(), *READS[name])
    assert code == 2
    (line,) = errors.splitlines()
    assert IMPORT_CLASSES in line, line
    assert "app" in line


def test_validate_says_that_an_app_was_not_started(ends: Ends, recorded: Path, capsys: Any) -> None:
    (recorded / "experiment.yaml").write_text(
        yaml.safe_dump({**SMALL, "workload": {"flower": {"app": str(recorded / "app")}}})
    )
    assert main(["validate", "experiment.yaml"]) == 0
    assert f"not started, so not checked: workload.flower {recorded / 'app'}" in capsys.readouterr().out


def test_a_program_that_reads_may_refuse_too(recorded: Path) -> None:
    with importing_classes(False), pytest.raises(ExperimentError, match=IMPORT_CLASSES):
        FlowerProcess(FlowerSection(client="planted:app"), 3, 1)


@pytest.mark.usefixtures("mark")
def test_the_apps_process_does_not_find_flwr_in_the_working_directory(
    recorded: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it takes to start one: the app's own module is what may come from there, and no library."""
    monkeypatch.chdir(recorded)
    (recorded / "numpy.py").write_text((recorded / "flwr/__init__.py").read_text())
    try:
        with pytest.raises(ExperimentError):  # neither flwr nor an app of that name is here
            FlowerProcess(FlowerSection(client="absent:app"), 3, 1)
    finally:
        (recorded / "numpy.py").unlink()
    assert not mark.exists()
