"""Transfers that are added when they begin, against `transfer`, which is given all of them at once."""

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.links.rates import Rates
from testbed.network.fair_sharing.open_ended import EndedTransfer, OpenTransfers
from testbed.network.fair_sharing.transfers import transfer
from tests.thoroughness import examples

starts = st.integers(0, 20).map(float)
moves = st.lists(st.tuples(starts, st.integers(1, 50), st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=9)


def one_by_one(columns: Any, capacity: float, interrupted: bool) -> dict[int, EndedTransfer]:
    """Return the results of transfers that are added when they begin; ended transfers are taken off then."""
    start, size, rate, stop = columns
    link = OpenTransfers(Rates.constant(rate), capacity)
    found: dict[int, EndedTransfer] = {}
    for now_s in [*sorted(set(start.tolist())), math.inf]:
        while link.next_s <= now_s and link.next_s < math.inf:
            found |= {ended.client: ended for ended in link.take_ended(link.next_s)}
        if interrupted:
            saved, link = link.to_checkpoint(), OpenTransfers(Rates.constant(rate), capacity)
            link.restore(saved)
        if now_s < math.inf:
            who = np.flatnonzero(start == now_s)
            link.add(now_s, who, start[who], size[who], stop[who], np.zeros(len(who)))
    return found


@given(moves, st.integers(1, 25), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_they_share_the_link_as_if_all_were_known(
    given_moves: list[tuple[float, int, int, int]], capacity: int, cut_off: bool
) -> None:
    start, size, rate, lasting = np.array(given_moves, np.float64).T
    stop = start + lasting if cut_off else np.full(len(start), np.inf)
    columns = (start, size, rate, stop)
    at_once = transfer(start, size, Rates.constant(rate), float(capacity), stop)
    found = one_by_one(columns, float(capacity), interrupted=False)
    assert sorted(found) == list(range(len(start)))
    for client, ended in found.items():
        expected_s = min(at_once.finish_s[client], stop[client])
        assert math.isclose(ended.end_s, expected_s, rel_tol=1e-9)
        assert math.isclose(ended.share, at_once.delivered_bytes[client] / size[client], rel_tol=1e-6, abs_tol=1e-9)
    assert one_by_one(columns, float(capacity), interrupted=True) == found


def test_an_ended_transfer_has_slowed_the_others() -> None:
    link = OpenTransfers(Rates.constant([10, 10, 10]), 10.0)
    two, none = np.array([0, 1]), np.zeros(2)
    link.add(0.0, two, none, np.array([50, 10]), np.full(2, np.inf), none)
    assert [ended.client for ended in link.take_ended(2.0)] == [1]
    link.add(4.0, np.array([2]), np.array([4.0]), np.array([10]), np.array([np.inf]), np.zeros(1))
    assert link.next_s == 6.0  # 20 bytes of client 0 are left by then, and it has half of the link
    assert [ended.client for ended in link.take_ended(6.0)] == [2]
    assert link.next_s == 7.0
