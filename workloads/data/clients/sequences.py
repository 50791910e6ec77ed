"""Sequences of characters or words, each with a label: (n, length) numbers, in the smallest type that holds them."""

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import WorkloadSection
from workloads.data.clients.contract import Batch, ClientSequences
from workloads.data.clients.owners import LabelledValues, OwnedSamples, OwnerFiles, join_values


class OwnedSequences(ClientSequences):
    """The sequences of owners; each owner is a client.

    Args:
        files: files with the owners that are clients.
        section: samples_per_client, test_samples.
        seed: of the experiment.
        classes, vocabulary_size: numbers of labels, and of tokens.
    """

    def __init__(
        self, files: OwnerFiles[LabelledValues], section: WorkloadSection, seed: int, classes: int, vocabulary_size: int
    ) -> None:
        self.classes, self.vocabulary_size = classes, vocabulary_size
        self._owned = OwnedSamples(files, join_values, section, seed)
        self.sample_counts = self._owned.counts

    def shard(self, client: int) -> Batch:
        return _batch(self._owned.of(client))

    def held_out(self) -> Batch:
        """Return the test part, all or a seeded choice; its files are first read here."""
        return _batch(self._owned.held_out())

    def label_counts(self) -> NDArray[np.int64]:
        return self._owned.label_counts(self.classes)


def _batch(samples: LabelledValues) -> Batch:
    import torch  # here: data sets are described without it

    return torch.from_numpy(samples.values.astype(np.int64)), torch.from_numpy(samples.labels)
