"""What every command shares: the arguments as given, errors as lines, exit codes."""

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
"""All runs have ended in good order, and no round of any of them has completed."""
_NO_READER = 1  # what typer says too, when it is the one to notice


@dataclass
class Invocation:
    """One call of the command.

    Attributes:
        arguments: those after the program's name.
        debug: print tracebacks.
    """

    arguments: tuple[str, ...]
    debug: bool = False

    @property
    def command_line(self) -> str:
        """This very command line."""
        return shlex.join(["testbed", *self.arguments])

    @property
    def resume_command_line(self) -> str:
        """The command line that resumes this one."""
        more = [] if "--resume" in self.arguments else ["--resume"]
        return shlex.join(["testbed", *self.arguments, *more])


def option(metavar: str, help: str, *names: str, **more: Any) -> Any:
    """An option of a command; `metavar` stands for its value in the help."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def argument(metavar: str, help: str) -> Any:
    """An argument of a command."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def flag(help: str, *names: str) -> Any:
    """An option without a value."""
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
        "Override a key of the experiment; a mapping is merged, {} empties a section; sweep={...} replaces the sweep, "
        "sweep.KEY=[...] adds a key to it; may be repeated.",
        "--set",
    ),
]


ImportClasses = Annotated[
    bool,
    typer.Option(
        IMPORT_CLASSES,
        metavar="",
        callback=_allow_importing,
        help="Import the user-defined classes that the experiment names, and start the Flower app, which runs their "
        "code.",
    ),
]


def runs_code(command: Callable[..., None]) -> Callable[..., None]:
    """Return the same command, allowed to import and start code that its files name.

    All other commands may not (`testbed.cli.main`), unless they have the option `ImportClasses`, and it is given.
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
        call: does it; its parameters are the options, its docstring is the help.
        epilog: the end of the help.
    """

    call: Callable[..., None]
    epilog: str | None = None


def verb(epilog: str, *, imports: bool = False) -> Callable[[Callable[..., None]], Verb]:
    """Make a function a `Verb`; with `imports`, one that may import and start code that its files name."""

    def decorate(command: Callable[..., None]) -> Verb:
        return Verb(runs_code(command) if imports else command, epilog)

    return decorate


def examples(*commands: str, then: str = "") -> str:
    """The end of a command's help: examples, one per line, and a note."""
    lines = ["[bold]Examples[/bold]", *(f"[dim]$[/dim] {command}" for command in commands)]
    return "\n".join([*lines, f"[dim]{then}[/dim]"] if then else lines)


def group(name: str, help: str, epilog: str = "") -> typer.Typer:
    """A command that consists of others; alone it prints its help and ends as bad input does."""
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
    """`value` as YAML that is this very string, whatever it looks like."""
    return json.dumps(value)


def report_error(error: BaseException, invocation: Invocation) -> int:
    """Say what went wrong, on standard error, in lines that begin with ``error:``; returns the exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of our output has gone (`testbed schema | head`)
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
    _print([f"{what} (this is a bug, here or in a user-defined class{hint})"])
    return FAILED


_SHORT_OF_MEMORY = (
    "there is too little memory: torch alone maps about 4 GB when it starts; raise the limit (ulimit -v, the "
    "container's or the job's), end other programs, or take a smaller experiment"
)
_OF_MEMORY = re.compile(
    r"failed to map segment|(cannot|can't|unable to) allocate|not enough memory|out of memory", re.I
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is short: Python's, the system's, or that of a library that cannot be loaded.

    Args:
        error: as it was raised. A shared library that finds no room is an ImportError, an allocation of torch's that
            is refused a RuntimeError.
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
"""What pydantic, which typer asks, finds wrong with a number; in braces its context."""
_LONGEST_SHOWN = 40


def _worded(error: Any) -> str:
    """A mistake in the command line: of a value that is no such number, what was given and what would be."""
    from pydantic import ValidationError  # where there is such a mistake typer has imported it

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
    """Make the folder that `option` names, if need be; raises `ExperimentError` when nothing can be written there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ExperimentError(f"{option}: {directory} cannot be written to ({error.strerror}); give another") from None


def check_file(option: str, file: Path) -> None:
    """As `check_folder`, of the folder of a file; a folder of the file's name is an error, too."""
    if file.is_dir():
        raise ExperimentError(f"{option}: {file} is a folder; give a file in it")
    check_folder(option, file.parent)
