"""The counting behind attacks by contradictory claims, against all claims that a server can make."""

import itertools
from collections.abc import Collection, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.adversary.secagg.contradictions import denials, smallest_among_all, smallest_among_few, two_views


@st.composite
def _rounds(draw: st.DrawFn, most: int = 14) -> tuple[int, int, int]:
    s = draw(st.integers(2, most))
    return s, draw(st.integers(s // 2 + 1, s)), draw(st.integers(0, s - 1))


# -- two views -----------------------------------------------------------------------------------------------------


@given(_rounds())
def test_two_views_are_possible_from_2t_minus_s_accomplices_on(sizes: tuple[int, int, int]) -> None:
    s, t, x = sizes
    honest = range(s - x)
    views = two_views(0, honest, x, range(s), t)
    told = [client for view in views for client in view.recipients]
    assert sorted(told) == list(honest)
    for view in views:
        assert set(view.recipients) <= set(view.survivors)
        assert len(view.survivors) >= t
    assert 0 in views[0].recipients
    assert all(0 not in view.survivors for view in views[1:])
    both = len(views) == 2 and all(len(view.recipients) + x >= t for view in views)
    if x < t:
        assert both == (x >= 2 * t - s and s > t)


def test_with_too_few_clients_for_both_the_first_view_gets_t() -> None:
    views = two_views(3, range(7), 3, range(10), 7)
    assert [len(view.recipients) for view in views] == [4, 3]


# -- denials ---------------------------------------------------------------------------------------------------------


def all_ways(room: dict[int, int], targets: list[int]) -> Iterator[tuple[set[int], ...]]:
    choices = [
        [set(chosen) for size in range(room[client] + 1) for chosen in itertools.combinations(
            [target for target in targets if target != client], size)]
        for client in room
    ]  # fmt: skip
    yield from itertools.product(*choices)


@given(
    room=st.lists(st.integers(0, 2), min_size=1, max_size=4),
    targets=st.sets(st.integers(0, 5), max_size=3),
    each=st.integers(0, 3),
)
def test_denials_are_found_if_they_exist(room: list[int], targets: set[int], each: int) -> None:
    believes = dict(enumerate(room))
    found = denials(believes, targets, each)
    possible = any(
        all(sum(target in denied for denied in way) >= each for target in targets)
        for way in all_ways(believes, sorted(targets))
    )
    assert (found is not None) == possible
    if found is not None:
        assert found.keys() == believes.keys()
        assert all(len(found[client]) <= believes[client] for client in believes)
        assert all(client not in found[client] for client in believes)
        assert all(sum(target in denied for denied in found.values()) >= each for target in targets)


# -- small sums ------------------------------------------------------------------------------------------------------


def counted(s: int, t: int, x: int) -> int:
    """Return h - floor(h (s - t)
    (t - x)), at least 1.
    """
    h = s - x
    return 1 if x >= t else h - min(h - 1, h * (s - t) // (t - x))


@given(_rounds())
def test_the_smallest_sum_has_the_counted_size(sizes: tuple[int, int, int]) -> None:
    s, t, x = sizes
    found = smallest_among_all(range(s - x), (), x, s, t)
    assert found is not None
    assert len(found.members) == counted(s, t, x)
    assert found.members | found.gone == set(range(s - x))
    assert all(s - len(denied) >= t for denied in found.denied.values() if t > x)


@given(_rounds())
def test_split_sharing_never_gives_a_larger_sum(sizes: tuple[int, int, int]) -> None:
    s, t, x = sizes
    found = smallest_among_few(range(s - x), x, s, t)
    assert found is not None
    assert len(found.members) <= counted(s, t, x)
    if x < t:
        assert x + len(found.members) + len(found.gone) >= t
    e, enough = s - t, t - x
    if x < 2 * t - s and e >= 2:  # x >= 2t - s is the case of one victim anyway
        assert (len(found.members) == 1) == (enough * (enough - 1) <= e * (s - x - 1))


Told = tuple[frozenset[int], frozenset[int]]  # peers that have shared; those of them that dropped out


def claims(client: int, h: int, x: int, t: int, *, split: bool) -> list[Told]:
    """Yield all that an honest client believes; accomplices are always named: leaving them out gains nothing."""
    others = [peer for peer in range(h) if peer != client]
    found = []
    for count in range(max(0, t - x - 1) if split else h - 1, h):
        for shared in itertools.combinations(others, count):
            for size in range(min(count, x + 1 + count - t) + 1):
                for gone in itertools.combinations(shared, size):
                    found.append((frozenset(shared), frozenset(gone)))
    return found


def smallest_combination(h: int, x: int, t: int, told: tuple[Told, ...], revealing: Collection[int]) -> int:
    """Return the number of honest inputs in the smallest combination determined by the revealed secrets; h + 1: none.

    A self-mask must be known for each input in it. A pairwise mask of two clients with unknown mask keys must cancel:
    both clients have it, and both inputs have the same coefficient.
    """
    keys = [x + sum(peer in told[client][1] for client in revealing) for peer in range(h)]
    seeds = [
        x + sum(peer == client or peer in told[client][0] - told[client][1] for client in revealing)
        for peer in range(h)
    ]
    hidden = {peer for peer in range(h) if keys[peer] < t}
    usable = {peer for peer in range(h) if seeds[peer] >= t}
    if usable - hidden:
        return 1
    while True:  # an input with a mask that cannot cancel is of no use; nor, then, one that was to cancel with it
        stuck = {a for a in usable for b in told[a][0] & hidden if b not in usable or a not in told[b][0]}
        if not stuck:
            break
        usable -= stuck
    best = h + 1
    while usable:
        part: set[int] = set()
        edge = {usable.pop()}
        while edge:
            part |= edge
            edge = {b for a in edge for b in told[a][0] & usable}
            usable -= edge
        best = min(best, len(part))
    return best


SMALL = [(3, 2, 0), (3, 2, 1), (3, 3, 1), (4, 3, 0), (4, 3, 1), (4, 3, 2), (4, 4, 2), (5, 3, 1), (5, 4, 1), (5, 4, 2),
         (5, 5, 3), (6, 5, 2), (6, 5, 3)]  # fmt: skip


@pytest.mark.parametrize(("s", "t", "x"), [*SMALL, (5, 4, 0), (6, 5, 1)])
def test_no_claims_about_dropouts_give_a_smaller_sum(s: int, t: int, x: int) -> None:
    h = s - x
    every = itertools.product(*(claims(client, h, x, t, split=False) for client in range(h)))
    assert min(smallest_combination(h, x, t, told, range(h)) for told in every) == counted(s, t, x)


@pytest.mark.parametrize(("s", "t", "x"), [*SMALL, pytest.param(6, 4, 2, marks=pytest.mark.slow)])
def test_no_claims_about_dropouts_and_sharing_give_a_smaller_sum(s: int, t: int, x: int) -> None:
    h = s - x
    every = itertools.product(*(claims(client, h, x, t, split=True) for client in range(h)))
    found = smallest_among_few(range(h), x, s, t)
    assert found is not None
    assert min(smallest_combination(h, x, t, told, range(h)) for told in every) == len(found.members)


@pytest.mark.parametrize(("s", "t", "x"), [*SMALL, pytest.param(6, 4, 2, marks=pytest.mark.slow)])
def test_with_t_signatures_on_one_set_the_smallest_sum_has_t_minus_x_clients(s: int, t: int, x: int) -> None:
    """Below x = 2t - s, whatever is claimed about sharing; from there on, one client."""
    h, best = s - x, s
    for told in itertools.product(*(claims(client, h, x, t, split=True) for client in range(h))):
        survivors = [frozenset({client}) | shared - gone for client, (shared, gone) in enumerate(told)]
        signers = [client for client in range(h) if x + survivors.count(survivors[client]) >= t]
        best = min(best, smallest_combination(h, x, t, told, signers))
    assert best == (1 if x >= 2 * t - s and s > t else t - x)
