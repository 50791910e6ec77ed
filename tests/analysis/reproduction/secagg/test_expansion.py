"""SecAgg's traffic: the paper's own arithmetic, and real rounds."""

import pandas as pd
import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.secagg import expansion
from analysis.reproduction.secagg.expansion import PUBLISHED, ExpansionTraffic, overhead_of_paper, ring_bits


@pytest.mark.parametrize(("size", "paper"), PUBLISHED.items())
def test_seven_values_of_32_bytes_a_peer_are_the_papers_expansions(size: tuple[int, int], paper: float) -> None:
    """Table 1 of the paper: 2 keys and 5 shares for each peer, beside the masked vector."""
    users, coordinates = size
    vector = ring_bits(users) * expansion._COORDINATES / 8
    of_paper = ExpansionTraffic(users, 7 * 32 * users + vector, 0.0, ring_bits(users))
    assert of_paper.expansion(users, coordinates) == pytest.approx(paper, abs=0.005)
    assert of_paper.overhead(users, coordinates) == pytest.approx(overhead_of_paper(users, coordinates))


@pytest.mark.parametrize(("values", "verdict"), [(7, "agrees"), (8, "agrees"), (9, "disagrees"), (5, "disagrees")])
def test_the_verdict_is_by_the_overhead(values: int, verdict: str) -> None:
    """Nine instead of seven values of 32 bytes change the expansion by 2% only, and the overhead by 29%."""
    rows = []
    for consistency in expansion._SURVIVORS:
        vector = ring_bits(512) * expansion._COORDINATES / 8
        rows.append(expansion._row(consistency, ExpansionTraffic(512, values * 32 * 512 + vector, 0.0, ring_bits(512))))
    assert [claim.verdict for claim in expansion.claims(pd.DataFrame(rows))] == [verdict] * 2


def test_bytes_a_peer_are_those_of_any_size(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(expansion.SIZES, "small", (40, 80))
    (reproduction,) = expansion.REPRODUCTIONS
    _, result = carry_out(reproduction, context)
    each = result.table.set_index(["survivors", "users"])["bytes a peer"]
    assert each["signed", 40] == pytest.approx(each["signed", 80], rel=0.05)
    assert each["signed", 80] > each["on the server's word", 80]  # every client is sent t signatures
    (check,) = result.claims[0].checks
    assert check.value == pytest.approx(each["on the server's word", 80] * 79 / 80 * 2**10 / 2**21)
    assert (check.least * 1.25, check.most / 1.25) == pytest.approx((7 * 32 * 2**10 / 2**21,) * 2)
    assert "by the bytes a peer at 80" in result.claims[0].measured
