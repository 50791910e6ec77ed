"""Output of `testbed run` for several simultaneous runs, and its estimates of the remaining time."""

import io
from pathlib import Path

import pytest

from testbed.cli.progress import Bars, Lines
from testbed.cli.terminal import Console
from testbed.cli.watching import Display
from testbed.engine.federation import RunProgress
from testbed.experiment.schema import Experiment, Point
from testbed.running import PlannedRun
from testbed.running.observers import Pace, WaitingRun, time_left


def paced(began_s: float, first_round_s: float, ends_s: list[float], rounds: int) -> Pace:
    """A run of `rounds` whose first began and whose rounds ended at these times."""
    pace = Pace(began_s, rounds)
    pace.under_way(first_round_s)
    for end_s in ends_s:
        pace.round_ended(end_s)
    return pace


def test_a_run_keeps_its_speed() -> None:
    pace = paced(0, 10, [12, 14, 16], rounds=10)
    assert (pace.preparation_s, pace.round_s, pace.rounds_left) == (10, 2, 7)
    assert pace.left_s(17, 2) == 13  # half of the fourth round is over
    assert pace.left_s(100, 2) == 12  # it takes longer than thought, and the six after it are still to come
    assert time_left(17, [pace], [], [pace], 1) == 13
    assert time_left(5, [Pace(0, 4)], [WaitingRun(4)], [Pace(0, 4)], 1) is None


@pytest.mark.parametrize(("lanes", "expected"), [(2, 8 + 2 + 5), (3, 2 + 5 + 2 + 5)])
def test_runs_that_wait_begin_in_the_lane_that_is_free_first(lanes: int, expected: float) -> None:
    """Two go on, with 8 and 20 s to go; two wait, which take 2 s of preparation and 5 rounds of a second each."""
    first, second = paced(0, 2, [3], rounds=9), paced(0, 2, [3], rounds=21)
    waiting = [WaitingRun(5)] * (1 if lanes == 2 else 2)
    left = time_left(3, [first, second], waiting, [first, second], lanes)
    assert left == max(20, expected if lanes == 2 else 0)


def runs(count: int, rounds: int = 4) -> list[PlannedRun]:
    """Points of a sweep that have no directory."""
    experiment = Experiment.model_validate({"rounds": rounds, "selection": {"participants": 5}})
    return [PlannedRun(Point(f"seed={n}", {"seed": n}, experiment), Path(f"seed={n}"), 1) for n in range(count)]


def ended(round_number: int) -> RunProgress:
    """A round has just been completed."""
    return RunProgress(round_number, 4, "", 1.5, 0.5, "completed")


def test_lines_begin_with_their_run_and_come_once_a_round() -> None:
    console = Console(file=io.StringIO(), width=100)
    lines, (one, other) = Lines(console), runs(2)
    lines.planned([one, other])
    lines.started(one, [])
    lines.started(other, ["completed"])
    for run, number in ((one, 1), (other, 2), (one, 1), (one, 2), (other, 2)):
        lines.progressed(run, ended(number))
    written = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split(",")[0] for line in written] == [
        "all points: 2 points",
        "seed=1: resuming after round 1",
        "seed=0: round 1/4 completed",
        "seed=1: round 2/4 completed",
        "seed=0: round 2/4 completed",
    ]


def drawn(bars: Bars) -> list[str]:
    """The picture as lines of text."""
    with bars.console.capture() as capture:
        bars.console.print(bars.picture())
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("width", [80, 110])
def test_a_bar_for_the_sweep_and_one_for_each_run(width: int) -> None:
    now = [0.0]
    bars = Bars(Console(file=io.StringIO(), width=width, height=30))
    bars.clock = lambda: now[0]
    three = runs(3)
    bars.planned(three)
    for run in three[:2]:
        bars.started(run, [])
        bars.progressed(run, RunProgress(1, 4, "train", 0.5, None))
    now[0] = 10.0
    bars.progressed(three[0], ended(1))
    picture = drawn(bars)
    assert [line.split()[0] for line in picture] == ["all", "seed=0", "seed=1", *(["0/3"] if width == 80 else [])]
    assert "1/12" in picture[0]
    assert "1:10 left" in picture[0]  # the lane of the first is free in 30 s, and then the third takes 40
    assert "1/4" in picture[1]
    assert "0:30 left" in picture[1]
    assert ("train" in picture[2]) == ("0/3 points" in picture[0]) == (width == 110)
    assert max(map(len, picture)) <= width


def test_after_its_last_round_a_run_merges_its_records() -> None:
    """A minute or two where there are thousands of rounds, in which nothing else is heard of it."""
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    bars, (one,) = Bars(console), runs(1)
    bars.planned([one])
    bars.started(one, ["completed"] * 2)
    shown = []
    for number in (3, 4, 4):  # on Ray, progress comes more than once
        bars.progressed(one, ended(number))
        with console.capture() as capture:
            console.print(bars.picture())
        shown.append("merging the records of all rounds" in capture.get())
    assert shown == [False, True, True]


def test_more_runs_than_lines() -> None:
    bars = Bars(Console(file=io.StringIO(), width=100, height=12))
    bars.planned(runs(9))
    for run in runs(9):
        bars.started(run, [])
    assert drawn(bars)[-1] == "and 5 more"
    assert len(drawn(bars)) == 6


def points_of(values: list[dict[str, object]], rounds: int) -> list[PlannedRun]:
    """Points of a sweep over these values."""
    experiment = Experiment.model_validate({"rounds": rounds, "selection": {"participants": 5}})
    return [PlannedRun(Point(str(one), one, experiment), Path(str(n)), 1) for n, one in enumerate(values)]


def test_a_point_that_waits_is_as_fast_as_those_like_it() -> None:
    """Of a cheap and a dear value, a seed each has been seen; what is left is another seed of each."""
    now = [0.0]
    display = Display(Console(file=io.StringIO()), lambda: now[0])
    sweep = points_of([{"x": x, "seed": seed} for seed in (1, 2) for x in ("cheap", "dear")], rounds=4)
    display.planned(sweep)
    for run, round_s in zip(sweep, (1, 10), strict=False):
        display.started(run, [])
        display.progressed(run, RunProgress(1, 4, "train", 0.5, None))
        for number in range(1, 5):
            now[0] += round_s
            display.progressed(run, ended(number))
        display.ended(run, {})
    assert display.left_s == 4 * 1 + 4 * 10  # one at a time
    assert display.whole == "2/4 points, 8/16 rounds, 0:44 elapsed, about 0:44 left"
    display.started(sweep[2], [])
    assert display.left_s == 4 * 1 + 4 * 10  # before its own first round, too


def test_the_first_round_is_left_out_once_there_are_others() -> None:
    assert paced(0, 0, [9], rounds=10).round_s == 9
    assert paced(0, 0, [9, 10], rounds=10).round_s == 5
    assert paced(0, 0, [9, 10, 11], rounds=10).round_s == 1


def test_lines_say_now_and_then_how_far_all_of_it_is() -> None:
    now, console = [0.0], Console(file=io.StringIO(), width=100)
    lines, (one, other) = Lines(console, lambda: now[0]), runs(2, rounds=200)
    lines.planned([one, other])
    lines.started(one, [])
    for number in range(1, 101):
        now[0] += 1
        lines.progressed(one, RunProgress(number, 200, "", 1.5, 0.5, "completed"))
    written = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert written.pop(0) == "all points: 2 points, 400 rounds to run"
    whole = [line for line in written if line.startswith("all points: ")]
    assert len(written) - len(whole) == 100
    assert [line.split(", ")[1:] for line in whole] == [
        ["10/400 rounds", "0:10 elapsed", "about 6:31 left"],
        ["40/400 rounds", "0:40 elapsed", "about 6:01 left"],
        ["70/400 rounds", "1:10 elapsed", "about 5:31 left"],
        ["100/400 rounds", "1:40 elapsed", "about 5:01 left"],
    ]
