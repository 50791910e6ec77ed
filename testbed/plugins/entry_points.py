"""Entry points of installed packages: the only way in which a package offers classes, commands and services.

The testbed's own packages use the same way, with the groups in ``pyproject.toml``. Entry points are read from package
metadata; only `own_object` imports code.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib import import_module, metadata
from typing import Any

from testbed.errors import InstallationError, reason
from testbed.extras import PROJECT

FILE = "entry_points.txt"


@dataclass(frozen=True)
class BrokenEntryPoint:
    """A package with an unreadable file of entry points.

    Attributes:
        distribution, version: name and version of the package.
        problem: the reason, in one line.
    """

    distribution: str
    version: str
    problem: str


def own_points(group: str) -> Mapping[str, metadata.EntryPoint]:
    """Return the testbed's own entry points of a group, by name.

    Raises:
        InstallationError: the testbed is not installed, or its metadata are of an earlier version without this group
            (an editable installation that was not renewed).
    """
    # The path is part of the cache's key: a program may extend it after the first call.
    return _own_points(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _own_points(group: str, _path: tuple[str, ...]) -> Mapping[str, metadata.EntryPoint]:
    try:
        points = metadata.distribution(PROJECT).entry_points.select(group=group)
    except metadata.PackageNotFoundError:
        raise _not_installed() from None
    if not points:
        raise _older(f"the entry points {group}")
    return {point.name: point for point in points}


def own_object(group: str, name: str) -> Any:
    """Import the object that one of the testbed's own entry points names.

    Args:
        group: group of the entry point.
        name: name in the group.

    Raises:
        InstallationError: as `own_points`, or the metadata lack the name or point to code that has moved.
        ModuleNotFoundError: the object needs an extra that is not installed.
    """
    point = own_points(group).get(name)
    if point is None:
        raise _older(f"{name} of {group}")
    try:
        module = import_module(point.module)
    except ModuleNotFoundError as error:
        # The testbed's own module has moved; another missing module is an extra, which the caller reports.
        if f"{point.module}.".startswith(f"{error.name}."):
            raise _older(f"{name} of {group}") from None
        raise
    try:
        return reduce(getattr, filter(None, (point.attr or "").split(".")), module)
    except AttributeError:
        raise _older(f"{name} of {group}") from None


def _older(missing: str) -> InstallationError:
    return InstallationError(f"the installation of {PROJECT} is older than its code and lacks {missing}; {_REMEDY}")


def _not_installed() -> InstallationError:
    return InstallationError(f"{PROJECT} is not installed for {sys.executable}; {_REMEDY}")


_REMEDY = "install it again, e.g. `pip install --editable .` in its folder"


def own_text() -> str:
    """Return the testbed's own file of entry points; raises as `own_points`."""
    try:
        return _text_of(metadata.distribution(PROJECT))
    except metadata.PackageNotFoundError:
        raise _not_installed() from None


def all_points(group: str) -> tuple[list[metadata.EntryPoint], list[BrokenEntryPoint]]:
    """Return the entry points of a group from all packages, and the packages with unreadable files.

    If the path has several packages of one name, the first counts. `metadata.entry_points` does the same, but raises if
    a single package's file is invalid.
    """
    points, unreadable, normalized_names = list[metadata.EntryPoint](), list[BrokenEntryPoint](), set[str]()
    for package in metadata.distributions():
        text = _text_of(package)
        if group not in text:
            continue  # skip before reading the name, which takes most of the time
        name = package.metadata["Name"]
        if name and (_normalized(name) in normalized_names or _text_of(metadata.distribution(name)) != text):
            continue  # another version of the package comes before it on the path
        normalized_names.add(_normalized(name or ""))
        try:
            points.extend(package.entry_points.select(group=group))
        except Exception as error:  # importlib's parser may raise any type
            why = f"its {FILE} cannot be read: {type(error).__name__}: {reason(error)}"
            unreadable.append(BrokenEntryPoint(str(name or UNKNOWN), str(package.version or ""), why))
    return points, unreadable


def _text_of(package: metadata.Distribution) -> str:
    """Return the package's file of entry points; empty if there is none or if it is not text."""
    try:
        return package.read_text(FILE) or ""
    except UnicodeDecodeError:
        return ""


def _normalized(name: str) -> str:
    # PEP 503: names of packages are equal regardless of case and separators.
    return re.sub(r"[-_.]+", "-", name).lower()


def owner(point: metadata.EntryPoint) -> tuple[str, str]:
    """Return name and version of the distribution that offers an entry point."""
    name = None if point.dist is None else point.dist.metadata["Name"]
    return (UNKNOWN, "") if point.dist is None or not name else (str(name), point.dist.version)


UNKNOWN = "an unknown package"
