"""User-defined classes that crash at chosen places: those that `AT` names, if any."""

import os
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.breaking import Means
from testbed.aggregation.plain import Plain, PlainClient, PlainParameters, SendUpdate, Update
from testbed.emulation.availability import Presence
from testbed.parties.client import RoleSpec, handles
from testbed.selection.check_in import STAGE, CheckIn, CheckInReply, CheckInRole, check_in
from testbed.selection.contract import Selection, SelectionProtocol, SelectionRound
from workloads.contract import Evaluation, LocalUpdate

AT = "FAULTY_CODE_AT"
"""The environment variable, places with spaces between; processes that Ray starts have it too."""


def bug(place: str) -> None:
    """Crash, if this is one of the places."""
    if place in os.environ.get(AT, "").split():
        raise ZeroDivisionError("a\nbug")


class Learning(Means):
    """A workload."""

    def __init__(self, section: Any, population: int, seed: int) -> None:
        bug("workload")
        super().__init__(section, population, seed)

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Client 2 crashes from round 2 on."""
        if client == 2 and round_number >= 2:
            bug("train")
        return super().train(client, model, round_number)

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation:
        """On the server."""
        bug("evaluate")
        return super().evaluate(model)


class Checking(CheckInRole):
    """The client's side of a selection."""

    @handles(CheckIn)
    def on_check_in(self, message: CheckIn) -> CheckInReply:  # type: ignore[override]
        """Client 1 crashes."""
        if self.client.number == 1:
            bug("check-in")
        return CheckInReply()


class Selecting(SelectionProtocol):
    """The server's side of it: the first clients that are there."""

    stages = (STAGE,)

    @property
    def roles(self) -> list[RoleSpec]:
        """See `SelectionProtocol`."""
        return [RoleSpec(Checking, None)]

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol`."""
        bug("select")
        present = await check_in(round_)
        return Selection(present[: self.parameters.participants], len(present))


class Sending(PlainClient):
    """The client's side of an aggregation."""

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        """Client 3 crashes."""
        if self.client.number == 3:
            bug("send")
        return super().on_send_update(message)


class Summing(Plain):
    """The server's side of it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(PlainParameters())

    @property
    def roles(self) -> list[RoleSpec]:
        """See `AggregationProtocol`."""
        return [RoleSpec(Sending, self.parameters)]

    async def aggregate(self, round_: Any) -> Any:
        """See `AggregationProtocol`."""
        bug("aggregate")
        return await super().aggregate(round_)


class Slow:
    """Devices."""

    def __init__(self, section: Any) -> None:
        pass

    def speed_factors(self, population: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
        """See `DeviceModel`."""
        bug("devices")
        return np.ones(population)


class There:
    """Availability."""

    comes_back = True

    def __init__(self, section: Any, population: int, randomness: Any) -> None:
        pass

    def presence(self, round_number: int, stage: str, now_s: float, clients: Any) -> Presence:
        """See `Availability`."""
        bug("presence")
        nobody = np.zeros(len(clients), np.bool_)
        return Presence(~nobody, nobody, np.full(len(clients), np.inf))


class Heavy(Means):
    """A workload that keeps a core busy for much longer than it is charged for."""

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Works for 0.3 s from round 2 on."""
        until = time.monotonic() + 0.3 * (round_number >= 2)
        while time.monotonic() < until:
            pass
        return super().train(client, model, round_number)
