"""Table 1 at a tiny scale: exponents of known growth and of real rounds."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.lotto import table1
from analysis.reproduction.measurements import carry_out


@given(st.floats(0, 1e6), st.floats(1e-3, 1e3), st.floats(0.5, 3.0), st.integers(3, 6))
def test_the_exponent_ignores_a_constant_part(constant: float, factor: float, power: float, sizes: int) -> None:
    values = [constant + factor * (10 * 2.0**doubling) ** power for doubling in range(sizes)]
    found = table1.exponent(values)
    if max(values) - min(values) > table1.FLAT * max(values):
        assert found == pytest.approx(power, abs=1e-2)
    else:
        assert found == 0.0


def test_a_constant_measure_has_exponent_0() -> None:
    assert table1.exponent([100.0, 100.5, 99.9, 101.0]) == 0.0
    assert table1.exponent([100.0, 90.0, 200.0, 400.0]) == pytest.approx(2 / 3)


def test_orders_are_compared_with_real_rounds(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"n": [(40, 8), (80, 8), (160, 8)], "s": [(80, 8), (80, 16), (80, 32)]}
    monkeypatch.setitem(table1.SIZES, "small", sizes)
    monkeypatch.setattr(table1, "ROUNDS", 2)
    monkeypatch.setattr(table1, "POPULATIONS", (20_000, 40_000, 80_000))
    monkeypatch.setattr(table1, "BATCHES", 2)
    _, result = carry_out(table1.REPRODUCTIONS[0], context)
    assert len(result.table) == 3 * 6 + 3
    verdicts = {claim.claim: claim.verdict for claim in result.claims}
    assert len(verdicts) == 9
    assert verdicts["Client-Centric: the participant's computation is O(s)"] == "agrees"
    assert verdicts["Client-Centric: the participant's communication is O(s)"] == "agrees"
    table = result.table.set_index(["variant", "doubled", "n", "s"])["server compute s"]
    assert table["Client-Centric, server verifies", "s", 80, 32] > 2 * table["Client-Centric", "s", 80, 32]


@pytest.mark.parametrize(("power", "verdict"), [(1.0, "agrees"), (2.0, "disagrees"), (0.0, "disagrees")])
def test_informed_selection_is_linear_or_not(power: float, verdict: str) -> None:
    sizes = [(batch, 1000 * 2**doubling) for batch in (1, 2, 3) for doubling in range(4)]
    rows = pd.DataFrame(
        [
            {"batch": batch, "n": n, "server compute s": 1e-3 + (1 + 0.01 * batch) * 1e-6 * n**power}
            for batch, n in sizes
        ]
    )
    assert table1.informed_claim(rows).verdict == verdict
