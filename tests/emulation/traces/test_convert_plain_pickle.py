"""The reader of plain pickles reads pickles of plain data, refuses and names all else, and executes nothing."""

import collections
import contextlib
import copyreg
import datetime
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.traces.conversion import plain_pickle
from testbed.emulation.traces.conversion.plain_pickle import read_plain_pickle
from testbed.errors import TraceError
from testbed.files import limits

ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
NUMBERS = st.integers(-(2**63), 2**64 - 1)
WORDS = st.none() | st.text() | st.binary()
PLAIN = st.recursive(
    ATOMS,
    lambda values: (
        st.lists(values)
        | st.dictionaries(NUMBERS, values)
        | st.dictionaries(WORDS, values)
        | st.lists(values).map(tuple)  # and nested
    ),
    max_leaves=30,
)


def with_text_keys(value: Any) -> Any:
    """`value` as the reader gives it: keys of dicts that are numbers are their digits."""
    if isinstance(value, dict):
        return {str(k) if isinstance(k, int) else k: with_text_keys(inner) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(with_text_keys, value))
    return value


def read(data: bytes, folder: Path) -> Any:
    path = folder / "some.pickle"
    path.write_bytes(data)
    return read_plain_pickle(path)


def refused(data: bytes, folder: Path) -> str:
    """The one line with which this is refused."""
    with pytest.raises(TraceError) as raised:
        read(data, folder)
    (line,) = str(raised.value).splitlines()
    assert len(line) < 400
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pickles")


@given(value=PLAIN, protocol=st.integers(0, 5), data=st.data())
def test_reads_pickles_of_plain_data(value: Any, protocol: int, data: st.DataObject, folder: Path) -> None:
    """The oracle is the standard library's unpickler. (Protocols 0 to 2 write bytes as a call: not plain.)"""
    pickled = pickle.dumps(value, protocol)
    if protocol < 3 and (b"_codecs" in pickled or b"__builtin__" in pickled):
        assert "nothing is executed" in refused(pickled, folder)
    else:
        again = read(pickled, folder)
        assert again == with_text_keys(value)
        assert repr(again) == repr(with_text_keys(pickle.loads(pickled)))  # noqa: S301


def test_reads_pickles_of_python_2(folder: Path) -> None:
    assert read(b"(dp0\nS'a\\x41'\np1\nI5\ns.", folder) == {"aA": 5}
    assert read(b"\x80\x02}q\x00U\x01aq\x01K\x05s.", folder) == {"a": 5}


def test_shared_parts_stay_shared(folder: Path) -> None:
    part: list[Any] = []
    first, second = read(pickle.dumps([part, part]), folder)
    assert first is second


class Evil:
    """Pickles to any value that a test sets."""

    def __init__(self, reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


class WithState:
    """An object with state that is restored by a call."""

    restored = False

    def __init__(self) -> None:
        self.value = 1

    def __setstate__(self, state: Any) -> None:
        type(self).restored = True


class Persistent(pickle.Pickler):
    """Writes every list as a persistent object."""

    def persistent_id(self, value: Any) -> Any:
        return "from-elsewhere" if isinstance(value, list) else None


CALLS = [
    (lambda file: Evil((os.system, (f"touch {file}",))), "system"),
    (lambda file: Evil((eval, (f"open({str(file)!r}, 'w')",))), "eval"),
    (lambda file: Evil((exec, (f"open({str(file)!r}, 'w')",))), "exec"),
    (lambda file: Evil((open, (str(file), "w"))), "open"),
    (lambda file: Evil((getattr, ("a", "upper"))), "getattr"),
    (lambda file: Evil((__import__, ("os",))), "__import__"),
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(("make", "name"), CALLS, ids=[name for _, name in CALLS])
@pytest.mark.parametrize("nest", [lambda evil: evil, lambda evil: {1: {"active": [evil]}}], ids=["bare", "nested"])
def test_a_call_is_refused_by_name_and_not_made(make: Any, name: str, protocol: int, nest: Any, tmp_path: Path) -> None:
    file = tmp_path / "made-by-the-pickle"
    data = pickle.dumps(nest(make(file)), protocol)
    assert name in refused(data, tmp_path)
    assert not file.exists()
    pickle.loads(data)  # noqa: S301  (the attack is real: Python's own unpickler does make the call)
    assert file.exists() == (name in ("system", "eval", "exec", "open"))


@pytest.mark.parametrize("protocol", range(6))
def test_an_objects_state_is_not_restored(protocol: int, folder: Path) -> None:
    data = pickle.dumps(WithState(), protocol)
    pickle.loads(data)  # noqa: S301
    assert WithState.restored
    WithState.restored = False
    line = refused(data, folder)
    assert "WithState" in line or "_reconstructor" in line
    assert not WithState.restored


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.float64(1.5), "numpy"),
        (np.int64(3), "numpy"),
        (np.arange(3), "numpy"),
        ({1, 2}, "set"),
        (frozenset({1}), "set"),
        (bytearray(b"abc"), "bytearray"),
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
        (collections.defaultdict(int), "collections.defaultdict"),
        (datetime.datetime(2020, 1, 2), "datetime.datetime"),
        (os.system, "system"),
        (complex(1, 2), "complex"),
        (range(3), "range"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_other_types_are_refused_by_name(value: Any, name: str, protocol: int, folder: Path) -> None:
    line = refused(pickle.dumps({"x": value}, protocol), folder)
    assert name in line
    assert "plain values" in line


def test_persistent_objects_and_extensions_are_refused(folder: Path, tmp_path: Path) -> None:
    for protocol in (0, 4):
        with open(tmp_path / "p", "wb") as file:
            Persistent(file, protocol).dump({"x": [1]})
        assert "persistent object" in refused((tmp_path / "p").read_bytes(), folder)
    module = os.system.__module__
    for code, opcode in ((240, "EXT1"), (0xF000, "EXT2"), (0x7FFF0000, "EXT4")):
        copyreg.add_extension(module, "system", code)
        try:
            data = pickle.dumps(os.system, 2)
            assert pickle.loads(data) is os.system  # noqa: S301  (now the extension is in Python's cache)
            assert f"extension ({opcode})" in refused(data, folder)
        finally:
            copyreg.remove_extension(module, "system", code)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "asks for os.system;"),
        (b"(S'true'\nios\nsystem\n.", "asks for os.system;"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", "asks for os.system;"),
        (b"\x80\x04]\x8c\x06system\x93.", "damaged"),
        (b"\x93.", "damaged"),
        (b"\x82\x07.", "extension (EXT1)"),
        (b"\x83\x07\x01.", "extension (EXT2)"),
        (b"\x84\x07\x00\x00\x00.", "extension (EXT4)"),
        (b"Psomewhere\n.", "a persistent object (PERSID)"),
        (b"K\x01Q.", "BINPERSID"),
        (b"K\x01)R.", "a call (REDUCE)"),
        (b"(K\x01o.", "a call (OBJ)"),
        (b"K\x01)\x81.", "a call (NEWOBJ)"),
        (b"K\x01)}\x92.", "a call (NEWOBJ_EX)"),
        (b"}}b.", "a call (BUILD)"),
        (b"\x97.", "buffer"),
        (b"ca\x00\x1b[2J\nb\n.", "asks for a??[2J.b;"),
        (b"c" + b"x" * 10_000 + b"\nb\n.", "asks for xxx"),
    ],
)
def test_handwritten_opcodes_are_refused(data: bytes, said: str, folder: Path) -> None:
    line = refused(data, folder)
    assert said in line
    assert line.isprintable()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"N",
        b"NN.",
        b"(.",
        b"0.",
        b"1.",
        b"u.",
        b"}(K\x01u.",
        b"](K\x01K\x01u.",
        b"}K\x01a.",
        b"(}K\x01s.",
        b"h\x00.",
        b"q\x00.",
        b"gx\n.",
        b"I1x\n.",
        b"I1",
        b"L5x\n.",
        b"Fone\n.",
        b"I" + b"9" * 10_000 + b"\n.",
        b"S'x\n.",
        b"S\n.",
        b"S'\\x'\n.",
        b"V\\uZZZZ\n.",
        b"X\x02\x00\x00\x00\xff\xfe.",
        b"X\xff\xff\xff\xff.",
        b"\x8d" + b"\xff" * 8 + b".",
        b"T\xff\xff\xff\xff.",
        b"\x8b\xff\xff\xff\xff.",
        b"\x80\x09N.",
        b"\x00\x01\x02",
        b"\x89PNG\r\n\x1a\n",
        b"PK\x03\x04",
        b"client,online_from_s\n",
    ],
)
def test_damaged_pickles_are_one_line(data: bytes, folder: Path) -> None:
    refused(data, folder)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes, folder: Path) -> None:
    with contextlib.suppress(TraceError):
        read(data, folder)


@given(value=PLAIN, cut=st.integers(0, 200))
def test_a_truncated_pickle_is_refused(value: Any, cut: int, folder: Path) -> None:
    pickled = pickle.dumps(value, 4)
    refused(pickled[: min(cut, len(pickled) - 1)], folder)


def test_the_memo_takes_no_more_than_it_holds(folder: Path) -> None:
    """LONG_BINPUT names any of 2**32 places; reserving them would take gigabytes."""
    assert "memorised" in refused(b"Nr\xff\xff\xff\xff.", folder)
    assert "damaged" in refused(b"Np-1\n.", folder)
    assert "damaged" in refused(b"Nr\x09\x00\x00\x00g8\n.", folder)  # a hole
    assert read(b"Nr\x09\x00\x00\x000g9\n.", folder) is None


def test_nested_doubling_stays_small_and_hashes_nothing(folder: Path) -> None:
    """Each level holds the one below twice: 2**200 leaves, 200 tuples, and no key of a dict."""
    doubled = b"N\x85" + b"q\x00h\x00\x86" * 200
    assert len(read(doubled + b".", folder)) == 2
    assert "as the key of a dict" in refused(b"}" + doubled + b"Ns.", folder)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({2**64: 1}, "a number of more than 64 bits as the key of a dict"),
        ({-(2**63) - 1: 1}, "a number of more than 64 bits as the key of a dict"),
        ([i * (2**61 - 1) for i in range(100_000)], "a number of more than 64 bits as the key of a dict"),
        ({(1, 2): 1}, "a tuple as the key of a dict"),
        ({1.0: 1}, "a float as the key of a dict"),
        ({True: 1}, "a bool as the key of a dict"),
        ({1: 1, "1": 2}, "two keys of one dict are the same"),
        (dict.fromkeys([*range(2000), "1"]), "two keys of one dict are the same"),
        (dict.fromkeys([*map(str, range(2000)), 1]), "two keys of one dict are the same"),
    ],
    ids=["65 bits", "negative", "colliding", "tuple", "float", "bool", "mixed", "mixed later", "mixed before"],
)
def test_keys_with_chosen_hashes_are_refused(value: Any, says: str, folder: Path) -> None:
    assert says in refused(colliding(value) if isinstance(value, list) else pickle.dumps(value, 4), folder)


def colliding(keys: Any) -> bytes:
    """The pickle of a dict with these keys, written without making one."""
    return b"}(" + b"".join(b"L%dL\nN" % key for key in keys) + b"u."


def test_numbers_as_keys_are_hashed_as_text(folder: Path) -> None:
    """Also those of 64 bits can be chosen so that each walks past all others; as text, they cannot."""
    found = read(pickle.dumps({1: {2: [3]}, -5: 0}, 4), folder)
    assert found == {"1": {"2": [3]}, "-5": 0}
    keys = range(0, 2**63, 2**53)
    assert list(read(colliding(keys), folder)) == list(map(str, keys))


def test_deep_nesting_needs_no_recursion(folder: Path) -> None:
    value = read(b"]" * 100_000 + b"a" * 99_999 + b".", folder)
    assert isinstance(value, list)
    assert "nested deeper than 1000" in refused(b"(" * 100_000, folder)


def test_a_length_that_the_file_does_not_have_reserves_nothing(folder: Path) -> None:
    """Strings, bytes, integers and frames say how long they are: up to 2**63 bytes."""
    for opcode in (b"\x8d", b"\x8e", b"\x95"):
        assert "damaged" in refused(opcode + struct.pack("<Q", 2**62), folder)
    assert "a bytearray" in refused(b"\x96" + struct.pack("<Q", 2**62), folder)
    for opcode in (b"X", b"B", b"T", b"\x8b"):
        assert "damaged" in refused(opcode + struct.pack("<I", 2**31 - 1), folder)


def test_the_number_of_containers_and_memorised_values_is_limited(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_pickle, "_MOST_CONTAINERS", 1000)
    monkeypatch.setattr(plain_pickle, "_MOST_MEMORISED", 1000)
    assert len(read(b"]" + b"(" + b"}" * 999 + b"e.", folder)) == 999
    assert "more than 1000 dicts" in refused(b"]" + b"(" + b"}" * 1000 + b"e.", folder)
    puts = b"".join(b"r" + struct.pack("<I", place) for place in range(1001))
    assert "more than 1000 memorised" in refused(b"N" + puts + b".", folder)
    assert "more than 1000 memorised" in refused(b"N" + b"\x94" * 1001 + b".", folder)


def test_the_size_of_the_file_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PICKLE_BYTES", 100)
    assert "larger than" in refused(pickle.dumps("x" * 200), folder)


def test_a_missing_file_and_a_directory_are_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read_plain_pickle(path)
