"""The Lotto paper's figures that follow from formulas, result with the command's contract."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.reproduction.catalogue import named
from analysis.reproduction.contract import Measurements, ReproductionContext, ReproductionResult, Setting
from analysis.reproduction.lotto import fig1b, fig2, fig4
from analysis.reproduction.lotto.worked_example import (
    consistent,
    epsilons,
    secagg_fails_if_chosen,
    too_many_if_chosen,
)
from analysis.reproduction.measurements import carry_out
from testbed.experiment.schema import Experiment


def no_runs(experiment: Experiment, path: Path) -> Any:
    raise AssertionError("these figures need no run")


@pytest.fixture
def reproduce(tmp_path: Path) -> Any:
    context = ReproductionContext("small", tmp_path, no_runs, lambda line: None)
    return lambda name: carry_out(named([name])[0], context)[1]


def check(outcome: ReproductionResult, name: str, **agrees: str) -> None:
    """Both pictures are there, each claim has its verdict, and the paper's values stand beside ours."""
    assert [path.name for path in outcome.figures] == [f"{name}.png", f"{name}.pdf", f"{name}.csv"]
    assert all(path.stat().st_size > 5000 for path in outcome.figures[:2])
    assert len(pd.read_csv(outcome.figures[2])) > 5
    assert outcome.remarks
    for claim in outcome.claims:
        found = [verdict for word, verdict in agrees.items() if word in claim.claim.replace(" ", "_")]
        assert found == [claim.verdict], claim


def test_fig1b(reproduce: Any) -> None:
    outcome = reproduce("lotto-fig1b")
    check(outcome, "lotto-fig1b", grows_with="agrees", explosively="partly", budget_6="undetermined")
    table = outcome.table
    honest = table[table["dishonest"] == 0]
    assert honest["epsilon"].to_numpy() == pytest.approx(honest["budget"].to_numpy(), abs=1e-4)
    paper = table.dropna(subset=["epsilon (paper)"])
    assert paper[["budget", "dishonest_percent", "epsilon (paper)"]].to_numpy().tolist() == [[6, 40, 11.8]]


def test_fig2(reproduce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fig2.EMULATED, "small", {(100, 10): 40})
    outcome = reproduce("lotto-fig2")
    check(outcome, "lotto-fig2", samples_enough="partly", Theorem_1="agrees")
    emulated = outcome.table.dropna(subset=["emulated"])
    others = emulated[emulated["announced"] != emulated["population"]]
    assert others[["announced", "over_selection"]].to_numpy().tolist() == [[80, 1.3], [125, 1.3]]
    assert others["emulated"].iloc[0] > others["emulated"].iloc[1]
    emulated = emulated.drop(others.index)
    assert len(emulated) == 10
    assert emulated["emulated"].is_monotonic_increasing  # the same outputs under a growing threshold
    assert ((emulated["low"] <= emulated["emulated"]) & (emulated["emulated"] <= emulated["high"])).all()


def test_real_vrfs_find_candidates_as_often_as_they_should() -> None:
    """All 12 clients are candidates at p = 1; at p = 1/2 a number of them that is binomial."""
    assert fig2.successes(12, 12, 5)[Fraction(1), 12] == 5
    counted = fig2.successes(12, 6, 150)[Fraction(1), 12]
    assert stats.binomtest(counted, 150, float(stats.binom.sf(5, 12, 0.5))).pvalue > 1e-4


@pytest.mark.parametrize(("successes", "excluded"), [(0, True), (25, True), (50, False), (60, False), (95, True)])
def test_a_point_far_from_theorem_1_excludes_it(successes: int, excluded: bool) -> None:
    row = pd.Series({"rounds": 100.0, "emulated": successes / 100, "candidates_suffice": 0.5})
    assert fig2.excludes(row, 30) == excluded


def test_fig4(reproduce: Any) -> None:
    outcome = reproduce("lotto-fig4")
    check(outcome, "lotto-fig4", leaving_out="disagrees", refinement_does_best="agrees")
    assert fig4.improvement(np.array([8.0, 4.0, 2.0, 1.0]), 0.5) == 4.0
    row = outcome.table[(outcome.table["exponent"] == 1.0) & (outcome.table["excluded"] == 0.2)].iloc[0]
    assert row["improvement"] == pytest.approx(141)
    assert row["(1-d)^-p (paper)"] == pytest.approx(1.25)


def test_fig5(reproduce: Any) -> None:
    outcome = reproduce("lotto-fig5")
    check(outcome, "lotto-fig5", at_most_20="agrees")
    table = outcome.table
    exact = 1 - table["initial_percent"] / table["target_percent"]
    assert table["largest_exclusion"].to_numpy() == pytest.approx(exact.to_numpy(), abs=1e-5)
    assert (table["largest_exclusion"] <= exact + 1e-12).all()


def test_fig6(reproduce: Any) -> None:
    outcome = reproduce("lotto-fig6")
    check(outcome, "lotto-fig6", more_than_5="agrees", t_above="agrees", epsilon_1="undetermined")
    values = outcome.table["value"].to_numpy()
    assert values == pytest.approx([1.3132e-7, 1, 1.396e-8, 8.899e-6, 1, 1.774, 265.26], rel=1e-3)


def test_fig10(reproduce: Any) -> None:
    outcome = reproduce("lotto-fig10")
    check(
        outcome,
        "lotto-fig10",
        **{"server-centric_costs": "agrees", "1.8_client": "undetermined", "Corollaries": "undetermined"},
    )
    assert (outcome.table["server-centric"] > outcome.table["client-centric"]).all()


def test_growth_counts_as_explosive_where_it_is_that_of_the_papers_example() -> None:
    """A curve that doubles at 40% for each budget agrees; one that grows in a straight line does not."""
    shares = np.arange(35) / 28

    def concluded(grown: Any) -> str:
        rows = [
            {
                "budget": budget,
                "dishonest": place,
                **dict.fromkeys(("epsilon", "epsilon_amplified", "epsilon_deviation"), float(budget * times)),
                "epsilon (paper)": None,
            }
            for budget in (3, 6, 9)
            for place, times in enumerate(grown)
        ]
        other = pd.DataFrame([{"delta": 0.01, "epsilon_amplified": 1.0, "epsilon_deviation": 1.0}])
        tables = {"deficits": pd.DataFrame(rows), "other delta": other}
        return fig1b.conclude_fig1b(Measurements(Setting("none"), tables)).claims[1].verdict

    assert concluded(2.0**shares) == "agrees"
    assert concluded(1 + 0.2 * shares) == "disagrees"
    assert concluded(1 + shares - 1e-9 * np.arange(35) ** 2) == "partly"  # twice the budget, in a straight line


def test_without_lotto_a_server_needs_enough_clients_of_its_own() -> None:
    assert too_many_if_chosen(200_000) == secagg_fails_if_chosen(200, 0.53) == 1.0
    assert too_many_if_chosen(200_000, eta=250) == 0.0  # more than all places
    assert secagg_fails_if_chosen(3000, 0.7) == 0.0  # 1,000 of 3,000 participants


def test_multipliers_that_are_consistent_with_a_number_give_it() -> None:
    low, high = consistent("server-centric", 2.25, 2.35)
    assert epsilons(200_000, low)["server-centric"] == pytest.approx(2.35, abs=1e-3)
    assert epsilons(200_000, high)["server-centric"] == pytest.approx(2.25, abs=1e-3)
    assert low < high < 6.27
