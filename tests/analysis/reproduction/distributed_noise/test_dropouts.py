"""Noise of sums, measured in real rounds, and the claims that follow."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.distributed_noise import dropouts
from analysis.reproduction.distributed_noise.dropouts import Enforced


def test_real_rounds(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropouts, "ROUNDS", 4)
    table = dropouts.run_dropouts(replace(context, seeds=2)).table
    assert table.groupby("tolerated")["rounds"].sum().to_dict() == {"none": 8, "4": 8, "8": 8}
    assert (table.loc[table["tolerated"] == "8", "noise, ledger"] == 1).all()
    without = table[table["tolerated"] == "none"]
    assert (without["noise, ledger"] == 1 - without["dropped out"] / dropouts.PARTICIPANTS).all()
    assert ((table["noise, measured"] / table["noise, ledger"]).between(0.75, 1.25)).all()  # of 650 coordinates


def _rounds(share: float, measured: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"dropped": [2] * len(measured), "share": share, "measured": measured})


def test_claims_follow_the_numbers() -> None:
    kept = Enforced(_rounds(1.0, [0.99, 1.0, 1.01]), [1.0, 1.0])
    lost = Enforced(_rounds(0.9, [0.89, 0.9, 0.91]), [1.05, 1.05])
    assert [claim.verdict for claim in dropouts.claims({None: lost, 4: kept, 8: kept})] == ["agrees"] * 3
    assert [claim.verdict for claim in dropouts.claims({None: kept, 4: lost, 8: lost})] == [
        "partly",  # the variance's interval reaches across, the epsilon is not above
        "disagrees",
        "disagrees",
    ]
