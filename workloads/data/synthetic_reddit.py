"""Synthetic Reddit: generated word sequences of the shapes of Reddit's. **It is not Reddit, and no language.**

A Markov chain over the whole vocabulary, the same in every experiment: each word has four followers, which come after
it with probabilities 0.45, 0.25, 0.1 and 0.05; otherwise the next word is any, drawn by Zipf's law. Each client is a
user with favourite words: those of Zipf's law, shifted by a step of its own. So there is something to learn (who
follows whom), and perplexities say how well *this* task is learned; they are not comparable with published ones.
"""

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import Form, WorkloadSection
from workloads.data.clients import text
from workloads.data.clients.cache import ClientDataCache
from workloads.data.clients.contract import Batch, ClientText, Dataset
from workloads.data.clients.sample_counts import in_groups, sample_counts
from workloads.randomness import Purpose, stream

_FOLLOWERS = np.array([0.45, 0.25, 0.10, 0.05])
_TEST_SEQUENCES, _OF_EACH_TEST_USER = 500, 20


class SyntheticReddit(ClientText):
    """The words of a population of users, made as they are needed.

    Args:
        section: sequence_length, vocabulary_size, samples_per_client (None: varying, lognormal, mean 100),
            test_samples (None: 500).
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
        followers = self._by_frequency(stream(0, Purpose.LANGUAGE).random((words, len(_FOLLOWERS))))
        self._followers = followers.astype(np.int32)
        self._cache = ClientDataCache(
            lambda client: self._sequences(int(self.sample_counts[client]), Purpose.TEXT, client)
        )

    def _by_frequency(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Words (from 0, without the special ones) by Zipf's law."""
        return np.minimum(np.searchsorted(self._cumulated, uniform), len(self._cumulated) - 1)

    def _sequences(self, count: int, purpose: Purpose, user: int) -> NDArray[np.int32]:
        """(count, length + 1) int32: one user's sequences."""
        random = stream(self._seed, purpose, user)
        words = len(self._cumulated)
        shift = int(random.integers(0, max(1, words // 10)))
        steps = self._length + 1
        favourites = (self._by_frequency(random.random((steps, count))) + shift) % words
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
        """Sequences of other users, who are no clients, 20 of each."""
        parts = [
            self._sequences(count, Purpose.TEST_TEXT, user)
            for user, count in in_groups(self._test_sequences, _OF_EACH_TEST_USER)
        ]
        return text.samples(np.concatenate(parts))


SPECS = (
    Dataset(
        name="synthetic-reddit",
        summary="generated, with the shapes of reddit",
        form=Form.TEXT,
        default_model="albert",
        owner="user",
        reads=("sequence_length", "vocabulary_size"),
        load=SyntheticReddit,
    ),
)
