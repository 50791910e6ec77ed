"""Breaking a run on purpose: coordinators that kill processes at a chosen moment, and clients that kill their host.

The processes are killed with SIGKILL by the coordinator itself, in the middle of a stage: while the hosts work on it.
All processes must live on one machine (Ray nodes may be several: `ray.cluster_utils.Cluster`).
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cluster.hosts.actors import Coordinator
from cluster.hosts.ray_hosts import RayHosts
from testbed.arrays import Ids
from testbed.network.hosts import Delivery, HostAnswers
from testbed.network.sums import Sum
from workloads.contract import Evaluation, LocalUpdate

Result = TypeVar("Result")
Victims = Callable[[RayHosts], Sequence[int]]
SUM = "sum"  # a moment beside the stages: while the hosts add up


@dataclass(frozen=True)
class Moment:
    """When something is killed: in the middle of a stage (or of `SUM`) of a round, once per `marker` file.

    Attributes:
        round_number: the round.
        stage: name of the stage.
        marker: a file; from when it exists on nothing is killed any more, whichever process it was.
        times: how often, in this coordinator's life.
    """

    round_number: int
    stage: str
    marker: Path
    times: int = 1


def host(index: int) -> Victims:
    """The process of one host."""
    return lambda hosts: [hosts.processes[index]]


def coordinator(hosts: RayHosts) -> list[int]:
    """The process that this runs in."""
    return [os.getpid()]


def processes(*numbers: int) -> Victims:
    """Processes known before, such as a node's."""
    return lambda hosts: numbers


def breaking(*faults: tuple[Moment, Victims]) -> type[Coordinator]:
    """A coordinator that kills the victims at these moments."""

    class BreakingHosts(RayHosts):
        """Reaches hosts as usual, and kills."""

        async def deliver(self, delivery: Delivery) -> HostAnswers:
            """See `Hosts.deliver`."""
            return await self._broken(delivery.key[0], delivery.kind.stage, super().deliver(delivery))

        async def total(
            self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None
        ) -> tuple[Sum, float]:
            """See `Hosts.total`."""
            return await self._broken(key[0], SUM, super().total(key, clients, weights))

        async def _broken(self, round_number: int, stage: str, work: Awaitable[Result]) -> Result:
            going = asyncio.ensure_future(work)
            for moment, victims in faults:
                if (moment.round_number, moment.stage) == (round_number, stage) and not moment.marker.exists():
                    if moment.times == 1:
                        await asyncio.wait({going}, timeout=0.005)  # into the middle of it
                    moment.marker.touch()
                    for _ in range(moment.times):
                        numbers = list(victims(self))
                        _kill(numbers)
                        while list(victims(self)) == numbers and not going.done() and moment.times > 1:
                            await asyncio.sleep(0.01)  # until another process has taken the place
            return await going

    class BreakingCoordinator(Coordinator):
        """A coordinator over such hosts."""

        @staticmethod
        def hosts_at(hosts: list[Any], places: list[Any], pki: Any) -> RayHosts:
            """See `Coordinator.hosts_at`."""
            import ray

            from cluster.hosts.actors import ClientHost

            return BreakingHosts(hosts, places, pki, ray.remote(ClientHost))

    return BreakingCoordinator


def _kill(numbers: Sequence[int]) -> None:
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):  # it may have died of an earlier one
            os.kill(number, signal.SIGKILL)


class Means:
    """A workload (`workload.dataset: benchmarks.breaking:Means`): every client pulls the model to a point of its own.

    It needs no torch, so that hosts start quickly. See `workloads.contract`.
    """

    name, model_name, dimension = "means", "mean", 500

    def __init__(self, section: Any, population: int, seed: int) -> None:
        self.population = population
        self.points = np.random.default_rng(seed).normal(size=(population, self.dimension)).astype(np.float32)
        self.sample_counts = np.arange(population, dtype=np.int64) % 7 + 1

    def label_counts(self) -> npt.NDArray[np.int64]:
        """(n, 1): one class."""
        return self.sample_counts[:, None]

    def initial_model(self) -> npt.NDArray[np.float32]:
        """(d,) float32 zeros."""
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """See `workloads.contract`."""
        samples = int(self.sample_counts[client])
        return LocalUpdate(0.1 * (self.points[client] - model), samples, 1.0 / round_number, samples)

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation:
        """The mean parameter stands for an accuracy."""
        return Evaluation(float(abs(model).sum()), min(1.0, float(abs(model).mean())), 1)


class Poison(Means):
    """The same (`benchmarks.breaking:Poison`), but training client 3 kills the process, and client 4 raises."""

    KILLS, RAISES = 3, 4

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """See `workloads.contract`."""
        if client == self.KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if client == self.RAISES:
            raise ArithmeticError("this client never succeeds")
        return super().train(client, model, round_number)
