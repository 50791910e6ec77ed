"""Reads the pickles of CIFAR's python version, and cannot do anything else.

A batch is a dict with ``data``, an array of (n, 3072) bytes, and ``labels`` (CIFAR-100: ``fine_labels``), a list. An
array in a pickle is a call of numpy's; here nothing is looked up, imported or called. The reader of plain pickles
(`testbed.emulation.traces.conversion.plain_pickle`) learns four names and three opcodes: ``numpy.dtype``,
``numpy.ndarray``,
``_reconstruct`` and, for bytes as Python 3 writes them in old protocols, ``_codecs.encode`` become notes of what was
asked for, and of these only an array of bytes in C order is made. Anything else ends the reading, as it does there.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.emulation.traces.conversion.plain_pickle import PlainReader, Unreadable

__all__ = ["Unreadable", "batch"]

_PIXELS = 3 * 32 * 32
_BYTE = ("u1", "|u1")


@dataclass(frozen=True)
class _Name:
    """What a pickle asked to import."""

    text: str


@dataclass
class _Array:
    """An array that is announced, and what is in it when that has been read."""

    values: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class _Type:
    """The type of an array's elements, as numpy names it."""

    name: Any


_KNOWN = {
    f"{module}.{name}": _Name(name)
    for module, name in (
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("_codecs", "encode"),
    )
}


class _BatchReader(PlainReader):
    """The reader of plain pickles, with arrays of bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._octets_left = 2 * len(data)  # text that is recalled again and again must not become bytes each time
        self._plain |= {b"c": self._global, b"\x93": self._stack_global, b"R": self._reduce, b"b": self._build}

    def _global(self) -> None:
        start = self._at
        name = b".".join([self._line(), self._line()]).decode("latin-1")
        if name not in _KNOWN:
            self._at = start
            raise self._refused(b"c")
        self._stack.append(_KNOWN[name])

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        known = _KNOWN.get(f"{module}.{name}") if isinstance(module, str) and isinstance(name, str) else None
        if known is None:
            self._stack += [module, name]
            raise self._refused(b"\x93")
        self._stack.append(known)

    def _reduce(self) -> None:
        """A call: of `_reconstruct` for an array, of ``dtype`` for its type, of ``encode`` for bytes in text."""
        arguments, name = self._pop(), self._pop()
        called = name.text if isinstance(name, _Name) else ""
        if not isinstance(arguments, tuple):
            raise Unreadable("a damaged pickle: a call without arguments")
        if called == "_reconstruct" and arguments[:1] == (_Name("ndarray"),):
            self._stack.append(_Array())
        elif called == "dtype" and arguments:
            self._stack.append(_Type(arguments[0]))
        elif called == "encode" and len(arguments) == 2 and isinstance(arguments[0], str) and arguments[1] == "latin1":
            self._stack.append(self._octets(arguments[0]))
        else:
            raise Unreadable("the pickle calls something else than CIFAR's do; nothing is executed")

    def _build(self) -> None:
        """The state of an array or of its type."""
        state, target = self._pop(), self._top()
        if isinstance(target, _Type):
            return  # order of bytes, which a byte has not
        if not isinstance(target, _Array) or not isinstance(state, tuple) or len(state) != 5:
            raise Unreadable("the pickle holds an object that CIFAR's do not; nothing is executed")
        _, shape, kind, is_fortran, content = state
        if kind not in [_Type(name) for name in _BYTE] or is_fortran:
            raise Unreadable("an array of something else than bytes, row by row")
        octets = self._octets(content) if isinstance(content, str) else content
        if not isinstance(octets, bytes) or shape != (len(octets) // _PIXELS, _PIXELS) or len(octets) % _PIXELS:
            raise Unreadable(f"an array that is not of shape (images, {_PIXELS})")
        target.values = np.frombuffer(octets, np.uint8).reshape(-1, _PIXELS)

    def _octets(self, text: str) -> bytes:
        self._octets_left -= len(text)
        if self._octets_left < 0:
            raise Unreadable("more bytes than there are in the file")
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            raise Unreadable("a damaged pickle: text where bytes were expected") from None


def batch(content: bytes, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images (n, 3072) uint8 and labels (n,) int64 of one file, n >= 1.

    Raises:
        Unreadable: it is no such pickle; the message names what is wrong.
    """
    found = _BatchReader(content).value()
    if not isinstance(found, dict):
        raise Unreadable("a pickle of something else than a dict")
    key = "fine_labels" if classes == 100 else "labels"
    named = {name.decode("latin-1") if isinstance(name, bytes) else name: value for name, value in found.items()}
    images, labels = named.get("data"), named.get(key)
    if not isinstance(images, _Array) or images.values is None or not isinstance(labels, list):
        raise Unreadable(f"no data or no {key} in it")
    if not labels or len(labels) != len(images.values) or not all(_is_label(label, classes) for label in labels):
        raise Unreadable(
            f"{len(labels)} {key} for {len(images.values)} images; a number from 0 to {classes - 1} for each is needed"
        )
    return images.values, np.array(labels, dtype=np.int64)


def _is_label(value: Any, classes: int) -> bool:
    return type(value) is int and 0 <= value < classes
