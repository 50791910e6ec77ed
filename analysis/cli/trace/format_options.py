"""The options of ``testbed trace convert``: which formats there are, which options each needs or may have."""

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
    """The options that a format needs, and those that it may have."""

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
    """Raise `ExperimentError` for an unknown format, an option that it lacks, and one that it does not have."""
    if format not in formats:
        raise ExperimentError(f"--from: {format!r} is no format of --kind {kind}; there are {', '.join(formats)}")
    for name, value in options.items():
        if value is None and name in formats[format].needed:
            raise ExperimentError(f"{name}: needed with --from {format}")
        if value is not None and name not in (*formats[format].needed, *formats[format].possible):
            raise ExperimentError(f"{name}: has no effect with --from {format}; leave it out")


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> Any:
    """The value, if it is allowed; raises `ExperimentError`."""
    if value not in allowed:
        raise ExperimentError(f"{name}: {value!r} is none of {', '.join(allowed)}")
    return value


def table_form(options: Mapping[str, Any]) -> "TableForm":
    """The form of a table of text, by the options."""
    from testbed.emulation.traces.text_tables import TableForm

    return TableForm(options["--header"], options["--decimal"])


def check_there(source: Path) -> None:
    """Raise `TraceError` unless there is such a file or folder, and no pipe or device."""
    if not source.exists():
        raise TraceError(f"{source}: no such file")
    try:
        limits.check_regular(source)
    except OSError as error:
        raise TraceError(f"{source}: cannot be read: {error.strerror}") from None
