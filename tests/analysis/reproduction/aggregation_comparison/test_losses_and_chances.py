"""Losses of a round in exact numbers or by chance, and the exact chance that a round completes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.reproduction.aggregation_comparison import losses as drawing
from analysis.reproduction.aggregation_comparison.completion import Tolerance, tolerated
from analysis.reproduction.aggregation_comparison.losses import Losses
from testbed.randomness import Randomness

STAGE = "secagg/masked-input"
CLIENTS = np.arange(12)


def losses(population: int = 12, seed: int = 1, **options: object) -> Losses:
    return Losses(None, population, Randomness(seed), stage=STAGE, **options)


def test_exact_numbers_of_participants_drop_out_in_the_stage_alone() -> None:
    model = losses(number=5)
    for number in range(1, 20):
        presence = model.presence(number, STAGE, 0.0, CLIENTS)
        assert presence.drops.sum() == 5
        assert presence.reachable.all()
        assert not model.presence(number, "secagg/share-keys", 0.0, CLIENTS).drops.any()
    assert len({tuple(model.lost(number)) for number in range(1, 20)}) > 10


def test_losses_do_not_depend_on_the_clients_that_are_asked() -> None:
    model, some = losses(rate=0.5), np.array([1, 4, 7])
    all_of_them = model.presence(3, STAGE, 0.0, CLIENTS).drops
    assert (losses(rate=0.5).presence(3, STAGE, 9.0, some).drops == all_of_them[some]).all()
    assert (losses(rate=0.5, seed=2).lost(3) != model.lost(3)).any()


def test_each_participant_drops_out_with_the_rate() -> None:
    lost = np.array([losses(population=100, rate=0.3).lost(number) for number in range(1, 101)])
    assert abs(lost.mean() - 0.3) < 4 * np.sqrt(0.21 / lost.size)
    assert abs(lost.sum(axis=1).std() - np.sqrt(21)) < 1.5


def test_helpers_answer_the_protocol_alone_and_never_drop_out() -> None:
    model = losses(number=10, helpers=2)
    for number in range(1, 10):
        assert list(model.presence(number, STAGE, 0.0, CLIENTS).drops[-2:]) == [False, False]
    assert model.presence(1, "secagg/unmask", 0.0, CLIENTS).reachable.all()
    assert list(model.presence(1, "select/check-in", 0.0, CLIENTS).reachable) == [True] * 10 + [False] * 2
    assert model.comes_back
    assert not losses(number=1).comes_back


@pytest.mark.parametrize("completes", [True, False])
def test_losses_are_drawn_among_those_that_complete_or_end_a_round(completes: bool) -> None:
    model = losses(rate=0.4, members=6, most=5, most_members=2, completes=completes)
    for number in range(1, 60):
        lost = model.lost(number)
        assert (lost.sum() <= 5 and lost[:6].sum() <= 2) == completes


def test_conditional_losses_are_as_likely_as_independent_ones() -> None:
    """Of independent losses, those that complete a round have the frequencies of the losses drawn for it."""
    conditional = losses(population=3, rate=0.3, most=1, completes=True)
    drawn = [tuple(conditional.lost(number)) for number in range(1, 4001)]
    nobody, one = 0.7**3, 0.3 * 0.7**2
    for lost in product((False, True), repeat=3):
        exact = {0: nobody, 1: one}.get(sum(lost), 0.0) / (nobody + 3 * one)
        assert abs(drawn.count(lost) / 4000 - exact) < 4 * np.sqrt(max(exact, 1e-9) / 4000)


def test_losses_that_never_arise_are_not_drawn_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MOST_DRAWS", 50)
    with pytest.raises(ValueError, match="50 draws"):
        losses(number=6, most=5, completes=True).lost(1)


@st.composite
def tolerances(draw: st.DrawFn) -> Tolerance:
    participants = draw(st.integers(1, 9))
    members = draw(st.integers(0, participants))
    return Tolerance(
        participants, draw(st.integers(0, participants)), members, draw(st.integers(0, members)) if members else 0
    )


@given(tolerances(), st.floats(0.01, 0.99))
def test_the_chance_is_the_sum_over_all_losses(tolerance: Tolerance, rate: float) -> None:
    n, completing = tolerance.participants, list[int]()
    for lost in product((False, True), repeat=n):
        if sum(lost) <= tolerance.lost and sum(lost[: tolerance.members]) <= tolerance.members_lost:
            completing.append(sum(lost))
    exact = sum(rate**gone * (1 - rate) ** (n - gone) for gone in completing)
    assert tolerance.completes_with_rate(rate) == pytest.approx(exact)
    for number in range(n + 1):
        sets = sum(1 for lost in product((False, True), repeat=n) if sum(lost) == number)
        share = completing.count(number) / sets
        assert tolerance.completes_with_number(number) == pytest.approx(share)


@given(st.integers(1, 300), st.floats(0, 0.9), st.floats(0.5, 0.9999))
def test_the_fewest_losses_to_tolerate(participants: int, rate: float, chance: float) -> None:
    lost = tolerated(participants, rate, chance)
    assert Tolerance(participants, lost).completes_with_rate(rate) >= chance - 1e-9
    assert lost == 0 or Tolerance(participants, lost - 1).completes_with_rate(rate) < chance + 1e-9


def test_the_chances_that_an_earlier_comparison_left_to_three_rounds() -> None:
    """Half of 100 participants leave: 44 may be lost, 60, or 24 of 60 members (computed independently)."""
    assert Tolerance(100, 44).completes_with_rate(0.5) == pytest.approx(0.136, abs=5e-4)
    assert Tolerance(100, 60).completes_with_rate(0.5) == pytest.approx(0.982, abs=5e-4)
    assert Tolerance(100, 60, 60, 24).completes_with_rate(0.5) == pytest.approx(0.0775, abs=5e-5)
