"""`testbed reproduce --data`: real files for those that can use them."""

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.reproduction.multi_round_secagg import tasks
from analysis.reproduction.multi_round_secagg.tasks import DIGITS, MNIST_TEST_FILES, Tasks

Call = Callable[..., Any]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 7 with 12 clients, who all take part; two rounds of one seed, IID."""
    settings = {"IID": DIGITS.settings["IID"]}
    built_in, small = [
        replace(
            task, workload={**task.workload, "model": "logistic"}, settings=settings, population=12, rounds=2, seeds=1
        )
        for task in (DIGITS, MNIST_TEST_FILES)
    ]
    monkeypatch.setitem(tasks.TASKS, "multiround-fig7", Tasks(built_in, small, small))


def _write_test_files(folder: Path) -> None:
    """60 images of noise in MNIST's format."""
    random = np.random.default_rng(1)
    folder.mkdir()
    images = random.integers(0, 256, (60, 28, 28), dtype=np.uint8)
    (folder / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, *images.shape) + images.tobytes())
    labels = np.arange(60, dtype=np.uint8) % 10
    (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 60) + labels.tobytes())


def _reproduce(call: Call, out: Path, *more: Any) -> Any:
    return call("reproduce", "multiround-table5", "--network", "in-process", "--out", out, "--quiet", *more)


@pytest.mark.usefixtures("tiny")
def test_files_are_used_and_named(call: Call, tmp_path: Path) -> None:
    _write_test_files(tmp_path / "files")
    ended = _reproduce(call, tmp_path / "real", "--data", tmp_path / "files", "--format", "json")
    assert ended.code == 0, ended.err
    assert "t10k files alone" in " ".join(json.loads(ended.out)["remarks"])
    built_in = _reproduce(call, tmp_path / "built-in", "--format", "json")
    assert built_in.code == 0, built_in.err
    assert "digits" in json.loads(built_in.out)["remarks"][0]


def test_a_folder_that_is_not_there_is_one_line(call: Call, tmp_path: Path) -> None:
    ended = _reproduce(call, tmp_path / "out", "--data", tmp_path / "nothing")
    assert (ended.code, len(ended.errors)) == (2, 1)
    assert ended.errors[0].startswith(f"error: --data: {tmp_path / 'nothing'} is not a folder")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_the_files_is_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = _reproduce(call, tmp_path / "out", "--data", tmp_path / "empty")
    assert (ended.code, len(ended.errors)) == (2, 1)
    assert ended.errors[0].startswith(
        f"error: --data: multiround-fig7: {tmp_path / 'empty'} has no t10k-images-idx3-ubyte"
    )


def test_the_papers_scale_without_the_papers_data_is_one_line(call: Call, tmp_path: Path) -> None:
    ended = _reproduce(call, tmp_path / "out", "--scale", "paper")
    assert (ended.code, len(ended.errors)) == (2, 1)
    assert "--data DIR" in ended.errors[0]


def test_data_that_nobody_reads_are_an_error(call: Call, tmp_path: Path) -> None:
    ended = call("reproduce", "lotto-fig2", "lotto-fig4", "--data", tmp_path)
    assert (ended.code, len(ended.errors)) == (2, 1)
    assert "--data: not read by lotto-fig2, lotto-fig4" in ended.errors[0]


def test_a_table_is_found_by_its_own_name_and_listed(call: Call) -> None:
    listed = call("reproduce", "multiround-table4", "--list")
    assert listed.out.startswith("multiround-fig8    Accuracy")
    assert "multiround-table4" in listed.out
    (row,) = json.loads(call("reproduce", "multiround-table4", "multiround-fig8", "--list", "--format", "json").out)
    assert (row["name"], row["also"]) == ("multiround-fig8", ["multiround-table4"])
