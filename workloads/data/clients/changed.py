"""Changed samples: the data of dishonest clients."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from testbed.workload.contract import Samples
from workloads.data.clients.contract import Batch, ClientData


class ChangedData(ClientData):
    """Clients' samples that pass through a function whenever they are used.

    Args:
        data: the unchanged samples.
        change: function of inputs and labels, as arrays; the number of samples must stay the same.
    """

    def __init__(self, data: ClientData, change: Callable[[Samples], Samples]) -> None:
        self._data, self._change = data, change
        self.description, self.sample_counts = data.description, data.sample_counts

    def shard(self, client: int) -> Batch:
        return self._changed(self._data.shard(client))

    def held_out(self) -> Batch:
        return self._changed(self._data.held_out())

    def label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64 of the unchanged labels."""
        return self._data.label_counts()

    def own_label_counts(self) -> NDArray[np.int64]:
        """Return (population, classes) int64 of the unchanged labels."""
        return self._data.own_label_counts()

    def _changed(self, batch: Batch) -> Batch:
        inputs, labels = self._change((batch[0].numpy(), batch[1].numpy()))
        return torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(np.ascontiguousarray(labels))
