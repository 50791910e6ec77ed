"""The comparison with Flower counts lines of code, and its page has the counts."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.peers.__main__ import FOLDER, WAYS, lines_of_code, ours
from benchmarks.report import REQUIRED
from testbed import Experiment
from tests.repository import ROOT

PYTHON = '''"""A docstring

of three lines."""

import os  # a comment behind code counts once

# a comment


class One:
    """Another."""

    text = """two
lines"""

    def call(self):
        """What."""
        return os.sep
'''


def test_code_is_what_is_left_without_blanks_comments_and_docstrings(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(PYTHON)
    (tmp_path / "one.yaml").write_text("# what\n\na: 1  # one\nb:\n  - 2\n")
    assert lines_of_code(tmp_path / "one.py") == 6
    assert lines_of_code(tmp_path / "one.yaml") == 3


def test_the_page_has_the_lines_that_are_counted() -> None:
    page = (ROOT / "docs" / "explanation" / "peers.md").read_text()
    for task in ("digits", "images"):
        shared = lines_of_code(FOLDER / f"{task}.py")
        here = lines_of_code(FOLDER / "experiment.yaml") + shared
        flower = lines_of_code(FOLDER / "flower_app.py") + shared
        (row,) = re.findall(rf"^\| {task}: lines of user code .*$", page, re.MULTILINE)
        assert [int(number) for number in re.findall(r"\d+", row)][:3] == [here, flower, shared], row


def test_both_train_alike() -> None:
    here = Experiment.load(FOLDER / "experiment.yaml")
    app = (FOLDER / "flower_app.py").read_text()
    assert here.workload.optimizer == "sgd"
    assert "torch.optim.SGD(net.parameters(), lr=message" in app  # no momentum, no weight decay
    assert (here.workload.momentum, here.workload.weight_decay, here.workload.epochs) == (0, 0, 1)
    assert f'"lr": {here.workload.learning_rate}' in app
    assert f".split({here.workload.batch_size})" in app
    assert f"fraction_train={here.selection.participants / here.population}," in app
    assert f"min_available_nodes={here.population})" in app


def test_the_page_has_the_keys_of_the_configuration_that_it_names() -> None:
    page, gpu = ((ROOT / "docs" / part).read_text() for part in ("explanation/peers.md", "how-to/gpu.md"))
    (found,) = re.findall(r"^    (\{seed: 1, rounds: 1500.*?\}\})$", gpu, re.MULTILINE | re.DOTALL)
    keys = _leaves(yaml.safe_load(found)) + 1  # and path, of the data set's files
    assert f"| CIFAR-10: configuration | {keys} keys [3] |" in page


def _leaves(value: object) -> int:
    return sum(_leaves(one) for one in value.values()) if isinstance(value, dict) else 1


def test_a_round_here_is_timed() -> None:
    seconds = ours("digits", 3, WAYS["here, one process"])
    assert len(seconds) == 2
    assert min(seconds) > 0


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif("FLOWER_PYTHON" not in os.environ, reason="needs an environment with flwr")
def test_both_are_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.peers", "--flower", os.environ["FLOWER_PYTHON"], "--rounds", "2"]
    done = subprocess.run(
        [*command, "--format", "json"], capture_output=True, text=True, cwd=ROOT, timeout=290, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert set(REQUIRED) <= result.keys()
    assert result["lines"] < result["flower_lines"]
