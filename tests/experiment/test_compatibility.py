"""Each exclusion of the table refuses an experiment with both options, and takes one with either of them."""

from copy import deepcopy
from typing import Any

import pytest

from testbed.errors import ExperimentError
from testbed.experiment import compatibility
from testbed.experiment.compatibility import EXCLUSIONS, Choice, Exclusion
from testbed.experiment.schema import validated

BASE: dict[str, Any] = {
    "population": 20,
    "selection": {"protocol": "random", "participants": 4},
    "aggregation": {"protocol": "plain", "weights": "equal"},
    "workload": {"dataset": "digits"},
    "links": {"transport": "none"},
}
SCAFFOLD = {"workload": {"drift_correction": {"name": "scaffold"}}}
EXAMPLES: dict[str, dict[str, Any]] = {
    "NOISE": {"aggregation": {"noise": {"mechanism": "skellam", "clip": 1.0, "noise_multiplier": 1.0}}},
    "COMPRESSION": {"aggregation": {"compression": {"name": "random-k", "share": 0.1}}},
    "SERVER_OPTIMIZER": {"aggregation": {"server_optimizer": {"name": "adam"}}},
    "ROBUST": {"aggregation": {"robust": {"rule": "median"}}},
    "SAMPLE_PRIVACY": {
        "selection": {"protocol": "bernoulli", "client_rate": 0.3, "participants": None},
        "aggregation": {"protocol": "dp-sgd-random-participation", "sample_rate": 0.2, "sigma": 1.0, "weights": None},
    },
    "DRIFT_CORRECTION": SCAFFOLD,
    "FEDDYN": {"workload": {"drift_correction": {"name": "feddyn", "alpha": 0.1}}},
    "PROXIMAL": {"workload": {"proximal": 0.1}},
    "METRICS": {"workload": {"metrics": ["mae"]}},
    "LOCAL_LAYERS": {"workload": {"local_layers": {"last": 1}}},
    "SIMULATED": {"workload": {"training": "simulated"}},
    "CLIENTS_AT_ONCE": {"workload": {"clients_at_once": 2}},
    "UNREPORTED_LOSSES": {"aggregation": {"noise": {"mechanism": "skellam", "clip": 1.0, "noise_multiplier": 1.0}}},
    "INFLATE_UTILITY": {"adversary": {"dishonest": 1, "clients": ["inflate-utility"]}},
    "CANARIES": {"privacy": {"canaries": {"clients": 3}}},
    "MEASURED": {"time": {"compute": "measured"}},
    "WALL_CLOCK": {"time": {"clock": "wall"}},
    "ASYNCHRONOUS": {"asynchronous": {"concurrency": 6}},
    "WHOLE_ROUNDS": {"selection": {"protocol": "lotto-client-centric"}},
    "UNBUFFERED": {"aggregation": {"protocol": "lightsecagg"}},
    "ADVERSARY": {"adversary": {"dishonest": 1, "clients": ["inflate-utility"]}},
    "SCHEDULE": {"availability": {"model": "schedule", "path": "schedule.parquet"}},
    "WINDOWS": {"links": {"transport": "tls"}},
    "ANNOUNCED_BATCHES": {"selection": {"protocol": "batch-partition", "privacy": 2, "membership": "pinned"}},
    "OUTSIDERS": {"aggregation": {"protocol": "one-shot", "committee": {"size": 20}, "weights": None}},
    "QUORUM": {"time": {"stage_quorums": {"train": 0.5}}},
}
NAMES = {id(choice): name for name, choice in vars(compatibility).items() if isinstance(choice, Choice)}


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    whole = deepcopy(BASE)
    for part in parts:
        for section, keys in part.items():
            whole.setdefault(section, {}).update(deepcopy(keys))
            whole[section] = {key: value for key, value in whole[section].items() if value is not None}
    return whole


def label(exclusion: Exclusion) -> str:
    return f"{NAMES[id(exclusion.option)]}-{NAMES[id(exclusion.other)]}"


def test_every_choice_has_an_example() -> None:
    assert set(NAMES.values()) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_option_alone_is_taken(name: str) -> None:
    experiment = validated(merged(EXAMPLES[name]), "mine.yaml")
    choice = getattr(compatibility, name)
    assert str(choice.shown(experiment)).startswith(choice.key)
    assert choice.shown(validated(BASE, "mine.yaml")) is None


@pytest.mark.parametrize("exclusion", EXCLUSIONS, ids=label)
def test_two_options_that_exclude_each_other_are_refused(exclusion: Exclusion) -> None:
    option, other = EXAMPLES[NAMES[id(exclusion.option)]], EXAMPLES[NAMES[id(exclusion.other)]]
    with pytest.raises(ExperimentError) as raised:
        validated(merged(option, other), "mine.yaml")
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"mine.yaml: {exclusion.option.key}")
    assert f" excludes {exclusion.other.key}" in line
    assert line.endswith(f"; {exclusion.advice}")
