"""The glossary page, from `terms.yaml`: each term with the keys and columns that bear its name."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("terms.yaml")
_HEAD = "# Glossary\n\nOne term for one thing, from the experiment file to the report. Symbols are those of the papers."


@dataclass(frozen=True)
class Term:
    """One entry of the glossary.

    Attributes:
        name: as it is written everywhere.
        text: its definition in Markdown.
        keys: dotted keys of an experiment that bear the name.
        columns: columns of records, ``table.column``.
        instead_of: words with the same meaning, which pages do not use.
    """

    name: str
    text: str
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    instead_of: tuple[str, ...] = ()

    def entry(self) -> str:
        """Return the entry of a glossary directive."""
        places = [f"`{key}` in experiments" for key in self.keys] + [
            f"`{column}` in records" for column in self.columns
        ]
        return f"{self.name}\n  {self.text}" + (f" ({', '.join(places)})" if places else "")


def sections() -> Iterator[tuple[str, list[Term]]]:
    """Yield the sections with their terms, as `terms.yaml` orders them.

    Raises:
        TypeError: an entry has another field than those of `Term`.
    """
    for section in yaml.safe_load(FILE.read_text(encoding="utf-8")):
        fields = (
            {field: value if field == "text" else tuple(value) for field, value in entry.items()} | {"name": name}
            for name, entry in section["terms"].items()
        )
        yield section["section"], [Term(**entry) for entry in fields]


def terms() -> list[Term]:
    """Return all terms."""
    return [term for _, entries in sections() for term in entries]


def page() -> str:
    """Return the page in Markdown."""
    parts = [_HEAD]
    for title, entries in sections():
        listed = "\n\n".join(term.entry() for term in sorted(entries, key=lambda term: term.name.lower()))
        parts.append(f"## {title}\n\n:::{{glossary}}\n{listed}\n:::")
    return "\n\n".join(parts)
