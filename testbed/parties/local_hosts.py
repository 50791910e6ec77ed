"""Clients in this process: for unit tests and debugging, with plain stack traces and no Ray."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crashes import OnCrash
from testbed.errors import Refusal
from testbed.messages import Vector
from testbed.network.hosts import Delivery, HostAnswers
from testbed.parties.client import Environment, RoleSpec
from testbed.parties.host import Host
from testbed.parties.pki import PKI
from testbed.parties.sums import combined

Result = TypeVar("Result")

REGISTERED_AT_ONCE = 4096
"""Clients of a host that ask the PKI together: the key pairs of so many are in memory at the same time."""


def owned_by(host: int, hosts: int, population: int) -> Ids:
    """Numbers of the clients that live on one of `hosts` hosts: every `hosts`-th, so that work spreads evenly."""
    return np.arange(host, population, hosts, dtype=np.int64)


def split(delivery: Delivery, hosts: int) -> list[Delivery]:
    """The delivery's parts, one per host."""
    if hosts == 1:
        return [delivery]
    return [delivery.restricted(delivery.recipients % hosts == host) for host in range(hosts)]


def chosen_on(
    host: int, hosts: int, clients: Ids, weights: npt.NDArray[np.int64] | None
) -> tuple[Ids, npt.NDArray[np.int64] | None]:
    """The clients among `clients` (and their weights) that live on `host`."""
    here = clients % hosts == host
    return clients[here], None if weights is None else weights[here]


class LocalHosts:
    """One or more hosts in this process; several work in threads at the same time.

    The clients of different hosts share nothing that changes in a round, except through the workload: with several
    hosts its `train` is called from several threads (those of `workloads` then train one after another), and must
    depend on its arguments alone. Results do not depend on the number of hosts.

    Args:
        population: number of clients n.
        environment: what the clients share.
        roles: the protocols' client sides.
        hosts: number of hosts.
        last_round: see `Host`.
        on_crash: see `Host`.
    """

    def __init__(
        self,
        population: int,
        environment: Environment,
        roles: Sequence[RoleSpec],
        *,
        hosts: int = 1,
        last_round: int = 0,
        on_crash: OnCrash = "raise",
    ) -> None:
        self.environment = environment
        self.hosts = [
            Host(owned_by(host, hosts, population), environment, roles, last_round=last_round, on_crash=on_crash)
            for host in range(hosts)
        ]

    def register(self, pki: PKI) -> None:
        """Register every client with the PKI and read its bulletin board."""
        for host in self.hosts:
            for first in range(0, len(host.numbers), REGISTERED_AT_ONCE):
                host.accept_registrations(pki.register_many(host.registrations(first, REGISTERED_AT_ONCE)))
        self.environment.directory = pki.directory()

    async def begin_round(self, round_number: int) -> None:
        """See `Hosts.begin_round`."""
        for host in self.hosts:
            host.begin_round()

    async def deliver(self, delivery: Delivery) -> HostAnswers:
        """See `Hosts.deliver`."""
        parts = split(delivery, len(self.hosts))
        work = [functools.partial(host.deliver, part) for host, part in zip(self.hosts, parts, strict=True)]
        return HostAnswers.merged(await self._everywhere(work))

    async def total(
        self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[Any], float]:
        """See `Hosts.total`."""
        work = []
        for position, host in enumerate(self.hosts):
            here, shares = chosen_on(position, len(self.hosts), clients, weights)
            if len(here):
                work.append(functools.partial(host.total, key, here, shares))
        if not work:
            raise Refusal("sum.empty", "there is nobody to sum over")
        parts = await self._everywhere(work)
        return combined((part[0] for part in parts), parts[0][1]), sum(part[2] for part in parts)

    async def vectors(self, key: tuple[int, int], clients: Ids) -> dict[int, Vector]:
        """See `Hosts.vectors`."""
        found: dict[int, Vector] = {}
        for position, host in enumerate(self.hosts):
            found.update(host.vectors(key, chosen_on(position, len(self.hosts), clients, None)[0]))
        return found

    async def _everywhere(self, work: Sequence[Callable[[], Result]]) -> list[Result]:
        if len(work) == 1:
            return [work[0]()]
        return list(await asyncio.gather(*(asyncio.to_thread(call) for call in work)))
