"""Sequence diagrams of the pages are drawn without Mermaid, when the site is built."""

import re
import xml.etree.ElementTree as ET

import pytest

from docs._ext.diagrams import NotADiagram, svg
from tests.repository import ROOT

DIAGRAM = """sequenceDiagram
    participant S as Server <1>
    participant C
    Note over S,C: first
    S->>C: question
    C-->>S: answer
"""


def test_every_diagram_of_the_pages_is_drawn() -> None:
    pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts]
    diagrams = [found for text in pages for found in re.findall(r"```mermaid\n(.*?)```", text, re.DOTALL)]
    assert diagrams
    for diagram in diagrams:
        assert ET.fromstring(svg(diagram)).tag.endswith("svg")


def test_messages_go_from_one_to_the_other() -> None:
    drawn = ET.fromstring(svg(DIAGRAM))
    lines = {line.get("class"): line for line in drawn.iter("{http://www.w3.org/2000/svg}line")}
    assert float(lines["solid"].get("x1")) == float(lines["dashed"].get("x2")) < float(lines["solid"].get("x2"))
    words = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words == ["Server <1>", "C", "first", "question", "answer"]


@pytest.mark.parametrize("text", ["graph TD", "sequenceDiagram\nloop forever", "sequenceDiagram\nA->>B: who?"])
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(NotADiagram):
        svg(text)
