"""Robust rules against ByzFL (EPFL), in float64.

Updates are float32 and so are the distances that Krum compares, so results agree to the digits of a float32.

ByzFL's Krum differs from the paper (Blanchard et al., NeurIPS 2017, section 4): it sums the distances to the n - f - 1
closest others, where the paper has n - f - 2. So its Krum with f + 1 is the paper's with f. Flower's is the paper's
(`test_flower_rules`), and so is the definition in plain Python of `tests.aggregation.test_robust_rules`.
"""

from typing import Any

import numpy as np
import pytest

from testbed.aggregation.robust_rules import RobustSection, combined, robust_rule
from tests.oracles.updates_of_clients import Rows, cases

byzfl = pytest.importorskip("byzfl", reason="needs byzfl: make oracles")

CASES = [pytest.param(rows, f, id=name) for name, rows, f in cases()]
DIGITS = 1e-6


def ours(rule: str, rows: Rows, **keys: Any) -> np.ndarray:
    return combined(robust_rule(RobustSection(rule=rule, **keys)), list(rows)).mean


def assert_close(left: np.ndarray, right: np.ndarray, rows: Rows) -> None:
    assert left == pytest.approx(np.asarray(right, np.float64), rel=DIGITS, abs=DIGITS * float(np.abs(rows).max()))


@pytest.mark.parametrize(("rows", "f"), CASES)
def test_median_and_trimmed_mean(rows: Rows, f: int) -> None:
    assert_close(ours("median", rows), byzfl.Median()(rows.astype(np.float64)), rows)
    assert_close(ours("trimmed-mean", rows, max_dishonest=f), byzfl.TrMean(f)(rows.astype(np.float64)), rows)
    most = (len(rows) - 1) // 2
    assert_close(ours("trimmed-mean", rows, max_dishonest=most), byzfl.TrMean(most)(rows.astype(np.float64)), rows)


@pytest.mark.parametrize(("rows", "f"), CASES)
def test_krum_and_multi_krum(rows: Rows, f: int) -> None:
    exact = rows.astype(np.float64)
    assert_close(ours("krum", rows, max_dishonest=f), byzfl.Krum(f + 1)(exact), rows)
    theirs = byzfl.MultiKrum(f + 1)(exact)
    assert_close(ours("multi-krum", rows, max_dishonest=f, selected=len(rows) - f - 1), theirs, rows)


def test_byzfl_counts_one_neighbour_more_than_krums_paper() -> None:
    """Seven updates, f = 1: the paper sums 4 distances, ByzFL 5. The fifth reaches out of the cluster."""
    rows = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [10.0], [100.0]], np.float32)
    distances = np.sort((rows - rows.T).astype(np.float64) ** 2, axis=1)[:, 1:]
    of_paper, of_byzfl = distances[:, :4].sum(axis=1), distances[:, :5].sum(axis=1)
    assert (of_paper.argmin(), of_byzfl.argmin()) == (2, 4)
    assert ours("krum", rows, max_dishonest=1) == rows[of_paper.argmin()]
    assert byzfl.Krum(1)(rows.astype(np.float64)) == rows[of_byzfl.argmin()]


@pytest.mark.parametrize(("rows", "f"), CASES)
def test_geometric_median(rows: Rows, f: int) -> None:
    """By the sum of distances that it minimises: ByzFL takes 2,000 steps of the same algorithm, from zero."""
    exact = rows.astype(np.float64)

    def total(point: np.ndarray) -> float:
        return float(np.sqrt(np.square(exact - point).sum(axis=1)).sum())

    theirs = byzfl.GeometricMedian(nu=1e-6 * float(np.abs(exact).max()), T=2000)(exact)
    assert total(ours("geometric-median", rows)) <= total(theirs) * (1 + 1e-7)


@pytest.mark.parametrize(("rows", "f"), CASES)
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0, 10.0])
def test_norm_bound(rows: Rows, f: int, share: float) -> None:
    exact = rows.astype(np.float64)
    bound = share * float(np.median(np.linalg.norm(exact, axis=1)))
    theirs = byzfl.Average()(byzfl.Clipping(c=bound)(exact))
    assert_close(ours("norm-bound", rows, bound=bound), theirs, rows)
