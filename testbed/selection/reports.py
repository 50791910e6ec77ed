"""What a server has learned from one round's local training, and may choose by in later rounds.

Two sources, not equally good: response times are the server's own measurement, losses and sample counts are what
clients say, and can be lies.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.network.contract import Replies


@dataclass(frozen=True)
class TrainingReports:
    """The answers to one round's `Train`, as arrays aligned with `clients`.

    Attributes:
        clients: `(m,)` int64, sorted clients that trained and answered in time.
        samples: `(m,)` int64, training samples that each says it holds; 0 where it does not say.
        loss: `(m,)` float64, mean training loss that each reports.
        squared_loss: `(m,)` float64, mean squared loss that each reports, or its squared mean loss where the workload
            does not say. A report that is not finite, or here negative, counts as 0.
        latency_s: `(m,)` float64, seconds from the start of the stage to each answer, as the server has measured.
        unheard: `(k,)` int64, sorted clients that were asked to train and have not answered in time.
        waited_s: seconds that the server has waited for them, by its own clock; at least each latency.
    """

    clients: Ids
    samples: Ids
    loss: Floats
    squared_loss: Floats
    latency_s: Floats
    unheard: Ids
    waited_s: float

    @property
    def quality(self) -> Floats:
        """`(m,)` float64: data quality |B_i| sqrt(mean Loss(k)^2), Oort's statistical utility (OSDI 2021, eq. 2)."""
        return self.samples.astype(np.float64) * np.sqrt(self.squared_loss)


def merged(reports: Sequence[TrainingReports]) -> TrainingReports:
    """The reports of groups that share no client and were asked one after the other, as one."""
    if len(reports) == 1:
        return reports[0]
    clients = np.concatenate([part.clients for part in reports])
    order = np.argsort(clients)

    def joined(parts: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate(list(parts))[order]

    return TrainingReports(
        clients=clients[order],
        samples=joined(part.samples for part in reports),
        loss=joined(part.loss for part in reports),
        squared_loss=joined(part.squared_loss for part in reports),
        latency_s=joined(part.latency_s for part in reports),
        unheard=np.sort(np.concatenate([part.unheard for part in reports])),
        waited_s=max(part.waited_s for part in reports),
    )


def reports_of(trained: Replies, asked: Ids) -> TrainingReports:
    """The reports in the answers to `Train`, which `asked` were sent; answers that do not decode are none."""
    said = trained.valid()
    clients = np.fromiter(said, np.int64, len(said))
    samples = np.array([answer.samples or 0 for answer in said.values()], np.int64)
    loss = np.array([answer.loss for answer in said.values()], np.float64)
    squared = [
        answer.loss * answer.loss if answer.squared_loss is None else answer.squared_loss for answer in said.values()
    ]
    squared_loss = np.array(squared, np.float64)
    latency_s = trained.latency_s[np.searchsorted(trained.ids, clients)]
    unheard = np.setdiff1d(asked, clients)
    return TrainingReports(
        clients=clients,
        samples=samples,
        loss=np.where(np.isfinite(loss), loss, 0.0),
        squared_loss=np.where(np.isfinite(squared_loss) & (squared_loss >= 0), squared_loss, 0.0),
        latency_s=latency_s,
        unheard=unheard,
        waited_s=trained.waited_s,
    )
