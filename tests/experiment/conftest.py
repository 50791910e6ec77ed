"""Experiment files."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from testbed.errors import ExperimentError
from testbed.experiment import Experiment, load


@pytest.fixture
def load_text(tmp_path: Path) -> Callable[..., Experiment]:
    """Load an experiment from its text."""

    def load_it(text: str, *overrides: str) -> Experiment:
        file = tmp_path / "experiment.yaml"
        file.write_text(text, encoding="utf-8")
        return load(file, overrides)

    return load_it


@pytest.fixture
def mistakes(load_text: Callable[..., Experiment], tmp_path: Path) -> Callable[..., list[str]]:
    """The lines of the error that a text gives, without the file's name, which each must begin with."""

    def lines_of(text: str, *overrides: str) -> list[str]:
        with pytest.raises(ExperimentError) as error:
            load_text(text, *overrides)
        lines = str(error.value).split("\n")
        prefix = str(tmp_path / "experiment.yaml")
        for line in lines:
            assert line.startswith((prefix, "--set "))
            assert line.isprintable()
        return [line.removeprefix(prefix).removeprefix(": ") for line in lines]

    return lines_of


@pytest.fixture
def mistake(mistakes: Callable[..., list[str]]) -> Callable[..., str]:
    """The only line of the error that a text gives."""

    def line_of(text: str, *overrides: Sequence[str]) -> str:
        (line,) = mistakes(text, *overrides)
        return line

    return line_of
