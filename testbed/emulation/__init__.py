"""The emulated environment of a run: networks, devices and availability of clients.

- `links/`: rates, latencies and losses of the clients' links, and the overhead of the transport;
- `devices`: the compute speed of each client;
- `availability/`: the clients that are online at a time, and dropouts within a round;
- `traces/`: measured behaviour that links, devices and availability can follow, with file formats and converters;
- `compute/`: the cost of protocol work, modelled by a table or measured on this machine.

Each of `links`, `devices` and `availability` has a section of the experiment, which can name a user-defined class.
"""
