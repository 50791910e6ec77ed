"""Verbs of the `testbed` command: entry points of the group ``sortition_testbed.commands``, imported when called.

An entry point ``compare = "...:compare"`` names the `Verb` that ``testbed compare`` calls, or a group of commands (a
`typer.Typer`). Packages of other authors add verbs by the same group.
"""

from collections.abc import Iterator, MutableMapping
from importlib.metadata import EntryPoint
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from testbed.cli.invocation import Verb
from testbed.errors import InstallationError, reason
from testbed.plugins.entry_points import all_points, own_object, own_points, owner
from testbed.signals import raise_if_stopped

GROUP = "sortition_testbed.commands"

PANELS = {
    "Run": ("run", "validate", "list", "new", "check", "flower", "status", "tune", "schema", "data"),
    "Look at results": ("compare", "plot", "report", "dropouts", "metrics", "privacy", "timeline", "reproduce"),
    "Traces and costs": ("calibrate", "trace"),
    "Clusters": ("submit", "cluster", "jobs"),
    "Attack and bound": ("attack", "bound", "plan"),
}
"""Panels of `testbed --help`, with the verbs of each in order."""
OTHERS = "Other packages"

_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class Verbs(TyperGroup):
    """Group of all verbs, each imported for a call or for its line in the help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()


class _Commands(MutableMapping[str, Any]):
    """Verbs by name, in the order of the help."""

    def __init__(self) -> None:
        self._added: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        ours = own_points(GROUP)
        yield from (name for name in _PANEL_OF if name in ours)
        yield from sorted({*ours, *_others(), *self._added} - _PANEL_OF.keys())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Any:
        if name not in self._added:
            self._added[name] = self._loaded(name)
        return self._added[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._added[name] = command

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    @staticmethod
    def _loaded(name: str) -> Any:
        if name in _PANEL_OF or name in own_points(GROUP):
            return _command(name, own_object(GROUP, name))
        return _foreign(name, _others()[name])


def _others() -> dict[str, list[EntryPoint]]:
    """Return the verbs of other packages by name; several entry points if packages compete for a name."""
    ours = own_points(GROUP)
    points: dict[str, list[EntryPoint]] = {}
    for point in all_points(GROUP)[0]:
        if point.name not in ours:
            points.setdefault(point.name, []).append(point)
    return points


def _foreign(name: str, points: list[EntryPoint]) -> Any:
    """Return a verb of another package; if it is unusable, a verb that reports the reason."""
    origins = [" ".join(owner(point)).rstrip() for point in points]
    # Refused instead of taking the first: its choice would depend on the order of the path.
    if len(points) > 1:
        return _refusing(name, f"offered by {' and '.join(sorted(origins))}; uninstall all but one")
    try:
        return _command(name, points[0].load())
    except BaseException as error:  # a foreign module may raise anything, even KeyboardInterrupt
        raise_if_stopped()
        why = f"of {origins[0]}, cannot be imported: {type(error).__name__}: {reason(str(error))}"
        return _refusing(name, why)


def _refusing(name: str, why: str) -> Any:
    def refuse() -> None:
        raise InstallationError(f"testbed {name}: {why}")

    refuse.__doc__ = f"Not usable: {why}."
    return _command(name, Verb(refuse))


def _command(name: str, verb: Any) -> Any:
    """Return typer's command for a `Verb` or a group of commands, with its name and its panel of the help."""
    app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.callback()(lambda: None)  # makes typer return a group, also for a single command
    panel = _PANEL_OF.get(name, OTHERS)
    if isinstance(verb, typer.Typer):
        app.add_typer(verb, name=name, rich_help_panel=panel)
    elif isinstance(verb, Verb):
        app.command(name, epilog=verb.epilog, rich_help_panel=panel)(verb.call)
    else:
        raise TypeError(f"{verb!r} is neither a Verb of testbed.cli.invocation nor a typer.Typer")
    command_group: Any = get_command(app)
    command = command_group.commands[name]
    _join_lines(command)
    return command


def _join_lines(command: Any) -> None:
    """Join the lines of each paragraph of the help."""
    # typer joins them in the first paragraph only, and breaks the others where the docstring's lines end
    if command.help:
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
    for below in getattr(command, "commands", {}).values():
        _join_lines(below)
