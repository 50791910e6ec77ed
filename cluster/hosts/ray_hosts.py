"""Clients on Ray: `Hosts` over `ClientHost` actors on any nodes.

Every choice of a client comes from (seed, client, round, purpose). A dead host, or a host on a dead node, is therefore
started again and given this round's messages once more; the new host is then in the same state as the lost one. Without
a seed the clients' secrets are lost with the process, and the run stops with a resumable error.
"""

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import ray
from ray.exceptions import (
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.hosts.placement import Node, Place, living_nodes, replacement, tree
from testbed.arrays import Ids
from testbed.errors import ClusterError, Refusal
from testbed.experiment.schema import Experiment
from testbed.messages import Vector
from testbed.network.hosts import Delivery, HostAnswers
from testbed.network.live import Address
from testbed.network.live.reports import HostReport
from testbed.network.sums import Sum, merged
from testbed.parties.host_assignment import chosen_on, owned_by, split
from testbed.parties.pki import Directory
from testbed.randomness import Randomness

MAXIMUM_RESTARTS = 3  # of one host in one round: a host that keeps dying on the same messages will not recover
MAXIMUM_QUARANTINED = 3  # clients of one host in one round; beyond, the host is the cause (e.g. out of memory)
PING_TIMEOUT_S = 30.0
START_TIMEOUT_S = 300.0  # of a replacement, which may have to wait for a GPU
REGISTERED_AT_ONCE = 4096  # clients of a host: their key pairs are in memory until the PKI has answered

LOST = (RayActorError, ObjectLostError, WorkerCrashedError, OutOfMemoryError, NodeDiedError, ActorUnschedulableError)
Result = TypeVar("Result")


class PartyLost(ClusterError):
    """The PKI or the coordinator died: the run continues from its checkpoint with new ones."""


def start_host(host_class: Any, place: Place, *, elsewhere: bool = True) -> Any:
    """Start a new `ClientHost` actor.

    Args:
        host_class: the remote class.
        place: node and reservations.
        elsewhere: allow other nodes if that node has gone or its CPUs are taken.
    """
    where = NodeAffinitySchedulingStrategy(place.node_id, soft=elsewhere)
    # No restart by Ray: it would bring the process back without its state; `_replace` replays the messages.
    return host_class.options(
        num_cpus=place.cpus, num_gpus=place.gpus, scheduling_strategy=where, max_restarts=0
    ).remote()


class RayHosts:
    """Hosts of clients as Ray actors; implements `testbed.network.hosts.Hosts`.

    Args:
        actors: handles of `ClientHost` actors.
        places: requested place of each.
        pki: handle of the PKI actor.
        host_class: the remote class, to start replacements.

    Attributes:
        processes: the hosts' process ids.
        node_of: the node of each host.
        quarantined: clients with messages that kill the process that handles them; they are asked no more. In the
            records they are events of the kind "quarantined".
        on_event: called with (party, kind, detail) when a host was replaced or a client quarantined.
    """

    def __init__(self, actors: Sequence[Any], places: Sequence[Place], pki: Any, host_class: Any) -> None:
        self._actors = list(actors)
        self._places = list(places)
        self._pki = pki
        self._host_class = host_class
        self._log: list[tuple[list[Delivery], Any]] = []  # this round's deliveries, for replay
        self._restarts: Counter[int] = Counter()  # of each host in this round
        self._directory: Any = None
        self._registers = False  # whether clients ask the PKI for their keys
        self._address: Address | None = None  # of the live network, if there is one
        self._own_node = ray.get_runtime_context().get_node_id()
        self.processes = [0] * len(self._actors)
        self.node_of = [place.node_id for place in places]
        self.quarantined: set[int] = set()
        self.on_event: Callable[[str, str, str], None] = lambda party, kind, detail: None

    # -- before the rounds -----------------------------------------------------------------------------------

    async def prepare(
        self,
        experiment: Experiment,
        simulation_seed: int,
        randomness: Randomness,
        last_round: int,
        states: tuple[str, str] | None = None,
    ) -> None:
        """Create the PKI of an experiment and its clients on all hosts.

        Args:
            experiment: one point.
            simulation_seed: see `RunPlan`.
            randomness: of the PKI.
            last_round: last round before those that will run.
            states: directory and mark of the run if clients keep state; see `ClientHost.prepare`.
        """
        self._experiment, self._seed, self._last_round, self._states = experiment, simulation_seed, last_round, states
        self._directory = self._address = None
        self._registers = False
        self._log.clear()
        self._restarts.clear()
        self.quarantined.clear()
        await self._from_pki(self._pki.prepare.remote(experiment.population, randomness))
        await self._call_all(self._prepare_one)

    async def _prepare_one(self, index: int) -> None:
        self.processes[index], self.node_of[index] = await self._actors[index].prepare.remote(
            self._experiment, self._seed, index, len(self._actors), self._last_round, self._states
        )

    async def register(self, completed: Callable[[Directory], Directory] = lambda directory: directory) -> Directory:
        """Register every client with the PKI; send the key directory, changed by `completed`, to all hosts."""
        self._registers = True
        await self._call_all(self._register_one)
        return await self.share(completed(await self._from_pki(self._pki.directory.remote())))

    async def share(self, directory: Directory) -> Directory:
        """Send the key directory to all hosts; return it."""
        self._directory = ray.put(directory)
        await self._call_all(lambda index: self._actors[index].set_key_directory.remote(self._directory))
        return directory

    async def _register_one(self, index: int) -> None:
        actor, clients = self._actors[index], owned_by(index, len(self._actors), self._experiment.population)
        for first in range(0, len(clients), REGISTERED_AT_ONCE):
            senders = clients[first : first + REGISTERED_AT_ONCE]  # a host has the channels of its own clients only
            requests = actor.registrations.remote(first, REGISTERED_AT_ONCE)  # to the PKI and back by reference
            await actor.accept_registrations.remote(self._pki.register_many.remote(requests, senders))

    # -- rounds ----------------------------------------------------------------------------------------------

    async def begin_round(self, round_number: int) -> None:
        self._last_round = round_number - 1
        self._log.clear()
        self._restarts.clear()
        await self._call_all(lambda index: self._actors[index].begin_round.remote())

    async def go_live(self, address: Address) -> None:
        """Connect all clients to a live network; they are then asked over it, and no longer by `deliver`."""
        self._address = address
        await self._call_all(lambda index: self._actors[index].go_live.remote(address))

    async def begin_live_round(self, round_number: int) -> None:
        """Replace dead hosts: their clients were gone for the rest of the round, and connect again."""
        self._last_round = round_number - 1
        self._restarts.clear()
        await self._call_all(lambda index: self._actors[index].alive.remote())

    async def crash_report(self, client: int, key: tuple[int, int]) -> HostReport | None:
        """Return `LiveClients.crash_report`; None also if the client's host has died."""
        try:
            report: HostReport | None = await self._actors[client % len(self._actors)].crash_report.remote(client, key)
        except LOST:
            return None
        return report

    async def deliver(self, delivery: Delivery) -> HostAnswers:
        # Once per stage: the hosts of a node share the copy.
        vectors = ray.put([(v.values, v.bits) for v in delivery.vectors]) if delivery.vectors else None
        parts = split(replace(self._without_quarantined(delivery), vectors=()), len(self._actors))
        addressed = [index for index, part in enumerate(parts) if len(part.recipients)]
        answers = await asyncio.gather(*(self._deliver_to(index, parts[index], vectors) for index in addressed))
        # Without clients that were quarantined meanwhile: the replay must not kill the replacement.
        self._log.append(([self._without_quarantined(part) for part in parts], vectors))
        return HostAnswers.merged(answers)

    async def total(
        self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None
    ) -> tuple[Sum, float]:
        """Return the sum over clients; hosts of one node add up first, so that one vector leaves the node."""
        chosen = {}
        for index in range(len(self._actors)):
            host_clients, shares = chosen_on(index, len(self._actors), clients, weights)
            if len(host_clients):
                chosen[index] = (host_clients, shares)
        if not chosen:
            raise Refusal("sum.empty", "there is no client to sum over")

        async def summed() -> list[Any]:
            sums = {index: self._actors[index].total.remote(key, *chosen[index]) for index in chosen}
            levels, remaining = tree(list(chosen), self.node_of, self._own_node)
            for level in levels:
                for merge in level:
                    sums[merge.at] = self._actors[merge.at].merge.remote(*(sums[index] for index in merge.of))
            return list(await asyncio.gather(*(sums[index] for index in remaining)))

        parts = await self._with_replacements(summed, list(chosen))
        return merged(part for part, _ in parts), sum(cpu_s for _, cpu_s in parts)

    async def vectors(self, key: tuple[int, int], clients: Ids) -> dict[int, Vector]:

        async def of_host(index: int, host_clients: Ids) -> dict[int, tuple[npt.NDArray[Any], int]]:
            return dict(await self._actors[index].vectors.remote(key, host_clients))

        vectors: dict[int, Vector] = {}
        for index in range(len(self._actors)):
            host_clients = chosen_on(index, len(self._actors), clients, None)[0]
            arrays = await self._with_replacements(functools.partial(of_host, index, host_clients), [index])
            vectors.update({number: Vector(values, bits) for number, (values, bits) in arrays.items()})
        return vectors

    # -- when something dies ---------------------------------------------------------------------------------

    async def _call_all(self, call: Callable[[int], Awaitable[Any]]) -> None:
        """Call every host; dead hosts are replaced and called again."""
        indices = range(len(self._actors))
        await asyncio.gather(*(self._with_replacements(functools.partial(call, i), [i]) for i in indices))

    async def _with_replacements(self, call: Callable[[], Awaitable[Result]], hosts: Sequence[int]) -> Result:
        """Return the result of `call`; after a loss, replace the dead hosts among `hosts` and repeat the call."""
        while True:
            try:
                return await call()
            except LOST as error:
                await self._from_pki(self._pki.alive.remote())
                dead = [index for index in hosts if not await self._alive(index)] if len(hosts) > 1 else hosts
                for index in dead or hosts[:1]:  # no host died: an object was lost, and may be lost again
                    await self._replace(index, error)

    async def _alive(self, index: int) -> bool:
        try:
            await asyncio.wait_for(_awaited(self._actors[index].alive.remote()), PING_TIMEOUT_S)
        except (*LOST, TimeoutError):
            return False
        return True

    async def _from_pki(self, reference: Awaitable[Result]) -> Result:
        try:
            return await reference
        except LOST:
            raise PartyLost("the PKI's process died") from None

    async def _deliver_to(self, index: int, part: Delivery, vectors: Any) -> HostAnswers:
        """Deliver one host's part, even if some clients kill the process that handles them.

        A host that dies twice on the same messages gets them in halves, until the client at fault is found; this client
        is quarantined.
        """
        pending, handled, answers = [part], [], []
        deaths: Counter[tuple[int, int]] = Counter()
        quarantined = 0
        while pending:
            piece = pending.pop(0)
            try:
                answers.append(await self._actors[index].deliver.remote(piece, vectors))
                handled.append(piece)
                continue
            except LOST as lost:
                error = lost
            suspects = piece.recipients
            piece_key = (int(suspects[0]), len(suspects))
            deaths[piece_key] += 1
            # Halves die on purpose, to find the client at fault; these deaths do not count against the host.
            isolating = len(suspects) < len(part.recipients)
            enough = 2 if isolating or len(suspects) > 1 else 3  # a single client from the start may be hit by chance
            await self._replace(index, error, [(piece, vectors) for piece in handled], counts=not isolating)
            if len(suspects) == 1 and deaths[piece_key] >= enough:
                quarantined += 1
                self._quarantine(int(suspects[0]), part.kind.stage)
                if quarantined >= MAXIMUM_QUARANTINED:
                    raise ClusterError(
                        f"host {index} died on client after client at {part.kind.stage}; out of memory? "
                        "lower cluster.clients_per_host, see Ray's logs, and rerun with --resume"
                    )
            elif len(suspects) > 1 and (isolating or deaths[piece_key] >= enough):
                pending[:0] = _halves(piece)
            else:
                pending.insert(0, piece)
        return HostAnswers.merged(answers)

    def _quarantine(self, client: int, stage: str) -> None:
        self.quarantined.add(client)
        self.on_event(
            f"client:{client}",
            "quarantined",
            f"killed its host again and again at {stage}; left out for the rest of the run",
        )

    def _without_quarantined(self, delivery: Delivery) -> Delivery:
        if not self.quarantined:
            return delivery
        return delivery.restricted(~np.isin(delivery.recipients, list(self.quarantined)))

    async def _replace(
        self, index: int, error: Exception, handled: Sequence[tuple[Delivery, Any]] = (), *, counts: bool = True
    ) -> None:
        """Start another host in the place of a lost one and bring it to the same state.

        Args:
            index: number of the host.
            error: Ray's error.
            handled: deliveries of the current stage that the lost host had handled.
            counts: count this loss against `MAXIMUM_RESTARTS`.
        """
        while True:
            nodes = await asyncio.to_thread(living_nodes, ray.nodes())
            why = self._loss_text(index, error, nodes)
            self._restarts[index] += counts
            if self._experiment.seed is None:
                raise ClusterError(
                    f"host {index} died, and its clients' secrets are lost (the experiment has no seed); "
                    "rerun with --resume"
                )
            if self._restarts[index] > MAXIMUM_RESTARTS:
                raise ClusterError(
                    f"host {index} died {self._restarts[index]} times in one round ({why}); see Ray's logs, "
                    "and rerun with --resume"
                )
            ray.kill(self._actors[index], no_restart=True)  # it may still live behind a broken network
            others = [place for number, place in enumerate(self._places) if number != index]
            self._places[index] = replacement(nodes, self._places[index], others)
            self._actors[index] = start_host(self._host_class, self._places[index], elsewhere=False)
            consequence = "the round's messages are replayed" if self._address is None else "its clients connect again"
            self.on_event(f"host:{index}", "restart", f"{why}; another host takes its place and {consequence}")
            try:
                await self._bring_up_to_date(index, handled)
            except LOST as repeated_loss:
                error, counts = repeated_loss, True
                await self._from_pki(self._pki.alive.remote())
            else:
                return

    async def _bring_up_to_date(self, index: int, handled: Sequence[tuple[Delivery, Any]]) -> None:
        try:
            await asyncio.wait_for(_awaited(self._actors[index].alive.remote()), START_TIMEOUT_S)
        except TimeoutError:
            raise ClusterError(
                f"host {index} is lost and no node has room for another; rerun with --resume when a node has room, "
                "or with fewer hosts"
            ) from None
        await self._prepare_one(index)
        if self._registers:
            await self._register_one(index)
        if self._directory is not None:
            await self._actors[index].set_key_directory.remote(self._directory)
        for piece, vectors in [*((parts[index], vectors) for parts, vectors in self._log), *handled]:
            if len(piece.recipients):
                await self._actors[index].deliver.remote(piece, vectors)
        if self._address is not None:
            await self._actors[index].go_live.remote(self._address)

    def _loss_text(self, index: int, error: Exception, nodes: Sequence[Node]) -> str:
        """Return the reason of a loss in a few words; Ray's own message holds addresses and paths."""
        if isinstance(error, OutOfMemoryError):
            return "out of memory"
        if not self.processes[index]:
            return "its process died before it was ready"
        lives = any(node.node_id == self.node_of[index] for node in nodes)
        return f"process {self.processes[index]} died" if lives else f"the node of process {self.processes[index]} died"


def _halves(delivery: Delivery) -> list[Delivery]:
    first = np.arange(len(delivery.recipients)) < len(delivery.recipients) // 2
    return [delivery.restricted(first), delivery.restricted(~first)]


async def _awaited(reference: Awaitable[Result]) -> Result:
    """Await a reference in a coroutine, which `asyncio.wait_for` needs."""
    return await reference
