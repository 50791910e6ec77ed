"""The one verb, `ask`, and what stands behind it.

`contract` defines `Network`, `Ask`, `Replies` and who is missing. Two networks implement it: `emulated`, the virtual
clock, with `fair_sharing/` for concurrent transfers on the server's link, and `live/`, the wall clock and TCP. Both
build on `recorder` (what is recorded of a round and of each stage) and `hosts` (what a network needs of the place where
clients run).
Protocol code imports only from `testbed.network`.
"""

from testbed.network.contract import Missing, Network, Replies

__all__ = ["Missing", "Network", "Replies"]
