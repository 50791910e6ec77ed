"""One client of `benchmarks.fidelity`: a process of its own, in a network namespace of its own.

Reads lines of JSON from standard input, one for each live network that it is to take part in, and says "done" when
that is over. It ends with its standard input.
"""

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.fidelity.cases import ROLES, environment
from testbed.network.live.clients import LiveClients
from testbed.network.live.wire import Address
from testbed.parties.host import Host


def main() -> None:
    """Take part as the client with the number that is the only argument."""
    number = int(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        network = json.loads(line)
        address = Address(network["host"], network["port"], bytes.fromhex(network["token"]))
        clients = LiveClients(_host(number, network), address, [number])
        time.sleep(max(0.0, network.get("connect_s", 0.0) - time.monotonic()))
        clients.start()
        clients.join()
        clients.close()
        print("done", flush=True)


def _host(number: int, network: dict[str, Any]) -> Host:
    """Where the client's handlers run: those of stages of chosen sizes, or of an experiment's protocols."""
    if "experiment" not in network:
        return Host(np.array([number], np.int64), environment(network["population"]), ROLES)
    from benchmarks.fidelity.wan_rounds import in_this_process

    return in_this_process(network["experiment"])[1].hosts[0]  # with a seed, it is the same in every process


if __name__ == "__main__":
    main()
