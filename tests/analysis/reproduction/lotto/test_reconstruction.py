"""Figure 1a of Lotto, carried out at a tiny size: real attacks, counted and drawn."""

import re
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from analysis.reproduction.contract import ReproductionContext, ReproductionResult
from analysis.reproduction.lotto import fig1a
from analysis.reproduction.lotto.fig1a import PARTICIPANTS, SCALES, ReconstructionScale, chance
from analysis.reproduction.measurements import carry_out
from tests.messages_named import naming

pytestmark = pytest.mark.xdist_group("lotto-fig1a")  # in one process, which runs its experiments once

S = 8


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, in_process: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig1a, "STEP_PARTICIPANTS", S)
        patch.setitem(SCALES, "small", ReconstructionScale((5, 6), ((30, 6), (10, 9)), 6, 2))
        out = tmp_path_factory.mktemp("fig1a")
        (reproduction,) = fig1a.REPRODUCTIONS
        yield carry_out(reproduction, ReproductionContext("small", out, in_process, lambda line: None))[1]


def test_reconstruction_happens_from_the_threshold_on(result: ReproductionResult) -> None:
    table = result.table
    assert len(table) == 2 * 3
    at_random = table[table["selection"] == "random"]
    assert (at_random["rate"] == 1).all()
    assert (at_random["rounds"] == 2).all()
    lotto = table[table["selection"] != "random"]
    often, never = lotto[lotto["c"] == 30], lotto[lotto["c"] == 10]
    assert often["reconstructed"].min() > 0
    assert never["reconstructed"].max() == 0
    for _, row in lotto.iterrows():  # seeded: a surprise of one in a thousand would have to be looked into
        assert binomtest(row["reconstructed"], row["rounds"], row["exact"]).pvalue > 1e-3
    assert (lotto["exact"] <= lotto["Corollary 1 (paper)"]).all()
    assert (lotto["exact of completed"] > lotto["exact"]).all()
    assert (lotto["rate of completed"] * lotto["completed"]).to_numpy() == pytest.approx(lotto["reconstructed"])


def test_claims_and_remarks_of_the_reconstruction(result: ReproductionResult) -> None:
    assert [claim.verdict for claim in result.claims] == ["agrees"] * 3
    assert result.claims[0].measured.startswith("s = 8: from x = 2 at t = 5, 4 at t = 6 on ")
    assert (
        "t = 6: contradict-dropouts from x = 4, shrink-the-sum from x = 4, split-the-sharing from x = 3"
        in (result.remarks[0])
    )
    assert "t = 5:" not in result.remarks[0]
    assert re.search(naming("Honest clients", "in 0 of the "), result.remarks[1])


def test_the_figures_are_there(result: ReproductionResult) -> None:
    names = [path.name for path in result.figures]
    assert names == [f"lotto-fig1a-{what}.{kind}" for what in ("steps", "rates") for kind in ("png", "pdf", "csv")]
    assert all(path.stat().st_size > 5000 for path in result.figures if path.suffix != ".csv")


@pytest.mark.parametrize(("dishonest", "threshold"), [(20, 6), (30, 7), (60, 8)])
def test_the_exact_chance_is_that_of_drawing(dishonest: int, threshold: int) -> None:
    generator = np.random.default_rng(dishonest)
    x = generator.binomial(dishonest, 0.13, 200_000)
    candidates = x + generator.binomial(100 - dishonest, 0.13, 200_000)
    drawn = (candidates >= PARTICIPANTS) & (x >= 2 * threshold - PARTICIPANTS) & (x < PARTICIPANTS)
    assert chance(dishonest, threshold) == pytest.approx(drawn.mean(), abs=0.006)
