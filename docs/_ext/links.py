"""Links of the pages: into the repository's files they lead to the repository's address, in the site."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from os.path import normpath
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_LINK = re.compile(r"(\]\()([^()\s#]+)(#[^()\s]*)?(\))")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}|:{3,})")


def repository() -> str:
    """Where the repository's files can be read, without a slash at the end."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    return f"{urls['Repository'].rstrip('/')}/blob/main"


def local_links(page: Path) -> Iterator[tuple[int, Path, str]]:
    """The links of a page to files: line, file, and the heading (with ``#``) or ''."""
    for number, line in prose(page.read_text()):
        for match in _LINK.finditer(line):
            if "://" not in match[2] and not match[2].startswith("mailto:"):
                yield number, _target(page, match[2]), match[3] or ""


def _target(page: Path, link: str) -> Path:
    start = DOCS if link.startswith("/") else page.parent
    return Path(normpath(start / link.lstrip("/")))


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside of blocks of code, with their numbers."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if match and not match[1].startswith(":"):
            if not fence:
                fence = match[1]
            elif match[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif not fence:
            yield number, line


def in_site(text: str, page: Path, address: str, library: Mapping[Path, str] | None = None) -> str:
    """Return a page's source for the site, where links to files outside of docs/ lead elsewhere.

    Args:
        text: the source.
        page: its path.
        address: of the repository; links to its files lead there.
        library: links to the site's entries of modules, by the modules' paths; these go before.
    """
    lines = text.splitlines(keepends=True)

    def replaced(match: re.Match[str]) -> str:
        if "://" in match[2] or match[2].startswith("mailto:"):
            return match[0]
        target = _target(page, match[2])
        if target.is_relative_to(DOCS) or not target.exists():
            return match[0]
        if library and target in library:
            return f"{match[1]}{library[target]}{match[4]}"
        return f"{match[1]}{address}/{target.relative_to(ROOT)}{match[3] or ''}{match[4]}"

    for number, line in prose(text):
        lines[number - 1] = _LINK.sub(replaced, line) + lines[number - 1][len(line) :]
    return "".join(lines)
