"""Robust rules against their definitions in plain Python, and their guarantees."""

import itertools
import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.aggregation.robust_rules import (
    RULES,
    Combined,
    RobustRule,
    RobustSection,
    combined,
    robust_rule,
)
from testbed.aggregation.update_arithmetic import krum_scores, squared_distances
from testbed.emulation.compute.cost import REFERENCE_COSTS, metered
from testbed.errors import ExperimentError
from tests.messages_named import naming
from tests.thoroughness import examples

KEYS: dict[str, dict[str, Any]] = {
    "median": {},
    "trimmed-mean": {"max_dishonest": 2},
    "krum": {"max_dishonest": 2},
    "multi-krum": {"max_dishonest": 2, "selected": 3},
    "geometric-median": {},
    "norm-bound": {"bound": 1.5},
}
WILD = st.floats(width=32, allow_nan=False, allow_infinity=False)
NUMBERS = st.floats(-100, 100, width=32)


def rule(name: str, **keys: Any) -> RobustRule:
    return robust_rule(RobustSection(rule=name, **(KEYS[name] | keys)))


def rows(values: Any) -> list[np.ndarray]:
    return list(np.asarray(values, np.float32))


@st.composite
def updates(draw: st.DrawFn, least: int = 7) -> list[np.ndarray]:
    s, d = draw(st.integers(least, 12)), draw(st.integers(1, 5))
    return rows(draw(st.lists(st.lists(NUMBERS, min_size=d, max_size=d), min_size=s, max_size=s)))


def naive_median(given: Any, f: int) -> list[float]:
    return [statistics.median(column) for column in zip(*given, strict=True)]


def naive_trimmed_mean(given: Any, f: int) -> list[float]:
    return [
        math.fsum(sorted(column)[f : len(column) - f]) / (len(column) - 2 * f) for column in zip(*given, strict=True)
    ]


def naive_krum(given: Any, f: int) -> list[int]:
    """Positions, the best first."""
    scores = []
    for i, one in enumerate(given):
        distances = sorted(math.dist(one, other) ** 2 for j, other in enumerate(given) if j != i)
        scores.append(math.fsum(distances[: len(given) - f - 2]))
    return sorted(range(len(given)), key=lambda i: scores[i])


@pytest.mark.parametrize(("name", "naive"), [("median", naive_median), ("trimmed-mean", naive_trimmed_mean)])
def test_coordinates(name: str, naive: Any) -> None:
    @given(updates())
    @settings(max_examples=examples(100))
    def is_as_defined(given: list[np.ndarray]) -> None:
        found = combined(rule(name), given)
        assert found.mean == pytest.approx(naive([row.tolist() for row in given], 2), rel=1e-6, abs=1e-5)
        assert found.used.tolist() == list(range(len(given)))

    is_as_defined()


def test_longer_than_a_chunk() -> None:
    given = rows(np.random.default_rng(1).normal(size=(9, 10_007)))
    array = np.array(given, np.float64)
    assert rule("median").combine(given).mean == pytest.approx(np.median(array, axis=0))
    middle = np.sort(array, axis=0)[2:-2]
    assert rule("trimmed-mean").combine(given).mean == pytest.approx(middle.mean(axis=0))
    expected = np.square(array[:, None] - array[None]).sum(axis=2)
    assert squared_distances(given) == pytest.approx(expected, rel=1e-6)
    norms = np.linalg.norm(array, axis=1, keepdims=True)
    bounded = (array * np.minimum(1, 1.5 / norms)).mean(axis=0)
    assert rule("norm-bound").combine(given).mean == pytest.approx(bounded, abs=1e-8)


@given(st.integers(0, 2**32), st.integers(0, 3))
@settings(max_examples=examples(100))
def test_krum_by_the_definition(seed: int, f: int) -> None:
    rng = np.random.default_rng(seed)
    given = rows(rng.normal(size=(int(rng.integers(2 * f + 3, 2 * f + 8)), 6)))
    order = naive_krum([row.tolist() for row in given], f)
    one = rule("krum", max_dishonest=f).combine(given)
    assert one.used.tolist() == [order[0]]
    assert one.mean.tolist() == given[order[0]].tolist()
    m = int(rng.integers(1, len(given) - f + 1))
    several = rule("multi-krum", max_dishonest=f, selected=m).combine(given)
    assert several.used.tolist() == sorted(order[:m])
    assert several.mean == pytest.approx(np.mean([given[i] for i in sorted(order[:m])], axis=0), rel=1e-5, abs=1e-6)
    assert len(rule("multi-krum", max_dishonest=f, selected=None).combine(given).used) == len(given) - f


def test_krum_by_hand() -> None:
    """Seven on a line, f = 2: a score is that of the 3 closest. Four lie together, and the third is in their middle."""
    given = rows([[0], [1], [2], [3], [50], [60], [-80]])
    scores = krum_scores(squared_distances(given), 2)
    assert scores[:4].tolist() == [1 + 4 + 9, 1 + 1 + 4, 1 + 1 + 4, 1 + 4 + 9]
    assert rule("krum").combine(given).used.tolist() == [1]  # of equal ones the first


def test_whoever_sends_the_same_is_krums_choice_only_as_a_majority_of_the_close() -> None:
    """f colluders at one place have f - 1 neighbours at distance 0, and s - f - 2 > f - 1 distances count."""
    honest = np.random.default_rng(3).normal(size=(5, 20))
    given = rows(np.concatenate([np.full((2, 20), 40.0), honest]))
    assert rule("krum").combine(given).used.tolist()[0] >= 2


@pytest.mark.parametrize("name", RULES)
def test_the_order_of_clients_does_not_matter(name: str) -> None:
    @given(st.integers(0, 2**32))
    @settings(max_examples=examples(25))
    def is_so(seed: int) -> None:
        rng = np.random.default_rng(seed)
        given = rows(rng.normal(size=(9, 4)))
        order = rng.permutation(9)
        there, again = (rule(name).combine(one) for one in (given, [given[i] for i in order]))
        assert again.mean == pytest.approx(there.mean, abs=1e-6)
        assert sorted(order[again.used]) == there.used.tolist()

    is_so()


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
def test_arbitrary_minorities_move_no_coordinate_out_of_the_honest_range(name: str) -> None:
    @given(updates(least=5), st.tuples(WILD, WILD))
    @settings(max_examples=examples(100))
    def is_so(honest: list[np.ndarray], wild: tuple[float, float]) -> None:
        poisoned = [np.full(len(honest[0]), value, np.float32) for value in wild]
        found = rule(name).combine([poisoned[0], *honest, poisoned[1]]).mean
        low, high = np.min(honest, axis=0), np.max(honest, axis=0)
        assert (found >= low - 1e-6 * np.abs(low)).all()
        assert (found <= high + 1e-6 * np.abs(high)).all()

    is_so()


@pytest.mark.parametrize("name", ["krum", "multi-krum", "geometric-median"])
@pytest.mark.parametrize("size", [1e3, 1e10, 3e38])
def test_two_of_nine_that_are_far_away_do_not_move_it_far(name: str, size: float) -> None:
    honest = np.random.default_rng(5).normal(size=(7, 30)).astype(np.float32)
    given = [*honest, np.full(30, size, np.float32), np.full(30, -size / 2, np.float32)]
    found = rule(name).combine(given)
    assert np.abs(found.mean).max() <= np.abs(honest).max()
    assert name == "geometric-median" or not {7, 8} & set(found.used.tolist())
    mean = np.mean(np.array(given, np.float64), axis=0)
    assert np.abs(mean).max() > 5 * np.abs(honest).max()  # the damage that the rule has averted


def test_the_geometric_median_has_the_smallest_sum_of_distances() -> None:
    """Its gradient, the sum of unit vectors to all updates, vanishes; and its neighbours are no better."""
    given = rows(np.random.default_rng(7).normal(size=(11, 5)))
    found = rule("geometric-median").combine(given).mean
    directions = (np.array(given) - found) / np.linalg.norm(np.array(given) - found, axis=1, keepdims=True)
    assert np.linalg.norm(directions.sum(axis=0)) < 1e-4
    assert rule("geometric-median").combine(rows([[0, 0], [4, 0], [0, 4], [4, 4]])).mean == pytest.approx([2, 2])


def test_the_geometric_median_is_not_an_update_that_it_begins_with() -> None:
    """The middle one of three is the median of both coordinates, and sees the others at less than 120 degrees."""
    given = rows([[-10, -1], [0, 0], [1, 10]])
    found = rule("geometric-median").combine(given).mean
    away = np.array(given) - found
    directions = away / np.linalg.norm(away, axis=1, keepdims=True)
    assert np.linalg.norm(directions.sum(axis=0)) < 1e-3
    assert found == pytest.approx([-1.3246, 1.3246], abs=1e-3)
    wide = rows([[-10, -1], [0, 0], [10, 2]])  # more than 120 degrees: it is the middle one itself
    assert rule("geometric-median").combine(wide).mean.tolist() == [0, 0]


def test_distances_of_updates_that_are_nearly_or_just_the_same() -> None:
    """There |x|^2 + |y|^2 - 2 x.y is only rounding of BLAS, which differs by processor."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=20_000)
    near = rows([10 * base + 1e-4 * rng.normal(size=20_000) for _ in range(5)] + [base, base * 1.1, base * 1.1])
    array = np.array(near, np.float64)
    expected = np.square(array[:, None] - array[None]).sum(axis=2)
    assert squared_distances(near) == pytest.approx(expected, rel=1e-7, abs=0)
    with metered() as meter:
        squared_distances(near)
    assert meter.counts["float.add.element"] == 11 * 20_000  # ten pairs of the first five, and the last two


def test_updates_within_the_bound_are_averaged_as_they_are() -> None:
    given, bounded = rows([[3, 4], [0.3, 0.4], [0, -1]]), [[0.6, 0.8], [0.3, 0.4], [0, -1]]
    assert rule("norm-bound", bound=1.0).combine(given).mean == pytest.approx(np.mean(bounded, axis=0))


@pytest.mark.parametrize("name", RULES)
def test_one_update_that_all_send_is_the_result(name: str) -> None:
    same = np.array([0.5, -0.25, 0.125], np.float32)
    assert rule(name).combine([same] * 8).mean == pytest.approx(same.astype(np.float64), abs=1e-9)


@pytest.mark.parametrize(("name", "least"), [("trimmed-mean", 5), ("krum", 7), ("multi-krum", 7), ("median", 1)])
def test_too_few(name: str, least: int) -> None:
    keys = {"selected": None} if name == "multi-krum" else {}
    rule(name, **keys).check(least)
    if least > 1:
        with pytest.raises(ValueError, match=r"^max_dishonest: 2 of "):
            rule(name, **keys).check(least - 1)


def test_more_than_are_honest_cannot_be_selected() -> None:
    rule("multi-krum", selected=7).check(9)
    with pytest.raises(ValueError, match=naming("selected", "8 of 9", 2, 7)):
        rule("multi-krum", selected=8).check(9)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"rule": "mean"}, "'mean' is unknown; allowed: median, trimmed-mean, krum"),
        ({"rule": "krum"}, "max_dishonest: is required for krum, e.g. 2"),
        ({"rule": "norm-bound"}, "bound: is required for norm-bound"),
        ({"rule": "median", "max_dishonest": 1}, "max_dishonest: is not read by median; leave it out"),
        ({"rule": "krum", "max_dishonest": 1, "selected": 2}, "selected: is not read by krum"),
        ({"rule": "median", "options": {"a": 1}}, "options: only for a user-defined class; median takes none"),
        ({"rule": "a:B", "bound": 1.0}, "bound: only for the built-in rules"),
        ({"rule": "norm-bound", "bound": math.inf}, "finite"),
        ({"rule": "krum", "max_dishonest": -1}, "greater than or equal to 0"),
    ],
)
def test_sections_that_do_not_hold(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        RobustSection(**keys)
    assert said in str(raised.value)


def test_all_work_is_charged() -> None:
    given = rows(np.random.default_rng(0).normal(size=(9, 5000)))
    expected = {
        "median": {"sort.element": 45_000},
        "trimmed-mean": {"sort.element": 45_000},
        "krum": {"float.multiply": 405_000, "float.add.element": 5_000},
        "multi-krum": {"float.multiply": 405_000, "float.add.element": 15_000},
        "norm-bound": {"float.add.element": 90_000},
    }
    for name, counts in expected.items():
        with metered() as meter:
            rule(name).combine(given)
        assert meter.counts == counts
        assert counts.keys() <= REFERENCE_COSTS.keys()
    with metered() as meter:
        rule("geometric-median").combine(given)
    assert meter.counts["sort.element"] == 45_000
    assert meter.counts["float.add.element"] % 90_000 == 0


class First(RobustRule):
    """The first update."""

    def __init__(self, section: RobustSection, times: float = 1.0) -> None:
        super().__init__(section)
        self.times = times

    def combine(self, updates: Any) -> Any:
        return Combined(self.times * updates[0].astype(np.float64), np.array([0]))


class Wrong(RobustRule):
    """Returns a given value."""

    returned: Any = None

    def combine(self, updates: Any) -> Any:
        return self.returned


def test_a_rule_of_the_users() -> None:
    made = robust_rule(RobustSection(rule=f"{__name__}:First", options={"times": 3}))
    assert combined(made, rows([[1, 2], [5, 6]])).mean.tolist() == [3, 6]
    with pytest.raises(ExperimentError, match=r"aggregation\.robust.*takes no 'time'|time"):
        robust_rule(RobustSection(rule=f"{__name__}:First", options={"time": 3}))
    with pytest.raises(ExperimentError, match="RobustRule"):
        robust_rule(RobustSection(rule=f"{__name__}:RULES_AS_A_CLASS"))


@pytest.mark.parametrize(
    "returned",
    [
        None,
        (np.zeros(2), np.array([0])),
        Combined(np.zeros(2), np.array([0, 99])),
        Combined(np.zeros(2), np.array([], np.int64)),
        Combined(np.zeros(2), np.array([0, 0])),
        Combined(np.zeros(2), np.array([-1])),
        Combined(np.zeros(2), np.array([[0], [1]])),
        Combined(np.zeros(2), np.array([True, False])),
        Combined(np.zeros(3), np.array([0])),
        Combined(np.array([0, math.nan]), np.array([0])),
        Combined(np.array([0, math.inf]), np.array([0])),
    ],
    ids=str,
)
def test_a_rule_of_the_users_that_returns_something_else(returned: Any) -> None:
    made = robust_rule(RobustSection(rule=f"{__name__}:Wrong"))
    made.returned = returned  # type: ignore[attr-defined]
    with pytest.raises(ExperimentError, match=naming("combine", "Combined(mean, used)", "(2,)")):
        combined(made, rows([[1, 2], [5, 6]]))


class InPlace(RobustRule):
    """Writes where it may read alone."""

    def combine(self, updates: Any) -> Any:
        updates[0][:] = 0
        return Combined(updates[0].astype(np.float64), np.array([0]))


def test_a_rule_of_the_users_changes_no_update() -> None:
    given = rows([[1, 2], [5, 6]])
    with pytest.raises(ValueError, match="read-only"):
        combined(robust_rule(RobustSection(rule=f"{__name__}:InPlace")), given)
    assert given[0].tolist() == [1, 2]
    assert given[0].flags.writeable


class RULES_AS_A_CLASS:
    """No rule."""


def test_nothing_is_changed_in_place() -> None:
    given = rows(np.random.default_rng(0).normal(size=(9, 50)))
    for row in given:
        row.setflags(write=False)
    for name, times in itertools.product(RULES, range(2)):
        first = rule(name).combine(given)
        assert first.mean.tobytes() == rule(name).combine(given).mean.tobytes(), times
