"""One client of `benchmarks.fidelity`: a process of its own, in a network namespace of its own.

Reads lines of JSON from standard input, one for each live network that it is to take part in, and says "done" when
that is over. It ends with its standard input.
"""

import json
import sys

import numpy as np

from benchmarks.fidelity.cases import ROLES, environment
from testbed.network.live.clients import LiveClients
from testbed.network.live.wire import Address
from testbed.parties.host import Host


def main() -> None:
    """Take part as the client whose number is the only argument."""
    number = int(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        network = json.loads(line)
        host = Host(np.array([number], np.int64), environment(network["population"]), ROLES)
        clients = LiveClients(host, Address(network["host"], network["port"], bytes.fromhex(network["token"])))
        clients.start()
        clients.join()
        clients.close()
        print("done", flush=True)


if __name__ == "__main__":
    main()
