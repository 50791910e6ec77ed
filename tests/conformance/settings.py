"""The keys with which each built-in protocol is checked, as `testbed check --set` takes them."""

from testbed.conformance.subjects import Subject, subject

_UNSTEADY = ["devices={model: zipf, slowest: 4.0}", "links={up_mbit_s: [1, 5, 44], latency_ms: [5, 100]}"]
_NOISE = "weights: equal, noise: {mechanism: skellam, noise_multiplier: 0.5"
_COMMITTEE = "committee: {size: 6, threshold: 4, serves_rounds: 3}"
_LOTTO = "participants: 6, over_selection: 2.0, signatures: 4"
_BATCHES = "participants: 4, privacy: 2, over_selection: 4.0, signatures: 3"

# Where the defaults fit larger federations, or keys have no defaults; after a comma: a variant.
_AGGREGATIONS: dict[str, list[str]] = {
    "plain": [],
    "plain, noise": [f"aggregation={{{_NOISE}}}}}"],
    "secagg": [],
    "secagg, enforced noise": [f"aggregation={{{_NOISE}, enforcement: {{tolerated_dropouts: 2}}}}}}"],
    "secagg, nothing signed": ["aggregation={threshold: 0.7, consistency: none, model_binding: none}"],
    "secagg-plus": ["aggregation={neighbours: 6, threshold: 4, dropouts: 0.3, accept_weaker: true}"],
    "lightsecagg": ["aggregation={threshold: 0.5, max_colluders: 0.3}"],
    "lightsecagg, equal weights": [
        "aggregation={threshold: 6, max_colluders: 2, weights: equal, levels_bits: 5, clip: 0.25}"
    ],
    "flamingo": [f"aggregation={{{_COMMITTEE}, dropouts: 0.5}}"],
    "one-shot": [f"aggregation={{{_COMMITTEE}, max_colluders: 1}}"],
    "one-shot, equal weights": [
        "aggregation={committee: {selection: given, members: [1, 3, 4, 7]}, max_colluders: 1, min_survivors: 5}",
        "aggregation={weights: equal, levels_bits: 5, bits: 18, clip: 0.25}",
    ],
    "pine": ["aggregation={helper: 3, min_survivors: 3}", "population=6", "selection.participants=6"],
    "e-seafl": ["aggregation={assisting_nodes: [2, 5], min_survivors: 4}"],
    "dp-sgd-random-participation": [
        "selection={protocol: bernoulli, client_rate: 0.6}",
        "aggregation={sample_rate: 0.3, sigma: 0}",
    ],
}
_SELECTIONS: dict[str, list[str]] = {
    "random": [],
    "weighted-random": [],
    "bernoulli": ["selection.client_rate=0.3"],
    "partition": [],
    "batch-partition": ["selection.privacy=2"],
    "oort": ["selection={pacer_step: 2, unexplored: check-in}"],
    "lotto-client-centric": [f"selection={{{_LOTTO}}}"],
    "lotto-client-centric, refined": [f"selection={{{_LOTTO}, refine: {{combine: or}}}}"],
    "lotto-client-centric, opened": [f"selection={{{_LOTTO}, round_beacon: public, max_round_gap: 2}}"],
    "lotto-server-centric": [f"selection={{{_LOTTO}}}"],
    "lotto-server-centric, refined": [f"selection={{{_LOTTO}, refine: {{combine: joint, exclude: 0.4}}}}"],
    "lotto-server-centric, opened": [f"selection={{{_LOTTO}, round_beacon: public}}"],
    "verifiable-batch-partition": [f"selection={{{_BATCHES}}}"],
    "verifiable-batch-partition, opened": [f"selection={{{_BATCHES}, round_beacon: public}}"],
    "min-separation": ["selection={participants: 4, separation: 2}"],
    "balls-in-bins": ["selection.bins=3"],
    "balls-in-bins, coins of clients": ["selection={bins: 3, coins: clients}"],
}


def subjects(cases: dict[str, list[str]], *further: str) -> dict[str, Subject]:
    """The protocols of the cases, with further keys."""
    return {name: subject(name.partition(",")[0], [*keys, *further]) for name, keys in cases.items()}


AGGREGATIONS = subjects(_AGGREGATIONS)
SELECTIONS = subjects(_SELECTIONS, *_UNSTEADY)
