"""The live network: the same experiment with real waiting, real bytes over TCP, and throttled links.

`server.LiveNetwork` is the server's side and implements `ask`; `clients.LiveClients` is a host's side. Between them:
`wire` (format and sockets of connections), `admission` (authentication of connections), `conversation` (the exchange
with one client), `stage` (outcomes, end of a stage, and answers); `links` throttles sockets to the speed of the
emulated links.
"""

from testbed.network.live.clients import LiveClients
from testbed.network.live.server import LiveNetwork
from testbed.network.live.wire import Address

__all__ = ["Address", "LiveClients", "LiveNetwork"]
