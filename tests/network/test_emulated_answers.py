"""Answers: alike or single, on any number of hosts, summed where they lie, of the wrong kind; none is lost or NaN."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.messages import Message, encode
from testbed.network.exchanges import OUTCOMES
from testbed.parties.client import RoleSpec, handles
from tests.network import emulated

MB = 1e6  # bytes per second


def test_answers_that_are_alike_take_the_time_of_single_ones() -> None:
    greeted = emulated.World(3, factors=[1, 2, 3], down=[MB, MB / 2, MB])
    (replies,) = greeted.round(emulated.Greeting())
    asked = emulated.World(3, factors=[1, 2, 3], down=[MB, MB / 2, MB])
    asked.round(emulated.Question(seconds=2.0, answer_size=1000))
    received = greeted.network.exchanges[0].received_s
    difference = (
        len(encode(emulated.Question(seconds=2.0, answer_size=1000))) - len(encode(emulated.Greeting()))
    ) / np.array([MB, MB / 2, MB])
    assert asked.network.exchanges[0].received_s - received == pytest.approx(difference, abs=1e-9)
    assert not greeted.network.exchanges[0].as_participant
    assert [replies[client] for client in replies] == [emulated.of_size(1000)] * 3
    with pytest.raises(KeyError):
        replies[3]


def test_the_number_of_hosts_changes_nothing() -> None:
    def tables(hosts: int) -> list[tuple[Any, ...]]:
        world = emulated.World(
            10, hosts=hosts, factors=np.arange(1, 11), server_down=2 * MB, deadline_s=9.0,
            availability=emulated.Everybody(drops={"question": {7}}),
        )  # fmt: skip
        questions = (
            emulated.Greeting(),
            emulated.Question(seconds=1.0, silent=(2,), refusing=(5, 3, 1), answer_size=5000),
            emulated.Greeting(),
        )
        replies = world.round(*questions)
        return [
            (
                stage.received_s.tobytes(), stage.bytes_down.tolist(), stage.bytes_up.tolist(),
                stage.compute_s.tolist(), stage.outcome.tolist(), answers.ids.tolist(),
                [answers[client] for client in answers], answers.missing.refusals, world.network.events,
            )
            for stage, answers in zip(world.network.exchanges, replies, strict=True)
        ]  # fmt: skip

    assert tables(1) == tables(3) == tables(10)


@pytest.mark.parametrize("hosts", [1, 3])
def test_sums_are_made_on_the_hosts_and_are_the_servers_time(hosts: int) -> None:
    world = emulated.World(4, hosts=hosts, latency=0)

    async def summed() -> tuple[Any, Any]:
        await world.network.begin_round(1)
        replies = await world.network.ask(
            world.everybody,
            emulated.Question(
                vector=(
                    2**32 - 3,
                    5,
                )
            ),
        )
        before_s = world.now_s
        meter("work", 0.5)
        total, some = await replies.total(), await replies.total(np.array([3, 1]))
        meter("work", 0.25)
        world.network.end_round()
        assert world.now_s - before_s == pytest.approx(0.75 + 0.001 * (4 * 2 + 2 * 2))
        with pytest.raises(ProtocolError):
            await replies.total(np.array([0, 4]))
        return total, some

    total, some = asyncio.run(summed())
    assert total.tolist() == [(4 * (2**32 - 3) + 6) % 2**32, 26]
    assert some.tolist() == [(2 * (2**32 - 3) + 4) % 2**32, 14]
    assert world.network.server_compute_s == pytest.approx(0.762)


def test_a_sum_over_answers_without_a_vector_ends_the_round() -> None:
    world = emulated.World(2)

    async def summed() -> None:
        await world.network.begin_round(1)
        replies = await world.network.ask(world.everybody, emulated.Question())
        await replies.total()

    with pytest.raises(RoundAborted, match="no-vector: client 0"):
        asyncio.run(summed())


@given(data=st.data())
def test_nothing_is_nan_and_every_client_is_accounted_for(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 8))
    some = st.sets(st.integers(0, 8))
    rates = st.floats(1e-3, 1e12)

    def each(strategy: Any) -> list[float]:
        return data.draw(st.lists(strategy, min_size=count, max_size=count))

    deadline_s = data.draw(st.floats(1e-6, 1e6))
    world = emulated.World(
        count, down=each(rates), up=each(rates), latency=each(st.floats(0, 1e3)), factors=each(st.floats(1e-3, 1e3)),
        server_down=data.draw(rates), server_up=data.draw(rates), deadline_s=deadline_s,
        availability=emulated.Everybody({1: data.draw(some)}, dict.fromkeys(("question", "greeting"), data.draw(some))),
        disconnects_visible=data.draw(st.booleans()), hosts=data.draw(st.integers(1, 3)),
    )  # fmt: skip
    question = emulated.Question(
        seconds=data.draw(st.floats(0, 1e3)), answer_size=data.draw(st.sampled_from([0, 500, 100_000])),
        silent=tuple(data.draw(some)), refusing=tuple(data.draw(some)), looking_up=data.draw(st.integers(0, 3)),
    )  # fmt: skip
    quorum = data.draw(st.none() | st.integers(1, 9))
    now_s = 0.0
    for stage, replies in zip(
        (emulated.Greeting(), question), world.round(emulated.Greeting(), question, quorum=quorum), strict=True
    ):
        found = world.network.exchanges[0 if stage == emulated.Greeting() else 1]
        assert found.sent_s == now_s
        missing = replies.missing
        parts = [replies.ids, missing.offline, missing.dropped, missing.late, missing.refused, missing.silent]
        assert sorted(np.concatenate(parts).tolist()) == list(range(count))
        names = np.array(OUTCOMES, object)[found.outcome]
        arrived = np.isin(names, ["answered", "refused"])
        assert (np.isfinite(found.received_s) == arrived).all()
        assert np.isfinite(found.compute_s).all()
        assert (found.compute_s >= 0).all()
        assert (found.bytes_up[np.isin(names, ["silent", "offline", "dropped"])] == 0).all()
        assert (found.bytes_down[names == "offline"] == 0).all()
        heard = found.received_s[np.isin(names, ["answered", "refused"])]
        now_s = world.network.exchanges[1].sent_s if stage == emulated.Greeting() else world.now_s
        assert (heard <= now_s).all()
        assert found.sent_s <= now_s <= found.sent_s + deadline_s
    assert np.isfinite(world.now_s)


def test_measured_compute_is_never_negative_and_goes_into_the_clock() -> None:
    world = emulated.World(2, measured=True, latency=0, down=1e12, up=1e12)
    world.round(emulated.Question(), emulated.Greeting())
    assert (world.network.exchanges[0].compute_s > 0).all()
    assert world.network.server_compute_s > 0
    assert world.now_s >= world.network.server_compute_s


def test_a_question_needs_a_stage_and_an_answer() -> None:
    for question in (emulated.Lost(), emulated.Reply(b"")):
        with pytest.raises(ProtocolError, match="names no stage"):
            emulated.World().round(question)


def test_answers_of_another_kind_are_dropped_by_valid() -> None:
    class Other(Message, frozen=True):
        """Not a `Reply`."""

        number: int

    class Confused(emulated.Answering):
        """Answers with something else."""

        @handles(emulated.Question)
        def on_question(self, message: Any, private: Any = None) -> Any:
            return Other(7)

    world = emulated.World(3)
    (host,) = world.hosts.hosts
    host._roles.append(RoleSpec(Confused, None, frozenset({1})))
    (replies,) = world.round(emulated.Question())
    assert replies.ids.tolist() == [0, 1, 2]
    assert list(replies.valid()) == [0, 2]
    with pytest.raises(ProtocolError, match="not a Reply"):
        replies[1]
