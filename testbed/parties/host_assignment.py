"""Assignment of clients to hosts: client i lives on host i modulo the number of hosts."""

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.network.hosts import Delivery


def owned_by(host: int, hosts: int, population: int) -> Ids:
    """Return the clients of one host: every `hosts`-th client, so that work spreads evenly.

    Args:
        host: index of the host.
        hosts: number of hosts.
        population: number of clients n.

    Returns:
        Sorted int64 client numbers.
    """
    # `split`, `chosen_on` and the Ray hosts find a client's host by the same remainder.
    return np.arange(host, population, hosts, dtype=np.int64)


def split(delivery: Delivery, hosts: int) -> list[Delivery]:
    """Split a delivery into one part per host.

    Args:
        delivery: the delivery.
        hosts: number of hosts.
    """
    if hosts == 1:
        return [delivery]
    return [delivery.restricted(delivery.recipients % hosts == host) for host in range(hosts)]


def chosen_on(
    host: int, hosts: int, clients: Ids, weights: npt.NDArray[np.int64] | None
) -> tuple[Ids, npt.NDArray[np.int64] | None]:
    """Return the clients among `clients`, and their weights, that live on one host.

    Args:
        host: index of the host.
        hosts: number of hosts.
        clients: `(m,)` int64 client numbers.
        weights: `(m,)` int64; None: no weights.
    """
    here = clients % hosts == host
    return clients[here], None if weights is None else weights[here]
