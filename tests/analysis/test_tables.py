"""Cells that are wrapped, and LaTeX floats."""

import pytest

from analysis.tables import Table, longest_word, render, wrap_words


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("secagg,threshold=0.6", 16, ["secagg,", "threshold=0.6"]),
        ("secagg,threshold=0.6", 20, ["secagg,threshold=0.6"]),
        ("flamingo, a committee for 2 rounds", 16, ["flamingo, a", "committee for 2", "rounds"]),
        ("lotto-client-centric", 5, ["lotto-client-centric"]),
        ("", 5, [""]),
    ],
)
def test_lines_are_broken_after_spaces_and_commas_only(text: str, width: int, lines: list[str]) -> None:
    assert wrap_words(text, width) == lines


def test_the_longest_word_ends_with_its_comma() -> None:
    assert longest_word("secagg,threshold=0.6, b") == len("threshold=0.6,")
    assert longest_word("") == 0


def test_a_long_word_makes_its_column_wider() -> None:
    text = render(Table(["Row", "n"], [["lotto-client-centric,x=1", "7"]], left=[0], widths=[8, 1]), "text")
    assert text.splitlines()[2:] == ["lotto-client-centric,  7", "x=1"]
