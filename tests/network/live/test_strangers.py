"""What strangers and misbehaving clients can do to a live network: get cut off, and nothing else."""

import asyncio
from typing import Any

import pytest

from testbed.errors import ClusterError, ProtocolError
from testbed.messages import RefusalNotice, encode
from testbed.network.live import wire
from testbed.network.live.wire import AnswerHeader
from tests.network import emulated
from tests.network.live.clients import Impostor, LiveWorld

KEYS: dict[str, Any] = {"latency": 0.001, "deadline_s": 0.5}


def answering(header: Any, client: int, body: bytes, /, **changes: Any) -> bytes:
    """A well-formed frame with this answer, and some fields changed."""
    frame = AnswerHeader(wire.ANSWERED, header.round_number, header.number, client, length=len(body))
    return frame._replace(**changes).pack() + body


def against(say: Any, **options: Any) -> tuple[Any, Any, bool]:
    """Client 1 is an impostor that answers with `say(header)`; returns the world, the replies, and if it was cut."""
    world = LiveWorld(emulated.World(2, **KEYS), absent=(1,), **options)

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


def test_who_stalls_in_the_middle_of_a_frame_is_late_and_cut_off() -> None:
    world, replies, cut = against(lambda header: answering(header, 1, bytes(1000))[:-400])
    assert cut
    assert replies.missing.late.tolist() == [1]
    assert world.exchanges().bytes_up[1] == 600


def test_who_speaks_without_being_asked_is_cut_off() -> None:
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
        return world.events("misbehaviour"), replies  # what happens between rounds is told in the next

    world = LiveWorld(emulated.World(3, **KEYS), absent=(2,))
    events, (replies,) = world.run(script)
    assert replies.ids.tolist() == [0, 1]
    assert [party for party, _ in events] == ["stranger"] * 4
    for (_, detail), says in zip(
        events, ["without the run's token", "connected already", "outside the population", "token"], strict=True
    ):
        assert says in detail


def test_what_one_was_challenged_with_cannot_be_used_again() -> None:
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


def test_missing_clients_are_named_by_number_when_nobody_comes() -> None:
    async def script(world: Any) -> None:
        await world.network.wait_for_clients(3, 0.05)

    with pytest.raises(ClusterError, match="2 of 3 clients have connected"):
        LiveWorld(emulated.World(3, **KEYS), absent=(1,)).run(script)


def test_an_address_that_cannot_be_listened_on_is_one_line() -> None:
    world = LiveWorld(emulated.World(1, **KEYS), listen_host="203.0.113.7")
    with pytest.raises(ClusterError, match=r"cannot listen on '203\.0\.113\.7'"):
        world.run(lambda world: world.ask())
