"""The one verb, `ask`, and what stands behind it.

`contract` defines `Network`, `Replies` and who is missing; `hosts` what a network needs of the place where clients
run; `emulated` the virtual clock; `fluid` how concurrent transfers share the server's link. Protocol code imports
only from `testbed.network`.
"""

from testbed.network.contract import Missing, Network, Replies

__all__ = ["Missing", "Network", "Replies"]
