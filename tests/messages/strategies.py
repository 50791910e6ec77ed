"""Valid messages of any type."""

import functools
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from testbed.messages import Message, Vector


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
        case msgspec.inspect.MemoryViewType():
            shortest = kind.min_length or 0
            return st.binary(min_size=shortest, max_size=shortest + 20).map(memoryview)
        case msgspec.inspect.ListType():
            return st.lists(_valid(kind.item_type), min_size=kind.min_length or 0, max_size=3)
        case msgspec.inspect.UnionType():
            return st.one_of([_valid(one) for one in kind.types])
        case msgspec.inspect.StructType():
            return st.builds(kind.cls, *[_valid(field.type) for field in kind.fields])
        case msgspec.inspect.CustomType() if kind.cls is Vector:
            return vectors()
    raise NotImplementedError(f"no strategy for {kind}: add one, so that messages with it are tested too")


@functools.cache
def messages_of(kind: type[Message]) -> st.SearchStrategy[Any]:
    """Strategy for valid messages of a type."""
    return _valid(msgspec.inspect.type_info(kind))
