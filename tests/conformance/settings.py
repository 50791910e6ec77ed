"""The keys with which each built-in protocol is checked, as `testbed check --set` takes them."""

from testbed.aggregation import catalogue as aggregations
from testbed.selection import catalogue as selections

KEYS: dict[str, list[str]] = {
    "secagg-plus": ["aggregation={neighbours: 6, threshold: 4, dropouts: 0.3, accept_weaker: true}"],
    "lightsecagg": ["aggregation={threshold: 0.5, max_colluders: 0.3}"],
    "flamingo": ["aggregation={committee: {size: 6, threshold: 4}, dropouts: 0.5}"],
    "one-shot": ["aggregation={committee: {size: 6, threshold: 4}, max_colluders: 1}"],
    "pine": ["aggregation={helper: 3, min_survivors: 3}", "population=6", "selection.participants=6"],
    "dp-sgd-random-participation": [
        "selection={protocol: bernoulli, client_rate: 0.6}",
        "aggregation={sample_rate: 0.3, sigma: 0}",
    ],
    "bernoulli": ["selection.client_rate=0.3"],
    "batch-partition": ["selection.privacy=2"],
    "oort": ["selection={pacer_step: 2, unexplored: check-in}"],
    "min-separation": ["selection={participants: 4, separation: 2}"],
    "balls-in-bins": ["selection.bins=3"],
    "lotto-client-centric": ["selection={participants: 6, over_selection: 2.0, signatures: 4}"],
    "lotto-server-centric": ["selection={participants: 6, over_selection: 2.0, signatures: 4}"],
    "verifiable-batch-partition": ["selection={participants: 4, privacy: 2, over_selection: 3.0, signatures: 3}"],
}
"""Of protocols whose defaults fit larger federations, or whose keys have no defaults."""

AGGREGATIONS = [str(kind.model_fields["protocol"].default) for kind in aggregations.PROTOCOLS]
SELECTIONS = [str(kind.model_fields["protocol"].default) for kind in selections.PROTOCOLS]
