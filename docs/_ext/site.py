"""The Sphinx extension that makes the site of pages and code: it writes the reference before pages are read."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from docs._ext import api, committed, diagrams, links

GENERATED = links.DOCS / "reference" / "generated" / "api"
_log = logging.getLogger(__name__)


class Mermaid(SphinxDirective):
    """A diagram, drawn now: nothing is fetched, and no script runs, when the page is read."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            drawn = diagrams.svg("\n".join(self.content))
        except diagrams.NotADiagram as error:
            raise self.error(f"mermaid: {error}") from None
        return [nodes.raw("", f'<figure class="diagram">{drawn}</figure>', format="html")]


def write_library(_app: Sphinx) -> None:
    """Write the library's pages that have changed, delete those without a source; warn of stale committed pages."""
    for path in committed.stale(committed.pages()):
        _log.warning("%s does not match the code; run: make reference", path.relative_to(links.ROOT))
    wanted = {GENERATED / f"{name}.md": text for name, text in api.pages().items()}
    for path in set(GENERATED.rglob("*.md")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """A page's source as the site has it."""
    path = Path(app.env.doc2path(name))
    for number, target, _ in links.local_links(path):
        if not target.exists():
            _log.warning("no such file: %s", target, location=(name, number))
    source[0] = links.in_site(source[0], path, links.repository(), api.entries())


def attribute(_app: Sphinx, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Put an empty text before an attribute's docstring: napoleon takes its text before the first colon for a type."""
    if what in ("attribute", "data", "property") and lines:
        lines.insert(0, "\\ ")  # nothing, without a colon


def skipped(_app: Sphinx, _what: str, name: str, _object: Any, _skip: bool, _options: Any) -> bool | None:
    """Skip members that pydantic adds."""
    return True if name == "model_config" else None


_CODE = re.compile(r"(``[^`]+``|:\w+:`[^`]+`|`[^`]+`)")
_PAGE = re.compile(r"(?<![\w/])docs/([\w/-]+)\.md")


def docstring(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Convert a docstring, plain text with code in backticks, to reStructuredText.

    Code in single backticks becomes a link if its name is known, and so do paths of pages. Indented text below a colon
    and an empty line stays as it is.
    """
    verbatim = -1  # the indentation above which lines are code
    for at, line in enumerate(lines):
        indentation = len(line) - len(line.lstrip())
        if verbatim >= 0 and (not line.strip() or indentation > verbatim):
            continue
        verbatim = -1
        parts = _CODE.split(line)
        lines[at] = "".join(part if part.endswith("`") else _escaped(part) for part in parts)
        following = lines[at + 2] if at + 2 < len(lines) and not lines[at + 1].strip() else ""
        if line.rstrip().endswith(":") and len(following) - len(following.lstrip()) > indentation:
            verbatim = indentation
            lines[at] += "" if line.rstrip().endswith("::") else ":"


def _escaped(text: str) -> str:
    text = re.sub(r"(?<=\w)_(?!\w)|\||(?<!\*)\*(?!\*)", r"\\\g<0>", text)
    return _PAGE.sub(r":doc:`/\1`", text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("mermaid", Mermaid)
    app.connect("builder-inited", write_library)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", attribute, priority=400)
    app.connect("autodoc-process-docstring", docstring, priority=600)
    app.connect("autodoc-skip-member", skipped)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
