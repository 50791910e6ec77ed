"""Text as Markdown that GitHub and the built site both read."""

import re
from collections.abc import Iterable

_CODE = re.compile(r"(``[^`]+``|`[^`\n]+`)")
_SPECIAL = re.compile(r"([*_<>\[\]|#\\$])")
_PAGE = re.compile(r"\bdocs/([\w/-]+\.md)\b")
_HTTP = re.compile(r"https?://[^\s),]+")


def escaped(text: str) -> str:
    """Plain text that may have code in backticks, so that it reads as it is; names of pages become links."""
    parts = []
    for part in _CODE.split(text):
        if part.startswith("`"):
            parts.append(f"`{part.strip('`')}`")
        elif _HTTP.search(part):
            parts.append(part)
        else:
            parts.append(_PAGE.sub(_linked, _SPECIAL.sub(r"\\\1", part)))
    return "".join(parts)


def _linked(page: re.Match[str]) -> str:
    """Return a link from a page two folders below docs/, named by the page's path there."""
    return f"[{page[1].removesuffix('.md')}](../../{page[1]})"


def anchor(heading: str) -> str:
    """Return the name that a heading has in links, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def facts_line(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and values in one line, ending in a line feed; nothing for no facts."""
    line = " · ".join(f"{name}: {value}" for name, value in facts)
    return f"{line}\n" if line else ""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table of cells that are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |\n" for line in lines)


def indented(text: str, by: str = "  ") -> str:
    """`text` with its lines moved to the right."""
    return "".join(by + line if line.strip() else line for line in text.splitlines(keepends=True))
