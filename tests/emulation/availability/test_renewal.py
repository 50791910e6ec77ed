"""Alternating availability, compared with a slow simulation of single clients and with renewal theory."""

import bisect
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binomtest, kstest, weibull_min

from testbed.emulation.availability import AvailabilitySection
from testbed.emulation.availability.clocked import AlternatingAvailability, DailyRhythm
from testbed.randomness import Randomness
from tests.emulation.availability.models import model_of

SUSPICIOUS = 1e-6
SIGMAS = 6.0  # a normal variable is beyond with probability 2e-9
MARKOV = {"model": "markov", "mean_online_s": 300, "mean_offline_s": 600}
WEIBULL = {
    "model": "diurnal-weibull", "mean_online_s": 1000, "mean_offline_s": 4000,
    "online_shape": 0.6, "offline_shape": 1.7, "amplitude": 0,
}  # fmt: skip
DIURNAL = WEIBULL | {"amplitude": 0.9, "peak_hour": 3, "spread_hours": 5, "day_s": 7200}
ALL = pytest.mark.parametrize("keys", [MARKOV, WEIBULL, DIURNAL], ids=["markov", "weibull", "diurnal"])


def alternating(keys: dict[str, Any], population: int, seed: int = 1) -> AlternatingAvailability:
    section = TypeAdapter(AvailabilitySection).validate_python(keys)
    return AlternatingAvailability(section, population, Randomness(seed))


# -- a slow simulation ----------------------------------------------------------------------------------------------


class SlowClient:
    """One client's life, from the same draws, step by step."""

    def __init__(self, keys: dict[str, Any], population: int, client: int, seed: int) -> None:
        randomness = Randomness(seed)
        self.draw = lambda number, purpose: float(
            randomness.generator("availability", number, purpose).random(population)[client]
        )
        self.mean = {True: keys["mean_online_s"], False: keys["mean_offline_s"]}
        self.shape = {True: keys.get("online_shape", 1.0), False: keys.get("offline_shape", 1.0)}
        self.amplitude, self.day_s = keys.get("amplitude", 0), keys.get("day_s", 86400)
        self.peak_s = keys.get("peak_hour", 0) / 24 * self.day_s
        spread_s = keys.get("spread_hours", 0) / 24 * self.day_s
        self.local_s = (self.draw(0, "time zone") - 0.5) * spread_s

    def until(self, time_s: float) -> list[tuple[float, bool]]:
        """(end, online) of all stretches up to the one that lasts beyond `time_s`."""
        online = self.draw(0, "online") < self.mean[True] / (self.mean[True] + self.mean[False])
        now = -self.day_s if self.amplitude else 0.0
        stretches: list[tuple[float, bool]] = []
        while now <= time_s:
            duration = self.duration(len(stretches), online)
            now = now + duration if online or not self.amplitude else self.paced(now, duration)
            stretches.append((now, online))
            online = not online
        return stretches

    def duration(self, number: int, online: bool) -> float:
        shape, draw = self.shape[online], self.draw(number, "dwell")
        scale = self.mean[online] / math.gamma(1 + 1 / shape)
        if number:
            return scale * (-math.log(1 - draw)) ** (1 / shape)

        def left(seconds: float) -> float:  # P(no more than this is left of the stretch that was under way)
            return quad(lambda t: math.exp(-((t / scale) ** shape)), 0, seconds)[0] / self.mean[online]

        return brentq(lambda seconds: left(seconds) - draw, 0, 1e3 * scale, xtol=1e-10)

    def paced(self, now: float, duration: float) -> float:
        """The end of an offline stretch: time passes at the speed of the minute (of the client's day)."""
        minute_s = self.day_s / 1440
        minute = math.floor((now + self.local_s) / minute_s)
        while True:
            phase = 2 * math.pi * ((minute + 0.5) * minute_s - self.peak_s) / self.day_s
            speed = 1 + self.amplitude * math.cos(phase)
            ends = (minute + 1) * minute_s - self.local_s
            if duration <= (ends - now) * speed:
                return now + duration / speed
            duration -= (ends - now) * speed
            now, minute = ends, minute + 1


@ALL
def test_every_clients_life_is_the_one_simulated_step_by_step(keys: dict[str, Any]) -> None:
    population, seed, horizon_s = 12, 4, 20_000.0
    model = alternating(keys, population, seed)
    lives = [SlowClient(keys, population, client, seed).until(horizon_s) for client in range(population)]
    assert min(len(life) for life in lives) > 3
    for now_s in np.linspace(0, horizon_s, 101):
        presence = model.presence(1, "train", float(now_s), np.arange(population))
        for client, life in enumerate(lives):
            end, online = life[bisect.bisect_right([end for end, _ in life], now_s)]
            assert presence.reachable[client] == online
            assert presence.leaves_s[client] == (pytest.approx(end, rel=1e-6) if online else math.inf)


@ALL
def test_intervals_agree_with_presence(keys: dict[str, Any]) -> None:
    model, horizon_s = alternating(keys, 50), 10_000.0
    client, begin, end = model.intervals(30, horizon_s)
    assert (client.dtype, begin.dtype, end.dtype) == (np.int64, np.float64, np.float64)
    assert set(client.tolist()) <= set(range(30))
    assert (np.diff(client) >= 0).all()
    same = np.diff(client) == 0
    assert (end[:-1][same] <= begin[1:][same]).all()
    assert ((begin >= 0) & (begin < end) & (end <= horizon_s)).all()
    for now_s in np.linspace(0, horizon_s - 1, 40):
        presence = model.presence(1, "train", float(now_s), np.arange(30))
        inside = (begin <= now_s) & (now_s < end)
        assert client[inside].tolist() == np.flatnonzero(presence.reachable).tolist()
        assert (np.minimum(presence.leaves_s[client[inside]], horizon_s) == end[inside]).all()


# -- independence of answers ----------------------------------------------------------------------------------------


@cache
def asked_once(keys: tuple[tuple[str, Any], ...], now_s: float) -> Any:
    return alternating(dict(keys), 20).presence(1, "train", now_s, np.arange(20))


@given(
    keys=st.sampled_from([MARKOV, WEIBULL, DIURNAL]),
    questions=st.lists(st.tuples(st.integers(0, 30_000), st.sets(st.integers(0, 19))), max_size=8),
    in_order=st.booleans(),
)
def test_answers_do_not_depend_on_earlier_questions(
    keys: dict[str, Any], questions: list[tuple[int, set[int]]], in_order: bool
) -> None:
    model = alternating(keys, 20)
    for number, (now_s, asked) in enumerate(sorted(questions, key=lambda q: q[0]) if in_order else questions):
        clients = np.array(sorted(asked), np.int64)
        presence = model.presence(number, "first", float(now_s), clients)
        fresh = asked_once(tuple(keys.items()), float(now_s))
        assert (presence.reachable == fresh.reachable[clients]).all()
        assert (presence.leaves_s == fresh.leaves_s[clients]).all()
        assert not presence.drops.any()


def test_few_blocks_of_draws_are_kept_and_nothing_depends_on_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, forgetful = alternating(MARKOV, 200), alternating(MARKOV, 200)
    for now_s in (0.0, 9000.0, 9500.0, 20_000.0):
        expected = plain.presence(1, "train", now_s, np.arange(200))
        monkeypatch.setattr("testbed.emulation.availability.clocked._DRAWS_KEPT", 600)
        presence = forgetful.presence(1, "train", now_s, np.arange(200))
        assert len(forgetful._blocks) <= 3
        assert (presence.leaves_s == expected.leaves_s).all()
        monkeypatch.undo()
    assert len(plain._blocks) > 20


@ALL
def test_a_client_is_there_until_it_leaves_and_then_away(keys: dict[str, Any]) -> None:
    model = alternating(keys, 300)
    leaves = model.presence(1, "train", 5000.0, np.arange(300)).leaves_s
    assert (leaves > 5000).all()
    for client in np.flatnonzero(np.isfinite(leaves)).tolist():
        before, after = (
            model.presence(1, "train", float(now_s), np.array([client]))
            for now_s in (np.nextafter(leaves[client], 0), leaves[client])
        )
        assert before.reachable[0]
        assert before.leaves_s[0] == leaves[client]
        assert not after.reachable[0]


@ALL
def test_another_seed_is_another_life(keys: dict[str, Any]) -> None:
    lives = [alternating(keys, 50, seed).intervals(50, 5000.0) for seed in (1, 1, 2)]
    assert all((one == other).all() for one, other in zip(lives[0], lives[1], strict=True))
    assert lives[0][1].tolist() != lives[2][1].tolist()


# -- renewal theory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [MARKOV, WEIBULL], ids=["markov", "weibull"])
def test_in_equilibrium_from_the_start(keys: dict[str, Any]) -> None:
    """The share online is mean_online / (mean_online + mean_offline) at any time."""
    model = alternating(keys, 20_000)
    share = keys["mean_online_s"] / (keys["mean_online_s"] + keys["mean_offline_s"])
    for now_s in (0.0, 50.0, 700.0, 5000.0, 20_000.0):
        there = model.presence(1, "train", now_s, np.arange(20_000)).reachable
        assert binomtest(int(there.sum()), 20_000, share).pvalue > SUSPICIOUS


def test_how_much_of_a_weibull_stretch_is_left_at_the_start() -> None:
    """In the mean E[D^2] / (2 E[D]): longer than E[D] for a shape below 1."""
    left = alternating(WEIBULL, 20_000).presence(1, "train", 0.0, np.arange(20_000)).leaves_s
    left = left[np.isfinite(left)]
    scale = 1000 / math.gamma(1 + 1 / 0.6)
    mean = scale**2 * math.gamma(1 + 2 / 0.6) / (2 * 1000)
    assert mean > 1500
    assert abs(left.mean() - mean) < SIGMAS * left.std() / math.sqrt(len(left))


@pytest.mark.parametrize(("keys", "on", "off"), [(MARKOV, 1.0, 1.0), (WEIBULL, 0.6, 1.7)], ids=["markov", "weibull"])
def test_durations_have_the_distribution_asked_for(keys: dict[str, Any], on: float, off: float) -> None:
    client, begin, end = alternating(keys, 3000).intervals(3000, 500_000.0)
    first = np.flatnonzero(np.diff(client, prepend=-1))
    first = first[np.diff(first, append=len(client)) > 4]  # nearly all: the horizon cuts nothing off
    assert len(first) > 2990
    for mean, shape, durations in (
        (keys["mean_online_s"], on, end[first + 1] - begin[first + 1]),
        (keys["mean_offline_s"], off, begin[first + 2] - end[first + 1]),
    ):
        assert abs(durations.mean() - mean) < SIGMAS * durations.std() / math.sqrt(len(durations))
        scale = mean / math.gamma(1 + 1 / shape)
        assert kstest(durations, weibull_min(shape, scale=scale).cdf).pvalue > SUSPICIOUS


@pytest.mark.parametrize("apart_s", [20.0, 150.0, 600.0])
def test_a_markov_client_forgets_at_the_rate_of_its_two_states(apart_s: float) -> None:
    """P(online at t | online at 0) = pi + (1 - pi) exp(-(1/on + 1/off) t)."""
    model = alternating(MARKOV, 20_000)
    there = np.flatnonzero(model.presence(1, "train", 1000.0, np.arange(20_000)).reachable)
    still = model.presence(1, "train", 1000.0 + apart_s, there).reachable
    expected = 1 / 3 + 2 / 3 * math.exp(-(1 / 300 + 1 / 600) * apart_s)
    assert binomtest(int(still.sum()), len(there), expected).pvalue > SUSPICIOUS


# -- the rhythm of the day ------------------------------------------------------------------------------------------

BY_DAY = {"model": "diurnal-weibull", "mean_online_s": 1800, "mean_offline_s": 5400, "amplitude": 0.9, "peak_hour": 6}
CLIENTS = 20_000
APART = SIGMAS * math.sqrt(1 / CLIENTS)  # of two shares, however they depend on each other


def share_online(keys: dict[str, Any], hours: list[float]) -> list[float]:
    model = alternating(keys, CLIENTS)
    seconds = keys.get("day_s", 86400) / 24
    everybody = np.arange(CLIENTS)
    return [float(model.presence(1, "train", hour * seconds, everybody).reachable.mean()) for hour in hours]


def test_more_clients_are_online_at_the_peak_than_half_a_day_later() -> None:
    peak, trough, next_day = share_online(BY_DAY, [7, 19, 31])
    assert peak > trough + 0.2
    assert abs(peak - next_day) < APART
    early, late = share_online(BY_DAY | {"peak_hour": 18}, [7, 19])
    assert late > early + 0.2


def test_the_rhythm_is_under_way_at_time_0() -> None:
    keys = BY_DAY | {"peak_hour": 0}
    begin, third_day = share_online(keys, [0, 48])
    assert abs(begin - third_day) < APART
    in_equilibrium = share_online(keys | {"amplitude": 0}, [0])[0]
    assert begin > in_equilibrium + APART  # so the comparison above can fail


def test_time_zones_over_the_whole_day_leave_no_rhythm() -> None:
    spread = share_online(BY_DAY | {"spread_hours": 24}, [7, 13, 19])
    assert max(spread) - min(spread) < APART


def test_a_short_day_is_a_day() -> None:
    keys = BY_DAY | {"day_s": 864, "mean_online_s": 18, "mean_offline_s": 54}
    assert share_online(keys, [7, 19, 31]) == pytest.approx(share_online(BY_DAY, [7, 19, 31]), abs=1e-9)


@given(
    amplitude=st.floats(0, 0.999),
    peak_s=st.floats(0, 1000),
    times=st.lists(st.floats(-5000, 5000), min_size=2, max_size=20),
)
def test_a_rhythm_goes_forward_and_back(amplitude: float, peak_s: float, times: list[float]) -> None:
    rhythm = DailyRhythm(amplitude, peak_s, 1000.0)
    time_s = np.sort(np.array(times))
    shown = rhythm.shown(time_s)
    assert rhythm.shows_at(shown) == pytest.approx(time_s, abs=1e-6)
    assert (np.diff(shown) >= 0).all()
    assert rhythm.shown(time_s + 3000) == pytest.approx(shown + 3000, abs=1e-6)
    # The integral of the speed, up to the error of a step of 1000 / 1440 s.
    turn = 2 * math.pi / 1000
    integral = time_s + amplitude / turn * (np.sin(turn * (time_s - peak_s)) + math.sin(turn * peak_s))
    assert shown == pytest.approx(integral, abs=2e-3)


def test_models_come_back() -> None:
    assert model_of(5, **MARKOV).comes_back
    assert model_of(5, **DIURNAL).comes_back
