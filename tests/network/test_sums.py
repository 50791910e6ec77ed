"""Sums that no grouping changes, against sums of Python integers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ProtocolError, RunError
from testbed.messages import Vector
from testbed.network.masked_vectors import Masks
from testbed.network.sums import FIXED_POINT_BITS, Sum, float_total, merged, reduced, ring_total
from tests.messages_named import naming


@st.composite
def ring_vectors(draw: st.DrawFn) -> tuple[int, Any]:
    bits = draw(st.integers(1, 64))
    wide = draw(st.sampled_from([lane for lane in (8, 16, 32, 64) if lane >= bits]))
    length = draw(st.integers(0, 8))
    rows = st.lists(st.integers(0, 2**bits - 1), min_size=length, max_size=length)
    return bits, [np.array(row, f"u{wide // 8}") for row in draw(st.lists(rows, min_size=1, max_size=9))]


def grouped(draw: Any, count: int) -> list[list[int]]:
    """A random division of `range(count)` into groups."""
    group_of = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    groups = [[i for i in range(count) if group_of[i] == group] for group in range(4)]
    return [group for group in draw(st.permutations(groups)) if group]


@given(ring_vectors(), st.data())
def test_ring_sums_are_sums_of_integers_for_any_grouping(case: Any, data: st.DataObject) -> None:
    bits, rows = case
    before = [row.tobytes() for row in rows]
    expected = [sum(int(row[k]) for row in rows) % 2**bits for k in range(len(rows[0]))]
    assert ring_total([Vector(row, bits) for row in rows]).materialised().tolist() == expected
    groups = grouped(data.draw, len(rows))
    parts = [ring_total([Vector(rows[i], bits) for i in group]) for group in groups]
    assert merged(parts).materialised().tolist() == expected
    assert [row.tobytes() for row in rows] == before  # the clients' own vectors stay as they were


reals = st.floats(-1e4, 1e4, width=32)


@given(st.integers(1, 9), st.integers(1, 8), st.data())
def test_float_sums_have_the_same_bits_for_any_grouping(count: int, length: int, data: st.DataObject) -> None:
    row = st.lists(reals, min_size=length, max_size=length)
    rows = [np.array(data.draw(row), np.float32) for _ in range(count)]
    weights = data.draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count))
    exact = [
        sum(round(float(row[k]) * (weight * 2.0**FIXED_POINT_BITS)) for row, weight in zip(rows, weights, strict=True))
        for k in range(length)
    ]
    whole = float_total([Vector(row, 0) for row in rows], weights)
    assert whole.values.tolist() == exact
    expected = whole.materialised()
    assert expected.tolist() == [value / 2**FIXED_POINT_BITS for value in exact]
    groups = grouped(data.draw, count)
    parts = [float_total([Vector(rows[i], 0) for i in group], [weights[i] for i in group]) for group in groups]
    assert merged(parts).materialised().tobytes() == expected.tobytes()


def test_long_sums_are_made_in_chunks_that_do_not_show() -> None:
    generator = np.random.default_rng(0)
    rows = [generator.normal(0, 1, 2**16 + 3).astype(np.float32) for _ in range(3)]
    exact = sum(np.rint(row.astype(np.float64) * 5 * 2.0**32).astype(np.int64) for row in rows)
    assert np.array_equal(float_total([Vector(row, 0) for row in rows], [5, 5, 5]).values, exact)
    halves = [float_total([Vector(row, 0)], [5]) for row in rows]
    assert np.array_equal(merged(halves).materialised(), np.asarray(exact) * 2.0**-32)


@pytest.mark.parametrize("largest", [2.0**18, 2.0**19 - 2.0**-5, 2.0**19, 2.0**20])
def test_halves_go_to_even_also_where_fixed_point_is_near_its_border(largest: float) -> None:
    """2^19 is 2^51 in fixed point, from which on rounding is done otherwise."""
    halves = np.arange(-41, 42, dtype=np.float32) * np.float32(2.0**-33)
    rows = [np.append(halves, np.float32(sign * largest)) for sign in (1, -1)]
    exact = [sum(round(float(row[k]) * 3 * 2.0**32) for row in rows) for k in range(len(halves) + 1)]
    assert float_total([Vector(row, 0) for row in rows], [3, 3]).values.tolist() == exact
    assert float_total([Vector(rows[0], 0)], [1]).values.tolist() == [round(float(x) * 2.0**32) for x in rows[0]]


def test_a_weight_of_zero_makes_nothing_of_infinity() -> None:
    with pytest.raises(RunError, match=naming("finite", "workload.learning_rate")):
        float_total([Vector(np.array([-1, np.inf], np.float32), 0)], [0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31)])
def test_values_that_cannot_be_summed_raise_an_error(value: float) -> None:
    row = np.zeros(70_000, np.float32)
    row[-1] = value
    with pytest.raises(RunError, match=naming("finite", "workload.learning_rate")):
        float_total([Vector(np.zeros(70_000, np.float32), 0), Vector(row, 0)], [1, 1])


@pytest.mark.parametrize("sign", [1, -1])
def test_partial_sums_that_are_each_in_range_do_not_overflow_together(sign: int) -> None:
    """Three hosts, each just below 2**30 (2**62 in fixed point): the sum exceeds 2**63."""
    part = float_total([Vector(np.full(3, sign * 0.99 * 2**30, np.float32), 0)], [1])
    assert merged([part, part]).materialised().tolist() == [2 * float(np.float32(sign * 0.99 * 2**30))] * 3
    with pytest.raises(RunError, match="too large"):
        merged([part, part, part])


def vector(length: int, kind: Any = np.uint32, bits: int = 32) -> Vector:
    return Vector(np.zeros(length, kind), bits)


@pytest.mark.parametrize(
    "other",
    [vector(4), vector(2), vector(1), vector(0), vector(3, bits=31), vector(3, np.float32, 0)],
)
def test_vectors_of_different_shapes_are_not_summed(other: Vector) -> None:
    for pair in ([vector(3), other], [other, vector(3)], [vector(3), vector(3), other]):
        with pytest.raises(ProtocolError, match="differ"):
            ring_total(pair)


@pytest.mark.parametrize(("bits", "word"), [(5, np.uint16), (8, np.uint16), (16, np.uint16), (29, np.uint32)])
def test_sums_have_the_words_of_the_ring_for_any_received_words(bits: int, word: Any) -> None:
    """Up to 8 bits are unpacked to bytes, and a client that sends wider words does not end the run."""
    own = Vector(np.array([1, 2**bits - 1], word), bits)
    vectors = [own, Vector.unpack(own.pack(), bits, 2), Vector(own.values.astype(np.uint64), bits)]
    for order in (vectors, vectors[1:], vectors[2:] + vectors[:2], vectors[1:2]):
        total = ring_total(order)
        assert total.values.dtype == word
        assert total.with_masks(Masks([bytes(32)], [1])).materialised().dtype == word
        assert total.values.tolist() == [len(order) % 2**bits, -len(order) % 2**bits]


@pytest.mark.parametrize("length", [0, 1, 2, 4])
def test_float_vectors_of_different_shapes_are_not_summed(length: int) -> None:
    pair = [vector(3, np.float32, 0), vector(length, np.float32, 0)]
    for order in (pair, pair[::-1]):
        with pytest.raises(ProtocolError, match="differ"):
            float_total(order, [1, 1])
    with pytest.raises(ValueError, match="zip"):
        float_total(pair[:1], [1, 1])


@pytest.mark.parametrize("bits", [0, 32])
@pytest.mark.parametrize("length", [0, 1, 2, 4])
def test_partial_sums_of_different_shapes_are_not_combined(bits: int, length: int) -> None:
    kind = np.int64 if bits == 0 else np.uint32
    with pytest.raises(ProtocolError, match=naming("partial sums")):
        merged([Sum(np.zeros(3, kind), bits), Sum(np.zeros(length, kind), bits)])
    with pytest.raises(ProtocolError, match=naming("partial sums")):
        merged([Sum(np.zeros(3, np.uint32), 32), Sum(np.zeros(3, np.uint64), 32)])
    with pytest.raises(ProtocolError, match=naming("partial sums")):
        merged([Sum(np.zeros(3, np.uint32), 32), Sum(np.zeros(3, np.uint32), 31)])
    with pytest.raises(RunError, match=naming("sum")):
        merged([])


def test_combining_changes_no_part() -> None:
    """Parts may be read-only memory of an object store."""
    parts = [Sum(np.arange(3, dtype=np.uint32), 20), Sum(np.full(3, 2**20 - 1, np.uint32), 20)]
    for part in parts:
        part.values.setflags(write=False)
    assert merged(parts).materialised().tolist() == [2**20 - 1, 0, 1]
    assert parts[0].values.tolist() == [0, 1, 2]


@given(st.integers(1, 64), st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_reducing_is_taking_the_remainder(bits: int, values: list[int]) -> None:
    assert reduced(np.array(values, np.uint64), bits).tolist() == [value % 2**bits for value in values]
