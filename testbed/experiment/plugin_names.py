"""Short names of plug-ins from installed packages, replaced in an experiment's plain data by their classes.

So a recorded experiment names classes, and has the same meaning where the package is not installed.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from testbed.adversary import catalogue as misbehaviours
from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.robust_rules import RULES as ROBUST_RULES
from testbed.aggregation.server_optimizers import OPTIMIZERS as SERVER_OPTIMIZERS
from testbed.emulation import devices
from testbed.emulation.availability import section as availability
from testbed.errors import ExperimentError
from testbed.experiment.sections import OBSERVERS
from testbed.plugins.installed import KINDS, Plugin, installed, named
from testbed.selection import catalogue as selections
from testbed.workload import partition, section, specs

BUILT_IN: dict[str, Callable[[], Collection[str]]] = {
    "selection": lambda: [str(kind.model_fields["protocol"].default) for kind in selections.PROTOCOLS],
    "aggregation": lambda: [str(kind.model_fields["protocol"].default) for kind in aggregations.PROTOCOLS],
    "server-optimizer": lambda: SERVER_OPTIMIZERS,
    "robust-rule": lambda: ROBUST_RULES,
    "dataset": specs.datasets,
    "model": lambda: ["auto", *specs.models()],
    "partition": lambda: partition.SCHEMES,
    "loss": lambda: section.LOSSES,
    "metric": lambda: section.METRICS,
    "optimizer": lambda: section.OPTIMIZERS,
    "devices": lambda: devices.MODELS,
    "links": lambda: (),
    "availability": lambda: [str(kind.model_fields["model"].default) for kind in availability.MODELS],
    "server-misbehaviour": lambda: misbehaviours.names("server"),
    "client-misbehaviour": lambda: misbehaviours.names("clients"),
    "observer": lambda: OBSERVERS,
}
"""Reserved names by kind of plug-in; an installed package cannot change their meaning."""

_NAMES_WITH_OPTIONS = {"server-misbehaviour", "client-misbehaviour"}  # {NAME: {OPTION: VALUE}}


def problem(plugin: Plugin) -> str:
    """Return the reason why no experiment can use a plug-in, in one line; empty if one can."""
    if not plugin.problem and plugin.name in BUILT_IN[plugin.kind]():
        return f"{plugin.name} is built in; give the plug-in another name"
    return plugin.problem


def resolved(data: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return an experiment's plain data with classes in place of the names of plug-ins.

    Args:
        data: plain data, not validated here and not changed.
        where: the file or another source; begins the lines of errors.

    Raises:
        ExperimentError: names of unusable plug-ins, one line each.
    """
    lines: list[str] = []

    def replaced(value: Any, parts: tuple[str, ...], kind: str, key: str) -> Any:
        """Return `value`, which stands at `key`, with the names at `parts` below it replaced."""
        if parts:
            if not isinstance(value, dict):
                return value
            names = value.keys() if parts[0] == "*" else value.keys() & {parts[0]}
            return value | {
                entry: replaced(value[entry], parts[1:], kind, f"{key}.{entry}".lstrip(".")) for entry in names
            }
        if isinstance(value, list | tuple):
            return [replaced(entry, (), kind, key) for entry in value]
        if isinstance(value, dict) and kind in _NAMES_WITH_OPTIONS:
            return {replaced(name, (), kind, key): options for name, options in value.items()}
        if isinstance(value, dict) and kind == "observer":
            return replaced(value, ("name",), kind, key)
        # Built-in names win: an installed package must not change the meaning of an experiment.
        if not isinstance(value, str) or ":" in value or value in BUILT_IN[kind]():
            return value
        try:
            plugin = named(kind, value, key)
        except ExperimentError as error:
            lines.append(f"{where}: {error}" if where else str(error))
            return value
        return value if plugin is None else plugin.target

    result = dict(data)
    for kind in {plugin.kind for plugin in installed()} & KINDS.keys():
        for key in KINDS[kind]:
            result = replaced(result, tuple(key.split(".")), kind, "")
    if lines:
        raise ExperimentError("\n".join(dict.fromkeys(lines)))
    return result
