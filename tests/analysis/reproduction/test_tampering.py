"""Numbers typed into kept results: `testbed reproduce --verify` finds each of them."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.reproduction import catalogue, kept, verification
from analysis.reproduction.commits import unknown_commits
from analysis.reproduction.contract import Measurements, Origin, Reproduction, ReproductionResult, Setting
from analysis.reproduction.keep import keep
from analysis.reproduction.kept import kept_result, measurements_file
from analysis.reproduction.multiplicity import multiplicity
from analysis.reproduction.presentation import write
from analysis.reproduction.verdicts import Check, PaperClaim, between, counts, within
from analysis.statistics import mean_interval
from testbed.errors import ExperimentError
from tests.messages_named import naming

CATALOGUE = catalogue.catalogue()
MEASURED = [name for name in CATALOGUE if measurements_file(kept.RESULTS / f"{name}.json").exists()]


def _changed(value: Any) -> Any:
    """Return a number that nobody measured in the place of each number; another text in the place of each text."""
    if isinstance(value, float):
        return 1.001 * value + 1e-3
    return f"{value} or so" if isinstance(value, str) else value


def _tampered(name: str, folder: Path, change: Callable[[dict[str, Any]], None]) -> list[str]:
    """Change the copy of a kept result, and return the differences that the verification lists."""
    for file in (kept.RESULTS / f"{name}.json", measurements_file(kept.RESULTS / f"{name}.json")):
        shutil.copyfile(file, folder / file.name.replace(f"{name}.json", "result.json").replace(f"{name}.", ""))
    data = json.loads((folder / "result.json").read_text())
    change(data)
    (folder / "result.json").write_text(json.dumps(data))
    return list(verification.verify([CATALOGUE[name]], folder).differing)


@pytest.mark.parametrize("name", MEASURED)
def test_a_number_or_word_typed_into_a_result_is_found(tmp_path: Path, name: str) -> None:
    assert _tampered(name, tmp_path, lambda data: None) == []
    of_it = kept_result(CATALOGUE[name])
    assert of_it is not None

    def claims(data: dict[str, Any]) -> None:
        for claim in data["claims"]:
            claim["measured"] = _changed(claim["measured"])
            for check in claim["checks"]:
                check["value"] = _changed(None if check["value"] is None else float(check["value"]))

    values = sum(check.value is not None for claim in of_it.result.claims for check in claim.checks)
    lines = _tampered(name, tmp_path, claims)
    assert sum(".value is " in line for line in lines) == values
    assert sum(".measured is " in line for line in lines) == len(of_it.result.claims)

    def table(data: dict[str, Any]) -> None:
        data["table"] = [{key: _changed(cell) for key, cell in row.items()} for row in data["table"]]

    cells = sum(isinstance(cell, float | str) for row in of_it.result.table.to_dict("records") for cell in row.values())
    assert len(_tampered(name, tmp_path, table)) >= (cells > 0)

    def remarks(data: dict[str, Any]) -> None:
        data["remarks"] = [_changed(remark) for remark in data["remarks"]]

    assert len(_tampered(name, tmp_path, remarks)) == len(of_it.result.remarks)


@pytest.mark.parametrize("name", MEASURED)
def test_no_measured_claim_lacks_a_reason_for_not_being_run(name: str) -> None:
    of_it = kept_result(CATALOGUE[name])
    assert of_it is not None
    assert [claim.claim for claim in of_it.result.claims if claim.verdict == "not run" and not claim.not_run] == []


def _concluded(measurements: Measurements) -> ReproductionResult:
    cost = measurements.tables["runs"]["cost"]
    claim = PaperClaim(
        "costs 0.5", f"{cost.mean():.3f}", [within("cost", mean_interval(cost), 0.5, 0.2)], seeds=len(cost)
    )
    return ReproductionResult(measurements.tables["runs"], claims=[claim])


ONE = Reproduction("paper-table9", "Cost of an item", "A. Author", measure=lambda context: MADE, conclude=_concluded)
MADE: Measurements = Measurements(
    Setting("stand-in", "noise", [1, 2, 3]), {"runs": pd.DataFrame({"seed": [1, 2, 3], "cost": [0.4, 0.5, 0.6]})}
)
ORIGIN = Origin(130.0, "9.9", "0123456789abcdef", "P", 2, "2026-01-01T00:00:00+00:00")


def test_a_number_typed_into_the_measurements_differs_from_the_table(tmp_path: Path) -> None:
    write(ONE, _concluded(MADE), "small", tmp_path, ORIGIN, MADE)
    verified = verification.verify([ONE], tmp_path)
    assert (verified.differing, verified.from_measurements) == ([], {"paper-table9"})
    file = tmp_path / "measurements.json"
    file.write_text(file.read_text().replace("[2, 0.5]", "[2, 0.51]"))
    lines = verification.verify([ONE], tmp_path).differing
    assert any("table[1].cost is 0.5 " in line for line in lines)
    assert any("claims[0].checks[0].value is " in line for line in lines)
    file.write_text(file.read_text().replace('"cost"', '"price"'))
    (line,) = verification.verify([ONE], tmp_path).differing
    assert "KeyError" in line


def test_claims_on_stand_in_data_are_counted_apart(tmp_path: Path) -> None:
    write(ONE, _concluded(MADE), "small", tmp_path, ORIGIN, MADE)
    of_it = kept.read(tmp_path / "result.json")
    assert [len(part) for part in kept.by_data(of_it, ONE)] == [0, 1]
    text = verification.shown(verification.verify([ONE], tmp_path), [ONE], "text")
    assert "0 claims on the paper's data, or without data" in text
    assert "1 claims on stand-in data: 0 agrees, 1 partly" in text
    without_data = [replace(claim, uses_data=False) for claim in _concluded(MADE).claims]
    write(ONE, ReproductionResult(MADE.tables["runs"], claims=without_data), "small", tmp_path, ORIGIN, MADE)
    assert [len(part) for part in kept.by_data(kept.read(tmp_path / "result.json"), ONE)] == [1, 0]


@pytest.mark.parametrize("commit", [None, "0123456789abcdef0123456789abcdef01234567-dirty"])
def test_a_result_of_a_changed_checkout_is_not_kept(tmp_path: Path, commit: str | None) -> None:
    write(ONE, _concluded(MADE), "small", tmp_path / "run", replace(ORIGIN, git_commit=commit), MADE)
    with pytest.raises(ExperimentError, match=naming("result.json", "commit")):
        keep(tmp_path / "run", tmp_path)
    write(ONE, _concluded(MADE), "small", tmp_path / "run", ORIGIN, MADE)
    assert keep(tmp_path / "run", tmp_path) == tmp_path / "paper-table9.json"
    assert kept.read(tmp_path / "paper-table9.json").measurements is not None
    (tmp_path / "run" / "measurements.json").unlink()
    with pytest.raises(ExperimentError, match=r"measurements\.json"):
        keep(tmp_path / "run", tmp_path)


def test_a_commit_that_does_not_exist_is_named(tmp_path: Path) -> None:
    write(ONE, _concluded(MADE), "small", tmp_path / "run", ORIGIN, MADE)
    of_it = kept.read(tmp_path / "run" / "result.json")
    assert unknown_commits([of_it], tmp_path) == []  # no checkout
    commands = (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    )
    for command in commands:
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    (line,) = unknown_commits([of_it], tmp_path)
    assert "0123456789abcdef" in line
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    of_head = replace(of_it, origin=replace(ORIGIN, git_commit=head.stdout.strip()))
    assert unknown_commits([of_head], tmp_path) == []


def test_many_verdicts_at_once_need_wider_intervals() -> None:
    """One of twenty claims is close to its band's edge: alone it agrees, at once with the others it does not."""
    far = [
        PaperClaim(f"far {number}", "", [Check("x", 0.0, -1.0, 1.0, -100.0, 100.0)], seeds=10) for number in range(19)
    ]
    close = PaperClaim("close", "", [Check("x", 0.0, -1.0, 1.0, -1.1, 100.0)], seeds=10)
    exact = PaperClaim("exact", "", [between("x", 3.0, 1.0, 4.0)])
    found = multiplicity([*far, close, exact])
    assert (found.claims, found.checks, found.decided, found.unchanged, found.undecided) == (20, 20, 20, 19, 1)
    assert found.expected_errors == pytest.approx(0.5)
    alone = multiplicity([close])
    assert (alone.unchanged, alone.undecided) == (1, 0)
    assert sum(counts([close]).values()) == 1
