"""A reproduction's outcome, rendered and written."""

import json
from pathlib import Path

import pandas as pd
import pytest

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.presentation import FILES, render, write
from analysis.reproduction.verdicts import PaperClaim, below
from testbed.errors import ExperimentError, RunError


def _measure(context: ReproductionContext) -> Measurements:
    return Measurements(Setting("none"), {})


def _conclude(measurements: Measurements) -> ReproductionResult:
    return MADE


ONE = Reproduction("paper-table9", "Cost of an item", "A. Author, arXiv 0000.00000, Table 9", _measure, _conclude)
MADE = ReproductionResult(
    table=pd.DataFrame(
        {
            "item": ["a|b", "a|b", "c"],
            "n": [10, 20, 10],
            "cost": [0.123456789, 1234.5678, float("nan")],
            "cost (paper)": [0.1, None, 12.0],
            "rounds": ["2/0", "2/0", "0/2"],
        }
    ),
    figures=[Path("out/figure.png"), Path("out/figure.pdf")],
    claims=[PaperClaim("costs little", "0.12", [below("cost", 0.12, 1)]), PaperClaim("is fast", "nothing ran")],
    remarks=["Smaller than the paper."],
)


def test_text_rounds_and_leaves_gaps_visible() -> None:
    text = render(ONE, MADE, "small")
    assert "Cost of an item" in text
    assert "scale small" in text
    assert " 0.1235 " in text
    assert " 1235 " in text
    assert "–" in text
    assert "not run" in text
    assert text.endswith("\n")


def test_text_splits_a_wide_table_and_names_the_rows_in_each_part() -> None:
    wide = pd.DataFrame({"item": ["x", "y"], **{f"a rather long heading {place}": [1.5, 2.5] for place in range(9)}})
    text = render(ONE, ReproductionResult(wide), "paper")
    assert max(map(len, text.splitlines())) <= 118
    assert text.count("item") > 1
    assert all(f"heading {place}" in text for place in range(9))


def test_markdown_is_one_table_per_part_with_its_figures() -> None:
    text = render(ONE, MADE, "small", "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == "| item | n | cost | cost (paper) | rounds |"
    assert rows[1] == "| --- | --- | ---: | ---: | ---: |"
    assert rows[2].startswith("| a\\|b | 10 | 0.1235 |")
    assert "![figure](figure.png)" in text
    assert "figure.pdf" not in text


def test_json_has_unrounded_numbers_and_null_for_missing_values() -> None:
    data = json.loads(render(ONE, MADE, "small", "json"))
    assert data["name"] == "paper-table9"
    assert data["table"][0]["cost"] == 0.123456789
    assert data["table"][2]["cost"] is None
    assert data["table"][1]["cost (paper)"] is None
    assert [claim["verdict"] for claim in data["claims"]] == ["agrees", "not run"]


def test_another_format_is_refused() -> None:
    with pytest.raises(ExperimentError, match="allowed: text, markdown, json"):
        render(ONE, MADE, "small", "yaml")


MEASURED = Measurements(Setting("none", seeds=[1, 2]), {"runs": pd.DataFrame({"seed": [1, 2], "cost": [0.5, None]})})


def test_files_hold_what_is_rendered(tmp_path: Path) -> None:
    paths = write(ONE, MADE, "small", tmp_path / "new", measurements=MEASURED)
    assert [path.name for path in paths] == list(FILES)
    assert paths[0].read_text() == render(ONE, MADE, "small", "markdown")
    assert paths[1].read_text() == render(ONE, MADE, "small", "json")
    assert pd.read_csv(paths[2])["cost"][0] == 0.123456789
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(FILES)


def test_without_a_table_there_is_no_csv(tmp_path: Path) -> None:
    assert [path.name for path in write(ONE, ReproductionResult(), "small", tmp_path)] == ["result.md", "result.json"]


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be created") as raised:
        write(ONE, MADE, "small", tmp_path / "file" / "below")
    assert "\n" not in str(raised.value)
