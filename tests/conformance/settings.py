"""The keys with which each built-in protocol is checked, as `testbed check --set` takes them."""

from testbed.conformance.subjects import Subject, subject

_UNSTEADY = ["devices={model: zipf, slowest: 4.0}", "links={up_mbit_s: [1, 5, 44], latency_ms: [5, 100]}"]
_NOISE = "weights: equal, noise: {mechanism: skellam, noise_multiplier: 0.5"

# In addition to the keys that `testbed check` gives; after a comma: a variant.
_AGGREGATIONS: dict[str, list[str]] = {
    "plain": [],
    "plain, noise": [f"aggregation={{{_NOISE}}}}}"],
    "secagg": [],
    "secagg, enforced noise": [f"aggregation={{{_NOISE}, enforcement: {{tolerated_dropouts: 2}}}}}}"],
    "secagg, nothing signed": ["aggregation={threshold: 0.7, consistency: none, model_binding: none}"],
    "secagg-plus": ["aggregation={neighbours: 6, threshold: 4, accept_weaker: true}"],
    "lightsecagg": ["aggregation={threshold: 0.5, max_colluders: 0.3}"],
    "lightsecagg, equal weights": [
        "aggregation={threshold: 6, max_colluders: 2, weights: equal, levels_bits: 5, clip: 0.25}"
    ],
    "flamingo": [],
    "one-shot": [],
    "one-shot, equal weights": [
        "aggregation.committee={}",
        "aggregation={committee: {selection: given, members: [1, 3, 4, 7]}, min_survivors: 5}",
        "aggregation={weights: equal, levels_bits: 5, bits: 18, clip: 0.25}",
    ],
    "pine": ["aggregation={helper: 3, min_survivors: 3}", "population=6", "selection.participants=6"],
    "e-seafl": ["aggregation={assisting_nodes: [2, 5], min_survivors: 4}"],
    "dp-sgd-random-participation": [],
}
_SELECTIONS: dict[str, list[str]] = {
    "random": [],
    "weighted-random": [],
    "bernoulli": [],
    "partition": [],
    "batch-partition": [],
    "batch-partition, announced": ["selection.membership=announced"],
    "batch-partition, pinned": ["selection.membership=pinned"],
    "oort": ["selection={pacer_step: 2, unexplored: check-in}"],
    "lotto-client-centric": [],
    "lotto-client-centric, refined": ["selection.refine={combine: or}"],
    "lotto-client-centric, opened": ["selection={round_beacon: public, max_round_gap: 2}"],
    "lotto-server-centric": [],
    "lotto-server-centric, refined": ["selection.refine={combine: joint, exclude: 0.4}"],
    "lotto-server-centric, opened": ["selection={round_beacon: public}"],
    "verifiable-batch-partition": [],
    "verifiable-batch-partition, opened": ["selection={round_beacon: public}"],
    "min-separation": [],
    "balls-in-bins": [],
    "balls-in-bins, coins of clients": ["selection.coins=clients"],
}


def subjects(cases: dict[str, list[str]], *further: str) -> dict[str, Subject]:
    """The protocols of the cases, with further keys."""
    return {name: subject(name.partition(",")[0], [*keys, *further]) for name, keys in cases.items()}


AGGREGATIONS = subjects(_AGGREGATIONS)
SELECTIONS = subjects(_SELECTIONS, *_UNSTEADY)
