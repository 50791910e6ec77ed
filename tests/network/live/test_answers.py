"""The live network gives the results of the emulated network: outcomes, answers, bytes, sums, events."""

from typing import Any

import numpy as np
import pytest

from testbed.emulation.transport.section import TLS
from testbed.errors import CodeCrashed, ProtocolError, Refusal, RoundAborted, RunError
from testbed.messages import Vector
from testbed.network.live.stage import summed
from testbed.network.sums import float_total, merged
from testbed.parties.host import Host
from tests.messages_named import naming
from tests.network import emulated
from tests.network.live.clients import LiveWorld

QUICK: dict[str, Any] = {"latency": 0.001, "deadline_s": 0.4}


def same_exchanges(live: Any, reference: Any) -> None:
    """Everything but the times."""
    assert len(live.network.exchanges) == len(reference.network.exchanges)
    for ours, theirs in zip(live.network.exchanges, reference.network.exchanges, strict=True):
        assert ours.stage == theirs.stage
        assert ours.as_participant == theirs.as_participant
        for column in (
            "clients", "outcome", "bytes_down", "bytes_up", "transport_down", "transport_up", "pki_bytes_down",
            "pki_bytes_up", "compute_s",
        ):  # fmt: skip
            assert getattr(ours, column).tolist() == getattr(theirs, column).tolist(), (ours.stage, column)
        assert np.isnan(ours.received_s).tolist() == np.isnan(theirs.received_s).tolist()
    told = [event for event in live.network.events if event.kind != "behind-schedule"]  # of a slow machine
    assert sorted(map(str, told)) == sorted(map(str, reference.network.events))


def decoded(replies: Any) -> dict[int, Any]:
    return {client: (replies[client].payload, replies[client].vector is None) for client in replies}


@pytest.mark.parametrize("hosts", [1, 3])
def test_the_same_as_on_the_virtual_clock(hosts: int) -> None:
    def world() -> Any:
        away = emulated.Everybody(offline={1: {4}}, drops={"question": {5}})
        return emulated.World(
            7,
            hosts=hosts,
            on_crash="drop",
            availability=away,
            transport=TLS,
            up=4e6,
            factors=[1, 2, 3, 1, 1, 1, 1],
            **QUICK,
        )

    questions = [
        emulated.Question(silent=(1,), refusing=(2,), crashing=(3,), answer_size=70_000, seconds=0.01),
        emulated.question_of_size(60_000, looking_up=3, answer_size=10),
        emulated.Question(vector=(1, 2, 2**32 - 1)),
    ]
    reference = world()
    expected = reference.round(*questions)
    ours = LiveWorld(world())
    replies = ours.round(*questions)
    same_exchanges(ours, reference)
    assert ours.outcomes() == ["answered", "silent", "refused", "silent", "offline", "dropped", "answered"]
    assert ours.outcomes(1) == ["answered"] * 4 + ["offline", "offline", "answered"]  # gone for the round
    for got, wanted in zip(replies, expected, strict=True):
        assert decoded(got) == decoded(wanted)
        assert got.missing.refusals == wanted.missing.refusals
    assert [stage for stage, _ in ours.stages] == ["question"] * 3


def test_private_parts_reach_their_clients_alone() -> None:
    world = emulated.World(3, **QUICK)
    private = {client: emulated.Secret(bytes(100 * (client + 1))) for client in range(3)}
    reference = emulated.World(3, **QUICK)
    reference.round(emulated.Question(), private=private)
    ours = LiveWorld(world)
    ours.round(emulated.Question(), private=private)
    same_exchanges(ours, reference)
    assert len(set(ours.exchanges().bytes_down.tolist())) == 3


def test_clients_with_a_shared_answer_answer_one_by_one_on_the_wire() -> None:
    keys = {**QUICK, "factors": 0.001}
    reference = emulated.World(4, hosts=2, **keys)
    reference.round(emulated.Greeting())
    ours = LiveWorld(emulated.World(4, hosts=2, **keys))
    (replies,) = ours.round(emulated.Greeting())
    same_exchanges(ours, reference)
    assert replies[3].payload == emulated.of_size(1000).payload


def test_sums_are_made_of_the_vectors_that_arrived() -> None:
    question = emulated.Question(vector=(7, 2**32 - 2), silent=(2,))

    async def script(world: Any) -> Any:
        await world.network.begin_round(1)
        replies = await world.network.ask(world.everybody, question)
        everybody, some = await replies.total(), await replies.total(np.array([0, 3]))
        with pytest.raises(ProtocolError):
            await replies.total(np.array([2]))
        with pytest.raises(Refusal):
            await replies.total(np.empty(0, np.int64))
        empty = await world.network.ask(world.everybody, emulated.Question())
        with pytest.raises(RoundAborted, match="no-vector"):
            await empty.total()
        world.network.end_round()
        return everybody, some

    everybody, some = LiveWorld(emulated.World(4, **QUICK)).run(script)
    assert everybody.dtype == some.dtype == np.uint32
    assert everybody.tolist() == [3 * 7 + 4, (3 * (2**32 - 2) + 4) % 2**32]
    assert some.tolist() == [2 * 7 + 3, (2 * (2**32 - 2) + 3) % 2**32]


def test_float_sums_have_the_same_bits_as_on_the_hosts() -> None:
    values = np.random.default_rng(3).normal(size=(5, 41)).astype(np.float32)
    weights = np.arange(1, 6)

    vectors = {client: Vector(values[client], 0) for client in range(5)}
    ours = summed(vectors, np.arange(5), weights).materialised()
    halves = [float_total([vectors[c] for c in part], [c + 1 for c in part]) for part in ([0, 2, 4], [1, 3])]
    assert ours.tobytes() == merged(halves).materialised().tobytes()
    np.testing.assert_allclose(ours, weights @ values.astype(np.float64), atol=1e-8)


def test_vectors_of_different_shapes_abort_the_round() -> None:
    vectors = {0: Vector(np.zeros(3, np.uint32), 32), 1: Vector(np.zeros(4, np.uint32), 32)}
    with pytest.raises(RoundAborted, match="different-vectors"):
        summed(vectors, np.arange(2), None)


def test_a_message_without_a_stage_is_not_asked() -> None:
    with pytest.raises(ProtocolError, match=naming("Lost", "stage")):
        LiveWorld(emulated.World(1, **QUICK)).round(emulated.Lost())


def test_a_question_of_no_protocol_of_the_run_is_refused() -> None:
    class Unknown(emulated.Question, frozen=True):
        stage = "nobody-answers-this"

    world = LiveWorld(emulated.World(2, **QUICK))
    (replies,) = world.round(Unknown())
    assert [refusal.check for refusal in replies.missing.refusals] == ["message.unexpected-type"] * 2


def test_a_host_that_cannot_go_on_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(host: Host, delivery: Any) -> Any:
        raise MemoryError("no more of it")

    monkeypatch.setattr(Host, "deliver", fails)
    with pytest.raises(RunError, match=naming("no more of it")):
        LiveWorld(emulated.World(2, **QUICK)).round(emulated.Question())


def test_a_crash_ends_the_run_at_once_and_names_client_and_place() -> None:
    world = emulated.World(3, on_crash="stop", **QUICK | {"deadline_s": 3600.0})  # nobody waits for it
    with pytest.raises(CodeCrashed) as ended:
        LiveWorld(world).round(emulated.Question(crashing=(2,)), number=4)
    assert str(ended.value).startswith("client 2 crashed in round 4 at question: ZeroDivisionError: a fault (")
    assert "emulated.py, line" in str(ended.value)
    assert "in on_question" in ended.value.trace


def test_two_hundred_clients_in_two_hosts() -> None:
    keys = {"hosts": 2, "latency": 0.0, "up": 1e8, "down": 1e8, "deadline_s": 60.0}
    questions = [emulated.Question(vector=(1, 2, 3)), emulated.question_of_size(5000, answer_size=20_000)]
    reference = emulated.World(200, **keys)
    reference.round(*questions)
    ours = LiveWorld(emulated.World(200, **keys))
    replies = ours.round(*questions)
    assert [len(reply) for reply in replies] == [200, 200]
    same_exchanges(ours, reference)
