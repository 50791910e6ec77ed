"""The digits are scikit-learn's, although it is not imported to read them."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from testbed.workload.section import WorkloadSection
from workloads.data import digits

SECTION = WorkloadSection(dataset="digits")


def test_all_images_and_labels_are_those_of_scikit_learn() -> None:
    table, there = digits._table(), load_digits()
    np.testing.assert_array_equal(table[:, :-1].reshape(-1, 8, 8), there.images)
    np.testing.assert_array_equal(table[:, -1], there.target)


def test_a_scikit_learn_that_keeps_them_elsewhere_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = digits._table()
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    np.testing.assert_array_equal(digits._table(), expected)


def test_they_are_spread_and_held_out() -> None:
    data = digits.load(SECTION, population=10, seed=1)
    images, labels = zip(*(data.shard(client) for client in range(10)), strict=True)
    assert sum(map(len, labels)) == 1438  # and a fifth held out
    assert all(image.shape[-2:] == (8, 8) for image in images)


def test_scikit_learn_is_not_imported_for_them() -> None:
    script = """
import sys
from testbed.workload.section import WorkloadSection
from workloads.data import digits
digits.load(WorkloadSection(dataset="digits"), population=10, seed=1)
print(sorted({"sklearn", "scipy", "pandas"} & set(sys.modules)))
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
