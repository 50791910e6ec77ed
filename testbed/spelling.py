"""Suggestions for misspelt names, as a question in an error."""

import difflib
from collections.abc import Iterable, Sequence

_ALIKE = 0.6  # similarity of two words by difflib, 0 to 1


def similar(word: str, names: Iterable[str], *, most: int = 1, cutoff: float = _ALIKE) -> list[str]:
    """Return the names that are most similar to a word, best first.

    Args:
        word: the word as written.
        names: the allowed names.
        most: largest number of results.
        cutoff: least similarity, 0 to 1 (`difflib.get_close_matches`).

    Example:
        >>> similar("ruonds", ["rounds", "population"])
        ['rounds']
    """
    return difflib.get_close_matches(word, list(names), n=most, cutoff=cutoff)


def question(names: Sequence[str], *, quoted: bool = True) -> str:
    """Return the question "did you mean ...? " for some names, with a space at the end; empty without names.

    Args:
        names: the names.
        quoted: whether to quote them.

    Example:
        >>> question(["random", "recorded"]), question(["rounds"], quoted=False), question([])
        ("did you mean 'random' or 'recorded'? ", 'did you mean rounds? ', '')
    """
    return f"did you mean {' or '.join(map(repr, names) if quoted else names)}? " if names else ""


def did_you_mean(word: str, names: Iterable[str], *, quoted: bool = True) -> str:
    """Return the question whether the most similar name was meant, with a space at the end; empty if none is similar.

    Args:
        word: the word as written.
        names: the allowed names.
        quoted: whether to quote the name.

    Example:
        >>> did_you_mean("ruonds", ["rounds", "population"]), did_you_mean("zzz", ["rounds"])
        ("did you mean 'rounds'? ", '')
    """
    return question(similar(word, names), quoted=quoted)
