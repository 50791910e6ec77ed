"""Clients on Ray: `Hosts` over `ClientHost` actors, with lost hosts restarted and replayed.

Every choice of a client comes from (seed, client, round, purpose). A host that has died is therefore started anew
and given this round's messages once more; it then stands where the lost one stood. Without a seed the clients'
secrets are gone with the process, and the run stops with a resumable error.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
from ray.exceptions import RayActorError

from testbed.errors import ClusterError, Refusal
from testbed.experiment.schema import Experiment
from testbed.messages import Vector
from testbed.network.hosting import Delivery, HostAnswers, Ids
from testbed.network.live import Address
from testbed.parties.local_hosts import chosen_on, split
from testbed.parties.pki import Directory
from testbed.parties.summing import combined

MAXIMUM_RESTARTS = 3  # of one host in one round: a host that dies again on the same messages will do so for ever


class RayHosts:
    """See `testbed.network.hosting.Hosts`.

    Args:
        actors: handles of `ClientHost` actors.
        pki: handle of the PKI actor.
        host_class: the remote class, to start replacements.
    """

    def __init__(self, actors: list[Any], pki: Any, host_class: Any) -> None:
        self._actors = list(actors)
        self._pki = pki
        self._host_class = host_class
        self._log: list[tuple[list[Delivery], Any]] = []  # this round's deliveries, for replay
        self._restarts = 0
        self._board: Any = None
        self._address: Address | None = None  # of the live network, if there is one
        self.processes: list[int] = []
        self.on_event: Callable[[str, str, str], None] = lambda party, kind, detail: None

    async def prepare(self, experiment: Experiment, simulation_seed: int, last_round: int) -> None:
        """Make the clients of an experiment on all hosts."""
        self._experiment, self._seed, self._last_round = experiment, simulation_seed, last_round
        self._board = self._address = None
        self._log.clear()
        await self._pki.prepare.remote(experiment, simulation_seed)
        self.processes = list(await asyncio.gather(*(self._prepare_one(i) for i in range(len(self._actors)))))

    def _prepare_one(self, index: int) -> Awaitable[int]:
        actor = self._actors[index]
        return actor.prepare.remote(self._experiment, self._seed, index, len(self._actors), self._last_round)

    async def register(self) -> Directory:
        """Every client registers with the PKI; the board goes to all hosts."""
        await asyncio.gather(*(self._register_one(actor) for actor in self._actors))
        board = await self._pki.directory.remote()
        self._board = ray.put(board)
        await asyncio.gather(*(actor.read_board.remote(self._board) for actor in self._actors))
        return board

    async def _register_one(self, actor: Any) -> None:
        requests = actor.registrations.remote()  # goes from host to PKI and back by reference
        await actor.accept_registrations.remote(self._pki.register_many.remote(requests))

    async def begin_round(self, round_number: int) -> None:
        """See `Hosts.begin_round`."""
        self._last_round = round_number - 1
        self._log.clear()
        self._restarts = 0
        await asyncio.gather(
            *(self._call(i, lambda actor: actor.begin_round.remote()) for i in range(len(self._actors)))
        )

    async def go_live(self, address: Address) -> None:
        """Let all clients connect to a live network; they are then asked over it, and no longer by `deliver`."""
        self._address = address
        calls = (self._call(i, lambda actor: actor.go_live.remote(address)) for i in range(len(self._actors)))
        await asyncio.gather(*calls)

    async def begin_live_round(self, round_number: int) -> None:
        """Bring hosts back that have died: their clients were gone for the rest of the round, and connect again."""
        self._last_round = round_number - 1
        self._restarts = 0
        await asyncio.gather(*(self._call(i, lambda actor: actor.alive.remote()) for i in range(len(self._actors))))

    async def deliver(self, delivery: Delivery) -> HostAnswers:
        """See `Hosts.deliver`."""
        vectors = ray.put([(v.values, v.bits) for v in delivery.vectors]) if delivery.vectors else None
        parts = split(replace(delivery, vectors=()), len(self._actors))
        calls = []
        for index, part in enumerate(parts):
            if len(part.recipients):
                calls.append(self._call(index, lambda actor, part=part: actor.deliver.remote(part, vectors)))
        answers = list(await asyncio.gather(*calls))
        self._log.append((parts, vectors))
        failures = [failure for answer in answers for failure in answer.failures]
        if failures and len(failures) == len(delivery.recipients):
            raise ClusterError(f"every client crashed at {delivery.kind.stage}; the first: {failures[0][1]}")
        return HostAnswers.merged(answers)

    async def total(
        self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[Any], float]:
        """See `Hosts.total`; only one vector per host travels."""
        calls = []
        for index in range(len(self._actors)):
            here, shares = chosen_on(index, len(self._actors), clients, weights)
            if len(here):
                calls.append(
                    self._call(index, lambda actor, here=here, shares=shares: actor.total.remote(key, here, shares))
                )
        if not calls:
            raise Refusal("sum.empty", "there is nobody to sum over")
        parts = await asyncio.gather(*calls)
        return combined((part[0] for part in parts), parts[0][1]), sum(part[2] for part in parts)

    async def vectors(self, key: tuple[int, int], clients: Ids) -> dict[int, Vector]:
        """See `Hosts.vectors`."""
        found: dict[int, Vector] = {}
        for index in range(len(self._actors)):
            here = chosen_on(index, len(self._actors), clients, None)[0]
            arrays = await self._call(index, lambda actor, here=here: actor.vectors.remote(key, here))
            found.update({number: Vector(values, bits) for number, (values, bits) in arrays.items()})
        return found

    async def _call(self, index: int, call: Callable[[Any], Awaitable[Any]]) -> Any:
        """Call a host; when it has died, start another in its place, bring it up to date, and call again."""
        while True:
            try:
                return await call(self._actors[index])
            except RayActorError:
                await self._replace(index)

    async def _replace(self, index: int) -> None:
        self._restarts += 1
        if self._experiment.seed is None:
            raise ClusterError(
                f"host {index} died and its clients' secrets with it (the experiment has no seed); go on with --resume"
            )
        if self._restarts > MAXIMUM_RESTARTS:
            raise ClusterError(f"hosts died {self._restarts} times in one round, the last was {index}; see Ray's logs")
        done = "the round replayed" if self._address is None else "connect again"
        self.on_event(f"host:{index}", "restart", f"host {index} died; its clients were restored and {done}")
        self._actors[index] = self._host_class.options(num_cpus=0).remote()
        try:
            self.processes[index] = await self._prepare_one(index)
            if self._board is not None:
                await self._register_one(self._actors[index])
                await self._actors[index].read_board.remote(self._board)
            for parts, vectors in self._log:
                if len(parts[index].recipients):
                    await self._actors[index].deliver.remote(parts[index], vectors)
            if self._address is not None:
                await self._actors[index].go_live.remote(self._address)
        except RayActorError:
            await self._replace(index)
