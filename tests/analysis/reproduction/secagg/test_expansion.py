"""SecAgg's traffic: the paper's own arithmetic, and real rounds."""

import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.secagg import expansion
from analysis.reproduction.secagg.expansion import PUBLISHED, ExpansionTraffic, ring_bits


@pytest.mark.parametrize(("size", "paper"), PUBLISHED.items())
def test_seven_values_of_32_bytes_a_peer_are_the_papers_expansions(size: tuple[int, int], paper: float) -> None:
    """Table 1 of the paper: 2 keys and 5 shares for each peer, beside the masked vector."""
    users, coordinates = size
    vector = ring_bits(users) * expansion._COORDINATES / 8
    of_paper = ExpansionTraffic(users, 7 * 32 * users + vector, 0.0, ring_bits(users))
    assert of_paper.expansion(users, coordinates) == pytest.approx(paper, abs=0.005)


def test_bytes_a_peer_are_those_of_any_size(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(expansion.SIZES, "small", (40, 80))
    result = expansion.run_expansion(context)
    each = result.table.set_index(["survivors", "users"])["bytes a peer"]
    assert each["signed", 40] == pytest.approx(each["signed", 80], rel=0.05)
    assert each["signed", 80] > each["on the server's word", 80]  # every client is sent t signatures
    assert [claim.checks[0].least for claim in result.claims] == [1.73 / 1.1, 1.98 / 1.1]
    assert "by the bytes a peer at 80" in result.claims[0].measured
