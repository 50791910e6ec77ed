"""The analytic figures, and the claims about Theorem 4.1: verdicts follow the numbers they are made of."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from analysis.attacks.membership import Advantage, CoupledAdvantage
from analysis.attacks.membership_of_models import PairedAdvantage
from analysis.bounds.random_participation import Mixture, Participation, parallel_pair, recentred
from analysis.reproduction.contract import Measurements, Reproduction, ReproductionContext
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.random_participation import crossings, curves, fig4, fig5, unsound
from analysis.reproduction.random_participation.published import DELTA, EPSILON, FEW_CLIENTS, MANY_CLIENTS
from analysis.reproduction.verdicts import counts


def few_points(figure: Reproduction, points: int) -> Reproduction:
    assert isinstance(figure.measure, partial)
    name, xs, *rest = figure.measure.args
    thinned = xs[:: max(1, len(xs) // points)]
    return replace(figure, measure=partial(figure.measure.func, name, thinned, *rest))


@pytest.mark.parametrize("place", [1, 2])
def test_projections_keep_their_order_and_are_no_bound(place: int, context: ReproductionContext) -> None:
    figure = few_points(curves.REPRODUCTIONS[place], 5)
    measurements, result = carry_out(figure, context)
    assert measurements is not None
    assert [claim.verdict for claim in result.claims] == ["agrees", "agrees", "undetermined", "agrees", "disagrees"]
    assert [claim.counted_in for claim in result.claims] == ["", "", "", "", "random-participation-unsound"]
    assert len(result.table) == 3 + 2 * 3
    assert result.table.iloc[:, 2:].notna().all(axis=None)
    table = measurements.tables["curves"]  # claims about the order follow the curves
    measure = str(table.columns[-1])
    table.loc[table["analysis"] == curves.NO_GUARANTEE, measure] *= 1e6
    assert [claim.verdict for claim in curves._ordering(table, measure)[:2]] == ["partly", "disagrees"]


@pytest.fixture
def fig1(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> Measurements:
    monkeypatch.setattr(curves, "_EPSILONS", np.linspace(0.0, 2.0, 5))
    measurements, _ = carry_out(curves.REPRODUCTIONS[0], context)
    assert measurements is not None
    return measurements


def test_corollary_5_3_holds_with_the_rate_that_the_text_names(fig1: Measurements) -> None:
    claims = curves.conclude_fig1(fig1).claims
    assert [claim.verdict for claim in claims] == [
        "agrees", "agrees", "undetermined", "agrees", "disagrees", "partly",
    ]  # fmt: skip
    assert "misprint" in claims[-1].measured
    corollary = fig1.tables["Corollary 5.3"]
    corollary["delta, rate q"] = corollary["delta, integrated"]
    assert curves.corollary_claim(corollary).verdict == "agrees"
    corollary["delta, rate pq"] *= 1.001
    assert curves.corollary_claim(corollary).verdict == "partly"


def test_what_is_open_is_undetermined(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig4, "_DELTAS", np.geomspace(1e-8, 1e-3, 3))
    _, result = carry_out(fig4.REPRODUCTIONS[0], context)
    assert counts(result.claims) == dict.fromkeys(counts([]), 0) | {"undetermined": 1}
    assert not result.figures
    assert result.table["analysis"].tolist() == [
        "WCS (the guarantee)", "Theorem 4.1, d = 10 (no guarantee)", "lower bound, d = 10",
    ]  # fmt: skip


def test_the_guarantee_of_cs_does_not_degrade_with_q(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fig5, "_RATES", np.geomspace(1e-4, 1.0, 5))
    measurements, result = carry_out(fig5.REPRODUCTIONS[0], context)
    assert measurements is not None
    assert [claim.verdict for claim in result.claims] == ["partly", "agrees", "agrees"]
    failing = [check.what for check in result.claims[0].checks if check.verdict != "agrees"]
    assert failing == ["rise of epsilon, CS"]
    table = measurements.tables["curves"]
    table.loc[table["analysis"] == "CS", "epsilon"] *= [1.0, 1.1, 1.2, 1.3, 1.4]
    assert fig5.claims_over_rates(table)[0].verdict == "agrees"
    table.loc[(table["analysis"] == "OLS") & (table["q"] == 1.0), "epsilon"] = 1e-4
    assert [claim.verdict for claim in fig5.claims_over_rates(table)] == ["partly", "partly", "agrees"]
    table.loc[table["analysis"] == "d = 1: 4.1", "epsilon"] = 3.0
    assert fig5.claims_over_rates(table)[2].verdict == "agrees"
    table.loc[table["analysis"] == "d = 100: 4.1", "epsilon"] = [3.0, 2.0, 3.0, 4.0, 5.0]
    assert fig5.claims_over_rates(table)[2].verdict == "disagrees"


MANY = MANY_CLIENTS.participation
APART, TOGETHER = Advantage(10**8, 3000, 1800, EPSILON), CoupledAdvantage(10**8, 11_300_000, 0, 1e-4, EPSILON)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return unsound.bounds(MANY_CLIENTS)


def test_the_guarantee_is_refuted_by_integration_and_sampling(rows: pd.DataFrame) -> None:
    assert unsound.guarantee_claim(MANY_CLIENTS, rows, APART, TOGETHER).verdict == "disagrees"
    few = replace(TOGETHER, trials=10**4, changed=10)
    assert unsound.guarantee_claim(MANY_CLIENTS, rows, APART, few).verdict == "partly"
    assert unsound.formula_claim(MANY_CLIENTS, rows).verdict == "disagrees"
    smaller = rows.copy()
    smaller.loc[smaller["analysis or pair"] == "angled pair", "delta"] = 1e-5
    assert unsound.formula_claim(MANY_CLIENTS, smaller).verdict == "agrees"


@pytest.mark.parametrize(
    ("attack", "verdict"),
    [
        (PairedAdvantage(10**8, 1130, 0, 20_000, EPSILON), "disagrees"),
        (PairedAdvantage(10**5, 1, 0, 20, EPSILON), "partly"),
        (PairedAdvantage(10**8, 30, 30, 20_000, EPSILON), "agrees"),
    ],
)
def test_a_federation_that_was_attacked_is_judged_by_its_interval(attack: PairedAdvantage, verdict: str) -> None:
    claim = unsound.federated_claim(attack)
    assert (claim.verdict, claim.seeds) == (verdict, 1)


def test_which_published_sigmas_follow_from_their_theorems(rows: pd.DataFrame) -> None:
    for scenario, of_it in ((MANY_CLIENTS, rows), (FEW_CLIENTS, unsound.bounds(FEW_CLIENTS))):
        claims = unsound.sigma_claims(scenario, of_it)
        assert [claim.verdict for claim in claims] == ["agrees", "agrees", "disagrees"]


def test_rows_have_the_loss_of_a_pair_at_the_published_noise(rows: pd.DataFrame) -> None:
    deltas = rows.set_index("analysis or pair")["delta"]
    assert deltas["Theorem 4.1, centred on x'"] == recentred(MANY, 1.065, EPSILON)
    assert deltas["Theorem 4.1, centred on x'"] == pytest.approx(DELTA, rel=0.02)
    assert deltas["angled pair"] > deltas["orthogonal pair"] > DELTA
    assert deltas["orthogonal pair in a crowd: 23,263 others along u"] < DELTA
    assert np.isfinite(deltas).all()
    table = unsound._table(rows)
    assert "angled pair, cosine 0.66" in table["analysis or pair"].tolist()
    assert table["sigma for delta = 1e-06 (paper)"].dropna().tolist() == [22.4, 7.65, 1.065, 1.065]


def test_results_follow_from_stored_counts(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(unsound.TRIALS, "small", 2000)
    monkeypatch.setitem(unsound.FEDERATED_ROUNDS, "small", 2)
    counted = pd.DataFrame({"as printed": [1], "centred on x'": [1]})
    monkeypatch.setattr(unsound, "count_crossings", lambda: counted)
    measurements, result = carry_out(unsound.REPRODUCTIONS[0], context)
    assert measurements is not None
    assert len(result.claims) == 6 + 2 + 1 + 2 + 1
    assert [claim.verdict for claim in result.claims[:6]] == ["agrees", "agrees", "disagrees"] * 2
    attack = measurements.tables["federation"]
    assert attack["trials"].tolist() == [2 * 23_264]
    attack["gained"] = 2 * 23_264
    again = unsound.conclude_unsound(measurements)
    assert again.claims[8].verdict == "disagrees"
    pd.testing.assert_frame_equal(again.table, result.table)


ONE = np.ones(1)


@pytest.mark.parametrize(
    ("upper", "lower", "expected"),
    [
        ((ONE, np.array([1.0])), (ONE, np.array([0.0])), 1),
        ((np.array([0.5, 0.5]), np.array([-3.0, 3.0])), (np.array([1.0, 0.0]), np.array([0.0, 3.0])), 2),
        ((np.array([0.4, 0.6]), np.array([0.0, 8.0])), (np.array([0.7, 0.3]), np.array([4.0, 12.0])), 3),
    ],
)
def test_sign_changes_are_counted(upper: Mixture, lower: Mixture, expected: int) -> None:
    assert crossings.crossings(upper, lower, 0.0) == expected


@pytest.mark.parametrize("sigma", [0.646, 22.4])
def test_equation_7_has_one_solution(sigma: float) -> None:
    assert crossings.crossings(*parallel_pair(Participation(30, 0.001, 0.1), sigma), EPSILON) == 1


@pytest.mark.parametrize(("printed", "verdict"), [([1, 1], "agrees"), ([1, 3], "partly"), ([2, 3], "disagrees")])
def test_the_claim_on_zero_crossings_follows_the_counts(printed: list[int], verdict: str) -> None:
    assert crossings.crossing_claim(pd.DataFrame({"as printed": printed, "centred on x'": printed})).verdict == verdict
