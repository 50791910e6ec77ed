"""The first example in each command's help does what it says, as printed; all of the commands that only calculate.

The folder in which they are run has the repository's examples with fewer rounds and clients, and the runs and files
that the examples name. Only those that talk to a cluster are not run here: tests/cluster has them.
"""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs._ext.commands import command_line, examples, leaves
from testbed.cli import main
from tests.commands.conftest import SMALL
from tests.repository import ROOT

SHRUNKEN: dict[str, dict[str, Any]] = {
    "quickstart": {"rounds": 1, "population": 30, "cluster": {"network": "in-process"}},
    "multi-round": {"rounds": 2},
    "multi-round-reconstruction": {
        "cluster": {"network": "in-process"},
        "sweep": {"selection": [{"protocol": "random"}]},
    },
    "privacy-budget": {"rounds": 2, "cluster": {"network": "in-process"}},
    "adversary": {"rounds": 1, "sweep": {"adversary.server": ["forge-output", "send-different-models"]}},
    "crafted-models": {"rounds": 1, "sweep": {"adversary.server": ["send-different-models", "send-crafted-model"]}},
    "pictures": {"rounds": 1, "cluster": {"network": "in-process"}, "sweep": {"selection": [{"protocol": "random"}]}},
    "threats": {"rounds": 1},
    "disaggregation": {
        "cluster": {"network": "in-process"},
        "population": 4,
        "workload": {
            "dataset": "digits", "model": "logistic", "batch_size": 1000, "evaluate_every": 360,
            "partition": {"scheme": "label-shards", "shards_per_client": 1},
        },
        "selection": {"participants": 2},
        "sweep": {"selection": [{"protocol": "random"}]},
    },
    "audit": {"rounds": 1, "cluster": {"network": "in-process"}},
    "inference": {
        "rounds": 4,
        "cluster": {"network": "in-process"},
        "aggregation": {"protocol": "plain"},
        "sweep": {"selection": [{"protocol": "random"}]},
    },
    "femnist-700": {},
}  # fmt: skip
RUNS = {
    "quickstart": "quickstart",
    "multi-round": "multi-round",
    "sums": "multi-round-reconstruction",
    "privacy-budget": "privacy-budget",
    "adversary": "adversary",
    "crafted-models": "crafted-models",
    "pictures": "pictures",
    "lotto": "lotto",
    "audit": "audit",
    "inference": "inference",
    "disaggregation": "disaggregation",
}
ON_A_CLUSTER = {"submit", "jobs list", "jobs logs", "jobs stop", "jobs fetch", "cluster check"}
ELSEWHERE = {"flower"}  # needs an app and its environment: tests/workloads/flower
SLOW = {"calibrate", "attack survey", "attack reconstruct"}
CALCULATES = ("bound lotto", "bound lotto-dp", "plan lotto", "plan batch-partition")


COMMANDS = {" ".join(words[1:]): command for words, command in leaves(command_line())}


def _examples(name: str) -> list[str]:
    return examples(COMMANDS[name])[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples are run."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "examples").mkdir()
    for name, changes in SHRUNKEN.items():
        experiment = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text()) | changes
        (folder / "examples" / f"{name}.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False))
    small = {**SMALL, "rounds": 1}
    (folder / "experiment.yaml").write_text(yaml.safe_dump(small))
    (folder / "examples" / "lotto.yaml").write_text(yaml.safe_dump(small | {"name": "lotto"}))
    phone = {"isSuccess": True, "trace_start": 0.0, "trace_end": 172800.0, "ready_time": [[3600.0, 7200.0]]}
    (folder / "cached_timers.json").write_text(json.dumps({"681": phone}))
    return folder


def _run(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """What a shell does with the line; what it prints is on the captured output, or in the file that it names."""
    monkeypatch.chdir(folder)
    command, _, _ = line.partition(" > ")
    program, *arguments = shlex.split(command)
    assert program == "testbed"
    for needed in re.findall(r"runs/([\w-]+)", command):
        if needed in RUNS and "--out runs/" not in command and not (folder / "runs" / needed).exists():
            assert main(["run", f"examples/{RUNS[needed]}.yaml", "--out", f"runs/{needed}", "--quiet"]) == 0
    if "phones.parquet" in command and not (folder / "phones.parquet").exists() and "convert" not in command:
        assert _run(_examples("trace convert")[0], folder, monkeypatch) == 0
    return main(arguments)


def _marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name


@pytest.mark.parametrize("name", [_marked(name) for name in COMMANDS if name not in ON_A_CLUSTER | ELSEWHERE])
def test_the_first_example_works_as_printed(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = _examples(name)
    for example in own if name in CALCULATES else own[:1]:
        code = _run(example, folder, monkeypatch)
        printed = capsys.readouterr()
        assert code == 0, printed.err
        assert printed.out or os.listdir(folder)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_of_the_command_and_has_its_options(name: str) -> None:
    """Of all examples, those on a cluster too: a line that begins otherwise shows what comes before or after."""
    own = [line for line in _examples(name) if line.startswith(f"testbed {name}")]
    assert own
    known = {option for one in COMMANDS[name].params for option in (*one.opts, *one.secondary_opts)}
    shown = {word.partition("=")[0] for line in own for word in shlex.split(line) if word.startswith("--")}
    assert shown <= known
