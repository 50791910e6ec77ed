"""What installed packages offer by name: the entry points of the group ``sortition_testbed.plugins``.

An entry point ``selection.tickets = "tickets.protocol:Tickets"`` makes ``tickets`` a name of ``selection.protocol``.
Which there are is read from the packages' metadata; nothing is imported here, so that a plug-in that cannot be imported
spoils no experiment that does not name it.
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
"""What an entry point's name begins with, and the keys of an experiment that it is then a name for."""

_NAME = re.compile(r"(?P<kind>[a-z-]+)\.(?P<name>[a-z][a-z0-9-]*)")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Plugin:
    """One name that an installed package offers.

    Attributes:
        kind: of `KINDS`; empty where the entry point's name begins with none.
        name: as an experiment says it.
        target: the class, ``package.module:Name``.
        distribution: the package that offers it, and `version`, its version.
        problem: why no experiment can use it; empty otherwise.
    """

    kind: str
    name: str
    target: str
    distribution: str
    version: str
    problem: str = ""

    @property
    def origin(self) -> str:
        """The distribution and its version, for people."""
        return f"{self.distribution} {self.version}".rstrip()


def installed() -> tuple[Plugin, ...]:
    """All of them, by kind and name, those that cannot be used among them."""
    return _installed(tuple(sys.path))


@lru_cache(maxsize=4)
def _installed(_path: tuple[str, ...]) -> tuple[Plugin, ...]:
    points, unreadable = all_points(GROUP)
    points.sort(key=lambda point: (point.name, point.value))
    owners = {name: [owner(point) for point in points if point.name == name] for name in {one.name for one in points}}
    times = Counter(point.name for point in points)
    return (
        *(_plugin(point, owners[point.name] if times[point.name] > 1 else []) for point in points),
        *(Plugin("", "?", "?", one.distribution, one.version, one.problem) for one in unreadable),
    )


def _plugin(point: metadata.EntryPoint, offered_by: Collection[tuple[str, str]]) -> Plugin:
    match = _NAME.fullmatch(point.name)
    kind, name = (match["kind"], match["name"]) if match and match["kind"] in KINDS else ("", point.name)
    problem = ""
    if not kind:
        problem = f"its name is not KIND.NAME, in lower case, with one of the kinds {', '.join(KINDS)}"
    elif not _CLASS.fullmatch(point.value):
        problem = f"{point.value!r} is not package.module:Name"
    elif offered_by:
        packages = " and ".join(" ".join(one) for one in sorted(set(offered_by)))
        problem = f"offered by {packages}; uninstall all but one, or name the class as package.module:Name"
    return Plugin(kind, name, point.value, *owner(point), problem)


def named(kind: str, name: str, key: str) -> Plugin | None:
    """What an experiment means by a name that is not built in; None: no package offers such a name.

    Args:
        kind: of `KINDS`.
        name: as the experiment has it.
        key: where, for the error.

    Raises:
        ExperimentError: it cannot be used, or looks like a misspelt one.
    """
    plugins = {one.name: one for one in installed() if one.kind == kind}
    plugin = plugins.get(name)
    if plugin is None:
        if close := similar(name, plugins):
            raise ExperimentError(f"{key}: unknown {name!r}; did you mean {close[0]!r} of {plugins[close[0]].origin}?")
        return None
    if plugin.problem:
        raise ExperimentError(f"{key}: {name}: {plugin.problem}")
    return plugin


def offering(target: str) -> Plugin | None:
    """The plug-in whose class this is, ``package.module:Name``; None: no installed package offers it by a name."""
    return next((one for one in installed() if one.target == target), None)
