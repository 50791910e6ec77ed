"""A run in this process: no Ray, plain stack traces, the same clocks and the same results."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable

from testbed.engine.federation import Federation, RunProgress
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import Experiment
from testbed.network.live import LiveClients, LiveNetwork
from testbed.network.live.admission import connecting_s
from testbed.network.live.reports import HostReport
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.records import RunDirectory
from testbed.workload.contract import Workload


def federation_in_process(
    plan: RunPlan,
    workload: Workload,
    records: RunDirectory | None,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    hosts: int = 1,
) -> Federation:
    """Return a federation whose clients run in this process, registered and ready for its next round.

    Args:
        plan: the experiment's parts.
        workload: the training task.
        records: the run's directory; None records nothing.
        on_progress: see `Federation`.
        hosts: number of hosts; several run in threads (the built-in workloads train one client at a time).
    """
    local, board = _registered(plan, workload, records, hosts)
    states = local.environment.client_states
    return Federation(plan, local, workload, board, records, on_progress, states=states)


@contextlib.asynccontextmanager
async def live_in_process(
    plan: RunPlan,
    workload: Workload,
    records: RunDirectory | None,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    hosts: int = 1,
) -> AsyncIterator[Federation]:
    """Open a federation on the wall clock: clients in this process connect to the server over loopback.

    A context manager: inside, the clients are connected and the federation is ready for its next round; afterwards all
    connections are closed.

    Args:
        plan, workload, records, on_progress, hosts: see `federation_in_process`.

    Raises:
        ClusterError: not all clients could connect.
    """
    local, board = _registered(plan, workload, records, hosts)
    states = local.environment.client_states
    groups: list[LiveClients] = []

    async def confirming(client: int, key: tuple[int, int]) -> HostReport | None:
        # Clients are dealt to hosts as in `owned_by`.
        return groups[client % len(groups)].crash_report(client, key)

    live = functools.partial(LiveNetwork, confirming=confirming)
    federation = Federation(plan, local, workload, board, records, on_progress, live, states)
    network = federation.network
    assert isinstance(network, LiveNetwork)
    try:
        address = await network.open()
        for host in local.hosts:
            groups.append(LiveClients(host, address))
            groups[-1].start()
        await network.wait_for_clients(plan.experiment.population, connecting_s(plan.experiment.population))
        yield federation
    finally:
        # Before the groups: clients end by themselves when the server says goodbye.
        await network.close()
        for group in groups:
            await asyncio.to_thread(group.close)


def _registered(
    plan: RunPlan, workload: Workload, records: RunDirectory | None, hosts: int
) -> tuple[LocalHosts, Directory]:
    """Return hosts in this process, with clients registered with the PKI, and the bulletin board."""
    plan.check_sums(workload)
    experiment = plan.experiment
    checkpoint = None if records is None else records.checkpoint()
    last_round = 0 if checkpoint is None else checkpoint.round_number
    environment = plan.environment(workload, None if records is None else records.path)
    local = LocalHosts(
        experiment.population, environment, plan.roles, hosts=hosts, last_round=last_round, on_crash=experiment.on_crash
    )
    board = Directory.empty(experiment.population)
    if plan.derives_identities:
        board = environment.directory = plan.derived_board(workload)
    elif plan.needs_registration:
        local.register(PKI(experiment.population, plan.randomness))
        # After registration has closed: the public seed must not be known before.
        board = environment.directory = plan.completed(environment.directory, workload)
    return local, board


def run_in_process(
    experiment: Experiment,
    workload: Workload,
    simulation_seed: int,
    records: RunDirectory | None,
    on_progress: Callable[[RunProgress], None],
) -> None:
    """Run (or resume) one experiment to its end.

    Args:
        experiment: one point.
        workload: the training task.
        simulation_seed: replaces the experiment's seed if it has none.
        records: the run's directory; None records nothing.
        on_progress: see `Federation`.
    """
    plan = RunPlan(experiment, simulation_seed)

    async def rounds() -> None:
        if experiment.time.clock == "wall":
            async with live_in_process(plan, workload, records, on_progress) as federation:
                await run_remaining_rounds(federation)
        else:
            await run_remaining_rounds(federation_in_process(plan, workload, records, on_progress))

    asyncio.run(rounds())
    if records is not None:
        records.finish()


async def run_remaining_rounds(federation: Federation) -> None:
    """Run the rounds that are left."""
    while not federation.finished:
        await federation.run_next_round()
