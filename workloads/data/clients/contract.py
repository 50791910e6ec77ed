"""The contract of a data set: the samples of a population of clients, with a held-out part."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import WorkloadSection
from testbed.workload.specs import DatasetSpec

if TYPE_CHECKING:
    from torch import Tensor

Batch: TypeAlias = "tuple[Tensor, Tensor]"
"""Samples in the form of a model's input, and their labels: (n,) int64, or (n, positions) int64; both on the CPU."""

IGNORED = -100
"""Label of a position without a label, such as padding (torch's cross_entropy ignores it)."""


class ClientData(ABC):
    """Training samples of a population of clients, with a held-out part.

    Attributes:
        description: one line for a person.
        sample_counts: (population,) int64, the number of training samples of each client.
        notes: remarks on oddities of the data, for people.
        facts: the same for the records, as plain data.
    """

    description: str
    sample_counts: NDArray[np.int64]
    notes: Sequence[str] = ()
    facts: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def shard(self, client: int) -> Batch:
        """Return one client's training samples."""

    @abstractmethod
    def held_out(self) -> Batch:
        """Return the samples for evaluation."""

    @abstractmethod
    def label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64: training samples of each class at each client."""

    def own_label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64: the same without samples that all clients share."""
        return self.label_counts()


class ClientImages(ClientData):
    """Labelled images.

    Attributes:
        classes: number of labels.
        height, width: in pixels.
        channels: 1 for grey images, (n, height, width) float32 for models; 3 for colour images, (n, height, width, 3)
            float32, or (n, 3, height, width) uint8 if the model scales them itself.
    """

    classes: int
    height: int
    width: int
    channels: int = 1


class ClientText(ClientData):
    """Sequences of words: samples are (n, length) int64, and so are their labels, the following words.

    Attributes:
        vocabulary_size: number of words, special ones included.
    """

    vocabulary_size: int

    def label_counts(self) -> NDArray[np.int64]:
        """Return (population, 1) int64: next words are not classes, so all samples count as one class."""
        return self.sample_counts[:, None].copy()


class ClientSequences(ClientData):
    """Sequences of characters or words with one label each: samples are (n, length) int64, labels (n,) int64.

    Attributes:
        classes: number of labels.
        vocabulary_size: number of different characters or words, special ones included.
    """

    classes: int
    vocabulary_size: int


@dataclass(frozen=True, kw_only=True)
class Dataset(DatasetSpec):
    """A built-in data set.

    Attributes:
        load: function from the experiment's ``workload``, the population and the seed to the clients' data.
    """

    load: Callable[[WorkloadSection, int, int], ClientData]

    def with_stand_in(self, generate: Callable[[WorkloadSection, int, int], ClientData]) -> "tuple[Dataset, Dataset]":
        """Return this data set, and a generated one of the same shapes, which reads no files."""
        name, summary = f"synthetic-{self.name}", f"generated, with the shapes of {self.name}"
        return self, replace(self, name=name, summary=summary, files=None, layouts="", load=generate)
