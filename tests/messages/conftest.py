"""Every message type of the testbed, and valid messages of any of them."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

import testbed
from testbed.messages import Message, Vector


def _subclasses(kind: type[Message]) -> Iterator[type[Message]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


@pytest.fixture(scope="session")
def kinds() -> list[type[Message]]:
    """All message types defined anywhere in `testbed`, in the order of their names."""
    for module in pkgutil.walk_packages(testbed.__path__, "testbed."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {kind for kind in _subclasses(Message) if kind.__module__.startswith("testbed.")}
    assert all(getattr(sys.modules[kind.__module__], kind.__name__) is kind for kind in ours)
    return sorted(ours, key=lambda kind: (kind.__module__, kind.__name__))


def _lane(bits: int) -> Any:
    return next(lane for lane in (np.uint8, np.uint16, np.uint32, np.uint64) if 8 * lane(0).itemsize >= bits)


@st.composite
def vectors(draw: st.DrawFn) -> Vector:
    bits = draw(st.integers(0, 64))
    if bits == 0:
        floats = draw(st.lists(st.floats(width=32), max_size=12))  # NaN and infinities included
        return Vector(np.array(floats, np.float32), 0)
    elements = draw(st.lists(st.integers(0, 2**bits - 1), max_size=12))
    return Vector(np.array(elements, np.uint64).astype(_lane(bits)), bits)


def _valid(kind: Any) -> st.SearchStrategy[Any]:
    """Valid values of a type as `msgspec.inspect` describes it."""
    match kind:
        case msgspec.inspect.IntType():
            return st.integers(-(2**63) if kind.ge is None else kind.ge, 2**63 if kind.le is None else kind.le)
        case msgspec.inspect.FloatType():
            return st.floats()
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.StrType():
            return st.text(max_size=min(kind.max_length or 30, 30))
        case msgspec.inspect.BytesType():
            shortest = kind.min_length or 0
            longest = shortest + 20 if kind.max_length is None else min(kind.max_length, shortest + 20)
            return st.binary(min_size=shortest, max_size=longest)
        case msgspec.inspect.ListType():
            return st.lists(_valid(kind.item_type), min_size=kind.min_length or 0, max_size=3)
        case msgspec.inspect.UnionType():
            return st.one_of([_valid(one) for one in kind.types])
        case msgspec.inspect.StructType():
            return st.builds(kind.cls, *[_valid(field.type) for field in kind.fields])
        case msgspec.inspect.CustomType() if kind.cls is Vector:
            return vectors()
    raise NotImplementedError(f"no strategy for {kind}: add one, so that messages with it are tested too")


@pytest.fixture(scope="session")
def messages_of() -> Callable[[type[Message]], st.SearchStrategy[Any]]:
    """Strategy for valid messages of a type."""
    made: dict[type[Message], st.SearchStrategy[Any]] = {}

    def of(kind: type[Message]) -> st.SearchStrategy[Any]:
        if kind not in made:
            made[kind] = _valid(msgspec.inspect.type_info(kind))
        return made[kind]

    return of


@pytest.fixture(scope="session")
def any_vector() -> st.SearchStrategy[Vector]:
    """Strategy for vectors of every width, float32 included."""
    return vectors()
