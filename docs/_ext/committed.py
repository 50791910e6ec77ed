"""The reference pages that lie in the repository: the experiment file, the command line, the columns of the records,
options that exclude each other, and the glossary.

``python -m docs._ext.committed`` (`make reference`) writes them; a test compares them with the code.
"""

import sys
from pathlib import Path

from docs._ext import columns, combinations, commands, configuration, glossary
from docs._ext.links import DOCS
from docs._ext.schema_keys import reference

FOLDER = DOCS / "reference"


def pages() -> dict[Path, str]:
    """Return the text of each page by its path."""
    made = {"configuration": configuration.pages(reference()), "commands": commands.pages()}
    texts = {FOLDER / folder / f"{name}.md": text for folder, named in made.items() for name, text in named.items()}
    single = {
        FOLDER / "columns.md": columns.page(),
        FOLDER / "combinations.md": combinations.page(),
        FOLDER / "glossary.md": glossary.page(),
    }
    return {path: f"{text.rstrip()}\n" for path, text in {**texts, **single}.items()}


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Return the pages in the repository that differ from `wanted`, are missing, or should not be there."""
    present = {path for folder in ("configuration", "commands") for path in (FOLDER / folder).glob("*.md")}
    differing = {path for path, text in wanted.items() if not path.is_file() or path.read_text() != text}
    return sorted(differing | (present - set(wanted)))


def write(wanted: dict[Path, str]) -> list[Path]:
    """Write the pages that differ and delete those without a source; return their paths."""
    changed = stale(wanted)
    for path in changed:
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()
    return changed


if __name__ == "__main__":
    for path in write(pages()):
        sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")
