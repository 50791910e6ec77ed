"""Text as samples for next-word prediction: sequences of word numbers, and vocabularies.

A user's words are concatenated and cut into blocks that overlap by one word, so that every word but the first is
predicted exactly once. The last block is filled up with padding, which is not predicted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.files import limits
from workloads.data.clients.contract import IGNORED, Batch

PADDING, UNKNOWN = 0, 1
SPECIAL = ("<PAD>", "<UNK>")
"""The first words of every vocabulary: padding, and the stand-in for all other words."""
SEQUENCE_LENGTH, VOCABULARY_SIZE = 64, 30_000
VOCABULARY = "vocabulary.txt"
"""The file with a vocabulary, beside ``train``."""


def block_count(words: int, length: int) -> int:
    """Return the number of blocks of `length` predictions in a text; 0 for fewer than two words.

    Args:
        words: number of words.
        length: predictions per block.

    Example:
        >>> block_count(10, 4)
        3
    """
    return max(0, -(-(words - 1) // length))


def blocks(words: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    """Return a user's words in blocks, each beginning with the last word of the block before.

    Args:
        words: (words,) int32.
        length: predictions per block.

    Returns:
        (n, length + 1) int32.
    """
    count = block_count(len(words), length)
    if count == 0:
        return np.empty((0, length + 1), dtype=np.int32)
    # One word more than predictions: blocks overlap by one word, so that each word but the first is predicted once.
    filled = np.full(count * length + 1, PADDING, dtype=np.int32)
    filled[: len(words)] = words
    return np.lib.stride_tricks.sliding_window_view(filled, length + 1)[::length]


def samples(cut: NDArray[np.int32]) -> Batch:
    """Return words and the following words, both (n, length) int64; following padding is `IGNORED`."""
    import torch  # here: data sets are described without it

    words = torch.from_numpy(cut.astype(np.int64))
    follow = words[:, 1:].clone()
    # Only the labels: as an input, padding is an ordinary word number.
    follow[follow == PADDING] = IGNORED
    return words[:, :-1].contiguous(), follow


def vocabulary_of(file: Path, size: int) -> list[str]:
    """Return the special words and the first words of a file with a word per line, `size` together.

    Args:
        file: the file.
        size: number of words.

    Raises:
        ExperimentError: the file cannot be read, is empty or has a word twice.
    """
    try:
        lines = limits.text(file, limits.NUMBERS_BYTES).split("\n")
    except (OSError, ValueError) as error:
        raise ExperimentError(f"workload.path: {file} cannot be read ({error}); a word a line is needed") from None
    words = [line.strip() for line in lines if line.strip() and line.strip() not in SPECIAL]
    repeated = [word for word, count in Counter(words).items() if count > 1]
    if not words or repeated:
        problem = f"has {repeated[0]!r} twice" if repeated else "is empty"
        raise ExperimentError(f"workload.path: {file} {problem}; every word once, a word a line")
    return [*SPECIAL, *words][:size]


class Vocabulary:
    """Numbers for known words, and one number for all others.

    Args:
        words: the vocabulary, special words first.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._places = {word: place for place, word in enumerate(words)}

    def numbers(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Return one number for each word."""
        return np.array([self._places.get(word, UNKNOWN) for word in words], dtype=np.int32)


class WordIndex:
    """Numbers for words in order of appearance, until the vocabulary is known."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def numbers(self, words: list[str]) -> NDArray[np.int32]:
        """Return one number for each word, the same for the same word."""
        numbers = self._numbers
        return np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), dtype=np.int32, count=len(words))

    def most_frequent(self, texts: Iterable[NDArray[np.int32]], size: int) -> list[str]:
        """Return the vocabulary of texts in these numbers.

        Args:
            texts: word numbers of each text.
            size: number of words.

        Returns:
            The special words, then the most frequent ones, ties in the order of the words.
        """
        counts = np.zeros(len(self._numbers), dtype=np.int64)
        for text in texts:
            used_here, times = np.unique(text, return_counts=True)  # not an array of all words for each of 10^6 users
            counts[used_here] += times
        used = [(-int(counts[number]), word) for word, number in self._numbers.items() if counts[number]]
        # Ties in the order of the words: the vocabulary must not depend on the order of the users.
        return [*SPECIAL, *(word for _, word in sorted(used) if word not in SPECIAL)][:size]

    def encode(self, texts: list[NDArray[np.int32]], vocabulary: list[str]) -> list[NDArray[np.int32]]:
        """Return the texts in the numbers of a vocabulary, without padding."""
        new = self.places(vocabulary)
        return [numbers[numbers != PADDING] for numbers in (new[text] for text in texts)]

    def places(self, vocabulary: list[str]) -> NDArray[np.int32]:
        """Return the number in a vocabulary of each word, (words,) int32, in the order of these numbers."""
        return Vocabulary(vocabulary).numbers(self._numbers)
