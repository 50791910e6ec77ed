"""Reads pickles of plain data, and cannot do anything else.

`pickle.load` runs whatever the file's author wants. This module does not restrict it, but replaces it: a reader of the
pickle format (Python's `Lib/pickletools.py` describes it) that knows dicts, lists, tuples, strings, bytes, numbers,
booleans and None, and has no code for anything else. An opcode that would look something up, import it or call it
(GLOBAL, STACK_GLOBAL, INST, EXT1, REDUCE, OBJ, NEWOBJ, BUILD, PERSID, ...) ends the reading with a message that names
what was asked for. That holds for numpy's scalars too: what they are is in an import and a call.

What a small file can do to memory or time is bounded too: the size of the file, the number of containers and of
memorised values are limited, and every opcode takes time in proportion to the bytes or the values that it uses up. For
dicts, that takes keys whose hashes nobody can choose. Python's hash of a number is no secret: integers that are equal
modulo 2**61 - 1 have the same, and even among those of 64 bits enough can be chosen that each walks past all before
it, so that n keys take n**2 steps. Hashes of text are keyed with a random number of the process (unless PYTHONHASHSEED
says otherwise). So a whole number that is a key becomes text, its digits, must have 64 bits at most, and does not stand
beside keys that are text; other keys are strings, bytes and None. (Tuples could be hashed: one that holds another one
twice, and so on 100 times, takes 2**100 steps.) Values may share parts, or contain themselves: whoever follows them
must look where it goes, to a fixed depth.
"""

import codecs
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import TraceError
from testbed.files import limits

_MOST_CONTAINERS = 5_000_000
_MOST_REMEMBERED = 5_000_000
_PROTOCOL = 5
_SHOWN = 80
_KEYS = {str, bytes, int, type(None)}

_MARK = object()
_SIMPLE = {b"N": None, b"\x88": True, b"\x89": False}
_NUMBERS = {b"J": "<i", b"K": "<B", b"M": "<H", b"G": ">d"}
_SIZED = {  # opcode: (format of the length, what the bytes are)
    b"T": ("<i", "latin-1"),
    b"U": ("<B", "latin-1"),
    b"X": ("<I", "utf-8"),
    b"\x8c": ("<B", "utf-8"),
    b"\x8d": ("<Q", "utf-8"),
    b"B": ("<I", ""),
    b"C": ("<B", ""),
    b"\x8e": ("<Q", ""),
    b"\x96": ("<Q", ""),
    b"\x8a": ("<B", "int"),
    b"\x8b": ("<i", "int"),
}
_LINES = b"IFLSV"
_IMPORTS = {b"c": "GLOBAL", b"i": "INST"}


class Unreadable(Exception):
    """Why a pickle cannot be read, as the end of a message."""


def read_plain_pickle(path: Path) -> Any:
    """The plain data in a pickle of protocol 0 to 5; nothing in the file is executed.

    Keys of dicts that are whole numbers are text, their digits.

    Raises:
        TraceError: the file cannot be read, is too large, is no pickle or truncated, or holds anything but plain
            data; then the message names it.
    """
    try:
        data = limits.whole(path, limits.PICKLE_BYTES)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except limits.TooLarge as why:
        raise TraceError(f"{path}: {why}; split it") from None
    if not data:
        raise TraceError(f"{path}: empty; a pickle was expected")
    try:
        return PlainReader(data).value()
    except Unreadable as why:
        raise TraceError(f"{path}: {why}") from None


class PlainReader:
    """A stack, a memo, and one method per group of opcodes.

    Args:
        data: the pickle.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._stack: list[Any] = []
        self._memo: list[Any] = []  # by number, not hashed
        self._remembered = 0
        self._by_number: set[int] = set()  # the ids of dicts whose keys are numbers
        self._containers = 0
        self._opcode = b""
        self._plain: dict[bytes, Callable[[], None]] = {
            b"(": lambda: self._stack.append(_MARK),
            b"}": lambda: self._container({}),
            b"]": lambda: self._container([]),
            b")": lambda: self._stack.append(()),
            b"d": lambda: self._container(self._filled({}, self._to_mark())),
            b"l": lambda: self._container(self._to_mark()),
            b"t": lambda: self._container(tuple(self._to_mark())),
            b"\x85": lambda: self._tuple(1),
            b"\x86": lambda: self._tuple(2),
            b"\x87": lambda: self._tuple(3),
            b"s": self._set_item,
            b"u": self._set_items,
            b"a": self._append,
            b"e": self._appends,
            b"0": lambda: void(self._pop_any()),
            b"1": lambda: void(self._to_mark()),
            b"2": lambda: self._stack.append(self._top()),
            b"\x94": lambda: self._remember(self._remembered),
            b"q": lambda: self._remember(self._number("<B")),
            b"r": lambda: self._remember(self._number("<I")),
            b"p": lambda: self._remember(self._decimal()),
            b"h": lambda: self._recall(self._number("<B")),
            b"j": lambda: self._recall(self._number("<I")),
            b"g": lambda: self._recall(self._decimal()),
            b"\x80": self._check_protocol,
            b"\x95": lambda: void(self._number("<Q")),  # a frame says how much follows; nothing here reads ahead
        }

    def value(self) -> Any:
        """What the pickle holds; raises `Unreadable`."""
        while (opcode := self._bytes(1)) != b".":
            self._opcode = opcode
            if opcode in _SIMPLE:
                self._stack.append(_SIMPLE[opcode])
            elif opcode in _NUMBERS:
                self._stack.append(self._number(_NUMBERS[opcode]))
            elif opcode in _SIZED:
                self._stack.append(self._sized(*_SIZED[opcode]))
            elif opcode in self._plain:
                self._plain[opcode]()
            elif opcode in _LINES:
                self._stack.append(self._line_value(opcode))
            else:
                raise self._refused(opcode)
        if len(self._stack) != 1:
            raise Unreadable("a damaged pickle: it does not end with one value")
        return self._top()

    # -- reading bytes ------------------------------------------------------------------------------------------

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise Unreadable("not a pickle, or truncated")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise Unreadable("not a pickle, or truncated")
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    def _number(self, layout: str) -> Any:
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0]

    def _decimal(self) -> int:
        try:
            return int(self._line())
        except ValueError:
            raise Unreadable("a damaged pickle: a number of the memo that is none") from None

    def _sized(self, layout: str, kind: str) -> Any:
        piece = self._bytes(self._number(layout))
        if kind == "int":
            return int.from_bytes(piece, "little", signed=True)
        try:
            return piece.decode(kind) if kind else piece
        except UnicodeDecodeError:
            raise Unreadable("a damaged pickle: a string that is not text") from None

    def _line_value(self, opcode: bytes) -> Any:
        """The values of protocol 0, which is text."""
        line = self._line()
        try:
            if opcode == b"I":
                return {b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line)
            if opcode == b"L":
                return int(line.removesuffix(b"L"))
            if opcode == b"F":
                return float(line)
            if opcode == b"V":
                return line.decode("raw-unicode-escape")
            if len(line) < 2 or line[:1] not in (b"'", b'"') or line[:1] != line[-1:]:
                raise ValueError
            return codecs.escape_decode(line[1:-1])[0].decode("latin-1")
        except (ValueError, UnicodeDecodeError):
            raise Unreadable("a damaged pickle: a value that does not parse") from None

    def _check_protocol(self) -> None:
        if (protocol := self._number("<B")) > _PROTOCOL:
            raise Unreadable(f"a pickle of protocol {protocol}; protocols 0 to {_PROTOCOL} can be read")

    # -- building values ----------------------------------------------------------------------------------------

    def _pop_any(self) -> Any:
        if not self._stack:
            raise Unreadable("a damaged pickle: a value is missing")
        return self._stack.pop()

    def _pop(self) -> Any:
        self._top()
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise Unreadable("a damaged pickle: a value is missing")
        return self._stack[-1]

    def _to_mark(self) -> list[Any]:
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is _MARK:
                values = self._stack[place + 1 :]
                del self._stack[place:]
                return values
        raise Unreadable("a damaged pickle: a mark is missing")

    def _container(self, value: Any) -> None:
        self._containers += 1
        if self._containers > _MOST_CONTAINERS:
            raise Unreadable(f"more than {_MOST_CONTAINERS} dicts, lists and tuples; split it")
        self._stack.append(value)

    def _tuple(self, size: int) -> None:
        values = [self._pop() for _ in range(size)]
        self._container(tuple(reversed(values)))

    def _filled(self, target: Any, flat: list[Any]) -> Any:
        if not isinstance(target, dict) or len(flat) % 2:
            raise Unreadable("a damaged pickle: items without a dict")
        keys = flat[::2]
        self._check_keys(target, keys)
        target.update(zip(map(_as_key, keys), flat[1::2], strict=True))
        return target

    def _check_keys(self, target: dict[Any, Any], keys: list[Any]) -> None:
        """Raise `Unreadable` unless the dict `target` may get these keys."""
        kinds = set(map(type, keys))
        if others := kinds - _KEYS:
            what = next(kind.__name__ for kind in map(type, keys) if kind in others)
            raise Unreadable(f"a {what} as the key of a dict; keys are strings, bytes and whole numbers")
        if not target:
            self._by_number.discard(id(target))  # of a dict that was there before it
        before = id(target) in self._by_number
        if (int in kinds and (kinds != {int} or (target and not before))) or (before and str in kinds):
            raise Unreadable("numbers and others as the keys of one dict")
        if int in kinds:
            self._by_number.add(id(target))
            if not all(-(2**63) <= key < 2**64 for key in keys):
                raise Unreadable("a number of more than 64 bits as the key of a dict")

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._filled(self._top(), [key, value])

    def _set_items(self) -> None:
        flat = self._to_mark()
        self._filled(self._top(), flat)

    def _append(self) -> None:
        self._extended([self._pop()])

    def _appends(self) -> None:
        self._extended(self._to_mark())

    def _extended(self, values: list[Any]) -> None:
        if not isinstance(self._top(), list):
            raise Unreadable("a damaged pickle: elements without a list")
        self._top().extend(values)

    def _remember(self, place: int) -> None:
        value = self._top()
        if not 0 <= place < _MOST_REMEMBERED:
            raise Unreadable(f"more than {_MOST_REMEMBERED} memorised values; split it")
        if place >= len(self._memo):
            self._memo.extend([_MARK] * (place + 1 - len(self._memo)))
        self._remembered += self._memo[place] is _MARK
        self._memo[place] = value

    def _recall(self, place: int) -> None:
        if not 0 <= place < len(self._memo) or self._memo[place] is _MARK:
            raise Unreadable("a damaged pickle: it recalls a value that it has not memorised")
        self._stack.append(self._memo[place])

    # -- refusing -----------------------------------------------------------------------------------------------

    def _refused(self, opcode: bytes) -> Unreadable:
        known = pickletools.code2op.get(opcode.decode("latin-1"))  # type: ignore[attr-defined]  # not in the stubs
        if known is None:
            return Unreadable("not a pickle, or damaged")
        what = self._asked_for(opcode)
        return Unreadable(
            f"the pickle asks for {what} ({known.name}); only dicts, lists, tuples, strings, bytes and numbers are "
            "read, and nothing is executed; save it again with plain values"
        )

    def _asked_for(self, opcode: bytes) -> str:
        if opcode in _IMPORTS:
            return _named(self._line(), self._line())
        if opcode == b"\x93":  # module and name are on the stack
            name, module = self._pop_any(), self._pop_any()
            return _named(module, name)
        if opcode in b"\x82\x83\x84":
            number = self._number({b"\x82": "<B", b"\x83": "<H", b"\x84": "<i"}[opcode])
            return f"the registered extension {number}"
        if opcode == b"P":
            return f"the persistent object {_named(self._line())}"
        return {
            b"Q": "a persistent object",
            b"\x97": "a buffer outside the file",
            b"\x98": "a buffer outside the file",
            b"\x8f": "a set",
            b"\x90": "a set",
            b"\x91": "a set",
        }.get(opcode, "a call")


def _as_key(key: Any) -> Any:
    return str(key) if type(key) is int else key


def _named(*parts: Any) -> str:
    """``module.name``, printable and not too long, whatever it is."""
    words = [part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in parts]
    if not all(isinstance(word, str) for word in words):
        return "an import"
    text = ".".join(words)
    return "".join(sign if sign.isprintable() else "?" for sign in text[:_SHOWN])


def void(_: Any) -> None:
    """Drop a value."""
