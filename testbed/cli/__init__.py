"""The `testbed` command, a thin layer over the library; its verbs are entry points (`verbs`)."""

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from testbed.cli.invocation import Invocation, examples, option, report_error
from testbed.cli.terminal import echo
from testbed.cli.verbs import Verbs
from testbed.plugins.classes import importing_classes
from testbed.signals import STOP_CODES, stop_code, stopping_on_signals
from testbed.version import VERSION

_EPILOG = examples(
    "testbed validate examples/quickstart.yaml",
    "testbed run examples/quickstart.yaml --out runs/quickstart",
    "testbed compare runs/quickstart --format markdown",
    "testbed plot runs/quickstart --out figures",
    then="Exit codes: 0 done, 2 bad input, 3 run failed, 4 no round completed, 130 stopped (by signal: 129, 143).",
)

# pydantic and torch read the entry points of all installed packages for plug-ins, and raise if one file is damaged.
# The command uses no such plug-ins; neither library is imported before `main`.
_PLUGINS_OFF = {"PYDANTIC_DISABLE_PLUGINS": "__all__", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

app = typer.Typer(
    cls=Verbs,
    name="testbed",
    help="Emulate secure participant selection in federated learning, and measure its costs.",
    epilog=_EPILOG,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(is_given: bool) -> None:
    if is_given:
        echo(f"testbed {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[
        bool, option("", "Print the version and exit.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        echo(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; never raises.

    Args:
        arguments: arguments of the command; default: those of this process.

    Returns:
        0: done; 2: bad input; 3: the run failed; 4: no round completed; 130, 143, 129: stopped by SIGINT, SIGTERM,
            SIGHUP.
    """
    if arguments is None:  # the process ends after the command
        atexit.register(_end_sooner)
        for variable, off in _PLUGINS_OFF.items():
            os.environ.setdefault(variable, off)
    invocation = Invocation(tuple(sys.argv[1:] if arguments is None else arguments))
    try:
        with stopping_on_signals(), importing_classes(False):  # `runs_code` and --import-classes allow it
            return _invoked(invocation)
    except (Exception, KeyboardInterrupt) as error:
        return report_error(error, invocation)


def _end_sooner() -> None:
    """Skip the final garbage collection, which costs 0.5 s with torch. Not with triton: it would report leaks."""
    if "triton" not in sys.modules:
        gc.freeze()


def _invoked(invocation: Invocation) -> int:
    try:
        code = app(args=list(invocation.arguments), prog_name="testbed", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
    except SystemExit as end:  # raised by typer when the reader of the output has gone
        return end.code if isinstance(end.code, int) else 1
    if code == STOP_CODES[0]:  # typer's result of KeyboardInterrupt, after any signal
        return stop_code()
    return code if isinstance(code, int) else 0
