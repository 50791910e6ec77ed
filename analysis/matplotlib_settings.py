"""Settings with which matplotlib starts: the user's own, never those of the working directory.

Matplotlib looks for a file ``matplotlibrc`` in the working directory before it looks at ``MATPLOTLIBRC`` and at the
user's configuration, and it has no option against that. A user may look at the records of others in
their folder: their file would choose fonts and backends, and a binary file would end the command.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_FILE = "matplotlibrc"  # the relative path that matplotlib tries first


class _Finder(MetaPathFinder):
    """Finds matplotlib as the other finders do, and has it loaded by `_SettingsLoader`; once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "matplotlib":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _SettingsLoader(spec.loader)
        return spec


class _SettingsLoader(Loader):
    """Loads matplotlib while its file in the working directory counts as absent."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # as if nobody had been in between
            module.__spec__.loader = module.__loader__ = self._loader
        exists = os.path.exists
        # Only this one path is answered differently, so other threads notice nothing; a change of the working
        # directory would be theirs, too.
        os.path.exists = lambda path: path != _FILE and exists(path)
        try:
            self._loader.exec_module(module)
        finally:
            os.path.exists = exists


def ignore_working_directory() -> None:
    """Let matplotlib start without a ``matplotlibrc`` of the working directory, unless it is imported already."""
    if "matplotlib" not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
