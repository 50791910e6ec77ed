"""Multi-RoundSecAgg's Table 1 and Figures 3, 4 and 5 (a), at a size of seconds."""

from pathlib import Path

import numpy as np
import pytest

from analysis.multi_round import over_rounds
from analysis.reproduction.contract import Bench
from analysis.reproduction.multi_round_secagg import families, fig4, schemes


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The scale small is tiny."""
    monkeypatch.setitem(schemes.SIZES, "small", schemes.Size(140, 2))
    monkeypatch.setitem(families.SIZES, "small", (60, 2))
    monkeypatch.setattr(families, "DROPOUTS", (0.2, 0.5))
    monkeypatch.setattr(schemes, "SEED_TIME_S", 0.0)
    return Bench("small", tmp_path, lambda experiment, path: [], lambda line: None)


def test_table1_is_exact(bench: Bench) -> None:
    made = families.make_table1(bench)
    sizes = dict(zip(made.table["scheme"], made.table["family size"], strict=True))
    assert sizes["batch-partition, T = 3"] == 91390
    assert sizes["random"] == 10542859559688820
    assert [claim.agrees for claim in made.claims] == ["yes", "yes", "yes", "yes", "no"]


def test_fig3_holds_theorem_1_against_the_simulation(bench: Bench) -> None:
    made = families.make_fig3(bench)
    assert len(made.table) == 2 * len(families.PRIVACIES)
    assert [claim.agrees for claim in made.claims] == ["yes", "yes"]
    assert all(path.is_file() for path in made.figures)


def test_fig4_and_fig5a(bench: Bench) -> None:
    made = fig4.make(bench)
    assert list(made.table["scheme"]) == list(schemes.SCHEMES)
    verdicts = {claim.claim: claim.agrees for claim in made.claims}
    assert verdicts["T of random and weighted random drops to 1 at about N = 120 rounds (Remark 11)"] == "yes"
    assert verdicts["partition has the worst cardinality"] == "yes"
    assert any("not certified" in remark for remark in made.remarks)  # no time at all was given
    assert all(path.is_file() for path in made.figures)
    trade_off = fig4.make_trade_off(bench)
    assert [claim.agrees for claim in trade_off.claims] == ["yes"]
    assert all(path.is_file() for path in trade_off.figures)


def test_the_round_of_the_drop() -> None:
    rounds = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    assert schemes.first_round_with_one(over_rounds(rounds)) == 2
    assert np.isnan(schemes.first_round_with_one(over_rounds(rounds[:1])))
