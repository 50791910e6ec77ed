"""The two fuzzers with a fixed seed and number of cases; `make fuzz` runs more.

Each fuzzer must also find a seeded defect: otherwise a run without findings would prove nothing.
"""

from typing import Any

import pytest

from testbed import messages
from testbed.aggregation.plain import PlainClient
from testbed.messages import Message, Vector
from tests.fuzz import messages as of_messages
from tests.fuzz import rounds as of_rounds


def test_almost_messages_decode_or_are_refused() -> None:
    report = of_messages.fuzz(40_000, seed=7)
    assert report.untyped == {}
    assert set(report.kinds) == {kind.__name__ for kind in of_messages.message_kinds()}
    assert report.decoded > 5_000  # so that changes are not always refused at once
    assert report.refused > 5_000


def test_an_untyped_error_of_a_decoder_is_found() -> None:
    def careless(kind: type[Message], data: bytes, vectors: tuple[Vector, ...]) -> object:
        if data[:1] == b"\x91":
            raise KeyError("stage")
        return messages.decode(kind, data)

    report = of_messages.fuzz(2_000, seed=7, decoders={"decode": careless})
    assert set(report.untyped) == {("KeyError: 'stage'", "decode")}


def test_the_same_seed_gives_the_same_cases() -> None:
    assert of_messages.fuzz(1_000, seed=3) == of_messages.fuzz(1_000, seed=3)


def test_rounds_with_a_dishonest_message_end_in_typed_errors_only() -> None:
    report = of_rounds.fuzz(90, seed=1)
    assert report.untyped == {}
    assert len(report.changes) > 30
    assert report.states["completed"] > 50
    assert report.states["aborted"] > 10


def test_an_untyped_error_of_a_handler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = PlainClient.on_send_update

    def careless(self: PlainClient, message: Any) -> Any:
        if message.round > of_rounds.ROUNDS:
            raise AttributeError("no such round")
        return honest(self, message)

    monkeypatch.setattr(PlainClient, "on_send_update", careless)
    plain = [mix for mix in of_rounds.MIXES if mix[1]["protocol"] == "plain"]
    report = of_rounds.fuzz(30, seed=1, mixes=plain)
    assert any("AttributeError" in line for line in report.untyped)
