"""The Ray actors of clients and of the coordinator: thin shells around classes of `testbed`."""

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from cluster.hosts.placement import Place
from cluster.hosts.ray_hosts import RayHosts
from cluster.metrics import RunMetrics
from testbed.arrays import Ids
from testbed.crashes import locating_crashes
from testbed.engine.data_checks import notes_of
from testbed.engine.federation import Federation, RunProgress
from testbed.engine.plan import RunPlan
from testbed.errors import ClusterError
from testbed.experiment.inputs import plugin_classes
from testbed.experiment.schema import Experiment
from testbed.messages import Vector
from testbed.network.hosts import Delivery, HostAnswers
from testbed.network.live import Address, LiveClients, LiveNetwork
from testbed.network.live.admission import connecting_s
from testbed.network.live.reports import HostReport
from testbed.network.sums import Sum, merged
from testbed.parties.host import Host
from testbed.parties.host_assignment import owned_by
from testbed.parties.pki import Directory
from testbed.plugins import sources
from testbed.records import RunDirectory
from testbed.records.locks import WRITER, run_lock
from testbed.records.log import RunLog
from testbed.vectors.dense import FLOAT32
from testbed.workload import building
from testbed.workload.client_states import ClientStates


class ClientHost:
    """Ray actor: a `Host` with every `hosts`-th client of the population."""

    def __init__(self) -> None:
        self._host: Host | None = None
        self._live: LiveClients | None = None

    def prepare(
        self,
        experiment: Experiment,
        simulation_seed: int,
        index: int,
        hosts: int,
        last_round: int,
        states: tuple[str, str] | None = None,
    ) -> tuple[int, str]:
        """Create this host's clients for an experiment.

        Args:
            experiment: one point.
            simulation_seed: see `RunPlan`.
            index: number of this host.
            hosts: number of hosts.
            last_round: last round before those that will run.
            states: directory and mark of the run (`ClientStates.share`), if clients keep state.

        Returns:
            The process id and the node's id.
        """
        self._close_connections()  # of an earlier experiment
        with locating_crashes(f"the preparation of host {index}"):
            plan = RunPlan(experiment, simulation_seed)
            workload = building.build(experiment.workload, experiment.population, plan.seed)
            directory = None if states is None else Path(states[0])
            if states is not None:
                ClientStates(directory).check_shared(states[1])
            environment = plan.environment(workload, directory)
        check_plugin_modules(experiment)
        numbers = owned_by(index, hosts, experiment.population)
        self._host = Host(numbers, environment, plan.roles, last_round=last_round, on_crash=experiment.on_crash)
        return os.getpid(), ray.get_runtime_context().get_node_id()

    def _close_connections(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None

    @property
    def host(self) -> Host:
        """The host; `prepare` must be called first."""
        assert self._host is not None, "the host was not prepared"
        return self._host

    def registrations(self, first: int, count: int) -> list[bytes]:
        """Return `Host.registrations`."""
        return self.host.registrations(first, count)

    def accept_registrations(self, answers: Sequence[bytes]) -> None:
        """Call `Host.accept_registrations`."""
        self.host.accept_registrations(answers)

    def set_key_directory(self, directory: Directory) -> None:
        """Give the clients the PKI's key directory."""
        self.host.environment.directory = directory

    def begin_round(self) -> None:
        """Call `Host.begin_round`."""
        self.host.begin_round()

    def go_live(self, address: Address) -> None:
        """Connect the clients to a live network; from then on only they use the host."""
        self._close_connections()
        self._live = LiveClients(self.host, address)
        self._live.start()

    def crash_report(self, client: int, key: tuple[int, int]) -> HostReport | None:
        """Return `LiveClients.crash_report`, or None without live clients."""
        return None if self._live is None else self._live.crash_report(client, key)

    def alive(self) -> None:
        """Do nothing: a call fails if this actor is dead."""

    def import_training(self) -> None:
        """Import the packages of the built-in workloads; `prepare` would do so later."""
        building.one_thread()
        building.import_training()

    def deliver(self, delivery: Delivery, vectors: Sequence[tuple[npt.NDArray[Any], int]] | None) -> HostAnswers:
        """Call `Host.deliver`; `vectors` come zero-copy from the object store."""
        # Read-only views of Ray's shared memory: all hosts of a node see one copy of the model.
        if vectors is not None:
            delivery = replace(delivery, vectors=tuple(Vector(values, bits) for values, bits in vectors))
        return self.host.deliver(delivery)

    def total(self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None) -> tuple[Sum, float]:
        """Return `Host.total`."""
        return self.host.total(key, clients, weights)

    def merge(self, *sums: tuple[Sum, float]) -> tuple[Sum, float]:
        """Add up the results of `total` from several hosts."""
        return merged(part for part, _ in sums), sum(cpu_s for _, cpu_s in sums)

    def vectors(self, key: tuple[int, int], clients: Ids) -> dict[int, tuple[npt.NDArray[Any], int]]:
        """Return `Host.vectors` as plain arrays and their bits."""
        vectors = self.host.vectors(key, clients)
        return {
            number: (vector.values, FLOAT32 if vector.is_float else vector.bits) for number, vector in vectors.items()
        }


class Coordinator:
    """Ray actor: the server, which runs rounds, records them and writes the checkpoint."""

    def __init__(self, hosts: list[Any], places: list[Place], pki: Any) -> None:
        self._hosts = self.hosts_at(hosts, places, pki)
        self._federation: Federation | None = None
        self._live: LiveNetwork | None = None
        self._records: RunDirectory | None = None
        self._progress: RunProgress | None = None
        self._run_locks = contextlib.ExitStack()
        # The arguments of the workload that the last check built, and the workload.
        self._checked_workload: tuple[Any, Any] | None = None

    @staticmethod
    def hosts_at(hosts: list[Any], places: list[Place], pki: Any) -> RayHosts:
        """Return the connection to the hosts; tests override it to break things on purpose."""
        return RayHosts(hosts, places, pki, ray.remote(ClientHost))

    async def prepare(
        self, experiment: Experiment, simulation_seed: int, directory: str | None, interruption: str = ""
    ) -> bool:
        """Create and register the clients, load the model; return whether the run is finished already.

        Args:
            experiment: one point.
            simulation_seed: see `RunPlan`.
            directory: the run's directory; None records nothing.
            interruption: reason why an earlier coordinator ended early; becomes an event.
        """
        self._progress = None
        self._checked_workload = None  # its memory is the run's now
        plan = RunPlan(experiment, simulation_seed)
        await self._close_connections()
        self._run_locks.close()
        self._records = None if directory is None else RunDirectory(Path(directory))
        if self._records is not None:  # the driver's lock ends with the driver, which this actor may outlive a little
            self._run_locks.enter_context(run_lock(self._records.path, WRITER))
        checkpoint = None if self._records is None else self._records.checkpoint()
        last_round = 0 if checkpoint is None else checkpoint.round_number
        early_events: list[tuple[str, str, str]] = []
        # The network, which records events, does not exist yet.
        self._hosts.on_event = lambda *event: early_events.append(event)
        states = None
        if plan.clients_remember:
            if directory is None:
                raise ClusterError("clients keep state from round to round; the run needs a directory (--out)")
            states = (directory, ClientStates(Path(directory)).share())
        # Importing torch and reading data take seconds: do so here and on the hosts at the same time.
        workload, _ = await asyncio.gather(
            asyncio.to_thread(building.build, experiment.workload, experiment.population, plan.seed),
            self._hosts.prepare(experiment, simulation_seed, plan.randomness, last_round, states),
        )
        if self._records is not None:
            # After `prepare`, which empties the set: a client that kills hosts would do so again in a resumed run.
            self._hosts.quarantined |= quarantined_before(self._records)
        keys = Directory.empty(experiment.population)
        if plan.derives_identities:
            keys = await self._hosts.share(plan.derived_board(workload))
        elif plan.needs_registration:
            keys = await self._hosts.register(functools.partial(plan.completed, workload=workload))
        plan.check_sums(workload)
        check_plugin_modules(experiment)
        live = functools.partial(
            LiveNetwork,
            listen_host=ray.util.get_node_ip_address(),
            before_round=self._hosts.begin_live_round,
            confirming=self._hosts.crash_report,
        )
        self._metrics = RunMetrics(
            experiment.name if self._records is None else self._records.path.name, experiment.selection.protocol
        )
        self._federation = Federation(
            plan,
            self._hosts,
            workload,
            directory=keys,
            records=self._records,
            on_progress=self._set_progress,
            network=live if experiment.time.clock == "wall" else None,
        )
        self._hosts.on_event = self._note_event
        if interruption:
            early_events.append(("coordinator", "restart", interruption))
        for event in early_events:
            self._note_event(*event)
        self._progress = self._federation.progress("start")
        if isinstance(self._federation.network, LiveNetwork) and not self._federation.finished:
            self._live = self._federation.network
            # Listen first: clients try to connect as soon as they have the address.
            await self._hosts.go_live(await self._live.open())
            await self._live.wait_for_clients(experiment.population, connecting_s(experiment.population))
        return self._federation.finished

    async def check(self, experiment: Experiment, simulation_seed: int, name: str) -> list[str]:
        """Return `testbed.engine.data_checks.notes_of`; errors of other kinds name the preparation of `name`."""

        def notes() -> list[str]:
            with locating_crashes(f"{name}: its preparation", then=""):
                plan = RunPlan(experiment, simulation_seed)
                key = (experiment.workload, experiment.population, plan.seed)
                if self._checked_workload is None or self._checked_workload[0] != key:
                    self._checked_workload = (key, building.build(*key))
                return notes_of(plan, self._checked_workload[1])

        return await asyncio.to_thread(notes)

    async def _close_connections(self) -> None:
        if self._live is not None:
            await self._live.close()
            self._live = None

    def _note_event(self, party: str, kind: str, detail: str) -> None:
        assert self._federation is not None
        self._federation.network.record_event(party, kind, detail)
        if self._records is None:
            return
        if kind == "restart" and party.startswith("host:"):
            RunLog(self._records.path).write("host-restarted", host=party.removeprefix("host:"), detail=detail)
        elif kind == "quarantined":
            RunLog(self._records.path).write("client-left-out", client=party.removeprefix("client:"), detail=detail)

    def _set_progress(self, progress: RunProgress) -> None:
        self._progress = progress

    async def progress(self) -> RunProgress | None:
        """Return the progress of the run."""
        return self._progress

    async def run_next_round(self) -> bool:
        """Run one round; return whether it was the last."""
        assert self._federation is not None, "the coordinator was not prepared"
        began = time.monotonic()
        outcome = await self._federation.run_next_round()
        network = self._federation.network
        self._metrics.round_ended(
            outcome.state,
            time.monotonic() - began,
            network.exchanges,
            network.events,
            network.now_s,
            participants=len(outcome.participants),
            survivors=len(outcome.survivors),
            accuracy=self._federation.accuracy,
        )
        return self._federation.finished

    async def finish(self) -> None:
        """Merge the records into one file per table."""
        await self._close_connections()
        if self._records is not None:
            self._records.finish()
        self._run_locks.close()

    async def host_processes(self) -> list[int]:
        """Return the process ids of the hosts, for tests that kill one."""
        return list(self._hosts.processes)


def check_plugin_modules(experiment: Experiment) -> None:
    """Raise `ExperimentError` if the user's modules here differ from those in the run's provenance."""
    recorded_modules = (experiment.provenance or {}).get("modules")
    if recorded_modules is not None:
        names = [name for _, name in plugin_classes(experiment)]
        sources.check_same(recorded_modules, names, f"node {ray.util.get_node_ip_address()}")


def quarantined_before(records: RunDirectory) -> set[int]:
    """Return the clients that were quarantined in earlier rounds of the run (see `RayHosts`)."""
    events = records.table("events").to_pylist()
    return {int(event["party"].removeprefix("client:")) for event in events if event["kind"] == "quarantined"}
