"""A reader of pickles of plain data that executes nothing.

`pickle.load` runs any code that the author of a file chose. `PlainUnpickler` is the standard library's unpickler with
two allow-lists: the opcodes of dicts, lists, tuples, strings, bytes, numbers, booleans and None, and the names that a
pickle may import (`allowed`; by default none). Anything else ends the reading with a message that names it. numpy's
scalars are refused, too: a pickle writes them as an import and a call.

The unpickler is the one written in Python (`pickle._Unpickler`), because the one in C cannot be restricted: it reserves
memory for any memo position that a file names, and it hashes the keys of dicts unchecked. Whole numbers as keys become
text, their digits; other keys are strings, bytes and None.

Values may share parts, or contain themselves: callers must follow them to a fixed depth only.
"""

import io
import pickle
import pickletools
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.emulation.traces.text_files import reading
from testbed.errors import TraceError
from testbed.files import limits

_MOST_CONTAINERS = 5_000_000
_MOST_MEMORISED = 5_000_000
_DEEPEST = 1000  # nested marks; pickles of real data have about ten
_SHOWN = 80
LIBRARY: Mapping[int, Callable[[Any], None]] = pickle._Unpickler.dispatch
_KEYS = (str, bytes, int, type(None))
# Opcodes by their bytes (`pickletools`). Those that call or build objects (R, b, o, \x81, \x92) are in no list.
_ATOMS = b"NIJKMLGFSTUVXBC.02\x80\x88\x89\x8a\x8b\x8c\x8d\x8e\x95"
_MEMO = b"pqrghj\x94"
_CONTAINERS = b"]lt\x85\x86\x87"
_FILLING = b")ae1"
# These ask `find_class`, which refuses every name but the allowed ones (`i` then calls the stand-in).
_IMPORTS = b"ci\x93"
_REFUSED = {
    "PERSID": "a persistent object",
    "BINPERSID": "a persistent object",
    "EXT1": "a registered extension",
    "EXT2": "a registered extension",
    "EXT4": "a registered extension",
    "NEXT_BUFFER": "a buffer outside the file",
    "READONLY_BUFFER": "a buffer outside the file",
    "EMPTY_SET": "a set",
    "ADDITEMS": "a set",
    "FROZENSET": "a set",
    "BYTEARRAY8": "a bytearray",
}
# The errors of `pickle._Unpickler` on a damaged pickle.
_DAMAGE = (
    pickle.UnpicklingError,
    struct.error,
    AttributeError,
    EOFError,
    LookupError,
    OverflowError,
    TypeError,
    ValueError,
)


class UnreadablePickle(Exception):
    """The reason for an unreadable pickle, as the end of a message."""


def read_plain_pickle(path: Path) -> Any:
    """Read the plain data in a pickle of protocol 0 to 5; nothing in the file is executed.

    Whole numbers as keys of dicts become text, their digits.

    Raises:
        TraceError: the file cannot be read, is too large, is not a pickle or truncated, or holds anything but plain
            data, which the message names.
    """
    with reading(path, "a pickle was expected"):
        data = limits.whole(path, limits.PICKLE_BYTES)
    if not data:
        raise TraceError(f"{path}: empty; a pickle was expected")
    try:
        return PlainUnpickler(data).load()
    except UnreadablePickle as why:
        raise TraceError(f"{path}: {why}") from None


class Opcodes(dict[int, Callable[[Any], None]]):
    """The functions of the allowed opcodes; all others are refused."""

    def __missing__(self, code: int) -> Callable[[Any], None]:
        opcode = pickletools.code2op.get(chr(code))  # type: ignore[attr-defined]  # not in the stubs
        if opcode is None:
            raise UnreadablePickle("not a pickle, or damaged")
        raise _refusal(f"{_REFUSED.get(opcode.name, 'a call')} ({opcode.name})")


class _Memo(dict[int, Any]):
    """The memorised values by position; positions are bounded, because a file may name any."""

    def __setitem__(self, place: int, value: Any) -> None:
        if not 0 <= place < _MOST_MEMORISED:
            raise UnreadablePickle(f"more than {_MOST_MEMORISED} memorised values; split it")
        super().__setitem__(place, value)


def _counted(load: Callable[[Any], None]) -> Callable[[Any], None]:
    def load_counted(reader: "PlainUnpickler") -> None:
        reader.count_container()
        load(reader)

    return load_counted


class PlainUnpickler(pickle._Unpickler):
    """The standard library's unpickler, with allow-lists of opcodes and of names.

    Args:
        data: the pickle.
        allowed: ``module.name`` of imports that a pickle may ask for, with the stand-in for each.
    """

    stack: list[Any]  # this and the next three are not in the stubs
    metastack: list[list[Any]]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    dispatch = Opcodes({code: LIBRARY[code] for code in _ATOMS + _MEMO + _FILLING + _IMPORTS})

    def __init__(self, data: bytes, allowed: Mapping[str, Any] | None = None) -> None:
        super().__init__(io.BytesIO(data), encoding="latin-1")  # of Python 2's strings
        self.memo = _Memo()
        self._allowed = allowed or {}
        self._containers = 0

    def load(self) -> Any:
        """Return the value of the pickle; raise `UnreadablePickle` if there is none."""
        try:
            value = super().load()
        except _DAMAGE:
            raise UnreadablePickle("not a pickle, truncated or damaged") from None
        # The library ignores values below the last one.
        if self.stack or self.metastack:
            raise UnreadablePickle("a damaged pickle: it does not end with one value")
        return value

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for an import; raise `UnreadablePickle` unless it is allowed."""
        import_name = f"{module}.{name}"
        if import_name not in self._allowed:
            raise _refusal("".join(sign if sign.isprintable() else "?" for sign in import_name[:_SHOWN]))
        return self._allowed[import_name]

    def count_container(self) -> None:
        """Count one more dict, list or tuple; a byte of the file may be one."""
        self._containers += 1
        if self._containers > _MOST_CONTAINERS:
            raise UnreadablePickle(f"more than {_MOST_CONTAINERS} dicts, lists and tuples; split it")

    def load_mark(self) -> None:
        """Begin the elements of a container."""
        # Before the library's method: each mark is a byte of the file and a list in memory.
        if len(self.metastack) > _DEEPEST:
            raise UnreadablePickle(f"values nested deeper than {_DEEPEST}")
        LIBRARY[pickle.MARK[0]](self)

    def load_empty_dictionary(self) -> None:
        """Push an empty dict."""
        self.count_container()
        self.append({})

    def load_dict(self) -> None:
        """Push a dict of all above the last mark."""
        items = self.pop_mark()
        self.load_empty_dictionary()
        self._fill(items)

    def load_setitem(self) -> None:
        """Put one pair into the dict below it."""
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def load_setitems(self) -> None:
        """Put all pairs above the last mark into the dict below it."""
        self._fill(self.pop_mark())

    dispatch |= {code: _counted(LIBRARY[code]) for code in _CONTAINERS}
    dispatch |= {
        pickle.MARK[0]: load_mark,
        pickle.EMPTY_DICT[0]: load_empty_dictionary,
        pickle.DICT[0]: load_dict,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
    }

    def _fill(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise UnreadablePickle("a damaged pickle: items without a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # No tuples: a tuple that holds another one twice, 100 levels deep, takes 2**100 steps to hash.
            if type(key) not in _KEYS:
                problem = f"a {type(key).__name__} as the key of a dict"
                raise UnreadablePickle(f"{problem}; keys are strings, bytes and whole numbers")
            if type(key) is int and not -(2**63) <= key < 2**64:
                raise UnreadablePickle("a number of more than 64 bits as the key of a dict")
            # Hashes of text are keyed per process; numbers can be chosen such that n keys collide, and take n**2 steps.
            name = str(key) if type(key) is int else key
            if name in target:
                raise UnreadablePickle("two keys of one dict are the same, or a number and its digits")
            target[name] = value


def _refusal(request: str) -> UnreadablePickle:
    return UnreadablePickle(
        f"the pickle asks for {request}; only dicts, lists, tuples, strings, bytes and numbers are read, and nothing "
        "is executed; save it again with plain values"
    )
