"""Text as samples for next-word prediction: sequences of word numbers, and vocabularies.

A user's words stand one after the other and are cut into blocks that overlap by one word, so that every word but the
first is predicted exactly once; the last block is filled up with padding, which is not predicted.
"""

import numpy as np
from numpy.typing import NDArray

from workloads.data.clients.contract import IGNORED, Batch

PADDING, UNKNOWN = 0, 1
SPECIAL = ("<PAD>", "<UNK>")
"""The first words of every vocabulary: padding, and all words that are not in it."""
SEQUENCE_LENGTH, VOCABULARY_SIZE = 64, 30_000


def block_count(words: int, length: int) -> int:
    """Blocks of `length` predictions that so many words make; 0 for fewer than two words."""
    return max(0, -(-(words - 1) // length))


def blocks(words: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    """(n, length + 1) int32: a user's words in blocks, each beginning with the last word of the one before."""
    count = block_count(len(words), length)
    if count == 0:
        return np.empty((0, length + 1), dtype=np.int32)
    filled = np.full(count * length + 1, PADDING, dtype=np.int32)
    filled[: len(words)] = words
    return np.lib.stride_tricks.sliding_window_view(filled, length + 1)[::length]


def samples(cut: NDArray[np.int32]) -> Batch:
    """Words and the words that follow, both (n, length) int64; what follows is `IGNORED` where it is padding."""
    import torch  # here: data sets are described without it

    words = torch.from_numpy(cut.astype(np.int64))
    follow = words[:, 1:].clone()
    follow[follow == PADDING] = IGNORED
    return words[:, :-1].contiguous(), follow


class WordIndex:
    """Numbers for words as they come, until a vocabulary says which count."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def numbers(self, words: list[str]) -> NDArray[np.int32]:
        """One number for each word, the same for the same word."""
        known = self._numbers
        return np.fromiter((known.setdefault(word, len(known)) for word in words), dtype=np.int32, count=len(words))

    def most_frequent(self, texts: list[NDArray[np.int32]], size: int) -> list[str]:
        """The vocabulary of texts in these numbers: the special words, then the most frequent ones, ties in the order
        of the words.
        """
        counts = np.zeros(len(self._numbers), dtype=np.int64)
        for text in texts:
            counts += np.bincount(text, minlength=len(counts))
        used = [(-int(counts[number]), word) for word, number in self._numbers.items() if counts[number]]
        return [*SPECIAL, *(word for _, word in sorted(used) if word not in SPECIAL)][:size]

    def encode(self, texts: list[NDArray[np.int32]], vocabulary: list[str]) -> list[NDArray[np.int32]]:
        """The texts in the numbers of a vocabulary, padding left out."""
        places = {word: place for place, word in enumerate(vocabulary)}
        new = np.array([places.get(word, UNKNOWN) for word in self._numbers], dtype=np.int32)
        return [found[found != PADDING] for found in (new[text] for text in texts)]
