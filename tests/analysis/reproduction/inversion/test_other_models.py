"""Both attacks, through real rounds of SecAgg."""

import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.inversion import other_models
from analysis.reproduction.measurements import carry_out


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_models, "SIZES", (2, 4))
    monkeypatch.setitem(other_models.ROUNDS, "small", 2)


def test_an_update_is_had_out_of_every_sum_unless_models_are_signed(context: ReproductionContext) -> None:
    _, result = carry_out(other_models.REPRODUCTIONS[0], context)
    assert [claim.verdict for claim in result.claims] == ["agrees"]
    assert result.table["clients in the sum"].tolist() == [2, 4]
    assert set(result.table["refused where models are signed"]) == {"2 of 2"}


def test_samples_are_had_out_of_updates_and_sums(context: ReproductionContext) -> None:
    _, result = carry_out(other_models.REPRODUCTIONS[1], context)
    table = result.table.set_index("clients in the sum")
    assert table.index.tolist() == [1, 2, 4]
    assert (table["had (30 dB)"] >= table["copies (60 dB)"]).all()
    assert table.loc[1, "copies (60 dB)"] > 5
    assert (table["had (30 dB)"] <= table["samples in the sum"]).all()
    assert [len(claim.checks) for claim in result.claims] == [1, 2]
