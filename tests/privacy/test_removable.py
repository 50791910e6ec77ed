"""The components' variances, and which of them a secret gives away."""

from fractions import Fraction
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.privacy.noise import Enforcement, RemovableNoise, chain, seed_of
from tests.messages_named import naming


@given(st.integers(2, 500), st.data())
def test_the_planned_noise_stays(participants: int, data: st.DataObject) -> None:
    tolerated = data.draw(st.integers(0, min(participants - 1, 200)))
    plan = RemovableNoise(participants, tolerated)
    everything = sum(plan.part(k) for k in range(tolerated + 1))
    assert isclose(everything, plan.added)
    for dropouts in range(tolerated + 1):
        left = participants - dropouts
        first = plan.first_removed(left)
        assert first == (dropouts + 1 if dropouts < tolerated else None)
        staying = sum(plan.part(k) for k in range(tolerated + 1 if first is None else first))
        assert isclose(left * staying, 1.0)
        assert plan.remaining_share(left) == 1.0


def test_more_dropouts_than_tolerated_cost_noise() -> None:
    plan = RemovableNoise(10, 3)
    assert plan.first_removed(6) is None
    assert plan.remaining_share(6) == pytest.approx(6 / 7)
    assert plan.remaining_share(1) == pytest.approx(1 / 7)
    assert sum(Fraction(plan.part(k)).limit_denominator(1000) for k in range(4)) == Fraction(1, 7)


def test_a_secret_gives_those_after_it() -> None:
    secrets = chain(bytes(32), 5)
    assert len(set(secrets)) == 5
    assert chain(secrets[2], 3) == secrets[2:]
    assert chain(secrets[2], 0) == []
    assert len({*secrets, *map(seed_of, secrets)}) == 10


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=naming("tolerated_dropouts: 5", "5 participants")):
        RemovableNoise(5, 5)
    for wrong in (0, 1001, "many"):
        with pytest.raises(ValidationError):
            Enforcement(tolerated_dropouts=wrong)
