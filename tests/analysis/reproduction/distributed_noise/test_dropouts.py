"""Noise of sums, measured in real rounds, and the claims that follow."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.distributed_noise import dropouts
from analysis.reproduction.measurements import carry_out


def test_real_rounds(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropouts, "ROUNDS", 4)
    (reproduction,) = dropouts.REPRODUCTIONS
    measurements, result = carry_out(reproduction, replace(context, seeds=2))
    assert measurements is not None
    assert measurements.tables["rounds"].groupby(["tolerated", "seed"]).size().tolist() == [4] * 6
    table = result.table
    assert table.groupby("tolerated")["rounds"].sum().to_dict() == {"none": 8, "4": 8, "8": 8}
    assert (table.loc[table["tolerated"] == "8", "noise, ledger"] == 1).all()
    without = table[table["tolerated"] == "none"]
    assert (without["noise, ledger"] == 1 - without["dropped out"] / dropouts.PARTICIPANTS).all()
    assert ((table["noise, measured"] / table["noise, ledger"]).between(0.75, 1.25)).all()  # of 650 coordinates


def _tables(without: float, enforced: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rounds with two dropouts and these shares of the noise, and ledgers that charge for missing noise."""
    shares = {"none": without, "4": enforced, "8": enforced}
    rounds = [
        {"tolerated": name, "dropped": 2, "share": share, "measured": share + apart}
        for name, share in shares.items()
        for apart in (-0.01, 0.0, 0.01)
    ]
    ledgers = [
        {"tolerated": name, "epsilon": 2.0 if share == 1 else 2.1, "planned epsilon": 2.0}
        for name, share in shares.items()
        for _ in range(2)
    ]
    return pd.DataFrame(rounds), pd.DataFrame(ledgers)


def test_claims_follow_the_numbers() -> None:
    assert [claim.verdict for claim in dropouts.claims(*_tables(0.9, 1.0))] == ["agrees"] * 3
    assert [claim.verdict for claim in dropouts.claims(*_tables(1.0, 0.9))] == [
        "partly",  # the variance's interval reaches across, the epsilon is not above
        "disagrees",
        "disagrees",
    ]
