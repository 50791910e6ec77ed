"""The formats of ``testbed trace convert``, and the options that each needs or allows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ExperimentError, TraceError
from testbed.files import limits

if TYPE_CHECKING:
    from testbed.emulation.traces.text_tables import TableForm

_TABLE = ("--header", "--decimal")


@dataclass(frozen=True)
class FormatOptions:
    """The options that a format needs, and others that it allows."""

    needed: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()


AVAILABILITY: Mapping[str, FormatOptions] = {
    "phone-intervals": FormatOptions((), ("--outside",)),
    "flash": FormatOptions((), ("--outside",)),
    "fedscale": FormatOptions((), ("--outside",)),
    "matrix": FormatOptions(("--round-seconds",)),
    "csv": FormatOptions(
        ("--client-column", "--from-column", "--until-column"),
        ("--unit", "--outside", "--recorded-from-column", "--recorded-until-column", "--skip-incomplete", *_TABLE),
    ),
    "spot": FormatOptions((), ("--outside",)),
    "failure-trace-archive": FormatOptions((), ("--outside",)),
    "flhetbench": FormatOptions(("--timers",), ("--outside",)),
}
SERIES: Mapping[str, FormatOptions] = {
    "mahimahi": FormatOptions((), ("--bin", "--match")),
    "3g-log": FormatOptions((), ("--match",)),
    "csv": FormatOptions(
        ("--time-column", "--value-column", "--unit"),
        ("--time-unit", "--rows", "--round-trip", "--match", "--split-column", "--average-repeated", *_TABLE),
    ),
}


def check_options(format: str, options: Mapping[str, Any], formats: Mapping[str, FormatOptions], kind: str) -> None:
    """Check the options of a conversion.

    Args:
        format: of the source.
        options: values by name; None: not set.
        formats: options of each format.
        kind: of the conversion, for messages.

    Raises:
        ExperimentError: for an unknown format, a missing option, or an option without effect.
    """
    if format not in formats:
        raise ExperimentError(f"--from: {format!r} is not a format of --kind {kind}; allowed: {', '.join(formats)}")
    for name, value in options.items():
        if value is None and name in formats[format].needed:
            raise ExperimentError(f"{name}: needed with --from {format}")
        if value is not None and name not in (*formats[format].needed, *formats[format].possible):
            raise ExperimentError(f"{name}: has no effect with --from {format}; leave it out")


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> Any:
    """Return a value if it is allowed.

    Args:
        name: of the option, for messages.
        value: its value.
        allowed: allowed values.

    Raises:
        ExperimentError: if the value is not allowed.
    """
    if value not in allowed:
        raise ExperimentError(f"{name}: {value!r} is not allowed; one of {', '.join(allowed)}")
    return value


def table_form(options: Mapping[str, Any]) -> "TableForm":
    """Return the form of a text table, by the options."""
    from testbed.emulation.traces.text_tables import TableForm

    return TableForm(options["--header"], options["--decimal"])


def check_there(source: Path) -> None:
    """Raise `TraceError` unless the source is an existing file or folder, and not a pipe or device."""
    if not source.exists():
        raise TraceError(f"{source}: no such file")
    try:
        limits.check_regular(source)
    except OSError as error:
        raise TraceError(f"{source}: cannot be read: {error.strerror}") from None
