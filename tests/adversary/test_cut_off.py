"""Groups of honest clients that labels cut off, against all subsets of small graphs."""

from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.adversary.cut_off import smallest_cut_off
from tests.thoroughness import examples


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    clients = draw(st.integers(3, 9))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    upper = np.triu(generator.random((clients, clients)) < draw(st.sampled_from([0.2, 0.4, 0.7])), 1)
    return {
        "graph": upper | upper.T,
        "dishonest": generator.random(clients) < 0.3,
        "present": generator.random(clients) < 0.9,
        "budget": draw(st.integers(0, clients)),
        "neighbours": draw(st.integers(0, 3)),
    }


def cut_off_by(case: dict[str, Any], group: tuple[int, ...]) -> bool:
    """Return whether labels within the budget cut this group off, by the definition."""
    graph, honest = case["graph"], case["present"] & ~case["dishonest"]
    outside = [one for one in np.flatnonzero(honest) if one not in group and graph[one, list(group)].any()]
    online = case["present"].copy()
    online[outside] = False
    whole = len(outside) + len(group) == honest.sum()
    return not whole and len(outside) <= case["budget"] and accepted(case, online)


def accepted(case: dict[str, Any], online: Any) -> bool:
    return bool(((case["graph"] & online).sum(axis=1)[online] >= case["neighbours"]).all())


def found_in(case: dict[str, Any], **more: Any) -> Any:
    known = case["graph"], case["dishonest"], case["present"], case["budget"]
    return smallest_cut_off(*known, lambda online: accepted(case, online), **more)


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_single_clients_and_pairs_are_found_if_they_exist(case: dict[str, Any]) -> None:
    honest = np.flatnonzero(case["present"] & ~case["dishonest"]).tolist()
    groups = [group for size in (1, 2) for group in combinations(honest, size)]
    least = next((len(group) for group in groups if cut_off_by(case, group)), None)
    found = found_in(case)
    if least is not None:
        assert found is not None
        assert len(found.group) == least
    if found is not None:
        assert cut_off_by(case, found.group)
        assert set(found.offline) <= set(honest) - set(found.group)


def test_a_group_of_three_is_found() -> None:
    """Two triangles joined by one client: labelling that client offline isolates a triangle."""
    graph = np.zeros((7, 7), np.bool_)
    for one, other in [*combinations((0, 1, 2), 2), *combinations((4, 5, 6), 2), (2, 3), (3, 4)]:
        graph[one, other] = graph[other, one] = True
    case = {"graph": graph, "dishonest": np.zeros(7, np.bool_), "present": np.ones(7, np.bool_), "budget": 1}
    found = found_in(case | {"neighbours": 2})
    assert found is not None
    assert (len(found.group), found.offline) == (3, (3,))
    assert found_in(case | {"neighbours": 2}, largest=2) is None


def test_the_group_contains_the_named_client() -> None:
    case = {
        "graph": np.array([[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1], [0, 1, 1, 0]], np.bool_),
        "dishonest": np.array([0, 0, 0, 1], np.bool_),
        "present": np.ones(4, np.bool_),
        "budget": 1,
        "neighbours": 0,
    }
    assert found_in(case).group == (2,)
    assert found_in(case, member=0).group == (0,)
