"""One term for one thing: the glossary's keys and columns exist, and pages use no other word for a term."""

import re
from collections.abc import Iterator

import pytest

from docs._ext import glossary
from docs._ext.schema_keys import reference
from testbed.records.clients import CLIENTS
from testbed.records.clients import SCHEMA as CLIENTS_SCHEMA
from testbed.records.schemas import SCHEMAS
from tests.language import files, page_texts, python_texts
from tests.repository import ROOT

TERMS = glossary.terms()
_OTHERS = {word: term.name for term in TERMS for word in term.instead_of}
_WORD = re.compile(r"(?<![\w`./-])(" + "|".join(map(re.escape, _OTHERS)) + r")(?![\w`-])", re.IGNORECASE)
TEXTS = ("examples", "README.md", "CONTRIBUTING.md", "docs/how-to", "docs/explanation", "docs/tutorials")


def test_each_term_stands_once() -> None:
    names = [term.name for term in TERMS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("term", [term for term in TERMS if term.keys], ids=lambda term: term.name)
def test_the_keys_of_a_term_are_keys_of_an_experiment(term: glossary.Term) -> None:
    keys = set(reference().keys)
    assert not set(term.keys) - keys


@pytest.mark.parametrize("term", [term for term in TERMS if term.columns], ids=lambda term: term.name)
def test_the_columns_of_a_term_are_columns_of_records(term: glossary.Term) -> None:
    schemas = {**SCHEMAS, CLIENTS: CLIENTS_SCHEMA}
    columns = {f"{table}.{name}" for table, schema in schemas.items() for name in schema.names}
    assert not set(term.columns) - columns


def other_words(texts: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """List the words that a text uses in place of a term, with their lines."""
    return [
        (line + text.count("\n", 0, match.start()), f"{match.group()} (the term is {_OTHERS[match.group().lower()]!r})")
        for line, text in texts
        for match in _WORD.finditer(text)
    ]


def test_a_word_beside_the_term_is_noticed() -> None:
    (word,) = _OTHERS.keys() & {"drop-out"}
    assert other_words(iter([(3, f"One\n{word.capitalize()} more.")])) == [(4, "Drop-out (the term is 'dropout')")]


@pytest.mark.parametrize("place", TEXTS)
def test_nothing_uses_another_word_for_a_term(place: str) -> None:
    found = []
    for path in files([place]):
        text = path.read_text(encoding="utf-8")
        texts = page_texts(text) if path.suffix == ".md" else python_texts(text)
        found += [f"{path.relative_to(ROOT)}:{line}: {word}" for line, word in other_words(texts)]
    assert not found, "\n".join(found)
