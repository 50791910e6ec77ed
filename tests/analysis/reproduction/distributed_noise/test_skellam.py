"""Skellam noise beside the Gaussian: computed, and judged by the numbers."""

import numpy as np
import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.distributed_noise import skellam
from analysis.reproduction.measurements import carry_out


def test_more_steps_come_closer_to_the_gaussian() -> None:
    ratios = [skellam.trade_off(1.0, steps)["ratio"] for steps in skellam.STEPS]
    assert ratios == sorted(ratios, reverse=True)
    assert 1 < ratios[-1] < 1.001


def test_one_share_is_the_whole() -> None:
    assert skellam.apart_from_a_sum("discrete-gaussian", 4.0, 1) == 0


def test_masses_are_a_distribution_of_the_variance() -> None:
    masses = skellam._masses("skellam", 4.0)
    places = np.arange(len(masses)) - len(masses) // 2
    assert masses.sum() == pytest.approx(1)
    assert masses @ places**2 == pytest.approx(4)


def test_the_result(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    (reproduction,) = skellam.REPRODUCTIONS
    assert [claim.verdict for claim in carry_out(reproduction, context)[1].claims] == [
        "agrees", "undetermined", "agrees", "agrees",
    ]  # fmt: skip
    monkeypatch.setattr(skellam, "FINE", 1024)
    assert carry_out(reproduction, context)[1].claims[0].verdict == "disagrees"
