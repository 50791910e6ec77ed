"""Links of the pages, of the README and its like: to files that are there, and to headings that they have."""

import re
import subprocess
from pathlib import Path

import pytest

from docs._ext import links
from tests.repository import ROOT

SOURCES = subprocess.run(
    ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()
PAGES = [ROOT / name for name in SOURCES if "shared/" not in name]


def headings(page: Path) -> set[str]:
    """The names that headings have in links."""
    lines = [line.lstrip("#").strip() for _, line in links.prose(page.read_text()) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", line).lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for line, target, heading in links.local_links(page):
        assert target.exists(), f"{page.name}:{line}: {target}"
        if heading and target.suffix == ".md":
            assert heading[1:] in headings(target), f"{page.name}:{line}: {heading}"


def test_every_page_is_in_the_contents() -> None:
    listed = set()
    for page in (ROOT / "docs").rglob("index.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            entries = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {page.parent / f"{entry}.md" for entry in entries}
    for folder in ("configuration", "commands"):
        listed |= set((ROOT / "docs" / "reference" / folder).glob("*.md"))  # their contents have all pages there
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - {ROOT / "docs" / "index.md"}
    assert pages <= listed


def test_links_into_the_code_lead_to_the_repository_in_the_site() -> None:
    page = ROOT / "docs" / "explanation" / "a-round.md"
    text = links.in_site(
        "See [it](../../pyproject.toml#x), [that](../index.md).\n```\n[no](../../README.md)\n```\n", page, "URL"
    )
    assert text == "See [it](URL/pyproject.toml#x), [that](../index.md).\n```\n[no](../../README.md)\n```\n"
    assert links.repository().startswith("https://")


def test_pages_that_the_code_names_are_there() -> None:
    named = subprocess.run(
        ["git", "grep", "-ohE", r"\bdocs/[a-z/-]+\.(md|png)"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    assert [name for name in sorted(set(named)) if not (ROOT / name).is_file()] == []
