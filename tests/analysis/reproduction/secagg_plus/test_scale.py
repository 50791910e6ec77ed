"""Neighbours for many clients."""

import pytest

from analysis.reproduction.contract import ReproductionContext, ReproductionResult
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.secagg_plus import scale


def test_neighbours_grow_with_the_logarithm_of_clients(context: ReproductionContext) -> None:
    result = _result(context)
    assert [claim.verdict for claim in result.claims] == ["agrees", "not run"]
    for _, part in result.table.groupby(["dishonest", "dropouts"]):
        neighbours = part["k, t, curious server"].str.partition(",")[0].astype(int).to_numpy()
        assert (neighbours[1:] > neighbours[:-1]).all()
        assert neighbours[-1] < 3 * neighbours[0]  # a million times as many clients
    assert "60 neighbours" in result.claims[1].measured


def test_a_graph_that_needs_more_than_everybody_disagrees(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "RATES", ((0.45, 0.45),))
    monkeypatch.setattr(scale, "GROWTH", (1000, 10**4))
    assert _result(context).claims[0].verdict == "disagrees"


def _result(context: ReproductionContext) -> ReproductionResult:
    (reproduction,) = scale.REPRODUCTIONS
    return carry_out(reproduction, context)[1]
