"""Guarantees of sums: with the colluders that a protocol allows, no sum has a single honest client."""

from typing import Any

import pytest

from testbed.aggregation.catalogue import PROTOCOLS

SIZES = (2, 3, 4, 5, 7, 10, 11, 20, 100, 700)
STRICTEST: dict[str, list[dict[str, Any]]] = {
    "secagg": [{"threshold": 1.0}, {"threshold": 0.6}],
    "secagg-plus": [{"dishonest": 0.5, "dropouts": 0}, {"dishonest": 0.9, "dropouts": 0}, {"dishonest": 0.3}],
    "flamingo": [{"dishonest": 0.34, "dropouts": 0.34}, {"dishonest": 0.5, "dropouts": 0.4}],
    "one-shot": [{"min_survivors": 2}],
    "pine": [{"min_survivors": 2}],
    "e-seafl": [{"min_survivors": 2}, {"assisting_nodes": tuple(range(50))}],
}
"""Parameters with few honest clients in a sum, beside the defaults."""
NEEDED: dict[str, dict[str, Any]] = {
    "pine": {"helper": 0, "norm_bound": 10},
    "dp-sgd-random-participation": {"clip": 1.0, "sigma": 1.0, "sample_rate": 0.5, "learning_rate": 0.1},
}


@pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.model_fields["protocol"].default)
def test_two_honest_clients_are_left_in_each_sum(kind: Any) -> None:
    name = kind.model_fields["protocol"].default
    for changes in ({}, *STRICTEST.get(name, [])):
        server = PROTOCOLS[kind](kind(**NEEDED.get(name, {}) | changes))
        for participants in SIZES:
            try:
                given = server.guarantees(participants)
            except ValueError:
                continue  # the protocol has no sum of this size
            fewest = min(given.min_sum_size, given.min_partition_size)
            assert given.max_colluders <= max(-1, fewest - 2), (changes, participants, given)
