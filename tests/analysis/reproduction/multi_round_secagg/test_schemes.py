"""Multi-RoundSecAgg's Table 1 and Figures 3, 4 and 5 (a), at a size of seconds."""

from pathlib import Path

import numpy as np
import pytest

from analysis.multi_round import over_rounds
from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.multi_round_secagg import fig3, fig4, table1


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReproductionContext:
    """The scale small is tiny."""
    monkeypatch.setitem(fig4.SCALES, "small", (140, 5))
    monkeypatch.setattr(fig3, "ROUNDS", 60)
    monkeypatch.setitem(fig3.SCALES, "small", 2)
    monkeypatch.setattr(fig3, "DROPOUTS", (0.2, 0.5))
    monkeypatch.setattr(fig4, "SEED_TIME_S", 0.0)
    return ReproductionContext("small", tmp_path, lambda experiment, path: [], lambda line: None)


def test_table1_is_exact(context: ReproductionContext) -> None:
    result = table1.run_table1(context)
    sizes = dict(zip(result.table["scheme"], result.table["family size"], strict=True))
    assert sizes["batch-partition, T = 3"] == 91390
    assert sizes["random"] == 10542859559688820
    assert [claim.verdict for claim in result.claims] == ["agrees"] * 4 + ["disagrees"]
    assert "91389" in result.claims[-1].measured


def test_fig3_compares_theorem_1_with_the_simulation(context: ReproductionContext) -> None:
    result = fig3.run_fig3(context)
    assert len(result.table) == 2 * len(fig3.PRIVACIES)
    assert [claim.verdict for claim in result.claims] == ["agrees", "agrees"]
    assert all(path.is_file() for path in result.figures)


def test_fig4_and_fig5a(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = fig4.measured(context)
    monkeypatch.setattr(fig4, "measured", lambda context: measured)
    result = fig4.run_fig4(context)
    assert list(result.table["scheme"]) == list(fig4.SCHEMES)
    verdicts = {claim.claim: claim.verdict for claim in result.claims}
    assert verdicts["T of random and weighted random drops to 1 at about N = 120 rounds (Remark 11)"] == "agrees"
    assert verdicts["partition has the worst cardinality"] == "agrees"
    assert any("not certified" in remark for remark in result.remarks)  # no time at all was given
    assert all(path.is_file() for path in result.figures)
    trade_off = fig4.run_fig5a(context)
    (claim,) = trade_off.claims
    assert claim.counted_in == "multiround-fig4"
    private = [check for check in claim.checks if check.what.startswith("T more")]
    assert [check.verdict for check in private] == ["agrees"] * 4
    assert all(path.is_file() for path in trade_off.figures)


def test_the_round_of_the_drop() -> None:
    rounds = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    assert fig4.first_round_with_one(over_rounds(rounds)) == 2
    assert np.isnan(fig4.first_round_with_one(over_rounds(rounds[:1])))
