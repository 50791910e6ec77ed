"""The analytic figures, and the claims about Theorem 4.1: verdicts follow the numbers they are made of."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from analysis.attacks.membership import Advantage
from analysis.attacks.membership_of_models import PairedAdvantage
from analysis.bounds.neighbouring_pairs import worst_angle
from analysis.bounds.random_participation import recentred
from analysis.reproduction.contract import Reproduction, ReproductionContext
from analysis.reproduction.random_participation import curves, unsound
from analysis.reproduction.random_participation.published import DELTA, EPSILON, FEW_CLIENTS, MANY_CLIENTS, PROPOSED
from analysis.reproduction.random_participation.unsound import Counterexample
from analysis.reproduction.verdicts import PaperClaim, counts
from analysis.statistics import Interval


def few_points(figure: Reproduction, points: int) -> Reproduction:
    assert isinstance(figure.run, partial)
    name, xs, *rest = figure.run.args
    thinned = xs[:: max(1, len(xs) // points)]
    return replace(figure, run=partial(figure.run.func, name, thinned, *rest))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_projections_keep_their_order_and_are_no_bound(
    place: int, context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[pd.DataFrame] = []
    ordering = curves._ordering

    def watched(table: pd.DataFrame, y_label: str) -> list[PaperClaim]:
        tables.append(table)
        return ordering(table, y_label)

    monkeypatch.setattr(curves, "_ordering", watched)
    result = few_points(curves.REPRODUCTIONS[place], 5).run(context)
    assert [claim.verdict for claim in result.claims] == ["agrees", "agrees", "undetermined", "agrees", "disagrees"]
    assert [claim.counted_in for claim in result.claims] == ["", "", "", "", "random-participation-unsound"]
    assert len(result.table) == 3 + 2 * 3
    assert result.table.iloc[:, 2:].notna().all(axis=None)
    (table,) = tables  # claims about the order follow the curves
    measure = str(table.columns[-1])
    table.loc[table["analysis"] == "Theorem 4.1 (no guarantee)", measure] *= 1e6
    assert [claim.verdict for claim in ordering(table, measure)[:2]] == ["partly", "disagrees"]


def test_what_is_open_is_undetermined(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "_DELTAS", np.geomspace(1e-8, 1e-3, 3))
    result = curves.run_fig4(context)
    assert counts(result.claims) == dict.fromkeys(counts([]), 0) | {"undetermined": 1}
    assert not result.figures
    assert set(result.table["analysis"]) == {curves._WCS, curves._PROPOSED, curves._LOWER}


@pytest.fixture
def found() -> Counterexample:
    participation, sigma = MANY_CLIENTS.participation, MANY_CLIENTS.sigmas[PROPOSED]
    return Counterexample(
        MANY_CLIENTS,
        *worst_angle(participation, sigma, EPSILON),
        Interval(1.13e-5, 2e-7),
        Advantage(10**8, 3000, 1800, EPSILON),
    )


def test_the_guarantee_is_refuted_by_what_is_integrated_and_sampled(found: Counterexample) -> None:
    assert unsound.guarantee_claim(found).verdict == "disagrees"
    assert unsound.guarantee_claim(replace(found, coupled=Interval(1.1e-6, 2e-7))).verdict == "partly"
    rows = unsound._rows(found)
    assert unsound.formula_claim(MANY_CLIENTS, rows).verdict == "disagrees"
    rows.loc[rows["analysis or pair"].str.startswith("angled"), "delta"] = 1e-5
    assert unsound.formula_claim(MANY_CLIENTS, rows).verdict == "agrees"


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (PairedAdvantage(10**8, 1130, 0, 20_000, EPSILON), "disagrees"),
        (PairedAdvantage(10**5, 1, 0, 20, EPSILON), "partly"),
        (PairedAdvantage(10**8, 30, 30, 20_000, EPSILON), "agrees"),
    ],
)
def test_a_federation_that_was_attacked_is_judged_by_its_interval(seen: PairedAdvantage, verdict: str) -> None:
    claim = unsound.federated_claim(seen)
    assert (claim.verdict, claim.seeds) == (verdict, 1)


def test_which_published_sigmas_follow_from_their_theorems() -> None:
    for scenario in (MANY_CLIENTS, FEW_CLIENTS):
        found = Counterexample(scenario, 0.5, 0.0, Interval(0.0, 0.0), Advantage(1, 0, 0, EPSILON))
        rows = unsound._rows(found)
        assert [claim.verdict for claim in unsound.sigma_claims(scenario, rows)] == ["agrees", "agrees", "disagrees"]


def test_rows_say_what_a_pair_loses_at_the_published_noise(found: Counterexample) -> None:
    rows = unsound._rows(found).set_index("analysis or pair")["delta"]
    assert rows["Theorem 4.1, centred on x'"] == recentred(MANY_CLIENTS.participation, 1.065, EPSILON)
    assert rows["Theorem 4.1, centred on x'"] == pytest.approx(DELTA, rel=0.02)
    assert rows["angled pair, cosine 0.66"] > rows["orthogonal pair"] > DELTA
    assert rows["orthogonal pair in a crowd: 23,263 others along u"] < DELTA
    assert np.isfinite(rows).all()
