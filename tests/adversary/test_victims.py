"""The choice of a victim for misbehaviours that attack one client."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed.adversary.lightsecagg import ContradictSurvivors
from testbed.adversary.misbehaviour import AttackContext
from testbed.adversary.victims import VictimOptions, draw_victim
from testbed.randomness import Randomness

CLIENTS, DISHONEST = np.arange(2, 12), frozenset({2, 3, 4, 5, 6, 7})


def drawn(number: int = 1, victim: int | None = None, attacking: bool = True, seed: int | None = 1) -> int | None:
    context = AttackContext(DISHONEST, {ContradictSurvivors: VictimOptions(victim=victim)})
    server: Any = SimpleNamespace(context=context, dishonest=DISHONEST, attacking=attacking)
    round_: Any = SimpleNamespace(number=number, randomness=None if seed is None else Randomness(seed))
    return draw_victim(server, ContradictSurvivors, CLIENTS, round_)


def test_the_server_draws_an_honest_client_anew_in_each_round() -> None:
    victims = [drawn(number) for number in range(1, 60)]
    assert set(victims) == {8, 9, 10, 11}
    assert victims == [drawn(number) for number in range(1, 60)]
    assert drawn(seed=None) is None


@pytest.mark.parametrize(("victim", "expected"), [(9, 9), (3, None), (40, None)])
def test_a_named_victim_is_attacked_if_it_is_present_and_honest(victim: int, expected: int | None) -> None:
    assert drawn(victim=victim) == drawn(victim=victim, seed=None) == expected


def test_rounds_without_attack_have_no_victim() -> None:
    assert drawn(attacking=False) is drawn(attacking=False, victim=9) is None
