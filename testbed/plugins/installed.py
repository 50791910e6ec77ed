"""Plug-ins of installed packages: the entry points of the group ``sortition_testbed.plugins``.

An entry point ``selection.tickets = "tickets.protocol:Tickets"`` makes ``tickets`` a name of ``selection.protocol``.
Only package metadata are read here. So a plug-in that cannot be imported affects only experiments that name it.
"""

import re
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

from testbed.errors import ExperimentError
from testbed.plugins.entry_points import all_points, owner
from testbed.spelling import similar

GROUP = "sortition_testbed.plugins"

KINDS = {
    "selection": ("selection.protocol",),
    "aggregation": ("aggregation.protocol",),
    "server-optimizer": ("aggregation.server_optimizer.name",),
    "robust-rule": ("aggregation.robust.rule",),
    "dataset": ("workload.dataset",),
    "model": ("workload.model",),
    "partition": ("workload.partition.scheme",),
    "loss": ("workload.loss",),
    "metric": ("workload.metrics",),
    "optimizer": ("workload.optimizer",),
    "devices": ("devices.model", "classes.*.device.model"),
    "links": ("links.model",),
    "availability": ("availability.model",),
    "server-misbehaviour": ("adversary.server",),
    "client-misbehaviour": ("adversary.clients",),
    "observer": ("output.observers",),
}
"""First part of an entry point's name, and the keys of an experiment in which the second part is a name."""

_NAME = re.compile(r"(?P<kind>[a-z-]+)\.(?P<name>[a-z][a-z0-9-]*)")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Plugin:
    """A name that an installed package offers.

    Attributes:
        kind: a key of `KINDS`; empty if the entry point's name begins with none of them.
        name: the name in an experiment.
        target: the class, ``package.module:Name``.
        distribution, version: name and version of the package.
        problem: the reason why no experiment can use it; empty if one can.
    """

    kind: str
    name: str
    target: str
    distribution: str
    version: str
    problem: str = ""

    @property
    def origin(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}".rstrip()


def installed() -> tuple[Plugin, ...]:
    """Return all plug-ins, usable or not, by kind and name."""
    return _installed(tuple(sys.path))


@lru_cache(maxsize=4)
def _installed(_path: tuple[str, ...]) -> tuple[Plugin, ...]:
    points, unreadable = all_points(GROUP)
    points.sort(key=lambda point: (point.name, point.value))
    names = {point.name for point in points}
    owners = {name: [owner(point) for point in points if point.name == name] for name in names}
    times = Counter(point.name for point in points)
    return (
        *(_plugin(point, owners[point.name] if times[point.name] > 1 else []) for point in points),
        *(Plugin("", "?", "?", broken.distribution, broken.version, broken.problem) for broken in unreadable),
    )


def _plugin(point: metadata.EntryPoint, offered_by: Collection[tuple[str, str]]) -> Plugin:
    match = _NAME.fullmatch(point.name)
    kind, name = (match["kind"], match["name"]) if match and match["kind"] in KINDS else ("", point.name)
    problem = ""
    if not kind:
        problem = f"its name must be KIND.NAME, in lower case, with one of the kinds {', '.join(KINDS)}"
    elif not _CLASS.fullmatch(point.value):
        problem = f"{point.value!r} must be package.module:Name"
    # Refused instead of taking the first: its choice would depend on the order of the path.
    elif offered_by:
        packages = " and ".join(" ".join(package) for package in sorted(set(offered_by)))
        problem = f"offered by {packages}; uninstall all but one, or name the class as package.module:Name"
    return Plugin(kind, name, point.value, *owner(point), problem)


def named(kind: str, name: str, key: str) -> Plugin | None:
    """Return the plug-in with a name that is not built in; None if no package offers the name.

    Args:
        kind: a key of `KINDS`.
        name: the experiment's name.
        key: the experiment's key, for the error.

    Raises:
        ExperimentError: the plug-in cannot be used, or the name looks like a misspelt one.
    """
    plugins = {plugin.name: plugin for plugin in installed() if plugin.kind == kind}
    plugin = plugins.get(name)
    if plugin is None:
        if close := similar(name, plugins):
            raise ExperimentError(f"{key}: unknown {name!r}; did you mean {close[0]!r} of {plugins[close[0]].origin}?")
        return None
    if plugin.problem:
        raise ExperimentError(f"{key}: {name}: {plugin.problem}")
    return plugin


def offering(target: str) -> Plugin | None:
    """Return the plug-in with this class, ``package.module:Name``; None if no installed package offers it."""
    return next((plugin for plugin in installed() if plugin.target == target), None)
