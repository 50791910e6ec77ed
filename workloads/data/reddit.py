"""Comments of Reddit's users from the user's files: next-word prediction, one user per client.

Nothing is downloaded. The folder has ``train`` and ``test``, in one of two layouts:

- LEAF's json files (Caldas et al. 2018, arXiv 1812.01097; see `workloads.data.clients.leaf_json`): a user's ``x`` is a
  list of comments, each a list of sequences of words, with ``<BOS>``, ``<EOS>`` and padding ``<PAD>`` (a list of words
  without sequences is also accepted); ``y`` is not needed, because the words themselves give the next word;
- one text file for each user, as in FedScale (arXiv 2105.11367), with words separated by white space. FedScale and
  Lotto cut words into ALBERT's pieces with a tokenizer that is not included here, so numbers are not comparable.

The vocabulary is the file ``vocabulary.txt`` beside ``train``, a word per line, most frequent first, or else the most
frequent words of the clients' training text, ties in the order of the words. It begins with ``<PAD>`` and ``<UNK>``,
which stands for all other words; a prediction of ``<UNK>`` counts as right where it stands.

Synthetic Reddit is generated word sequences with the shapes of Reddit. **It is not Reddit, and not a language.**
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.files import limits
from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients import leaf, owners, text
from workloads.data.clients.contract import Batch, ClientText, Dataset
from workloads.data.clients.owners import ClientDataCache, in_groups, sample_counts
from workloads.determinism import Purpose, stream

_NEEDED = "the folder with train and test, of LEAF's json files or of a text file for each user"

Numbers = NDArray[np.int32]


def _flattened(x: Any) -> list[str]:
    """Return the words of a user in LEAF's form."""
    if not isinstance(x, list):
        raise ValueError("x is not a list of comments; preprocess the data again")
    words: list[str] = []
    for comment in x:
        for part in comment if isinstance(comment, list) else [comment]:
            words.extend(part if isinstance(part, list) else [part])
    if not all(isinstance(word, str) for word in words):
        raise ValueError("comments must be lists of words; preprocess the data again")
    return [word for word in words if word != text.SPECIAL[text.PADDING]]


def _users(folder: Path, words: text.WordIndex) -> Iterator[tuple[str, Numbers]]:
    """Yield (user, words) of all users in a folder of either layout."""

    def numbered(x: Any, _: Any = None) -> Numbers:
        numbers = words.numbers(_flattened(x))
        if len(numbers) < 2:
            raise ValueError("fewer than two words; remove the user from the data")
        return numbers

    if leaf.json_files(folder):
        # num_samples in LEAF's files of Reddit is that before the split into train and test.
        yield from leaf.read_users(folder, numbered, counts_hold=False)
        return
    for file in _texts(folder):
        try:
            content = limits.text(file, limits.USERS_BYTES)
            user = numbered(content.split())
        except (OSError, ValueError) as error:
            raise ExperimentError(f"workload.path: {file}: {error}") from None
        yield file.name, user


def _texts(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))


class Reddit(ClientText):
    """Reddit's users as clients.

    Args:
        section: path, sequence_length, vocabulary_size, samples_per_client, test_samples.
        population, seed: of the experiment; the seed chooses the clients if there are more users.

    Raises:
        ExperimentError: files that are absent, damaged or of another form, or too few users.
    """

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        root = leaf.with_train(owners.folder(section.path, _NEEDED))
        for part in ("train", "test"):
            if not (root / part).is_dir() or not _texts(root / part):
                raise ExperimentError(f"workload.path: {root} has no files in {part}; give {_NEEDED}")
        self._test = root / "test"
        self._test_samples, self._seed = section.test_samples, seed
        self._length = section.sequence_length or text.SEQUENCE_LENGTH
        self.vocabulary_size = section.vocabulary_size or text.VOCABULARY_SIZE
        selection: owners.OwnerSelection[Numbers] = owners.OwnerSelection(population, seed, "user", root / "train")
        words = text.WordIndex()
        for user, numbers in _users(root / "train", words):
            selection.offer(user, numbers)
        texts = [numbers for _, numbers in selection.clients()]
        file = root / text.VOCABULARY
        self.vocabulary = (
            text.vocabulary_of(file, self.vocabulary_size)
            if file.is_file()
            else words.most_frequent(texts, self.vocabulary_size)
        )
        self._texts = words.encode(texts, self.vocabulary)
        self._own = [
            owners.own_samples(text.block_count(len(numbers), self._length), section.samples_per_client, seed, client)
            for client, numbers in enumerate(self._texts)
        ]
        self.sample_counts = np.array([len(chosen_numbers) for chosen_numbers in self._own], dtype=np.int64)
        self.description = (
            f"Reddit's comments, {population} users with {self.sample_counts.sum()} sequences of up to {self._length} "
            f"words, {len(self.vocabulary)} of {self.vocabulary_size} words known"
        )

    def shard(self, client: int) -> Batch:
        return text.samples(text.blocks(self._texts[client], self._length)[self._own[client]])

    def held_out(self) -> Batch:
        """Return sequences of the folder ``test``, which is first read here: all, or a seeded choice."""
        words = text.WordIndex()
        texts = words.encode([numbers for _, numbers in _users(self._test, words)], self.vocabulary)
        cut = np.concatenate([text.blocks(numbers, self._length) for numbers in texts])
        return text.samples(cut[owners.test_subset(len(cut), self._test_samples, self._seed)])


_FOLLOWERS = np.array([0.45, 0.25, 0.10, 0.05])
_TEST_SEQUENCES, _OF_EACH_TEST_USER = 500, 20


class SyntheticReddit(ClientText):
    """The words of a population of users, made when they are used.

    A Markov chain over the whole vocabulary, the same in every experiment. A model can learn the followers of each
    word. Perplexities measure the learning of *this* task and are not comparable with published ones.

    Args:
        section: sequence_length, vocabulary_size, samples_per_client (None: varying, lognormal, mean 100), test_samples
            (None: 500).
        population, seed: of the experiment. A user depends on the seed, not on the population.
    """

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        self._seed = seed
        self._test_sequences = section.test_samples or _TEST_SEQUENCES
        self._length = section.sequence_length or text.SEQUENCE_LENGTH
        self.vocabulary_size = section.vocabulary_size or text.VOCABULARY_SIZE
        self.sample_counts = sample_counts(
            population, section.samples_per_client, seed, mean=100.0, deviation=60.0, minimum=10, maximum=600
        )
        self.description = (
            f"synthetic Reddit (generated word sequences; not Reddit's comments), {self._length} words a sequence, "
            f"{self.vocabulary_size} words"
        )
        words = self.vocabulary_size - len(text.SPECIAL)
        frequencies = 1.0 / np.arange(1, words + 1)
        self._cumulated = np.cumsum(frequencies / frequencies.sum())
        # Seed 0: the language is the same in every experiment.
        followers = self._by_frequency(stream(0, Purpose.LANGUAGE).random((words, len(_FOLLOWERS))))
        self._followers = followers.astype(np.int32)
        self._cache = ClientDataCache(
            lambda client: self._sequences(int(self.sample_counts[client]), Purpose.TEXT, client)
        )

    def _by_frequency(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return words (from 0, without the special ones) by Zipf's law, from uniform numbers."""
        return np.minimum(np.searchsorted(self._cumulated, uniform), len(self._cumulated) - 1)

    def _sequences(self, count: int, purpose: Purpose, user: int) -> NDArray[np.int32]:
        """Return one user's sequences, (count, length + 1) int32."""
        random = stream(self._seed, purpose, user)
        words = len(self._cumulated)
        # A user's favourite words are those of Zipf's law, shifted by the user's own step.
        shift = int(random.integers(0, max(1, words // 10)))
        steps = self._length + 1
        favourites = (self._by_frequency(random.random((steps, count))) + shift) % words
        # One of a word's four followers, by these probabilities; otherwise a favourite word.
        which = np.searchsorted(np.cumsum(_FOLLOWERS), random.random((steps, count)), side="right")
        written = np.empty((steps, count), dtype=np.int32)
        written[0] = favourites[0]
        for step in range(1, steps):
            follows = which[step] < len(_FOLLOWERS)
            follower = self._followers[written[step - 1], np.minimum(which[step], len(_FOLLOWERS) - 1)]
            written[step] = np.where(follows, follower, favourites[step])
        return np.ascontiguousarray(written.T) + np.int32(len(text.SPECIAL))

    def shard(self, client: int) -> Batch:
        return text.samples(self._cache(client))

    def held_out(self) -> Batch:
        """Return sequences of other users, 20 of each."""
        parts = [
            self._sequences(count, Purpose.TEST_TEXT, user)
            for user, count in in_groups(self._test_sequences, _OF_EACH_TEST_USER)
        ]
        return text.samples(np.concatenate(parts))


SPECS = Dataset(
    name="reddit",
    summary="comments of its users, from files",
    form=Form.TEXT,
    default_model="albert",
    owner="user",
    files=_NEEDED,
    reads=("sequence_length", "vocabulary_size"),
    load=Reddit,
).with_stand_in(SyntheticReddit)
