"""LEAF's json files, one user at a time: Caldas et al. 2018 (arXiv 1812.01097), as written by LEAF's scripts.

A file has some of a data set's users::

    {"users": ["f0001_41", ...], "num_samples": [226, ...], "user_data": {"f0001_41": {"x": [...], "y": [...]}, ...}}

``num_samples`` may be left out; if present, it must agree with the data. There may also be ``hierarchies``, and ``raw``
in a user's data; neither is read. Files have hundreds of MB: only a piece of a file's text, and the current user, are
in memory at a time. LEAF's split by sample leaves users with one sample in ``user_data``, with empty lists and without
an entry in ``users``: these are skipped.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from testbed.errors import ExperimentError
from testbed.files import limits

Data = TypeVar("Data")

_SPACE = re.compile(r"[ \t\n\r]*")
_LONGEST_WORD = 64  # characters; more than those of any number or escape that can be cut in two
_FORM = "{users: [...], num_samples: [...], user_data: {...}}"


@dataclass(frozen=True)
class _Made(Generic[Data]):
    """The outcome of converting one user's data.

    Attributes:
        data: the converted data; None: none, see `problem`.
        problem: the reason.
        is_empty: whether there is no sample.
        samples: number of labels.
    """

    data: Data | None
    problem: str = ""
    is_empty: bool = False
    samples: int = 0


def users_of(
    file: Path, convert: Callable[[Any, Any], Data], *, counts_hold: bool = True
) -> Iterator[tuple[str, Data]]:
    """Yield (user, data) of all users in a file, in the order of ``users``.

    Args:
        file: a file of LEAF's form. If ``users`` comes before ``user_data``, as LEAF writes it, each user is yielded at
            once.
        convert: function from a user's ``x`` and ``y`` to the data to keep; raises ValueError with fault and remedy.
        counts_hold: whether ``num_samples`` must agree with the data.

    Raises:
        ExperimentError: a file that is damaged or lacks a key, a user without data, a repeated user, or numbers of
            samples that do not agree with the data.
    """
    with _opened(file) as reader:
        yield from _users(reader, f"workload.path: {file}", convert, counts_hold)


def names_of(file: Path) -> list[str]:
    """Return the users of a file; if they come first, as LEAF writes them, nothing else is read.

    Raises:
        ExperimentError: the file is damaged, as far as it is read, or has no users.
    """
    with _opened(file) as reader:
        for key in reader.names():
            if key == "users":
                return _names(reader.value(), f"workload.path: {file}")
            reader.value()
    raise ExperimentError(f"workload.path: {file} lacks users; LEAF's files are {_FORM}")


@contextmanager
def _opened(file: Path) -> "Iterator[_Reader]":
    try:
        with file.open("rb") as opened:
            yield _Reader(_text(opened))
    except (OSError, ValueError, RecursionError) as error:
        raise ExperimentError(
            f"workload.path: {file} cannot be read as LEAF's json ({error}); replace it with an undamaged copy"
        ) from None


def _users(
    reader: "_Reader", where: str, convert: Callable[[Any, Any], Data], counts_hold: bool
) -> Iterator[tuple[str, Data]]:
    names: list[str] | None = None
    made: dict[str, _Made[Data]] = {}
    samples: dict[str, int] = {}
    announced: Any = None
    yielded, has_data = 0, False
    for key in reader.names() if reader.next_character() == "{" else _none(reader.value()):
        if key == "users":
            names = _names(reader.value(), where)
        elif key == "user_data":
            if reader.next_character() != "{":
                reader.value()
                raise ExperimentError(f"{where} has users or user_data of another kind; LEAF's files are {_FORM}")
            has_data = True
            for user in reader.names():
                made[user] = _made(reader.value(), convert)
                samples[user] = made[user].samples
                while names is not None and yielded < len(names) and names[yielded] in made:
                    yield names[yielded], _data_of(made.pop(names[yielded]), names[yielded], where)
                    yielded += 1
        elif key == "num_samples":
            announced = reader.value()
        else:
            reader.value()
    reader.end()
    missing_keys = [key for key, present in (("users", names is not None), ("user_data", has_data)) if not present]
    if names is None or missing_keys:
        raise ExperimentError(f"{where} lacks {' and '.join(missing_keys)}; LEAF's files are {_FORM}")
    for user in names[yielded:]:
        yield user, _data_of(made.pop(user, _Made(None)), user, where)
    for user, left in made.items():
        if not left.is_empty:
            raise ExperimentError(f"{where}: user {user} is in user_data and not in users; preprocess the data again")
    if counts_hold and announced is not None:
        _check_announced(announced, names, samples, where)


def _check_announced(announced: Any, names: list[str], samples: dict[str, int], where: str) -> None:
    """Raise `ExperimentError` unless ``num_samples`` agrees with ``user_data`` for each user."""
    remedy = "preprocess the data again, or take num_samples out of the file"
    if not isinstance(announced, list) or len(announced) != len(names):
        count = len(announced) if isinstance(announced, list) else "no list of"
        raise ExperimentError(f"{where}: num_samples has {count} numbers for {len(names)} users; {remedy}")
    for name, number in zip(names, announced, strict=True):
        if number != samples[name]:
            raise ExperimentError(
                f"{where}: user {name} has {samples[name]} samples, but num_samples is {number}; {remedy}"
            )


def _none(_: Any) -> Iterator[str]:
    """Return no keys: the value is not an object."""
    return iter(())


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        raise ExperimentError(f"{where} has users or user_data of another kind; LEAF's files are {_FORM}")
    names, listed = [str(name) for name in value], set[str]()
    for name in names:
        if name in listed:
            raise ExperimentError(f"{where}: user {name} occurs twice; keep one of the two")
        listed.add(name)
    return names


def _made(value: Any, convert: Callable[[Any, Any], Data]) -> _Made[Data]:
    if not isinstance(value, dict) or not value.keys() >= {"x", "y"}:
        return _Made(None)
    is_empty = value["x"] == [] and value["y"] == []
    samples = len(value["y"]) if isinstance(value["y"], list) else 0
    try:
        return _Made(convert(value["x"], value["y"]), is_empty=is_empty, samples=samples)
    except ValueError as error:
        return _Made(None, str(error), is_empty, samples)


def _data_of(made: _Made[Data], user: str, where: str) -> Data:
    if made.data is None:
        problem = f": {made.problem}" if made.problem else " has no x and y in user_data; preprocess the data again"
        raise ExperimentError(f"{where}: user {user}{problem}")
    return made.data


def _text(file: Any) -> Iterator[str]:
    """Yield a file's text in pieces, decoded from the encodings that JSON may have."""
    decoder = None
    for piece in limits.pieces(file, limits.USERS_BYTES):
        decoder = decoder or codecs.getincrementaldecoder(json.detect_encoding(piece))("surrogatepass")
        yield decoder.decode(piece)
    if decoder is not None:
        yield decoder.decode(b"", final=True)


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{max(names, key=names.count)!r} occurs twice")
    return result


class _Reader:
    """A reader of JSON, value by value, from a text that comes in pieces.

    Every method raises ValueError with the fault.
    """

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._text, self._at, self._before = "", 0, 0
        self._decoder = json.JSONDecoder(object_pairs_hook=_refuse_repeated_keys)

    def next_character(self) -> str:
        """Return the next character that is not space, without consuming it; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def names(self) -> Iterator[str]:
        """Yield the keys of an object; the value of each must be read before the next key."""
        self._take("{")
        keys: set[str] = set()
        while self.next_character() != "}":
            if keys:
                self._take(",")
            key = self.value()
            if not isinstance(key, str):
                raise self._problem("a name in double quotes is expected")
            if key in keys:
                raise ValueError(f"{key!r} occurs twice")
            keys.add(key)
            self._take(":")
            yield key
        self._take("}")

    def value(self) -> Any:
        """Return the next value as a Python object."""
        while True:
            self.next_character()
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                problem = self._problem(error.msg, error.pos)
                if self._may_be_cut(error) and self._read_more():
                    continue
                raise problem from None
            if end == len(self._text) and self._read_more():  # a number may go on
                continue
            self._at = end
            return value

    def end(self) -> None:
        """Check that the text ends here."""
        if self.next_character():
            raise self._problem("more than one value")

    def _take(self, expected: str) -> None:
        if self.next_character() != expected:
            raise self._problem(f"{expected!r} is expected")
        self._at += 1

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated string") or len(self._text) - error.pos < _LONGEST_WORD

    def _read_more(self) -> bool:
        """Drop the text that was read, and read at least twice the rest; return whether there was more."""
        rest, pieces = self._text[self._at :], []
        missing = max(1, len(rest))
        while missing > 0 and (piece := next(self._pieces, None)) is not None:
            pieces.append(piece)
            missing -= len(piece)
        self._before += self._at
        self._text, self._at = rest + "".join(pieces), 0
        return any(pieces)

    def _problem(self, what: str, at: int | None = None) -> ValueError:
        return ValueError(f"{what} at character {self._before + (self._at if at is None else at)}")
