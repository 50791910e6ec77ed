"""The end of a stage: deadlines, silence, a quorum, refusals, clients that are away or leave."""

import inspect
from typing import Any

import numpy as np
import pytest

from testbed.emulation.availability import Presence
from testbed.errors import CodeCrashed
from tests.messages_named import naming
from tests.network import emulated

MB = 1e6  # bytes per second


def test_a_client_that_is_late_is_not_heard_and_the_stage_lasts_until_the_deadline() -> None:
    world = emulated.World(2, factors=[1, 60], latency=0, deadline_s=30.0)
    (replies,) = world.round(emulated.question_of_size(1000, seconds=1.0, answer_size=1000))
    assert world.outcomes() == ["answered", "late"]
    assert replies.ids.tolist() == [0]
    assert replies.missing.late.tolist() == [1]
    assert world.now_s == 30
    stage = world.network.exchanges[0]
    assert np.isnan(stage.received_s[1])  # the server has closed the connection
    assert stage.bytes_up.tolist() == [1000, 0]
    with pytest.raises(KeyError):
        replies[1]


def test_an_answer_at_the_deadline_is_in_time() -> None:
    world = emulated.World(latency=0.25, down=np.inf, up=np.inf, server_down=np.inf, server_up=np.inf, deadline_s=1.5)
    (replies,) = world.round(emulated.Question(seconds=1.0))
    assert world.now_s == 1.5
    assert len(replies) == 1


def test_the_deadline_of_a_stage_goes_before_the_general_and_the_callers_before_both() -> None:
    late = emulated.Question(seconds=50.0)
    assert lasting(emulated.World(deadline_s=7.0), late) == 7
    assert lasting(emulated.World(deadline_s=7.0, stage_deadlines={"question": 9.0}), late) == 9
    assert lasting(emulated.World(deadline_s=7.0, stage_deadlines={"greeting": 9.0}), late) == 7
    assert lasting(emulated.World(deadline_s=7.0, stage_deadlines={"question": 9.0}), late, deadline_s=3.0) == 3


def lasting(world: Any, question: Any, **keys: Any) -> float:
    world.round(question, **keys)
    return world.now_s


def test_silence_is_waited_for_until_the_deadline() -> None:
    world = emulated.World(3, deadline_s=20.0)
    (replies,) = world.round(emulated.Question(silent=(1,)))
    assert world.now_s == 20
    assert world.outcomes() == ["answered", "silent", "answered"]
    assert replies.missing.silent.tolist() == [1]
    assert np.isnan(world.network.exchanges[0].received_s).tolist() == [False, True, False]
    assert world.network.exchanges[0].bytes_up[1] == 0


def test_a_quorum_ends_the_stage_at_its_last_answer() -> None:
    world = emulated.World(5, factors=[4, 1, 3, 2, 5], latency=0, down=1e12, up=1e12)
    (replies,) = world.round(emulated.Question(seconds=1.0), quorum=3)
    assert world.now_s == pytest.approx(3)
    assert replies.ids.tolist() == [1, 2, 3]
    assert replies.missing.late.tolist() == [0, 4]


def test_a_quorum_that_is_not_reached_lasts_until_the_deadline() -> None:
    world = emulated.World(3, deadline_s=20.0, factors=[1, 2, 30])
    (replies,) = world.round(emulated.Question(seconds=1.0, silent=(1,)), quorum=3)
    assert world.now_s == 20
    assert replies.ids.tolist() == [0]
    world = emulated.World(3, deadline_s=20.0, latency=0, down=1e12, up=1e12)
    (replies,) = world.round(emulated.Question(seconds=1.0, silent=(1,)), quorum=2)
    assert world.now_s == pytest.approx(1)  # enough: the silent one is not waited for


def test_a_quorum_counts_answers_in_time_and_neither_refusals_nor_late_ones() -> None:
    instant = {"latency": 0, "down": 1e12, "up": 1e12}
    world = emulated.World(4, factors=[1, 2, 3, 4], **instant)
    (replies,) = world.round(emulated.Question(seconds=1.0, refusing=(0,)), quorum=2)
    assert world.now_s == pytest.approx(3)
    assert world.outcomes() == ["refused", "answered", "answered", "late"]
    assert replies.missing.refused.tolist() == [0]
    world = emulated.World(3, factors=[1, 2, 30], deadline_s=20.0, **instant)
    world.round(emulated.Question(seconds=1.0), quorum=3)
    assert world.now_s == 20
    assert world.outcomes() == ["answered", "answered", "late"]


def test_a_refusal_is_an_answer_that_is_recorded_and_not_waited_for() -> None:
    world = emulated.World(3, latency=0)
    (replies,) = world.round(emulated.question_of_size(1000, refusing=(2,), answer_size=1000))
    assert world.outcomes() == ["answered", "answered", "refused"]
    assert replies.ids.tolist() == [0, 1]
    assert [(r.client, r.check, r.detail) for r in replies.missing.refusals] == [(2, "test.refused", "as asked")]
    assert world.now_s == pytest.approx(0.002)
    assert 0 < world.network.exchanges[0].bytes_up[2] < 50
    (event,) = world.network.events
    assert (event.stage, event.party, event.kind) == ("question", "client:2", "refusal")
    assert event.detail == "test.refused: as asked"


def test_a_refusal_that_comes_too_late_is_not_heard() -> None:
    world = emulated.World(2, factors=[1, 60], deadline_s=30.0)
    (replies,) = world.round(emulated.Question(seconds=1.0, refusing=(1,)))
    assert world.outcomes() == ["answered", "late"]
    assert replies.missing.refusals == ()
    assert replies.missing.refused.tolist() == []


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_crash_in_a_handler_loses_the_client_and_is_recorded_or_ends_the_run(hosts: int) -> None:
    question = emulated.Question(crashing=(1, 3, 5), refusing=(2,))
    world = emulated.World(6, deadline_s=20.0, hosts=hosts, on_crash="drop")
    (replies,) = world.round(question)
    assert world.outcomes() == ["answered", "silent", "refused", "silent", "answered", "silent"]
    assert world.now_s == 20
    assert replies.missing.silent.tolist() == [1, 3, 5]
    crashes = [(event.party, event.detail) for event in world.network.events if event.kind == "crash"]
    said = f"ZeroDivisionError: a fault (emulated.py:{line_of('a fault')})"
    assert crashes == [(f"client:{client}", said) for client in (1, 3, 5)]
    assert [(stage, crash.client) for stage, crash in world.network.crashes] == [("question", c) for c in (1, 3, 5)]
    with pytest.raises(ZeroDivisionError):
        emulated.World(6, hosts=hosts).round(question)


def line_of(text: str) -> int:
    """The line of the clients' code that has `text` in it."""
    lines, first = inspect.getsourcelines(emulated.Answering)
    return first + next(place for place, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_crash_ends_the_run_and_names_client_file_and_line(hosts: int) -> None:
    world = emulated.World(6, hosts=hosts, on_crash="stop")
    with pytest.raises(CodeCrashed) as ended:
        world.round(emulated.Question(crashing=(1, 3, 5)), number=4)
    said = str(ended.value)
    assert said.startswith("client 1 crashed in round 4 at question: ZeroDivisionError: a fault (")
    place = f"emulated.py, line {line_of('a fault')}, in on_question); fix it and rerun with --resume"
    assert place in said
    assert "\n" not in said
    assert "ZeroDivisionError: a fault" in ended.value.trace
    assert isinstance(ended.value.__cause__, ZeroDivisionError)  # in this process, for a debugger


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_crash_of_a_handler_for_all_is_one_of_each_client(hosts: int) -> None:
    def broken(environment: Any, message: Any) -> Any:
        raise KeyError("missing")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulated.Answering, "on_greeting", staticmethod(broken))
        world = emulated.World(3, hosts=hosts, on_crash="drop", deadline_s=5.0)
        world.round(emulated.Greeting())
        assert [crash.client for _, crash in world.network.crashes] == [0, 1, 2]
        assert world.outcomes() == ["silent"] * 3
        with pytest.raises(CodeCrashed, match=naming("client 0", "round 1", "greeting", "KeyError: 'missing'")):
            emulated.World(3, hosts=hosts, on_crash="stop").round(emulated.Greeting())


def test_an_answer_that_cannot_be_encoded_is_a_crash_of_its_client() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulated.Answering, "on_question", lambda self, message: object())
        with pytest.raises(CodeCrashed, match=naming("client 0", "round 1", "question", "TypeError")):
            emulated.World(1, on_crash="stop").round(emulated.Question())


@pytest.mark.parametrize(("disconnects_visible", "expected_s"), [(False, 20.0), (True, 0.002)])
def test_a_client_that_is_offline_gets_nothing_and_is_missed_by_timeout_or_at_once(
    disconnects_visible: bool, expected_s: float
) -> None:
    away = emulated.Everybody(offline={1: {0}})
    world = emulated.World(2, latency=0, deadline_s=20.0, availability=away, disconnects_visible=disconnects_visible)
    (replies,) = world.round(emulated.question_of_size(1000, answer_size=1000))
    assert world.now_s == pytest.approx(expected_s)
    assert world.outcomes() == ["offline", "answered"]
    assert replies.missing.offline.tolist() == [0]
    stage = world.network.exchanges[0]
    assert (stage.bytes_down.tolist(), stage.bytes_up.tolist()) == ([0, 1000], [0, 1000])


def test_when_all_are_visibly_gone_nothing_is_waited_for() -> None:
    world = emulated.World(2, availability=emulated.Everybody(offline={1: {0, 1}}), disconnects_visible=True)
    (replies,) = world.round(emulated.Question())
    assert len(replies) == 0
    assert world.now_s == 0


def test_a_client_that_drops_out_in_a_stage_has_got_the_question_and_never_answers() -> None:
    gone = emulated.Everybody(drops={"greeting": {1}})
    world = emulated.World(3, latency=0, deadline_s=20.0, availability=gone, server_up=3 * MB)
    first, second, third = world.round(emulated.Question(), emulated.Greeting(), emulated.question_of_size(1000))
    assert first.ids.tolist() == [0, 1, 2]
    assert second.ids.tolist() == [0, 2]
    assert second.missing.dropped.tolist() == [1]
    assert world.outcomes(1) == ["answered", "dropped", "answered"]
    stage = world.network.exchanges[1]
    assert (stage.bytes_down > 0).all()
    assert (stage.bytes_up[1], stage.compute_s[1]) == (0, 0)
    assert np.isnan(stage.received_s[1])
    # It stays away for the rest of the round ...
    assert third.missing.offline.tolist() == [1]
    assert world.network.exchanges[2].bytes_down.tolist() == [1000, 0, 1000]
    # ... and is back in the next.
    (later,) = world.round(emulated.Question(), number=2)
    assert later.ids.tolist() == [0, 1, 2]


def test_a_client_that_was_offline_at_one_stage_stays_away_for_the_round() -> None:
    class Flickering(emulated.Everybody):
        """Client 0 is away until the clock shows 10 seconds."""

        def presence(self, round_number: int, stage: str, now_s: float, clients: Any) -> Presence:
            return Presence.of((clients != 0) | (now_s >= 10))

    world = emulated.World(2, availability=Flickering(), deadline_s=20.0)
    _, second = world.round(emulated.Question(), emulated.Question())
    assert second.missing.offline.tolist() == [0]
    (third,) = world.round(emulated.Question(), number=2)
    assert third.ids.tolist() == [0, 1]
