"""Kept results: the outcome of each reproduction as it was last run, in `results/`, one ``result.json`` each.

They are part of the package: what the documentation says of a paper is generated from them (`pages`), their verdicts
are computed again by `testbed reproduce --verify`, and `--list` shows them.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from analysis.reproduction.contract import ClaimsOf, Origin, Reproduction, ReproductionResult, Scale
from analysis.reproduction.verdicts import PaperClaim
from testbed.errors import ExperimentError

RESULTS = Path(__file__).parent / "results"
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True)
class KeptResult:
    """An outcome that was written.

    Attributes:
        name: of the reproduction.
        scale: at which it was run.
        origin: of which code it is, and what it took.
        result: table, claims, remarks; figures by name, without a folder.
        written: the verdicts that the file says, in the claims' order; those of `result` are computed.
    """

    name: str
    scale: Scale
    origin: Origin
    result: ReproductionResult
    written: Sequence[str]


def read(path: Path) -> KeptResult:
    """The outcome in a file.

    Raises:
        ExperimentError: there is no such file, or it is no outcome of a reproduction.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
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
        )  # fmt: skip
    except FileNotFoundError:
        raise ExperimentError(f"{path}: no such file; `testbed reproduce NAME` writes it") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExperimentError(f"{path}: not a result.json of `testbed reproduce` of this version") from None


def kept(reproduction: Reproduction) -> KeptResult | None:
    """The kept outcome of a reproduction; None where none is kept."""
    path = RESULTS / f"{reproduction.name}.json"
    return read(path) if path.exists() else None


def differences(outcome: KeptResult) -> list[str]:
    """Verdicts that the file says and its numbers do not give, a line each."""
    return [
        f"{outcome.name}: {claim.claim!r} is written down as {written}, and its numbers say {claim.verdict}"
        for claim, written in zip(outcome.result.claims, outcome.written, strict=True)
        if claim.verdict != written
    ]


@dataclass(frozen=True)
class TableCheck:
    """The kept claims beside those that the kept table gives.

    Attributes:
        again: claims that were computed again.
        claims: claims that are written down.
        differing: numbers and words that the table does not give, a line each.
    """

    again: int
    claims: int
    differing: Sequence[str]


def check_table(outcome: KeptResult, claims_of: ClaimsOf) -> TableCheck:
    """Compute claims again from the kept table, and compare every number and word of them.

    Args:
        found: a kept outcome.
        claims_of: computes the claims, see `analysis.reproduction.contract.Reproduction`.

    Returns:
        How many claims were computed again, and where the file differs.
    """
    claims = outcome.result.claims
    try:
        computed = claims_of(outcome.result.table, max((claim.seeds for claim in claims), default=0))
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        line = f"{outcome.name}: no claim follows from its table ({type(error).__name__}: {error})"
        return TableCheck(0, len(claims), [line])
    if len(claims) != len(computed):
        line = f"{outcome.name}: {len(claims)} claims are written down, and its table gives {len(computed)}"
        return TableCheck(0, len(claims), [line])
    pairs = [(claim, again) for claim, again in zip(claims, computed, strict=True) if again is not None]
    differing = [
        f"{outcome.name}: {claim.claim!r}: {place} is written down as {written!r}, and its table gives {here!r}"
        for claim, again in pairs
        for place, written, here in _unequal(claim.as_data(), again.as_data())
    ]
    return TableCheck(len(pairs), len(claims), differing)


def _unequal(written: Any, computed: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """List the places where two pieces of plain data differ; numbers may differ in their last digits."""
    if isinstance(written, dict) and isinstance(computed, dict) and written.keys() == computed.keys():
        inner = [(f"{place}.{key}" if place else str(key), written[key], computed[key]) for key in written]
    elif isinstance(written, list) and isinstance(computed, list) and len(written) == len(computed):
        inner = [
            (f"{place}[{at}]", left, right) for at, (left, right) in enumerate(zip(written, computed, strict=True))
        ]
    else:
        numbers = isinstance(written, int | float) and isinstance(computed, int | float)
        close = numbers and math.isclose(written, computed, rel_tol=1e-9, abs_tol=1e-12)
        return [] if close or written == computed else [(place, written, computed)]
    return [line for at, left, right in inner for line in _unequal(left, right, at)]
