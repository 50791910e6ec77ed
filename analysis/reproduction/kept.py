"""Kept results: the last result of each reproduction and its measurements, in `results/`, shipped with the package.

The pages about papers are generated from kept results (`pages`). `testbed reproduce --verify` makes table, claims and
verdicts from the measurements again, and `testbed reproduce --list` shows the verdicts.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from analysis.reproduction.contract import (
    DataKind,
    Measurements,
    Origin,
    Reproduction,
    ReproductionResult,
    Scale,
)
from analysis.reproduction.measurements import FILE, nearly_equal, read_measurements
from analysis.reproduction.verdicts import PaperClaim
from analysis.tables import plain
from testbed.durations import rounded_duration
from testbed.errors import ExperimentError

RESULTS = Path(__file__).parent / "results"
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True)
class KeptResult:
    """Result that was read from a file.

    Attributes:
        name: name of the reproduction.
        scale: scale at which the reproduction ran.
        origin: version, machine and duration of the run.
        result: table, claims and remarks; figures as file names, without a folder.
        written: verdicts in the file, in the claims' order; the verdicts of `result` are computed.
        measurements: measurements behind the result; None if none were stored, as in earlier versions.
    """

    name: str
    scale: Scale
    origin: Origin
    result: ReproductionResult
    written: Sequence[str]
    measurements: Measurements | None = None


def measurements_file(result: Path) -> Path:
    """Return the file of a result's measurements.

    Args:
        result: ``result.json``, or ``NAME.json`` of a kept result.

    Example:
        >>> measurements_file(Path("lotto-fig2.json")).name
        'lotto-fig2.measurements.json'
    """
    return result.with_name(FILE if result.name == "result.json" else f"{result.stem}.{FILE}")


def read(path: Path) -> KeptResult:
    """Read a result from a file.

    Args:
        path: a ``result.json`` of `testbed reproduce`. Its measurements are read from `measurements_file`.

    Raises:
        ExperimentError: the file does not exist, or it is not the result of a reproduction; or the measurements are not
            readable.
    """
    measurements = read_measurements(measurements_file(path))
    try:
        if path.stat().st_size > _MOST_BYTES:  # the user names the path: any file may be there
            raise ValueError
        data = json.loads(path.read_bytes())
        claims = [PaperClaim.of_data(claim) for claim in data["claims"]]
        if data["scale"] not in get_args(Scale):
            raise ValueError
        return KeptResult(
            str(data["name"]), data["scale"], Origin(**data["origin"]),
            ReproductionResult(
                pd.DataFrame.from_records(data["table"]), [Path(str(name)) for name in data["figures"]], claims,
                [str(remark) for remark in data["remarks"]],
            ),
            [str(claim["verdict"]) for claim in data["claims"]],
            measurements,
        )  # fmt: skip
    except FileNotFoundError:
        raise ExperimentError(f"{path}: no such file; `testbed reproduce NAME` writes it") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExperimentError(f"{path}: not a result.json of `testbed reproduce` of this version") from None


def kept_result(reproduction: Reproduction) -> KeptResult | None:
    """Return the kept result of a reproduction; None without a kept result."""
    path = RESULTS / f"{reproduction.name}.json"
    return read(path) if path.exists() else None


def kept_results(every: Iterable[Reproduction]) -> dict[str, KeptResult]:
    """Return the kept results of reproductions by name, each read once."""
    results = {reproduction.name: kept_result(reproduction) for reproduction in every}
    return {name: result for name, result in results.items() if result is not None}


def unmeasured(results: Iterable[KeptResult], form: str = "{}") -> tuple[int, str]:
    """Return the number of results without measurements, and their names with the time that their runs took.

    Args:
        results: results.
        form: format of a name.
    """
    without = [result for result in results if result.measurements is None]
    names = ", ".join(f"{form.format(each.name)} ({rounded_duration(each.origin.seconds)})" for each in without)
    return len(without), f"{rounded_duration(sum(each.origin.seconds for each in without))}: {names}"


def data_kind(outcome: KeptResult, reproduction: Reproduction) -> DataKind:
    """Return the kind of data behind a result.

    Args:
        outcome: a result.
        reproduction: its reproduction. Its built-in data count for a result without measurements.
    """
    return reproduction.built_in_data if outcome.measurements is None else outcome.measurements.setting.data_kind


def by_data(outcome: KeptResult, reproduction: Reproduction) -> tuple[Sequence[PaperClaim], Sequence[PaperClaim]]:
    """Return the claims that were measured as the paper's data set or no data allow, and those on stand-in data.

    Args:
        outcome: a result.
        reproduction: its reproduction.
    """
    claims = outcome.result.claims
    if data_kind(outcome, reproduction) != "stand-in":
        return claims, ()
    return [claim for claim in claims if not claim.uses_data], [claim for claim in claims if claim.uses_data]


def differences(outcome: KeptResult) -> list[str]:
    """List the verdicts in a file that differ from the verdicts of the file's numbers, one line each."""
    return [
        f"{outcome.name}: {claim.claim!r}: the file has verdict {written!r}, but its numbers give {claim.verdict!r}"
        for claim, written in zip(outcome.result.claims, outcome.written, strict=True)
        if claim.verdict != written
    ]


_NOT_COMPUTED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of `conclude` for measurements of other columns or rows."""


def check_measurements(outcome: KeptResult, reproduction: Reproduction) -> list[str]:
    """Make table, claims and remarks from stored measurements, and list their differences from the file, one line each.

    Args:
        outcome: a result with measurements.
        reproduction: its reproduction.
    """
    assert outcome.measurements is not None
    try:
        again = reproduction.conclude(outcome.measurements)
    except _NOT_COMPUTED as error:
        why = f"{type(error).__name__}: {error}"
        return [f"{outcome.name}: table and claims cannot be made from its measurements ({why})"]
    parts = [
        ("claims", [claim.as_data() for claim in outcome.result.claims], [claim.as_data() for claim in again.claims]),
        ("table", plain(outcome.result.table), plain(again.table)),
        ("remarks", list(outcome.result.remarks), list(again.remarks)),
    ]
    lines = [
        f"{outcome.name}: {place} is {written!r} in the file, but its measurements give {here!r}"
        for part, in_file, computed in parts
        for place, written, here in _unequal(json_data(in_file), json_data(computed), part)
    ]
    return lines + [
        f"{outcome.name}: {claim.claim!r}: not run, without a reason"
        for claim in again.claims
        if claim.verdict == "not run" and not claim.not_run
    ]


def json_data(value: Any) -> Any:
    """Return a value as JSON gives it back."""
    return json.loads(json.dumps(value))


def _unequal(written: Any, computed: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """List the places at which two pieces of plain data differ; numbers may differ in their last digits."""
    if isinstance(written, dict) and isinstance(computed, dict) and written.keys() == computed.keys():
        inner = [(f"{place}.{key}" if place else str(key), written[key], computed[key]) for key in written]
    elif isinstance(written, list) and isinstance(computed, list) and len(written) == len(computed):
        inner = [
            (f"{place}[{at}]", left, right) for at, (left, right) in enumerate(zip(written, computed, strict=True))
        ]
    else:
        numbers = isinstance(written, int | float) and isinstance(computed, int | float)
        close = numbers and nearly_equal(written, computed)
        return [] if close or written == computed else [(place, written, computed)]
    return [line for at, left, right in inner for line in _unequal(left, right, at)]
