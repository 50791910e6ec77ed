"""The emulated world: what stands for networks, devices and people.

`links/`: rates and latencies, and what transport headers add. `devices/`: how fast clients compute. `availability/`:
who is reachable when, and who drops out where. Each has a `section` (its part of an experiment), and a user's class
may take its place. `traces/`: measured behaviour that all three can follow, its formats and converters. `compute/`:
what a piece of protocol work costs, and measuring that on this machine.
"""
