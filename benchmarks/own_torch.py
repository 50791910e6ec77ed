"""A user-defined workload with sums that depend, in their last bits, on the number of threads."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.breaking import Means
from workloads.contract import LocalUpdate


class LongSums(Means):
    """`workload.dataset: benchmarks.own_torch:LongSums`: updates hang on a long sum of torch's and a NumPy product."""

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """See `workloads.contract`."""
        terms = torch.randn(2_000_000, generator=torch.Generator().manual_seed(1000 * round_number + client))
        matrix = np.random.default_rng((client, round_number)).normal(size=(500, 4001)).astype(np.float32)
        update: Any = (model - self.points[client]) * float(terms.sum()) * 1e-4 + (matrix @ matrix.T)[0] * 1e-6
        return LocalUpdate(update.astype(np.float32), int(self.sample_counts[client]), 1.0, 1)
