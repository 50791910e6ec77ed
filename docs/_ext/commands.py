"""The reference of the command line: a page a command or group of commands, from the typer application."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from docs._ext.configuration import TOCTREE
from docs._ext.markdown import escaped
from testbed.cli import app

_MARKUP = re.compile(r"\[/?[a-z ]+\]")
_PROMPT = "$ "


def command_line() -> Any:
    """Return the application as a group of typer."""
    from typer.main import get_command

    return get_command(app)


def leaves(command: Any, path: tuple[str, ...] = ("testbed",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands that do something, with the words that call them."""
    if not getattr(command, "commands", None):
        yield path, command
    for name, one in getattr(command, "commands", {}).items():
        if not one.hidden:
            yield from leaves(one, (*path, name))


def pages() -> dict[str, str]:
    """Return the pages by name, as Markdown."""
    root = command_line()
    shown = {name: one for name, one in root.commands.items() if not one.hidden}
    made = {name: _page(("testbed", name), one) for name, one in shown.items()}
    return {"index": _index(root, shown), **made}


def plain(text: str | None) -> str:
    """Help without rich's markup."""
    return _MARKUP.sub("", inspect.cleandoc(text or ""))


def examples(command: Any) -> tuple[list[str], str]:
    """The commands in the end of a command's help, and the note below them."""
    lines = plain(command.epilog).splitlines()
    commands = [line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT)]
    notes = [line for line in lines if not line.startswith(_PROMPT) and line.strip() not in ("", "Examples", "Example")]
    return commands, "\n".join(notes)


def _index(root: Any, shown: dict[str, Any]) -> str:
    panels: dict[str, list[str]] = {}
    for name, one in shown.items():
        panel = getattr(one, "rich_help_panel", None)
        panels.setdefault(panel if isinstance(panel, str) else "", []).append(name)
    parts = ["# The command line\n\n", f"{escaped(plain(root.help))}\n\n", _examples(root)]
    parts.append("Every command explains itself with `--help`; `--debug` prints tracebacks of errors.\n\n")
    for panel, names in panels.items():
        if panel:
            parts.append(f"## {panel}\n\n")
        for name in names:
            first = escaped(plain(shown[name].help).partition("\n\n")[0].replace("\n", " "))
            parts.append(f"- [`testbed {name}`]({name}.md): {first}\n")
        parts.append("\n")
    return "".join(parts) + TOCTREE


def _page(path: tuple[str, ...], command: Any) -> str:
    called = " ".join(path)
    if not getattr(command, "commands", None):
        return f"# `{called}`\n\n" + _command(path, command)
    parts = [f"# `{called}`\n\n{escaped(plain(command.help))}\n\n", _examples(command)]
    for words, one in leaves(command, path):
        parts.append(f"## `{' '.join(words)}`\n\n" + _command(words, one))
    return "".join(parts)


def _command(path: tuple[str, ...], command: Any) -> str:
    called = " ".join(path)
    parameters = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = [one for one in parameters if _is_argument(one)]
    options = [one for one in parameters if not _is_argument(one)]
    usage = " ".join([called, *(["[OPTIONS]"] if options else []), *(_argument(one) for one in arguments)])
    parts = [f"```text\n{usage}\n```\n\n", f"{_help(plain(command.help))}\n\n", _examples(command)]
    parts += [_option(_argument(one).strip("[].") or one.name, one) for one in arguments]
    parts += [_option(", ".join(_spelt(one)), one) for one in options]
    return "".join(parts) + ("\n" if parameters else "")


def _help(text: str) -> str:
    """Return a help text with its indented lines as code."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        verbatim = paragraph.startswith(("  ", "\b"))
        paragraphs.append(f"```text\n{paragraph}\n```" if verbatim else escaped(paragraph))
    return "\n\n".join(paragraphs)


def _examples(command: Any) -> str:
    commands, note = examples(command)
    listed = "```bash\n" + "\n".join(commands) + "\n```\n\n" if commands else ""
    return listed + (f"{escaped(note)}\n\n" if note else "")


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()) + ("..." if parameter.nargs != 1 else "")
    return name if parameter.required else f"[{name.strip('[]')}]"


def _spelt(option: Any) -> list[str]:
    value = "" if option.is_flag else f" {option.metavar or _kind(option)}"
    return [f"{name}{value}" for name in (*option.opts, *option.secondary_opts)]


def _kind(option: Any) -> str:
    """Return the placeholder for the value of an option without a metavar."""
    choices = _choices(option)
    if choices:
        return "|".join(choices)
    annotation = _annotation(option)
    return {int: "INTEGER", float: "NUMBER"}.get(annotation, "TEXT" if annotation is str else "VALUE")


def _annotation(option: Any) -> Any:
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", str)
    while get_origin(annotation) is list:
        annotation = get_args(annotation)[0]
    return annotation


def _choices(option: Any) -> list[str]:
    annotation = _annotation(option)
    return [str(value) for value in get_args(annotation)] if get_origin(annotation) is Literal else []


def _option(spelt: str, parameter: Any) -> str:
    facts = []
    if _is_argument(parameter) or parameter.required:
        facts.append("Required." if parameter.required else "")
    if choices := _choices(parameter):
        facts.append("One of " + ", ".join(f"`{choice}`" for choice in choices) + ".")
    facts.append(_limits(parameter))
    default = getattr(parameter, "default", None)
    if default not in (None, False, (), []) and not callable(default) and getattr(parameter, "show_default", True):
        facts.append(f"Default: `{default}`.")
    if parameter.multiple:
        facts.append("May be repeated." if "repeated" not in (parameter.help or "") else "")
    help_text = " ".join(escaped(plain(parameter.help)).split())
    text = " ".join(filter(None, [help_text, *facts]))
    return f"- `{spelt}`: {text}\n" if text else f"- `{spelt}`\n"


def _limits(parameter: Any) -> str:
    declared = getattr(getattr(parameter, "type_descriptor", None), "parameter_info", None)
    least, most = getattr(declared, "min", None), getattr(declared, "max", None)
    if least is None and most is None:
        return ""
    if least is None or most is None:
        return f"{least} or more." if most is None else f"At most {most}."
    return f"{least} to {most}."
