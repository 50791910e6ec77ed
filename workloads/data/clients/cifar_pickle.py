"""A reader of the pickles of CIFAR's python version that executes nothing.

A batch is a dict with ``data``, an array of (n, 3072) bytes, and ``labels`` (CIFAR-100: ``fine_labels``), a list. A
pickle writes an array as a call of numpy's functions. Here the four names that such a call needs (``numpy.dtype``,
``numpy.ndarray``, ``_reconstruct`` and, for bytes as Python 3 writes them in old protocols, ``_codecs.encode``) stand
for functions of this module, which make only an array of bytes in C order from their arguments. Anything else ends the
reading, as in `testbed.emulation.traces.conversion.plain_pickle`.
"""

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.emulation.traces.conversion.plain_pickle import LIBRARY, Opcodes, PlainUnpickler, UnreadablePickle

__all__ = ["UnreadablePickle", "batch"]

_PIXELS = 3 * 32 * 32
_OTHER_CALL = "the pickle calls a function that CIFAR's pickles do not call; nothing is executed"


@dataclass
class _Array:
    """An array announced in the pickle, and its content once that has been read."""

    values: NDArray[np.uint8] | None = None


class _Type:
    """The type of an array's elements, as named by numpy; the other arguments concern the layout of records."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.is_byte = isinstance(name, str) and name in ("u1", "|u1")


def _ndarray(*_: Any) -> None:
    raise UnreadablePickle(_OTHER_CALL)


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _ndarray:
        raise UnreadablePickle(_OTHER_CALL)
    return _Array()


class _BatchUnpickler(PlainUnpickler):
    """The unpickler of plain data, extended by arrays of bytes."""

    dispatch = Opcodes(PlainUnpickler.dispatch)
    dispatch[pickle.REDUCE[0]] = LIBRARY[pickle.REDUCE[0]]

    def __init__(self, data: bytes) -> None:
        allowed = {
            "numpy.dtype": _Type,
            "numpy.ndarray": _ndarray,
            "numpy.core.multiarray._reconstruct": _reconstruct,
            # The name in numpy 2.
            "numpy._core.multiarray._reconstruct": _reconstruct,
            "_codecs.encode": self._encoded,
        }
        super().__init__(data, allowed)
        self._octets_left = 2 * len(data)  # limit: memorised text could be converted again and again

    def load_build(self) -> None:
        """Take the state of an array or of its type."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Type):
            return  # byte order, without effect for single bytes
        if not isinstance(target, _Array) or not isinstance(state, tuple) or len(state) != 5:
            raise UnreadablePickle("the pickle holds an object that CIFAR's do not; nothing is executed")
        _, shape, kind, is_fortran, content = state
        if not isinstance(kind, _Type) or not kind.is_byte or is_fortran:
            raise UnreadablePickle("an array that does not hold bytes, row by row")
        octets = self._octets(content) if isinstance(content, str) else content
        if not isinstance(octets, bytes) or shape != (len(octets) // _PIXELS, _PIXELS) or len(octets) % _PIXELS:
            raise UnreadablePickle(f"an array that is not of shape (images, {_PIXELS})")
        target.values = np.frombuffer(octets, np.uint8).reshape(-1, _PIXELS)

    dispatch[pickle.BUILD[0]] = load_build

    def _encoded(self, text: Any, encoding: Any = None) -> bytes:
        """Stand in for ``_codecs.encode``."""
        if not isinstance(text, str) or encoding != "latin1":
            raise UnreadablePickle(_OTHER_CALL)
        return self._octets(text)

    def _octets(self, text: str) -> bytes:
        self._octets_left -= len(text)
        if self._octets_left < 0:
            raise UnreadablePickle("more bytes than there are in the file")
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            raise UnreadablePickle("a damaged pickle: text where bytes were expected") from None


def batch(content: bytes, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images (n, 3072) uint8 and labels (n,) int64 of one file, n >= 1.

    Args:
        content: the file's content.
        classes: 10 or 100.

    Raises:
        UnreadablePickle: not such a pickle; the message names the fault.
    """
    content_dict = _BatchUnpickler(content).load()
    if not isinstance(content_dict, dict):
        raise UnreadablePickle("the pickle does not hold a dict")
    key = "fine_labels" if classes == 100 else "labels"
    values = {
        name.decode("latin-1") if isinstance(name, bytes) else name: value for name, value in content_dict.items()
    }
    images, labels = values.get("data"), values.get(key)
    if not isinstance(images, _Array) or images.values is None or not isinstance(labels, list):
        raise UnreadablePickle(f"no data or no {key} in it")
    if not labels or len(labels) != len(images.values) or not all(_is_label(label, classes) for label in labels):
        raise UnreadablePickle(
            f"{len(labels)} {key} for {len(images.values)} images; a number from 0 to {classes - 1} for each is needed"
        )
    return images.values, np.array(labels, dtype=np.int64)


def _is_label(value: Any, classes: int) -> bool:
    # Not isinstance: True is an int, too.
    return type(value) is int and 0 <= value < classes
