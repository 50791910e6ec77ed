"""Names that a misspelt name may have meant, as a question in an error."""

import difflib
from collections.abc import Iterable, Sequence

_ALIKE = 0.6  # difflib's own measure, from 0 to 1, of how alike two words are


def similar(word: str, names: Iterable[str], *, most: int = 1, cutoff: float = _ALIKE) -> list[str]:
    """The names that are most like a word, best first.

    Args:
        word: as it was written.
        names: those that there are.
        most: how many to return at most.
        cutoff: how alike they must be, from 0 to 1 (`difflib.get_close_matches`).

    Example:
        >>> similar("ruonds", ["rounds", "population"])
        ['rounds']
    """
    return difflib.get_close_matches(word, list(names), n=most, cutoff=cutoff)


def question(names: Sequence[str], *, quoted: bool = True) -> str:
    """Whether these were meant, with a space behind; empty where there are none.

    Example:
        >>> question(["random", "recorded"]), question(["rounds"], quoted=False), question([])
        ("did you mean 'random' or 'recorded'? ", 'did you mean rounds? ', '')
    """
    return f"did you mean {' or '.join(map(repr, names) if quoted else names)}? " if names else ""


def did_you_mean(word: str, names: Iterable[str], *, quoted: bool = True) -> str:
    """Whether the name that is most like a word was meant, with a space behind; empty where none is like it.

    Example:
        >>> did_you_mean("ruonds", ["rounds", "population"]), did_you_mean("zzz", ["rounds"])
        ("did you mean 'rounds'? ", '')
    """
    return question(similar(word, names), quoted=quoted)
