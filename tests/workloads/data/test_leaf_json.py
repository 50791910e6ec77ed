"""LEAF's json is read as by Python's reader, in pieces of any size, and damage is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ExperimentError
from testbed.files import limits
from tests.messages_named import naming
from tests.thoroughness import examples
from tests.workloads.data.leaf import as_leaf
from workloads.data.clients import leaf_json
from workloads.data.clients.leaf import LeafFolder, read_users

TEXTS = st.text(max_size=12)
SAMPLES = st.lists(st.tuples(st.one_of(TEXTS, st.floats(allow_nan=False), st.lists(TEXTS, max_size=3)), st.integers()))
WRITTEN = st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])


def read(file: Path) -> list[tuple[str, Any]]:
    return list(leaf_json.users_of(file, lambda x, y: (x, y)))


@settings(max_examples=examples(60))
@given(
    st.dictionaries(TEXTS, SAMPLES, max_size=5),
    st.integers(1, 40),
    WRITTEN,
    st.booleans(),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_values_equal_those_of_pythons_reader(
    tmp_path_factory: pytest.TempPathFactory,
    some: dict[str, list[Any]],
    piece: int,
    encoding: str,
    users_last: bool,
    indent: int | None,
    escaped: bool,
) -> None:
    users = {user: ([x for x, _ in samples], [y for _, y in samples]) for user, samples in some.items()}
    content = as_leaf(users, ["PLAY"] * len(users))
    if users_last:
        content = dict(reversed(content.items()))
    file = tmp_path_factory.mktemp("leaf") / "all_data_0.json"
    file.write_text(json.dumps(content, indent=indent, ensure_ascii=escaped), encoding=encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_PIECE_BYTES", 4 * piece)  # the first four bytes tell the encoding
        assert read(file) == list(users.items())


@settings(max_examples=examples(60))
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_a_file_that_ends_early_is_never_taken(tmp_path_factory: pytest.TempPathFactory, cut: int, piece: int) -> None:
    whole = json.dumps(as_leaf({"a": (["xy", "z"], [1, -2.5e3]), "b\u00e9": ([[True, None]], [0])}))
    file = tmp_path_factory.mktemp("leaf") / "all_data_0.json"
    file.write_text(whole[: cut % len(whole)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_PIECE_BYTES", 4 * piece)
        with pytest.raises(ExperimentError) as refused:
            read(file)
    assert "all_data_0.json cannot be read as LEAF's json" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"users": [], "user_data": {}} x', "(more than one value at character 31)"),
        ('{"users": [], "user_data": {},}', "at character 30)"),
        ('{"users": [], "users": [], "user_data": {}}', "('users' occurs twice)"),
        ('{"users": ["a"], "user_data": {"a": {"x": [], "y": [], "x": []}}}', "('x' occurs twice)"),
        ('{"users": ["a"], "user_data": {"a" {"x": []}}}', "(':' is expected at character 35)"),
        ('{"users": ["a"], "user_data": {1: {"x": []}}}', "(a name in double quotes is expected at"),
        ('{"users": ["a"], "user_data": [1]}', "users or user_data of another kind"),
        ('{"users": ["a", "a"], "user_data": {}}', "user a occurs twice; keep one of the two"),
        (
            '{"users": ["a", "b"], "num_samples": [1, 3], "user_data": {"a": {"x": [0], "y": [0]}, "b": {"x": [0, 0], '
            '"y": [0, 0]}}}',
            "user b has 2 samples, but num_samples is 3; preprocess the data again, or take num_samples out",
        ),
        ('{"users": [], "user_data": {}, "num_samples": [1]}', "num_samples has 1 numbers for 0 users"),
        ('{"users": [], "user_data": {}, "num_samples": 5}', "num_samples has no list of numbers for 0 users"),
        ("[" * 100_000, "cannot be read as LEAF's json"),
        ("3", "lacks users and user_data"),
    ],
)
def test_mistakes_are_named_in_one_line(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "all_data.json"
    file.write_text(content)
    with pytest.raises(ExperimentError) as refused:
        read(file)
    assert says in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_damage_is_reported_before_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "all_data.json"
    users = {f"user{number}": ([0] * 50, [0] * 50) for number in range(2000)}
    file.write_text(json.dumps(as_leaf(users)).replace('"user7": {"x"', '"user7": {"x" 5', 1))
    taken = []

    def pieces(opened: Any, most: int) -> Any:
        while piece := opened.read(4096):
            taken.append(len(piece))
            yield piece

    monkeypatch.setattr(limits, "pieces", pieces)
    with pytest.raises(ExperimentError, match=naming("LEAF's json")):
        read(file)
    assert sum(taken) < file.stat().st_size / 4


def test_a_file_is_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "all_data.json"
    file.write_text(json.dumps(as_leaf({f"user{number}": (["a" * 1000] * 20, [0] * 20) for number in range(200)})))
    monkeypatch.setattr(limits, "_PIECE_BYTES", 1 << 14)
    longest = 0
    original = leaf_json._Reader._read_more

    def read_on(self: Any) -> bool:
        nonlocal longest
        more = original(self)
        longest = max(longest, len(self._text))
        return more

    monkeypatch.setattr(leaf_json._Reader, "_read_more", read_on)
    assert sum(len(x) for _, (x, _) in leaf_json.users_of(file, lambda x, y: (x, y))) == 4000
    assert longest < file.stat().st_size / 20


def test_names_are_known_without_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "all_data.json"
    content = as_leaf({f"user{number}": ([0] * 50, [0] * 50) for number in range(200)})
    file.write_text(json.dumps(content))
    monkeypatch.setattr(limits, "_PIECE_BYTES", 1 << 10)
    file.write_text(file.read_text()[:-5000])  # the text after the users is not read
    assert leaf_json.names_of(file) == content["users"]
    file.write_text(json.dumps(dict(reversed(content.items()))))
    assert leaf_json.names_of(file) == content["users"]
    for text, says in (
        ('{"user_data": {}}', "lacks users"),
        ("[]", "'{' is expected at character 0"),
        ("", "expected"),
    ):
        file.write_text(text)
        with pytest.raises(ExperimentError, match=says):
            leaf_json.names_of(file)


def test_folders_are_found_as_leaf_leaves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "femnist" / "data"
    for folder in ("train", "test", "all_data", "sampled_data"):
        (data / folder).mkdir(parents=True)
        (data / folder / "all_data_0.json").write_text(json.dumps(as_leaf({folder: ([1], [1])})))
    for path in (data, data.parent, data / "train"):
        found = LeafFolder.find(path)
        assert found is not None
        assert [user for user, _ in read_users(found.train, lambda x, y: x)] == ["train"]
        assert found.test is not None
        assert [user for user, _ in read_users(found.test, lambda x, y: x)] == ["test"]
        assert found.root.resolve() == data
    monkeypatch.chdir(data / "train")
    assert LeafFolder.find(Path()) == LeafFolder.find(data / "train")
    whole = LeafFolder.find(data / "sampled_data")
    assert whole == LeafFolder(data, data / "sampled_data", None)
    assert LeafFolder.find(tmp_path) is None
    (data / "test" / "all_data_0.json").unlink()
    for path in (data, data / "train"):
        with pytest.raises(ExperimentError, match=naming("train/*.json", "test/*.json")):
            LeafFolder.find(path)
