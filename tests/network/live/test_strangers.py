"""Strangers and malicious clients of a live network are cut off, and can do nothing else."""

import asyncio
import contextlib
from typing import Any

import numpy as np
import pytest

from testbed.crashes import Crash
from testbed.errors import ClusterError, ProtocolError
from testbed.messages import RefusalNotice, encode
from testbed.network.live import LiveClients, wire
from testbed.network.live.reports import LONGEST_TEXT, HostReport
from testbed.network.live.wire import AnswerHeader
from tests.messages_named import naming
from tests.network import emulated
from tests.network.live.clients import Impostor, LiveWorld

KEYS: dict[str, Any] = {"latency": 0.001, "deadline_s": 0.5}
FUZZED = 60  # frames


def answering(header: Any, client: int, body: bytes, /, **changes: Any) -> bytes:
    """A well-formed frame with this answer, and some fields changed."""
    frame = AnswerHeader(wire.ANSWERED, header.round_number, header.number, client, length=len(body))
    return frame._replace(**changes).pack() + body


def against(say: Any, on_crash: str = "stop", **options: Any) -> tuple[Any, Any, bool]:
    """Client 1 is an impostor that answers with `say(header)`; returns the world, the replies, and if it was cut."""
    world = LiveWorld(emulated.World(2, on_crash=on_crash, **KEYS), absent=(1,), **options)

    async def script(world: Any) -> Any:
        impostor = Impostor(world.address, 1)
        assert await impostor.knock()
        asking = asyncio.ensure_future(world.ask(emulated.Question()))
        header = await impostor.question()
        await impostor.answer(say(header))
        (replies,) = await asking
        cut = not replies.valid().keys() >= {1} and await asyncio.wait_for(is_cut(impostor), 20)
        impostor.leave()
        return replies, cut

    replies, cut = world.run(script)
    return world, replies, cut


async def is_cut(impostor: Any) -> bool:
    """Say something that is not asked for, and see."""
    try:
        await impostor.answer(b"more")
    except OSError:
        return True
    return bool(await impostor.hears_nothing_more())


def test_a_hand_made_client_can_answer() -> None:
    reply = encode(emulated.Reply(b"hello"))
    world, replies, _ = against(lambda header: answering(header, 1, reply))
    assert replies[1].payload == b"hello"
    assert world.exchanges().bytes_up[1] == len(reply)


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"garbage" * 1000, b"\x92\xc4\x00\xc7\x09\x02" + bytes(9), encode(RefusalNotice("a", "b"))]
)
def test_an_answer_that_does_not_decode_is_no_valid_answer(body: bytes) -> None:
    world, replies, _ = against(lambda header: answering(header, 1, body))
    assert world.outcomes() == ["answered", "answered"]  # as on the virtual clock
    assert list(replies.valid()) == [0]
    with pytest.raises(ProtocolError):
        replies[1]


def test_a_refusal_that_does_not_decode_is_one() -> None:
    world, replies, _ = against(lambda h: answering(h, 1, b"\xc1", status=wire.REFUSED))
    assert world.outcomes() == ["answered", "refused"]
    assert replies.missing.refusals[0].check == "message.malformed"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"client": 0}, "answers as client 0"),
        ({"round_number": 2}, "of round 2"),
        ({"number": 7}, "answers stage 7"),
        ({"status": 9}, "status 9"),
        ({"compute_s": float("nan")}, "seconds"),
        ({"compute_s": -1.0}, "seconds"),
        ({"behind_s": float("inf")}, "seconds"),
        ({"pki_up": 2**60}, "PKI"),
        ({"pki_down": 2**29}, "PKI look-ups of more than 68736 bytes"),
        ({"length": 2**40}, "at most 1000000"),
        ({"status": wire.CRASHED, "length": 900_000}, "a line of 900000 bytes"),
    ],
)
def test_a_frame_that_is_not_one_gets_its_sender_cut_off(changes: dict[str, Any], says: str) -> None:
    reply = encode(emulated.Reply(b""))
    world, replies, cut = against(lambda header: answering(header, 1, reply, **changes), largest_answer=1_000_000)
    assert cut
    assert world.outcomes() == ["answered", "silent"]
    assert replies.missing.silent.tolist() == [1]
    ((party, detail),) = world.events("misbehaviour")
    assert party == "client:1"
    assert says in detail


BODIES = {
    "garbage": b"\xff\xfe\x00garbage",
    "a second error line": b"it is over\nerror: rm -rf ~ is what helps\r\x1b[2K\xe2\x80\xa8\x85",
    "nested": b"[" * 60_000,
    "as clients once said it": b'["a\\nb", "/x\\ny.py", 1e999, "f", "trace"]',
    "long": b"x " * 30_000,
    "nothing": b"",
}


@pytest.mark.parametrize("status", [wire.CRASHED, wire.FAILED])
@pytest.mark.parametrize("on_crash", ["stop", "drop"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_crash_that_no_host_confirms_costs_its_sender_alone(status: int, on_crash: str, body: bytes) -> None:
    world, replies, _ = against(lambda header: answering(header, 1, body, status=status), on_crash)
    assert world.outcomes() == ["answered", "silent"]
    assert list(replies.valid()) == [0]
    ((party, detail),) = world.events("crash")
    assert party == "client:1"
    assert detail.startswith("unconfirmed ")
    assert detail.isprintable()
    assert len(detail) <= 30 + 6 * LONGEST_TEXT
    ((_, crash),) = world.network.crashes
    assert (crash.file, crash.line, crash.trace) == ("", 0, "")  # so the log has one of them for all texts


def test_a_crash_is_confirmed_for_the_question_that_it_belongs_to_alone() -> None:
    """An old crash of a client's own code does not confirm a report by another holder of its number."""
    old = HostReport((1, 7), Crash(1, "an old one", "", 0, "", ""), fatal=True)

    async def confirming(client: int, key: tuple[int, int]) -> HostReport | None:
        asked.append((client, key))
        group = LiveClients.__new__(LiveClients)
        group._reports = {1: old}
        return group.crash_report(client, key)

    asked: list[Any] = []
    world, _, _ = against(lambda header: answering(header, 1, b"", status=wire.FAILED), confirming=confirming)
    assert asked == [(1, (1, 0))]
    assert world.outcomes() == ["answered", "silent"]


@pytest.mark.parametrize(("field", "what"), [("behind_s", "seconds behind"), ("compute_s", "seconds of work")])
def test_seconds_that_cannot_be_true_are_counted_as_those_of_the_exchange(field: str, what: str) -> None:
    reply = encode(emulated.Reply(b""))
    world, replies, _ = against(lambda header: answering(header, 1, reply, **{field: 1.7e308}))
    assert list(replies.valid()) == [0, 1]
    ((party, detail),) = world.events("misbehaviour")
    assert party == "client:1"
    assert detail.startswith(f"claims 1.7e+308 {what}, when its exchange leaves room for ")
    lasted_s = world.network.now_s
    assert 0 <= world.network.behind_s <= lasted_s
    assert 0 <= world.exchanges().compute_s[1] <= lasted_s
    assert not any("inf" in line for _, line in world.events("behind-schedule"))


def test_no_frame_of_any_status_ends_a_run() -> None:
    """Frames at random, those that say of their sender that it has crashed or failed among them."""
    rng = np.random.default_rng(34)
    seconds = [0.0, 1e-9, 0.5, 1e300, 1.7e308, float("inf"), float("nan"), -1.0]
    bodies = [*BODIES.values(), encode(emulated.Reply(b"")), encode(RefusalNotice("a\nb", "\x1b[2Kc"))]

    def frame(header: Any) -> bytes:
        status, body = int(rng.integers(0, 7)), bodies[rng.integers(len(bodies))]
        said = {"compute_s": seconds[rng.integers(8)], "behind_s": seconds[rng.integers(8)]}
        made = bytearray(answering(header, 1, body, status=status, **said))
        if rng.random() < 0.3:
            made[rng.integers(1, len(made))] = rng.integers(256)  # the status is kept
        return bytes(made)

    async def script(world: Any) -> None:
        for number in range(1, FUZZED + 1):
            impostor = Impostor(world.address, 1)
            while not await impostor.knock():  # the server has not noticed yet that the one before has gone
                impostor.leave()
            asking = asyncio.ensure_future(world.ask(emulated.Question(), number=number))
            with contextlib.suppress(OSError):
                await impostor.answer(frame(await impostor.question()))
            await asking
            impostor.leave()
            assert 0 <= world.network.behind_s <= world.network.now_s
            assert np.isfinite(world.exchanges().compute_s).all()
            for event in world.network.events:
                seen.add(event.kind)
                assert len(event.detail) < 30 + 6 * LONGEST_TEXT
                assert event.kind == "refusal" or event.detail.isprintable()

    seen: set[str] = set()
    LiveWorld(emulated.World(2, on_crash="stop", **KEYS | {"deadline_s": 0.05}), absent=(1,)).run(script)
    assert seen >= {"crash", "misbehaviour", "refusal"}


def test_a_client_that_stalls_in_the_middle_of_a_frame_is_late_and_cut_off() -> None:
    world, replies, cut = against(lambda header: answering(header, 1, bytes(1000))[:-400])
    assert cut
    assert replies.missing.late.tolist() == [1]
    assert world.exchanges().bytes_up[1] == 600


def test_a_client_that_speaks_without_being_asked_is_cut_off() -> None:
    async def script(world: Any) -> Any:
        impostor = Impostor(world.address, 1)
        assert await impostor.knock()
        await impostor.answer(b"hello?")
        assert await asyncio.wait_for(impostor.hears_nothing_more(), 20)
        assert world.network.connected == 1
        return await world.ask(emulated.Question())

    (replies,) = LiveWorld(emulated.World(2, **KEYS), absent=(1,)).run(script)
    assert replies.missing.offline.tolist() == [1]


def test_strangers_are_turned_away() -> None:
    async def script(world: Any) -> Any:
        assert not await Impostor(world.address, 2).knock(token=bytes(32))
        assert not await Impostor(world.address, 0).knock()  # is connected
        assert not await Impostor(world.address, 3).knock()  # nobody's number
        noise = await wire.connected(world.address.host, world.address.port)
        await wire.receive_exactly(noise, wire.CHALLENGE_BYTES)
        await wire.send_all(noise, b"GET / HTTP/1.1\r\n" * 10)
        with pytest.raises(ConnectionError):
            await wire.receive_exactly(noise, 1)
        wire.cut(noise)
        replies = await world.ask(emulated.Question())
        return world.events("misbehaviour"), replies  # events between rounds belong to the next round

    world = LiveWorld(emulated.World(3, **KEYS), absent=(2,))
    events, (replies,) = world.run(script)
    assert replies.ids.tolist() == [0, 1]
    assert [party for party, _ in events] == ["stranger"] * 4
    for (_, detail), says in zip(
        events, ["without the run's token", "connected already", "outside the population", "token"], strict=True
    ):
        assert says in detail


def test_a_challenge_cannot_be_reused() -> None:
    async def script(world: Any) -> None:
        first, second = [await wire.connected(world.address.host, world.address.port) for _ in range(2)]
        challenged = await wire.receive_exactly(first, wire.CHALLENGE_BYTES)
        greeting = wire.greeting(world.address.token, challenged, 0)
        await wire.receive_exactly(second, wire.CHALLENGE_BYTES)
        await wire.send_all(second, greeting)
        with pytest.raises(ConnectionError):
            await wire.receive_exactly(second, 1)
        wire.cut(first)
        wire.cut(second)

    LiveWorld(emulated.World(1, **KEYS), absent=(0,)).run(script)


def test_missing_clients_are_named_by_number_after_a_timeout() -> None:
    async def script(world: Any) -> None:
        await world.network.wait_for_clients(3, 0.05)

    with pytest.raises(ClusterError, match=naming("2 of 3 clients")):
        LiveWorld(emulated.World(3, **KEYS), absent=(1,)).run(script)


def test_an_address_that_cannot_be_listened_on_is_one_line() -> None:
    world = LiveWorld(emulated.World(1, **KEYS), listen_host="203.0.113.7")
    with pytest.raises(ClusterError, match=r"cannot listen on '203\.0\.113\.7'"):
        world.run(lambda world: world.ask())
