"""The live network: the same experiment with real waiting, real bytes over TCP, and throttled links.

`server.LiveNetwork` is the server's side and implements `ask`; `clients.LiveClients` is a host's side. Between them:
`frames` (what goes over a connection), `sockets`, `admission` (who is connected), `exchange` and `conversation` (one
client's part of a stage), `stage_end` (when a stage ends), `answers` (what came in); `throttle` and `links` make
sockets as slow as the links that they stand for.
"""

from testbed.network.live.clients import LiveClients
from testbed.network.live.frames import Address
from testbed.network.live.server import LiveNetwork

__all__ = ["Address", "LiveClients", "LiveNetwork"]
