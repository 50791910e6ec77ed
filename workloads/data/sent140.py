"""Sent140 from LEAF's files: positive or negative sentiment of tweets, one user per client. Nothing is downloaded.

Caldas et al. 2018 (LEAF, arXiv 1812.01097), after Go et al. 2009. A user's ``x`` is a list of tweets, each a list of
its id, date, query, user, text and part; ``y`` is 1 for positive and 0 for all else (`workloads.data.clients.leaf`
describes the folders). A text is cut into words as by LEAF (letters, digits and apostrophes, or one of ``.,!?;``); the
first 25 words are used.

LEAF takes its vocabulary from GloVe's vectors, a download, and learns the embedding. Here the vocabulary is the file
``vocabulary.txt`` beside ``train``, a word per line, or else the most frequent words of the clients' training tweets;
the embedding is also learned, so that no vectors are needed. The vocabulary begins with ``<PAD>`` and ``<UNK>``.
GloVe's words in that file give LEAF's vocabulary.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients import owners, text
from workloads.data.clients.contract import Dataset
from workloads.data.clients.leaf import LeafFolder, LeafUsers
from workloads.data.clients.owners import LabelledValues
from workloads.data.clients.sequences import OwnedSequences

WORDS, VOCABULARY_SIZE = 25, 10_000
CLASSES = 2
_NEEDED = "the folder with LEAF's json files of Sent140"
_WORD = re.compile(r"[\w']+|[.,!?;]")
_FIELDS, _TEXT = 6, 4


def tweets(x: Any, y: Any, length: int, number: Callable[[list[str]], NDArray[np.int32]]) -> LabelledValues:
    """Return a user's tweets as word numbers, cut or padded to `length` words.

    Args:
        x: a list of tweets, each a list of id, date, query, user, text and part.
        y: as many labels, 0 or 1.
        length: words of a tweet.
        number: function from words to their numbers, which are not that of the padding.

    Raises:
        ValueError: anything else; the message states fault and remedy.
    """
    if not isinstance(x, list) or not isinstance(y, list) or not x or len(x) != len(y):
        raise ValueError("x must be a list of tweets, y one label each; preprocess the data again")
    words: list[str] = []
    counts = np.empty((len(x), 1), dtype=np.int64)
    for place, tweet in enumerate(x):
        if not isinstance(tweet, list) or len(tweet) != _FIELDS or not isinstance(tweet[_TEXT], str):
            raise ValueError("a tweet must be id, date, query, user, text and part; preprocess the data again")
        tweet_words = _WORD.findall(tweet[_TEXT])[:length]
        counts[place] = len(tweet_words)
        words += tweet_words
    if any(label not in (0, 1) for label in y):
        raise ValueError("labels must be 0 or 1 (glad); preprocess the data again")
    rows = np.full((len(x), length), text.PADDING, dtype=np.int32)
    rows[np.arange(length) < counts] = number(words)
    return LabelledValues(rows, np.array(y, dtype=np.int64))


class Sent140(OwnedSequences):
    """Twitter's users as clients.

    Args:
        section: path, sequence_length (None: 25), vocabulary_size (None: 10,000), samples_per_client, test_samples.
        population, seed: of the experiment; the seed chooses the clients if there are more users.

    Raises:
        ExperimentError: files that are absent, damaged or of another form, or too few users.
    """

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        length = section.sequence_length or WORDS
        size = section.vocabulary_size or VOCABULARY_SIZE
        folder = LeafFolder.needed(owners.folder(section.path, _NEEDED), _NEEDED)
        words = text.WordIndex()
        words.numbers([text.SPECIAL[text.PADDING]])  # the first number, `text.PADDING`
        self._number = words.numbers  # in order of appearance, until the vocabulary is known
        files = LeafUsers(folder, lambda x, y: tweets(x, y, length, self._number), population, seed, "user")
        file = folder.root / text.VOCABULARY
        self.vocabulary = (
            text.vocabulary_of(file, size)
            if file.is_file()
            else words.most_frequent((files.all_of(client).values.ravel() for client in range(population)), size)
        )
        # Words are numbered in order of appearance first, as the vocabulary needs all clients' training words.
        places = words.places(self.vocabulary)
        files.map(lambda samples: LabelledValues(places[samples.values], samples.labels))
        self._number = text.Vocabulary(self.vocabulary).numbers
        super().__init__(files, section, seed, CLASSES, size)
        self.description = (
            f"Sent140 (LEAF json), tweets of up to {length} words, {len(self.vocabulary)} of {size} words known, "
            f"{population} users with {self.sample_counts.sum()} tweets"
        )


SPECS = (
    Dataset(
        name="sent140",
        summary="whether a tweet is glad or sad, by its users, from files",
        form=Form.SEQUENCE,
        default_model="sent-lstm",
        owner="user",
        files=_NEEDED,
        layouts=" (beside train, if you have one, vocabulary.txt)",
        reads=("sequence_length", "vocabulary_size"),
        load=Sent140,
    ),
)
