"""Kept results: reading, verification, and the pages that show them."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from analysis.reproduction import kept, pages, verification
from analysis.reproduction.contract import (
    Measurements,
    Origin,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.presentation import listed, outcome, write
from analysis.reproduction.verdicts import PaperClaim, below, counts, true
from testbed.errors import ExperimentError
from tests.messages_named import naming


def _measure(context: ReproductionContext) -> Measurements:
    return Measurements(Setting("none"), {})


def _conclude(measurements: Measurements) -> ReproductionResult:
    return MADE


ONE = Reproduction("paper-table9", "Cost of an item", "A. Author, arXiv 0000.00000, Table 9", _measure, _conclude)
OTHER = Reproduction("paper-fig3", "How it looks", "A. Author, arXiv 0000.00000, Figure 3", _measure, _conclude)
MADE = ReproductionResult(
    table=pd.DataFrame(
        {"item": ["a|b", "c"], "n": [10, 20], "cost": [0.123456789, float("nan")], "cost (paper)": [0.1, None]}
    ),
    figures=[Path("out/figure.png")],
    claims=[
        PaperClaim("costs little", "0.12", [below("cost", 0.12, 1)], seeds=3),
        PaperClaim("is fast", "nothing ran"),
    ],
    remarks=["Smaller than the paper."],
)
ORIGIN = Origin(130.0, "9.9", "0123456789abcdef", "P", 2, "2026-01-01T00:00:00+00:00")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with one kept result, of a catalogue of two."""
    write(ONE, MADE, "small", tmp_path / "made", ORIGIN)
    folder = tmp_path / "results"
    folder.mkdir()
    (tmp_path / "made" / "result.json").rename(folder / "paper-table9.json")
    monkeypatch.setattr(kept, "RESULTS", folder)
    monkeypatch.setattr(pages, "catalogue", lambda: {one.name: one for one in (ONE, OTHER)})
    monkeypatch.setattr(verification, "PAGES", tmp_path / "pages")  # this checkout's are of other reproductions
    return folder


def test_a_result_is_read_back_as_it_was_shown(results: Path) -> None:
    found = kept.kept_result(ONE)
    assert found is not None
    assert (found.name, found.scale, found.origin) == ("paper-table9", "small", ORIGIN)
    assert found.result.claims == [PaperClaim(**{**vars(one), "checks": tuple(one.checks)}) for one in MADE.claims]
    assert outcome(found.result) == outcome(MADE)
    assert found.result.figures == [Path("figure.png")]
    assert kept.kept_result(OTHER) is None


def test_the_list_has_the_verdicts_of_the_last_run(results: Path) -> None:
    text = listed([ONE, OTHER])
    assert "last: small, 2 min: 1 agrees, 1 not run" in text
    assert json.loads(listed([ONE], "json"))[0]["last"]["verdicts"]["agrees"] == 1
    assert "| not run |" in listed([OTHER], "markdown")


def _changed(results: Path, change: dict[str, object]) -> Path:
    file = results / "paper-table9.json"
    data = json.loads(file.read_text())
    data["claims"][0] |= change
    file.write_text(json.dumps(data))
    return file


def test_a_verdict_that_contradicts_its_numbers_is_found(results: Path) -> None:
    assert verification.verify([ONE, OTHER]).missing == ["paper-fig3"]
    _changed(results, {"verdict": "partly"})
    (line,) = kept.differences(kept.read(results / "paper-table9.json"))
    assert re.search(naming("paper-table9", "'costs little'", "'partly'", "'agrees'"), line)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"name": "x"}', "[" * 100_000, '{"claims": [{"claim": "c"}]}', "\xff", "null"]
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ExperimentError, match=r"not a result\.json of `testbed reproduce`") as refused:
        kept.read(file)
    assert "\n" not in str(refused.value)


def test_an_interval_whose_ends_are_swapped_is_refused(results: Path) -> None:
    data = json.loads((results / "paper-table9.json").read_text())
    file = _changed(results, {"checks": [data["claims"][0]["checks"][0] | {"low": 5.0, "high": 1.0}]})
    with pytest.raises(ExperimentError, match="not a result"):
        kept.read(file)


def test_a_users_own_results_are_verified_in_their_directory(results: Path, tmp_path: Path) -> None:
    write(ONE, MADE, "small", tmp_path / "own" / "paper-table9-small", ORIGIN)
    assert [one.name for one in verification.verify([ONE], tmp_path / "own").outcomes] == ["paper-table9"]
    assert verification.verify([ONE], tmp_path / "own" / "paper-table9-small").differing == []
    with pytest.raises(ExperimentError, match=r"has no result\.json of paper-fig3"):
        verification.verify([OTHER], tmp_path / "own")


PAGE = "# Page\n\n<!-- result: paper-table9 -->\nold\n<!-- end -->\n\nprose\n\n<!-- results: all -->\n<!-- end -->\n"


def test_pages_show_kept_results(results: Path, tmp_path: Path) -> None:
    new = pages.page(PAGE, "page.md")
    assert outcome(MADE) in new
    assert "Scale small; 2 min on 2 processors; version 9.9, 0123456789." in new
    assert "| `paper-table9` | small | – | 1 |" in new
    assert "| `paper-fig3` | – |" in new
    assert "\nprose\n" in new
    assert "old" not in new
    assert pages.page(new, "page.md") == new  # written anew, it stays


def test_an_outdated_page_is_found(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "page.md").write_text(pages.page(PAGE, "page.md"))
    assert pages.differing(folder) == []
    _changed(results, {"measured": "0.13"})
    (line,) = pages.differing(folder)
    assert re.search(naming("page.md", "make papers"), line)
    monkeypatch.setattr("sys.argv", ["pages", str(folder)])
    pages.main()
    assert pages.differing(folder) == []


def test_a_page_counts_one_papers_verdicts(results: Path) -> None:
    assert pages.page("<!-- results: paper -->\n<!-- end -->\n", "page.md") == pages.page(
        "<!-- results: all -->\n<!-- end -->\n", "page.md"
    ).replace("results: all", "results: paper")
    with pytest.raises(ExperimentError, match=naming("page.md", "results: pape")):
        pages.page("<!-- results: pape -->\n<!-- end -->\n", "page.md")


def test_a_page_sums_verdicts_by_paper(results: Path) -> None:
    new = pages.page("<!-- results: papers -->\n<!-- end -->\n", "page.md")
    assert "| `paper-`... |  | 2 | 1 |  |  |  | 1 |" in new
    assert "| all without stand-in data |  | 2 | 1 | 0 | 0 | 0 | 1 |" in new
    assert "| all on stand-in data |  | 0 | 0 | 0 | 0 | 0 | 0 |" in new


@pytest.mark.parametrize(("name", "why"), [("paper-fig3", "kept result"), ("x", "no such reproduction")])
def test_a_block_without_a_result_is_refused(results: Path, name: str, why: str) -> None:
    with pytest.raises(ExperimentError, match=naming("page.md", name, why)):
        pages.page(f"<!-- result: {name} -->\n<!-- end -->\n", "page.md")


def test_a_verification_is_shown_in_every_format(results: Path) -> None:
    found = verification.Verification([kept.read(results / "paper-table9.json")], ["paper-fig3"])
    text = verification.shown(found, [ONE, OTHER], "text")
    assert (
        "2 claims on the paper's data, or without data: 1 agrees, 0 partly, 0 disagrees, 0 undetermined, 1 not" in text
    )
    assert "0 claims on stand-in data: 0 agrees" in text
    assert "every verdict agrees" in text
    assert "0 of 1 results" in text
    assert re.search(r"^paper-table9 .* verdicts only$", text, re.MULTILINE)
    data = json.loads(verification.shown(found, [ONE, OTHER], "json"))
    assert data["not_run"] == ["paper-fig3"]
    assert data["all"] == {"agrees": 1, "partly": 0, "disagrees": 0, "undetermined": 0, "not run": 1}
    found.differing.append("page.md: not so")
    assert "page.md: not so" in verification.shown(found, [ONE, OTHER], "markdown")


def test_a_claim_that_counts_elsewhere_is_shown_and_not_counted(tmp_path: Path) -> None:
    shared = ReproductionResult(claims=[PaperClaim("c", "m", [true("a", True)], counted_in="paper-table9")])
    assert "agrees (counted in paper-table9)" in outcome(shared)
    write(OTHER, shared, "small", tmp_path)
    assert sum(counts(kept.read(tmp_path / "result.json").result.claims).values()) == 0


def test_a_page_may_show_a_part_of_a_table(results: Path) -> None:
    asked = "<!-- part: paper-table9 | item=c, n=20 | item, cost (paper), n -->\n"
    new = pages.page(f"{asked}old\n<!-- end -->\n", "page.md")
    assert new.startswith(asked + "\n| item | cost (paper) | n |\n")
    assert "| c | – | 20 |" in new
    assert "0.12" not in new
    assert pages.page(new, "page.md") == new


@pytest.mark.parametrize(
    ("selector", "parts"),
    [
        ("", ["' | KEY=VALUE, ... | COLUMN, ...'"]),
        (" | item=c | price", ["column price", "item, n, cost, "]),
        (" | item=d | cost", ["item=d"]),
    ],
)
def test_a_part_that_the_table_lacks_is_refused(results: Path, selector: str, parts: list[str]) -> None:
    with pytest.raises(ExperimentError, match=naming("page.md: part: paper-table9", *parts)):
        pages.page(f"<!-- part: paper-table9{selector} -->\n<!-- end -->\n", "page.md")


def test_a_result_may_show_less_of_its_table_and_remarks(results: Path) -> None:
    asked = "<!-- result: paper-table9 | rows: n=20 | columns: item, n | remarks: none -->\n"
    new = pages.page(f"{asked}old\n<!-- end -->\n", "page.md")
    assert new.startswith(asked + "\n| item | n |\n")
    assert "| c | 20 |" in new
    assert "| costs little |" in new
    assert "a|b" not in new
    assert "Smaller than the paper." not in new
    assert pages.page(new, "page.md") == new
    whole = "<!-- result: paper-table9 | remarks: 1 -->\n"
    assert outcome(MADE) in pages.page(f"{whole}<!-- end -->\n", "page.md")


@pytest.mark.parametrize(
    ("selector", "parts"),
    [
        (" | remarks: 2", ["remarks", "2", "1 to 1"]),
        (" | columns: price", ["column price"]),
        (" | rows: n=7", ["n=7"]),
        (" | claims: 1", ["claims", "columns"]),
    ],
)
def test_a_selection_that_the_result_lacks_is_refused(results: Path, selector: str, parts: list[str]) -> None:
    with pytest.raises(ExperimentError, match=naming("page.md: result: paper-table9", *parts)):
        pages.page(f"<!-- result: paper-table9{selector} -->\n<!-- end -->\n", "page.md")
