"""secagg-plus beside the published degrees and thresholds of another implementation."""

from dataclasses import replace

import pytest
from scipy.stats import hypergeom

from analysis.reproduction.contract import ReproductionContext, ReproductionResult
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.secagg_plus import graphs
from analysis.reproduction.secagg_plus.published import REFUSED, Instance, expected

SMALL = [one for one in expected() if one.clients <= 1000]


@pytest.mark.parametrize("one", SMALL, ids=lambda one: f"{one.clients}-{one.server}-{one.dishonest}-{one.dropouts}")
def test_our_tails_give_their_numbers_by_their_count(one: Instance) -> None:
    assert graphs.by_their_count(one) == (one.neighbours, one.threshold)


def test_all_rows_are_there() -> None:
    rows = list(expected())
    assert (len(rows), len(set(rows)), len(REFUSED)) == (98, 98, 7)
    assert sum(one.server == "semi-malicious" for one in rows) == 41


def test_a_threshold_that_is_raised_may_lack_survivors() -> None:
    """Check the remark on ten clients, three of them gone: four neighbours, and a threshold of 2."""
    assert hypergeom(10, 7, 4).cdf(1) == pytest.approx(1 / 30)
    assert Instance(10, "curious", 0.0, 0.33, 4, 2) in SMALL


def test_the_result_counts_and_judges(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "expected", lambda: iter(SMALL))
    result = _result(context)
    assert [claim.verdict for claim in result.claims] == ["agrees", "agrees", "partly"]
    assert len(result.table) == len(SMALL)
    of_it = (result.table["clients"] == 1000) & (result.table["server"] == "semi-malicious")
    of_it &= (result.table["dishonest"] == "0.33") & (result.table["dropouts"] == "0.05")
    row = result.table[of_it].iloc[0]
    assert (row["k, t (paper)"], row["our tails, their count"], row["secagg-plus"]) == (
        "132, 109",
        "132, 109",
        "130, 108",
    )
    assert row["theirs under our bound"] == "contradiction 2^-39.5"

    monkeypatch.setattr(graphs, "expected", lambda: iter([replace(SMALL[-1], neighbours=4)]))
    assert _result(context).claims[0].verdict == "disagrees"


def _result(context: ReproductionContext) -> ReproductionResult:
    (reproduction,) = graphs.REPRODUCTIONS
    return carry_out(reproduction, context)[1]
