"""Changed samples: the data of dishonest clients."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from testbed.workload.contract import Samples
from workloads.data.clients.contract import Batch, ClientData


class ChangedData(ClientData):
    """Clients' samples, each part of which goes through a function whenever it is asked for.

    Args:
        data: the samples as they are.
        change: of inputs and labels, as arrays; a client's samples stay as many.
    """

    def __init__(self, data: ClientData, change: Callable[[Samples], Samples]) -> None:
        self._data, self._change = data, change
        self.description, self.sample_counts = data.description, data.sample_counts

    def shard(self, client: int) -> Batch:
        return self._changed(self._data.shard(client))

    def held_out(self) -> Batch:
        return self._changed(self._data.held_out())

    def label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64: as they were."""
        return self._data.label_counts()

    def own_label_counts(self) -> NDArray[np.int64]:
        """(population, classes) int64: as they were."""
        return self._data.own_label_counts()

    def _changed(self, batch: Batch) -> Batch:
        inputs, labels = self._change((batch[0].numpy(), batch[1].numpy()))
        return torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(np.ascontiguousarray(labels))
