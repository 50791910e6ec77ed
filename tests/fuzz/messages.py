"""Fuzz both decoders with almost valid messages: the only outcomes are a message or `ProtocolError`.

    python -m tests.fuzz.messages --count 120000 --seed 7

For each of `count` cases a valid message of some type is encoded and changed at random: flipped bits, removed or
inserted bytes, huge lengths, nested arrays; one in ten is random from the start. All types take turns. The same seed
gives the same cases.
"""

import argparse
import importlib
import pkgutil
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

import testbed
from testbed import messages
from testbed.errors import ProtocolError
from testbed.messages import Message, Vector
from testbed.vectors.integers import INTEGERS, IntegerVector

MEMORY_BYTES = 6 << 30  # decoders that ask for more bytes fail
_MARKERS = bytes.fromhex("00ff7f80c0c1c6c9dddfdbd49f90")  # of MessagePack: nil, never used, arrays, maps, bytes
_BOMBS = (
    b"\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1 elements
    b"\xc9\x7f\xff\xff\xff\x01",  # an extension of 2 GiB
    b"\x91" * 300,  # arrays in arrays
    b"\xc7\x05\x01\x40\xff\xff\xff\xff",  # a vector of 2^32 - 1 elements, without them
)
_FLOATS = (0.0, -1.5, 1e308, float("nan"), float("inf"))
_TEXTS = ("", "x" * 50, "\x1b[31m", "é")

Decoder = Callable[[type[Message], bytes, tuple[Vector, ...]], object]


@dataclass
class Report:
    """Outcomes of the cases.

    Attributes:
        decoded: number of messages.
        refused: number of `ProtocolError`.
        untyped: (error, decoder) of all other errors, with an example: the type and the bytes.
    """

    decoded: int = 0
    refused: int = 0
    untyped: dict[tuple[str, str], str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)


def _whole(kind: type[Message], data: bytes, vectors: tuple[Vector, ...]) -> object:
    """Decode as from the wire, and check that the message can be encoded again."""
    return messages.encode(messages.decode(kind, data))


DECODERS: dict[str, Decoder] = {"decode": _whole, "attach": messages.attach}


def message_kinds() -> list[type[Message]]:
    """Return all types of messages of the testbed, by name."""
    for module in pkgutil.walk_packages(testbed.__path__, "testbed."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {kind for kind in _subclasses(Message) if kind.__module__.startswith("testbed.")}
    return sorted(ours, key=lambda kind: (kind.__module__, kind.__name__))


def _subclasses(kind: type[Message]) -> Iterator[type[Message]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def valid(kind: Any, rng: random.Random) -> Any:
    """Return a value of a type described by `msgspec.inspect`: the smallest, the largest, or one between."""
    match kind:
        case msgspec.inspect.IntType():
            least, most = kind.ge or 0, 2**40 if kind.le is None else kind.le
            return rng.choice([least, most, rng.randint(least, min(most, least + 100))])
        case msgspec.inspect.FloatType():
            return rng.choice(_FLOATS)
        case msgspec.inspect.BoolType():
            return rng.random() < 0.5
        case msgspec.inspect.NoneType():
            return None
        case msgspec.inspect.StrType():
            return rng.choice(_TEXTS)
        case msgspec.inspect.BytesType() | msgspec.inspect.MemoryViewType():
            least = kind.min_length or 0
            return rng.randbytes(rng.randint(least, least + 10 if kind.max_length is None else kind.max_length))
        case msgspec.inspect.ListType():
            return [valid(kind.item_type, rng) for _ in range(rng.randint(kind.min_length or 0, 3))]
        case msgspec.inspect.UnionType():
            return valid(rng.choice(kind.types), rng)
        case msgspec.inspect.StructType():
            return kind.cls(*(valid(one.type, rng) for one in kind.fields))
        case msgspec.inspect.CustomType() if kind.cls is Vector:
            return _vector(rng)
    raise NotImplementedError(f"no values for {kind}: add them, so that messages with it are tried too")


def _vector(rng: random.Random) -> Vector:
    bits, length = rng.choice([0, 1, 7, 8, 13, 16, 32, 33, 64, INTEGERS]), rng.randint(0, 20)
    if bits == 0:
        return Vector(np.zeros(length, np.float32), 0)
    elements = np.frombuffer(rng.randbytes(8 * length), np.uint64)
    if bits == INTEGERS:
        return IntegerVector(elements.astype(np.uint32))
    return Vector(elements & np.uint64((1 << bits) - 1), bits)


def changed(data: bytes, rng: random.Random) -> bytes:
    """Return `data` with one to eight changes."""
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(6):
            case 0 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(made):
                made[at] = rng.choice(_MARKERS)
            case 2:
                del made[at : at + rng.randint(1, 9)]
            case 3:
                made[at:at] = rng.randbytes(rng.randint(1, 9))
            case 4:
                made[at : at + 4] = b"\xff\xff\xff\xff"
            case _:
                made[at:at] = rng.choice(_BOMBS)
    return bytes(made)


def fuzz(count: int, seed: int, decoders: dict[str, Decoder] | None = None) -> Report:
    """Try `count` cases on each decoder."""
    rng = random.Random(seed)  # noqa: S311 - cases are no secrets
    report, kinds = Report(), message_kinds()
    described = [msgspec.inspect.type_info(kind) for kind in kinds]
    for case in range(count):
        kind = kinds[case % len(kinds)]
        report.kinds[kind.__name__] += 1
        message = valid(described[case % len(kinds)], rng)
        detached = messages.detach(message)
        whole, header = messages.encode(message), detached.header
        assert len(whole) == detached.size
        if case % 10 == 9:
            whole = header = rng.randbytes(rng.randint(0, 80))
        else:
            whole, header = changed(whole, rng), changed(header, rng)
        vectors = detached.vectors or (Vector(np.zeros(3, np.float32), 0),)
        for name, decoder in (decoders or DECODERS).items():
            data = whole if name == "decode" else header
            try:
                decoder(kind, data, vectors)
                report.decoded += 1
            except ProtocolError:
                report.refused += 1
            except Exception as error:
                said = f"{type(error).__name__}: {error}"[:120]
                report.untyped.setdefault((said, name), f"{kind.__name__} {data.hex()[:200]}")
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    report = fuzz(given.count, given.seed)
    print(f"{given.count} cases, {len(report.kinds)} types: {report.decoded} decoded, {report.refused} refused")
    for (error, name), example in report.untyped.items():
        print(f"{name}: {error}: {example}")
    raise SystemExit(bool(report.untyped))


if __name__ == "__main__":
    main()
