"""``testbed attack survey``: each misbehaviour meets the check that it meets in a run of its own."""

import json
from typing import Any

import pytest

from testbed.cli import main
from tests.repository import ROOT

EXAMPLE = str(ROOT / "examples" / "threats.yaml")


def surveyed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    """The findings by the name of the misbehaviour."""
    assert main(["attack", "survey", EXAMPLE, "--quiet", "--format", "json", "--set", "rounds=3", *arguments]) == 0
    return {row["trial"]["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


def test_what_is_seen_is_refused_and_what_is_not_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    only = ["keep-dishonest-candidates", "forge-output", "forge-signatures", "inflate-utility"]
    found = surveyed(capsys, *(part for name in only for part in ("--only", name)))
    assert list(found) == only
    assert found["forge-output"]["verdict"] == "refused"
    assert found["forge-output"]["checks"] == ["lotto.invalid-proof at lotto/participants"]
    assert found["forge-signatures"]["checks"] == ["lotto.inconsistent-lists at lotto/signatures"]
    kept = found["keep-dishonest-candidates"]
    assert (kept["verdict"], kept["refused"], kept["completed"]) == ("bounded", 0, kept["attacked"])
    assert "Theorem 2" in kept["limit"]
    assert found["inflate-utility"]["verdict"] == "not protected"


def test_where_the_server_selects_nothing_bounds_it(capsys: pytest.CaptureFixture[str]) -> None:
    adversary = "adversary={dishonest: 0.1, server: [{prefer-dishonest: {honest: 1}}]}"
    found = surveyed(
        capsys, "--set", "selection.protocol=random", "--set", adversary,
        "--only", "prefer-dishonest", "--only", "contradict-dropouts",
    )  # fmt: skip
    assert {row["verdict"] for row in found.values()} == {"not protected"}
    assert found["contradict-dropouts"]["recovered"] == found["contradict-dropouts"]["attacked"] == 3


def test_what_does_not_apply_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", "survey", EXAMPLE, "--only", "prefer-dishonest"]) == 2
    assert "--only prefer-dishonest: does not apply to these protocols; allowed: " in capsys.readouterr().err
