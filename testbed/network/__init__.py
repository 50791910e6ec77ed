"""The one verb, `ask`, and what stands behind it.

`contract` defines `Network`, `Ask`, `Replies` and who is missing. Two networks implement it: `emulated`, the virtual
clock, with `fair_sharing/` for concurrent transfers on the server's link, and `live/`, the wall clock and TCP. Both
build on `recorder` (what is recorded of a round and of each stage) and `hosts` (what a network needs of the place where
clients run; the hosts themselves are in `testbed.parties.host`).
Protocol code uses `Network` and `Replies`, and what goes with them: sets of clients (`contract.ids`), refusals
(`hosts.ClientRefusal`), sums of vectors (`sums`, `masked_vectors`). It imports neither network.
"""

from testbed.network.contract import Missing, Network, Replies

__all__ = ["Missing", "Network", "Replies"]
