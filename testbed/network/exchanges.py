"""The record of one stage: the outcome of each client that was asked."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.network.client_groups import ClientGroups

OUTCOMES = ("answered", "silent", "offline", "dropped", "late", "refused")
ANSWERED, SILENT, OFFLINE, DROPPED, LATE, REFUSED = range(6)


@dataclass(frozen=True)
class Exchanges:
    """One stage's record: arrays aligned by client (see `testbed.records`)."""

    stage: str
    as_participant: bool
    clients: Ids
    sent_s: float
    received_s: Floats  # NaN where no answer arrived
    bytes_down: Ids
    bytes_up: Ids
    transport_down: Ids
    transport_up: Ids
    pki_bytes_down: Ids
    pki_bytes_up: Ids
    compute_s: Floats
    outcome: npt.NDArray[np.int8]

    def total(self, column: str) -> int:
        """Return the sum of a column of bytes."""
        return int(getattr(self, column).sum())

    def outcomes(self) -> Ids:
        """Return the number of clients with each of the `OUTCOMES`, `(outcomes,)` int64."""
        return np.bincount(self.outcome, minlength=len(OUTCOMES))

    def blocks(self, rows: int) -> Iterator["Exchanges"]:
        """Yield the same exchanges in blocks of at most `rows` rows."""
        for first in range(0, len(self.clients), rows):
            yield self._part(slice(first, first + rows))

    def _part(self, part: slice) -> "Exchanges":
        return replace(self, clients=self.clients[part], **{name: getattr(self, name)[part] for name in COLUMNS})


COLUMNS = tuple(
    field.name for field in fields(Exchanges) if field.name not in ("stage", "as_participant", "clients", "sent_s")
)
"""Of `Exchanges`, but for the clients: those with a value for each."""


class ExchangesOfKinds(Exchanges):
    """`Exchanges` of many clients in few groups: per-client columns are made on request.

    Args:
        kinds: the k groups.
        each: `(k,)` exchanges, one client of each group.
    """

    def __init__(self, kinds: ClientGroups, each: Exchanges) -> None:
        # Around the frozen dataclass; without the columns, so that `__getattr__` is asked for each.
        self.__dict__.update(
            stage=each.stage, as_participant=each.as_participant, clients=kinds.clients, sent_s=each.sent_s,
            _kinds=kinds, _each=each,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name not in COLUMNS:
            raise AttributeError(name)
        return self._kinds.spread(getattr(self._each, name))

    def total(self, column: str) -> int:
        """See `Exchanges.total`."""
        return int((getattr(self._each, column) * self._kinds.count).sum())

    def outcomes(self) -> Ids:
        """See `Exchanges.outcomes`."""
        counts = np.zeros(len(OUTCOMES), np.int64)
        np.add.at(counts, self._each.outcome, self._kinds.count)
        return counts

    def _part(self, part: slice) -> Exchanges:
        columns = {name: self._kinds.spread(getattr(self._each, name), part) for name in COLUMNS}
        each: Exchanges = self._each
        return replace(each, clients=self.clients[part], **columns)
