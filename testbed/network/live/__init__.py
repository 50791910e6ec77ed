"""The live network: the same experiment with real waiting, real bytes over TCP, and throttled links.

`server.LiveNetwork` is the server's side and implements `ask`; `clients.LiveClients` is a host's side. Between them:
`wire` (what goes over a connection, and its sockets), `admission` (who is connected), `conversation` (the talk with one
client), `stage` (what becomes of each client, when a stage ends, what came in); `links` makes sockets as slow as the
links that they stand for.
"""

from testbed.network.live.clients import LiveClients
from testbed.network.live.server import LiveNetwork
from testbed.network.live.wire import Address

__all__ = ["Address", "LiveClients", "LiveNetwork"]
