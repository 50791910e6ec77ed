"""Arrays that a run keeps: declared names, groups and messages; no product code uses a bare string as a key."""

import ast
from collections.abc import Iterator

import numpy as np
import pytest

from testbed.errors import RunError
from testbed.memory import ArrayGroup, ArrayName, Memory, MessageName, memory_copy
from testbed.messages import Message
from tests.messages_named import naming
from tests.repository import ROOT


class Note(Message, frozen=True):
    text: str


def test_a_group_takes_its_own_arrays_and_no_others() -> None:
    memory: Memory = {"a/x": np.zeros(1), "b/x": np.ones(2), ArrayName("a"): np.ones(1)}
    group = ArrayGroup("a/")
    assert group.named(group.read(memory)).keys() == {"a/x"}
    assert group.take(memory).keys() == {"x"}
    assert memory.keys() == {"b/x", "a"}


def test_a_message_outlasts_a_checkpoint() -> None:
    name = MessageName("note", Note)
    memory: Memory = {}
    assert name.load(memory) is None
    name.store(memory, Note("first"))
    name.store(memory, Note("second"))
    assert name.load(memory_copy(memory)) == Note("second")


def test_an_object_is_no_array() -> None:
    with pytest.raises(RunError, match=naming("memory['note']", "array", "object")):
        memory_copy({"note": [object()]})


def _bare_keys(tree: ast.AST) -> Iterator[int]:
    """The lines with a literal key of something called memory."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            owner, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            owner, key = node.func.value, node.args[0]
        else:
            continue
        name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        if name == "memory" and isinstance(key, ast.Constant | ast.JoinedStr) and getattr(key, "value", "") is not None:
            yield node.lineno


def test_keys_are_declared_by_their_owners() -> None:
    assert list(_bare_keys(ast.parse('memory["a"]; x.memory.get("b"); memory[NAME]; other["c"]'))) == [1, 1]
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "testbed").rglob("*.py"))
        for line in _bare_keys(ast.parse(path.read_text()))
    ]
    assert found == []
