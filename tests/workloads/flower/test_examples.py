"""Flower's own examples run unchanged, or are refused in one line.

They are not here: FLOWER_EXAMPLES names the folder `examples` of a checkout of Flower's repository, and
FLOWER_EXAMPLES_PYTHON the interpreter of an environment with flwr, flwr-datasets and what the examples need
(FLOWER_PYTHON, where they need nothing more). Downloads are replaced by data that are here (`local_data`); images come
from the folder of third-party data, and examples that need them are skipped without it.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.cli import main
from tests.workloads.flower.conftest import rounds_of

IMAGES = 400
"""Training images of a data set, for all clients together."""

RUNS = {
    "quickstart-numpy": (False, False),
    "quickstart-sklearn": (True, True),
    "quickstart-pytorch": (True, True),
    "quickstart-pytorch-lightning": (True, False),
    "quickstart-tensorflow": (True, True),
    "federated-vae": (True, False),
    "advanced-pytorch": (True, True),
}
"""Whether a loss and an accuracy are recorded of each."""

WITH_STATE = {"advanced-pytorch"}
"""Examples whose clients keep something in ``context.state``."""

REFUSED = {
    "quickstart-pandas": "the app's server sends no model to train; apps that only answer queries are not supported",
    "quickstart-xgboost": "sends a model without floating-point parameters, such as trees",
    "advanced-pytorch": "keeps classification-head in context.state for later rounds",
}


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder with Flower's examples."""
    folder = os.environ.get("FLOWER_EXAMPLES")
    if not folder:
        pytest.skip("FLOWER_EXAMPLES names no folder with Flower's examples")
    return Path(folder)


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter that has what the examples need."""
    named = os.environ.get("FLOWER_EXAMPLES_PYTHON") or os.environ.get("FLOWER_PYTHON")
    if not named:
        pytest.skip("FLOWER_EXAMPLES_PYTHON names no interpreter with flwr and what the examples need")
    return named


@pytest.fixture(scope="session")
def downloads(python: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where `datasets` finds what the examples would download."""
    cache = tmp_path_factory.mktemp("downloads")
    script = Path(__file__).with_name("local_data.py")
    try:
        data = request.getfixturevalue("shared") / "data"
    except pytest.skip.Exception:
        data = cache / "nothing"
    made = subprocess.run([python, script, cache, data, str(IMAGES)], capture_output=True, text=True, check=False)
    if "No module named 'datasets'" in made.stderr:
        return cache  # quickstart-numpy needs none
    assert made.returncode == 0, made.stderr
    return cache


@pytest.fixture
def example(examples: Path, downloads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Example":
    """Copy an example, since examples write their models into their folders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(downloads))
    for name, value in {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "KERAS_BACKEND": "tensorflow"}.items():
        monkeypatch.setenv(name, value)
    return Example(examples, tmp_path)


class Example:
    """Copies examples into a folder."""

    def __init__(self, examples: Path, folder: Path) -> None:
        self._examples, self._folder = examples, folder

    def copy(self, name: str) -> str:
        """The copy's name in the working directory."""
        if not (self._examples / name).is_dir():
            pytest.skip(f"this checkout has no {name}")
        shutil.copytree(self._examples / name, self._folder / name)
        return name


def skip_what_is_not_here(text: str) -> None:
    """Skip where the app lacks a library or a data set of this environment."""
    assert "'flwr'" not in text, text
    for lack in ("No module named", "cannot import name 'UserConfig'", "on the Hub"):
        if lack in text:
            pytest.skip(text.strip().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_examples_run_unchanged(name: str, example: Example, python: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = example.copy(name)
    capsys.readouterr()
    state = ["--discard-state"] if name in WITH_STATE else []
    code = main(["flower", app, "--python", python, *state])
    printed = capsys.readouterr()
    skip_what_is_not_here(printed.err)
    assert code == 0, printed.err
    Path("app.yaml").write_text(printed.out)
    options = ["--set", "rounds=2", "--set", "workload.flower.evaluate_clients=2", "--network", "in-process", "--quiet"]
    assert main(["run", "app.yaml", "--out", "out", *options]) == 0
    rounds = rounds_of(Path("out"), "outcome", "loss", "accuracy")
    measured = [(outcome, loss is not None, accuracy is not None) for outcome, loss, accuracy in rounds]
    assert measured == [("completed", *RUNS[name])] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_examples_that_are_refused(
    name: str, example: Example, python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = example.copy(name)
    capsys.readouterr()
    assert main(["flower", app, "--python", python]) == 2
    error = capsys.readouterr().err
    skip_what_is_not_here(error)
    assert REFUSED[name] in error
    assert len(error.strip().splitlines()) == 1
