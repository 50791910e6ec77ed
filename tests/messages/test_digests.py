"""Digests of messages: equal for two parties if one received the bytes that the other sent."""

import hashlib
from typing import Any

import msgspec
import numpy as np
import pytest

from testbed.messages import Message, RemoteVector, Vector, attach, content_digest, decode, detach, encode
from testbed.training import Train


def train(round_number: int = 3, values: Any = (1.5, -0.0, 2.25)) -> Train:
    return Train(round_number, Vector(np.array(values, np.float32), 0))


class Other(Train, frozen=True):
    """The same fields under another name."""


class WithSteps(Train, frozen=True):
    """A later version, which says more."""

    steps: int = 1


def test_it_is_that_of_the_content_as_written_down() -> None:
    """Made once more, from the page in docs: a second implementation must come to the same bytes."""
    vector = hashlib.sha256(b"\x00" + (3).to_bytes(4, "big") + np.array([1.5, -0.0, 2.25], "<f4").tobytes()).digest()
    placeholder = msgspec.msgpack.Ext(2, b"\x00" + (3).to_bytes(4, "big") + (0).to_bytes(4, "big"))
    header = msgspec.msgpack.encode([3, placeholder])
    content = msgspec.msgpack.encode(["train Train", header, [vector]])
    assert content_digest(train()) == hashlib.sha256(b"testbed/message-content/v1" + content).digest()


def test_who_receives_it_has_the_same() -> None:
    sent = train()
    detached = detach(sent)
    copied = [Vector(vector.values.copy(), vector.bits) for vector in detached.vectors]
    for received in (decode(Train, encode(sent)), attach(Train, detached.header, copied)):
        assert content_digest(received) == content_digest(sent)


@pytest.mark.parametrize(
    "other",
    [
        train(round_number=4), train(values=(1.5, 0.0, 2.25)), train(values=(1.5, -0.0)),
        train(values=(1.5, -0.0, np.nextafter(np.float32(2.25), np.float32(3)))), Other(3, train().model),
        WithSteps(3, train().model), WithSteps(3, train().model, 2),
    ],
)  # fmt: skip
def test_anything_else_has_another(other: Message) -> None:
    assert content_digest(other) != content_digest(train())
    assert content_digest(WithSteps(3, train().model, 2)) != content_digest(WithSteps(3, train().model, 1))


def test_rings_of_other_widths_have_other_digests() -> None:
    elements = np.array([1, 2, 255], np.uint16)
    digests = {Vector(elements, bits).digest() for bits in (8, 9, 12, 16)}
    assert len(digests) == 4
    assert Vector(elements.astype(np.uint64), 12).digest() in digests


def test_it_is_remembered_and_the_same_when_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    vector, packed = train().model, []
    pack = Vector._packed
    monkeypatch.setattr(Vector, "_packed", lambda self: packed.append(self) or pack(self))
    assert vector.digest() == vector.digest() == vector.digest(anew=True) == train().model.digest()
    assert len(packed) == 3
    empty = Vector(np.zeros(0, np.float32), 0)
    assert empty.digest() == hashlib.sha256(bytes(5)).digest()
    assert not hasattr(RemoteVector(3, 0), "_digest")
