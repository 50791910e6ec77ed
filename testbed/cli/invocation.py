"""Parts that all commands share: arguments, options, errors as lines, exit codes."""

import errno
import functools
import json
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from testbed.cli.terminal import echo, messages
from testbed.errors import CodeCrashed, ExperimentError, TestbedError, TraceError, reason
from testbed.extras import extra_of, missing_extra
from testbed.plugins.classes import IMPORT_CLASSES, allow_importing, importing_classes
from testbed.signals import stop_code

BAD_INPUT, FAILED = 2, 3
NO_ROUND_COMPLETED = 4
"""Exit code if all runs have ended in good order, but no round of any run has completed."""
_NO_READER = 1  # typer's exit code, too


@dataclass
class Invocation:
    """One call of the command.

    Attributes:
        arguments: arguments after the program's name.
        debug: whether to print tracebacks.
    """

    arguments: tuple[str, ...]
    debug: bool = False

    @property
    def command_line(self) -> str:
        """The command line of this call."""
        return shlex.join(["testbed", *self.arguments])

    @property
    def resume_command_line(self) -> str:
        """The command line that resumes this call."""
        more = [] if "--resume" in self.arguments else ["--resume"]
        return shlex.join(["testbed", *self.arguments, *more])


def option(metavar: str, help: str, *names: str, **more: Any) -> Any:
    """Return a typer option.

    Args:
        metavar: placeholder of the value in the help.
        help: text of the help.
        names: names of the option; default: from the parameter.
        more: further arguments of `typer.Option`.
    """
    return typer.Option(*names, metavar=metavar, help=help, **more)


def argument(metavar: str, help: str) -> Any:
    """Return a typer argument.

    Args:
        metavar: its name in the help.
        help: text of the help.
    """
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def flag(help: str, *names: str) -> Any:
    """Return a typer option without a value.

    Args:
        help: text of the help.
        names: names of the option; default: from the parameter.
    """
    return typer.Option(*names, metavar="", help=help)


def _allow_importing(is_given: bool) -> bool:
    if is_given:
        allow_importing()
    return is_given


def _set_debug(context: typer.Context, is_given: bool) -> None:
    context.obj.debug = context.obj.debug or is_given


Debug = Annotated[
    bool, typer.Option("--debug", metavar="", callback=_set_debug, is_eager=True, help="Print tracebacks of errors.")
]
ExperimentFile = Annotated[Path, argument("EXPERIMENT.yaml", "An experiment file.")]
Quiet = Annotated[bool, flag("No progress.", "--quiet", "-q")]
Overrides = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "Override a key of the experiment. A mapping is merged into its section, {} empties it; sweep={...} replaces "
        "the sweep, sweep.KEY=[...] adds a key to it. May be repeated.",
        "--set",
    ),
]


ImportClasses = Annotated[
    bool,
    typer.Option(
        IMPORT_CLASSES,
        metavar="",
        callback=_allow_importing,
        help="Import the user-defined classes that the experiment names, and start its Flower app. This runs their "
        "code.",
    ),
]


def runs_code(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with permission to import and start code that its files name.

    Other commands have it only if they have the option `ImportClasses` and it is given (`testbed.cli.main`).
    """

    @functools.wraps(command)
    def allowed(*arguments: Any, **options: Any) -> None:
        with importing_classes(True):
            command(*arguments, **options)

    return allowed


@dataclass(frozen=True)
class Verb:
    """A verb of the `testbed` command: a command of one word, as an entry point names it (`testbed.cli.verbs`).

    Attributes:
        call: the function to call; its parameters are the options, its docstring is the help.
        epilog: the end of the help.
    """

    call: Callable[..., None]
    epilog: str | None = None


def verb(epilog: str, *, imports: bool = False) -> Callable[[Callable[..., None]], Verb]:
    """Return a decorator that makes a function a `Verb`.

    Args:
        epilog: the end of the help.
        imports: whether the verb may import and start code that its files name.
    """

    def decorate(command: Callable[..., None]) -> Verb:
        return Verb(runs_code(command) if imports else command, epilog)

    return decorate


def examples(*commands: str, then: str = "") -> str:
    """Return the end of a command's help: examples, one per line, and a note.

    Args:
        commands: the examples.
        then: the note.
    """
    lines = ["[bold]Examples[/bold]", *(f"[dim]$[/dim] {command}" for command in commands)]
    return "\n".join([*lines, f"[dim]{then}[/dim]"] if then else lines)


def group(name: str, help: str, epilog: str = "") -> typer.Typer:
    """Return a command that consists of others; alone it prints its help and exits with `BAD_INPUT`.

    Args:
        name: name of the command.
        help: text of the help.
        epilog: the end of the help.
    """
    app = typer.Typer(
        name=name,
        help=help,
        epilog=epilog or None,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )

    @app.callback(invoke_without_command=True)
    def _main(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            echo(context.get_help())
            raise typer.Exit(BAD_INPUT)

    return app


def yaml_quote(value: str) -> str:
    """Return `value` as YAML for this exact string.

    Example:
        >>> yaml_quote("yes")
        '"yes"'
    """
    return json.dumps(value)


def report_error(error: BaseException, invocation: Invocation) -> int:
    """Print an error on standard error, in lines that begin with ``error:``, and return the exit code.

    Args:
        error: the error.
        invocation: the call of the command.
    """
    if isinstance(error, BrokenPipeError):  # the reader of the output has gone (`testbed schema | head`)
        # Python flushes standard output at exit, and would print a second error for the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NO_READER
    if isinstance(error, KeyboardInterrupt):
        _print(["stopped"], "")
        return stop_code()
    if invocation.debug:
        echo("".join(traceback.format_exception(error)), nl=False, err=True)
        if isinstance(error, CodeCrashed) and error.__cause__ is None:  # raised in another process
            echo(error.trace, err=True)
    if isinstance(error, ModuleNotFoundError) and error.name and extra_of(error.name):
        error = missing_extra(error.name, "this command")
    if isinstance(error, TestbedError):
        _print(str(error).splitlines() or [type(error).__name__])
        return BAD_INPUT if isinstance(error, ExperimentError | TraceError) else FAILED
    if hasattr(error, "format_message"):  # a mistake in the command line itself
        command = getattr(getattr(error, "ctx", None), "command_path", "testbed")
        _print([f"{_worded(error)}; see `{command} --help`"])
        return BAD_INPUT
    if is_out_of_memory(error):
        _print([f"{_SHORT_OF_MEMORY} ({reason(str(error)) or type(error).__name__})"])
        return FAILED
    if isinstance(error, OSError) and error.strerror:
        _print([f"{error.filename}: {error.strerror}" if error.filename else error.strerror])
        return FAILED
    what = " ".join("".join(traceback.format_exception_only(error)).split())
    hint = "" if invocation.debug else "; --debug prints the traceback"
    _print([f"{what} (a bug in the testbed or in a user-defined class{hint})"])
    return FAILED


_SHORT_OF_MEMORY = (
    "out of memory: torch alone maps about 4 GB when it starts; raise the limit (ulimit -v, the container's or the "
    "job's), end other programs, or run a smaller experiment"
)
_OF_MEMORY = re.compile(
    r"failed to map segment|(cannot|can't|unable to) allocate|not enough memory|out of memory", re.I
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory is short.

    Args:
        error: an error of Python, of the system, or of a library. A shared library that cannot be mapped raises
            ImportError, a failed allocation of torch RuntimeError.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, ImportError | OSError | RuntimeError) and bool(_OF_MEMORY.search(str(error)))


_KINDS = {
    "int_parsing": "not a whole number",
    "int_from_float": "not a whole number",
    "int_parsing_size": "has too many digits",
    "float_parsing": "not a number",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
}
"""Messages for pydantic's errors about numbers, which typer raises; in braces their context."""
_LONGEST_SHOWN = 40


def _worded(error: Any) -> str:
    """Return the message for a mistake in the command line; for a wrong number with the value and the allowed ones."""
    from pydantic import ValidationError  # typer has imported it if there is such a mistake

    message = " ".join(error.format_message().split()).rstrip(".")
    if not isinstance(error.__cause__, ValidationError):
        return message
    (problem, *_) = error.__cause__.errors(include_url=False)
    if problem["type"] not in _KINDS:
        return message.replace("Value error, ", "")
    value, wrong = str(problem["input"]), _KINDS[problem["type"]].format_map(problem.get("ctx", {}))
    shown = value if len(value) <= _LONGEST_SHOWN else f"{value[: _LONGEST_SHOWN - 3]}..."
    return f"{message.removesuffix(' '.join(str(error.message).split()).rstrip('.'))}{shown}: {wrong}"


def _print(lines: Sequence[str], before: str = "error: ") -> None:
    for line in lines:
        messages().print(Text.assemble((before, "bold red"), line))


def check_folder(option: str, directory: Path) -> None:
    """Create the folder that `option` names if needed; raises `ExperimentError` if it cannot be written.

    Args:
        option: name of the option, for the message.
        directory: the folder.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ExperimentError(
            f"{option}: {directory} cannot be written to ({error.strerror}); give another folder"
        ) from None


def check_file(option: str, file: Path) -> None:
    """Check the folder of a file as `check_folder`; raises `ExperimentError` also if the file is a folder.

    Args:
        option: name of the option, for the message.
        file: the file.
    """
    if file.is_dir():
        raise ExperimentError(f"{option}: {file} is a folder; give a file in it")
    check_folder(option, file.parent)
