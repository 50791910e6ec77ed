"""Every message type of the testbed."""

import importlib
import pkgutil
import sys
from collections.abc import Iterator

import pytest

import testbed
from testbed.messages import Message


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
