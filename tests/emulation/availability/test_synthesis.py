"""Synthetic traces agree with the answers of the availability models."""

from typing import Any

import numpy as np
import pytest

from testbed.emulation.availability.factory import availability_model
from testbed.emulation.availability.synthesis import synthesize
from testbed.errors import ExperimentError
from testbed.experiment.availability import availability_section
from testbed.randomness import Randomness
from tests.messages_named import naming

N, HORIZON_S = 40, 20_000.0


def model_of(chosen: Any, seed: int) -> Any:
    return availability_model(chosen, N, (), Randomness(seed), lambda: np.zeros((N, 1), np.int64))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("markov", ["mean_online_s=600", "mean_offline_s=900"]),
        (
            "diurnal-weibull",
            ["mean_online_s=600", "mean_offline_s=2e3", "amplitude=0.7", "online_shape=0.5", "spread_hours=5"],
        ),
    ],
)
def test_models_with_a_clock(name: str, settings: list[str]) -> None:
    chosen = availability_section(name, settings)
    trace = synthesize(chosen, N, HORIZON_S, Randomness(5))
    assert trace.clients.tolist() == list(range(N))
    assert trace.horizon == (0.0, HORIZON_S)
    model, everybody = model_of(chosen, 5), np.arange(N)
    for now in np.linspace(0.5, HORIZON_S - 0.5, 200):
        assert ((trace.online_until(everybody, now) > -np.inf) == model.presence(1, "", now, everybody).reachable).all()


def test_models_with_rounds() -> None:
    chosen = availability_section("bernoulli", ["unavailable=[0.0, 0.2, 0.7, 1.0]"])
    round_s = 300.0
    trace = synthesize(chosen, N, HORIZON_S, Randomness(5), round_s)
    assert trace.horizon == (0.0, HORIZON_S)
    assert (trace.never_online == np.arange(3, N, 4)).all()
    model, everybody = model_of(chosen, 5), np.arange(N)
    for number in range(int(HORIZON_S // round_s)):
        there = model.presence(number + 1, "", number * round_s, everybody).reachable
        for within in (0.0, 0.5, 0.999):
            assert ((trace.online_until(everybody, (number + within) * round_s) > -np.inf) == there).all()
    starts = np.diff(trace.offsets)
    assert starts[0] == 1  # rounds in a row are one interval
    assert trace.online_until_s.max() == HORIZON_S


class HalfTheRounds:
    """A user-defined class: everybody, every other round."""

    comes_back = False

    def __init__(self, section: Any, population: int, randomness: Randomness) -> None:
        pass

    def presence(self, round_number: int, stage: str, now_s: float, clients: Any) -> Any:
        from testbed.emulation.availability.models import Presence

        return Presence.of(np.full(len(clients), round_number % 2 == 1))


def test_a_class_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    module = types.ModuleType("own_availability")
    module.HalfTheRounds = HalfTheRounds  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_availability", module)
    trace = synthesize(availability_section("own_availability:HalfTheRounds"), 2, 50.0, Randomness(1), 10.0)
    assert trace.online_from_s.tolist() == [0.0, 20.0, 40.0] * 2
    assert trace.online_until_s.tolist() == [10.0, 30.0, 50.0] * 2


@pytest.mark.parametrize(("clients", "horizon_s"), [(0, 5.0), (3, 0.0), (3, np.inf), (3, np.nan)])
def test_a_trace_of_nothing_is_refused(clients: int, horizon_s: float) -> None:
    with pytest.raises(ExperimentError, match=naming("trace", "one client")):
        synthesize(
            availability_section("markov", ["mean_online_s=1", "mean_offline_s=1"]), clients, horizon_s, Randomness(1)
        )
