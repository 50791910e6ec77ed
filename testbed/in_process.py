"""A run in this process: no Ray, plain stack traces, the same virtual clock and the same results."""

import asyncio
from collections.abc import Callable

from testbed.experiment.schema import Experiment
from testbed.federation import Federation, Plan, Progress
from testbed.parties.local_hosts import LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.records import RunDirectory
from testbed.training import Workload


def federation_in_process(
    plan: Plan,
    workload: Workload,
    records: RunDirectory | None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    hosts: int = 1,
) -> Federation:
    """A federation whose clients live in this process, registered and ready for its next round.

    Args:
        plan: the experiment's parts.
        workload: what the clients learn.
        records: the run's directory; None records nothing.
        on_progress: see `Federation`.
        hosts: number of hosts; several work in threads (the built-in workloads train one client at a time).
    """
    plan.check_sums(workload)
    experiment = plan.experiment
    checkpoint = None if records is None else records.checkpoint()
    last_round = 0 if checkpoint is None else checkpoint.round_number
    environment = plan.environment(workload)
    local = LocalHosts(experiment.population, environment, plan.roles, hosts=hosts, last_round=last_round)
    board = Directory.empty(experiment.population)
    if plan.needs_registration:
        local.register(PKI(experiment.population, plan.randomness))
        board = environment.directory
    return Federation(plan, local, workload, board, records, on_progress)


def run_in_process(
    experiment: Experiment,
    workload: Workload,
    simulation_seed: int,
    records: RunDirectory | None,
    on_progress: Callable[[Progress], None],
) -> None:
    """Run (or go on with) one experiment to its end."""
    federation = federation_in_process(Plan(experiment, simulation_seed), workload, records, on_progress)

    async def rounds() -> None:
        while not federation.finished:
            await federation.run_next_round()

    asyncio.run(rounds())
    if records is not None:
        records.finish()
