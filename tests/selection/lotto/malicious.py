"""Decisions of malicious Lotto servers, and the refusals that follow."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace as replaced

from testbed.selection.lotto.messages import ParticipantEntry, ParticipantList
from testbed.selection.lotto.variants import (
    ClientCentricParameters,
    ClientCentricServer,
    ServerCentricParameters,
    ServerCentricServer,
)
from tests.selection.federations import PARTICIPANTS

CLIENT_CENTRIC = (ClientCentricServer, ClientCentricParameters)
SERVER_CENTRIC = (ServerCentricServer, ServerCentricParameters)
VARIANTS = [CLIENT_CENTRIC, SERVER_CENTRIC]


def showing(alter: Callable[[Any, ParticipantList], ParticipantList]) -> Callable:
    """Return a server that shows all participants an altered list."""

    def list_for(self: Any, participants: Any, message: ParticipantList) -> Any:
        return [(participants, alter(self, message))]

    return list_for


def with_rows(message: ParticipantList, rows: Sequence[ParticipantEntry]) -> ParticipantList:
    """Return the list with other rows."""
    return replaced(message, participants=list(rows))


def everybody(clients: Sequence[int], check: str) -> dict[int, str]:
    """Return refusals by all with the same check."""
    return dict.fromkeys(clients, check)


def one_more(self: Any, candidates: Any, round_: Any) -> Any:
    """Choose s + 1 of the candidates, so that there are several valid lists of s."""
    return np.sort(round_.rng("residual removal").choice(candidates, PARTICIPANTS + 1, replace=False))
