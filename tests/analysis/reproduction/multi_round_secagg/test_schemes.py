"""Multi-RoundSecAgg's Table 1 and Figures 3, 4 and 5 (a), at a size of seconds."""

from pathlib import Path

import numpy as np
import pytest

from analysis.multi_round import over_rounds
from analysis.reproduction.catalogue import named
from analysis.reproduction.contract import Reproduction, ReproductionContext
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.multi_round_secagg import fig3, fig4, fig4_claims


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReproductionContext:
    """The scale small is tiny."""
    monkeypatch.setitem(fig4.SCALES, "small", (140, 5))
    monkeypatch.setattr(fig3, "ROUNDS", 60)
    monkeypatch.setitem(fig3.SCALES, "small", 2)
    monkeypatch.setattr(fig3, "DROPOUTS", (0.2, 0.5))
    monkeypatch.setattr(fig4, "SEED_TIME_S", 0.0)
    return ReproductionContext("small", tmp_path, lambda experiment, path: [], lambda line: None)


def _reproduction(name: str) -> Reproduction:
    (reproduction,) = named([name])
    return reproduction


def test_table1_is_exact(context: ReproductionContext) -> None:
    _, result = carry_out(_reproduction("multiround-table1"), context)
    sizes = dict(zip(result.table["scheme"], result.table["family size"], strict=True))
    assert sizes["batch-partition, T = 3"] == 91390
    assert sizes["random"] == 10542859559688820
    assert [claim.verdict for claim in result.claims] == ["agrees"] * 4 + ["disagrees"]
    assert "integer part 91389" in result.claims[-1].measured


def test_fig3_compares_theorem_1_with_the_simulation(context: ReproductionContext) -> None:
    measurements, result = carry_out(_reproduction("multiround-fig3"), context)
    assert measurements is not None
    assert len(measurements.tables["simulated"]) == 2 * 2 * len(fig3.PRIVACIES)
    assert len(result.table) == 2 * len(fig3.PRIVACIES)
    assert result.claims[0].verdict == "agrees"
    assert result.claims[1].checks[0].verdict == "agrees"
    assert result.claims[1].verdict == "partly"  # the intervals of 60 rounds are wide
    assert all(path.is_file() for path in measurements.figures)


def test_another_formula_disagrees_with_the_simulation(context: ReproductionContext) -> None:
    measurements, _ = carry_out(_reproduction("multiround-fig3"), context)
    assert measurements is not None
    formula, simulated = measurements.tables["formula"], measurements.tables["simulated"]
    wrong = fig3.trade_off(formula.assign(**{"C (Theorem 1)": formula["C (Theorem 1)"] * 0.5}), simulated)
    assert fig3.claims(wrong, 60, 2)[1].checks[0].verdict == "disagrees"


def test_fig4_and_fig5a(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    of_schemes = fig4.measured(context)
    monkeypatch.setattr(fig4, "measured", lambda context: of_schemes)
    measurements, result = carry_out(_reproduction("multiround-fig4"), context)
    assert measurements is not None
    assert list(result.table["scheme"]) == [*fig4.SCHEMES, fig4_claims.BY_NUMBER]
    assert list(fig4.SCHEMES) == list(fig4_claims.PRIVACY)
    verdicts = {claim.claim: claim.verdict for claim in result.claims}
    assert verdicts["T of random and weighted random drops to 1 at about N = 120 rounds (Remark 11)"] == "agrees"
    assert verdicts["partition has the worst cardinality"] == "agrees"
    assert any("not certified" in remark for remark in result.remarks)  # no time at all was given
    assert all(path.is_file() for path in measurements.figures)
    _, trade_off = carry_out(_reproduction("multiround-fig5a"), context)
    (claim,) = trade_off.claims
    assert claim.counted_in == "multiround-fig4"
    private = [check for check in claim.checks if check.what.startswith("T more")]
    assert [check.verdict for check in private] == ["agrees"] * 4


def test_ties_by_number_take_the_first_users_in_turn() -> None:
    matrix = fig4.fewest_by_number(np.zeros(120), 20, 1)
    assert [np.flatnonzero(row).tolist() for row in matrix[:2]] == [list(range(12)), list(range(12, 24))]
    assert matrix.sum(axis=0).tolist() == [2] * 120


def test_the_round_of_the_drop() -> None:
    rounds = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    frame = fig4.metrics_by_seed({"random": [over_rounds(rounds), over_rounds(rounds[:1])]})
    assert frame["T = 1 after round"].tolist()[0] == 2
    assert np.isnan(frame["T = 1 after round"].tolist()[1])
