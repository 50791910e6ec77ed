"""Networks: the interface `ask`, and its two implementations.

`contract` defines `Network`, `Ask`, `Replies` and `Missing`. Two networks implement it: `emulated` on a virtual clock,
with `fair_sharing/` for concurrent transfers on the server's link, and `live/` on the wall clock over TCP. Both build
on `recorder` (the records of a round and of each stage) and on `hosts` (the interface to the processes that run
clients; `testbed.parties.host` implements it).
Protocol code uses `Network` and `Replies`, sets of clients (`contract.ids`), refusals (`hosts.ClientRefusal`) and sums
of vectors (`sums`, `masked_vectors`). It imports neither network.
"""

from testbed.network.contract import Missing, Network, Replies

__all__ = ["Missing", "Network", "Replies"]
