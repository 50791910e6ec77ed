"""Loss of connectivity: links that carry nothing for a while, at random moments.

Connected and disconnected spells alternate, both exponentially distributed (the two-state Gilbert model in continuous
time). A population of any size shares a library of at most 256 such histories of 64 outages each, repeated for ever,
in which every client begins at a random moment.
"""

import numpy as np

from testbed.emulation.links.section import Outages
from testbed.emulation.traces.bandwidth import BandwidthTraces

MOST_HISTORIES = 256
OUTAGES_EACH = 64


def outage_traces(section: Outages, population: int, generator: np.random.Generator) -> BandwidthTraces:
    """Histories of a connection as traces of rate 1 (connected) and 0; at most one per client."""
    histories = max(1, min(population, MOST_HISTORIES))
    spells = generator.exponential(
        [section.mean_between_s, section.mean_length_s], (histories, OUTAGES_EACH, 2)
    ).reshape(histories, -1)
    spells = np.maximum(spells, 1e-9 * (section.mean_between_s + section.mean_length_s))  # time must pass in each
    until_s = np.cumsum(spells, axis=1)
    begin_s = np.concatenate((np.zeros((histories, 1)), until_s[:, :-1]), axis=1)
    steps = 2 * OUTAGES_EACH
    return BandwidthTraces.of(
        np.arange(histories + 1) * steps,
        begin_s.ravel(),
        np.tile([1.0, 0.0], histories * OUTAGES_EACH),
        until_s[:, -1],
    )
