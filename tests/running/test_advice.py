"""The advice in error messages helps: an experiment that follows it is valid."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.aggregation.quantisation import Quantisation
from testbed.errors import ExperimentError
from testbed.experiment import load
from testbed.experiment.schema import points, validated
from testbed.running.validation import check

BASE: dict[str, Any] = {
    "seed": 1, "rounds": 2, "population": 20, "workload": {"dataset": "digits", "model": "logistic"},
    "time": {"compute": "modelled"}, "cluster": {"network": "in-process"},
}  # fmt: skip
NOISE = {"protocol": "secagg", "weights": "equal", "noise": {"noise_multiplier": 1.0}}
ENFORCED = NOISE | {"noise": {"noise_multiplier": 1.0, "enforcement": {"tolerated_dropouts": 2}}}
LOTTO = {"protocol": "lotto-client-centric", "participants": 4}
PLUS = {"protocol": "secagg-plus"}
DP = {"protocol": "dp-sgd-random-participation", "sample_rate": 0.5, "sigma": 1.0}
BERNOULLI = {"protocol": "bernoulli", "client_rate": 0.5}


def with_(base: dict[str, Any], **more: Any) -> dict[str, Any]:
    return deepcopy(base) | more


# An experiment (over BASE), its error, and the advice: each piece by itself must help.
TABLE: list[tuple[dict[str, Any], str, list[list[str]]]] = [
    ({"selection": {"participants": 21}}, "at most 20", [["selection.participants=20"]]),
    (
        {"selection": {"protocol": "bernoulli", "participants": 11, "assumed_unavailable": 0.5}},
        "participants: 11 of 10 clients expected to be available (population * (1 - assumed_unavailable)); at most 10, "
        "or a smaller assumed_unavailable",
        [["selection.participants=10"], ["selection.assumed_unavailable=0.45"]],
    ),
    (
        {"selection": {"protocol": "bernoulli", "participants": 1, "assumed_unavailable": 0.99},
         "aggregation": {"protocol": "plain"}},
        "lower assumed_unavailable",
        [["selection.assumed_unavailable=0.9"]],
    ),
    (
        {"selection": {"protocol": "bernoulli", "client_rate": 0.5, "participants": 4}},
        "leave out one of the two",
        [["selection.participants=10"], ["selection.client_rate=null"]],
    ),
    (
        {"selection": {"protocol": "batch-partition", "participants": 12, "privacy": 5}},
        "allowed here: 1, 2, 3, 4, 6, 12",
        [["selection.privacy=4"], ["selection.privacy=12"], ["selection.privacy=1"]],
    ),
    (
        {"population": 200, "selection": {"protocol": "verifiable-batch-partition", "participants": 3, "privacy": 3,
                                          "over_selection": 70.0}},
        "at most 66.666",
        [["selection.over_selection=66.666"]],
    ),
    (
        {"selection": {"protocol": "verifiable-batch-partition", "participants": 20, "privacy": 5,
                       "over_selection": 1.3}},
        "at most 1",
        [["selection.over_selection=1"]],
    ),
    (
        {"selection": with_(LOTTO, min_population=30)},
        "n_min = 30 of a population of 20; at most 20",
        [["selection.min_population=20"]],
    ),
    ({"selection": with_(LOTTO, signatures=5)}, "at most all", [["selection.signatures=4"]]),
    (
        {"selection": with_(LOTTO, refine={"exclude": 0.5})},
        "refine.exclude: 0.5 by two metrics with or may leave nobody; at most 0.4",
        [["selection.refine.exclude=0.4"]],
    ),
    (
        {"selection": with_(LOTTO, participants=15, refine={"exclude": 0.2})},
        "at most 12, or a smaller refine.exclude",
        [["selection.participants=12"], ["selection.refine.exclude=0.1"]],
    ),
    (
        {"selection": with_(LOTTO, min_population=15, refine={"exclude": 0.2})},
        "at most 12, or a smaller refine.exclude",
        [["selection.min_population=12"], ["selection.refine.exclude=0.1"]],
    ),
    (
        {"aggregation": {"protocol": "secagg", "threshold": 5}, "selection": {"participants": 10}},
        "allowed 6 to 10 (or a fraction above 0.5)",
        [["aggregation.threshold=6"], ["aggregation.threshold=10"], ["aggregation.threshold=0.51"]],
    ),
    (
        {"aggregation": {"protocol": "secagg", "threshold": 6, "consistency": "none"}},
        "allowed 7 to 10 (or a fraction above 2/3, which consistency: none needs)",
        [["aggregation.threshold=7"], ["aggregation.threshold=10"], ["aggregation.threshold=0.67"]],
    ),
    (  # 22 clients in batches of 4 have batches of 5, so that a round may have 10 participants
        {"population": 22, "selection": {"protocol": "batch-partition", "participants": 8, "privacy": 4},
         "aggregation": {"protocol": "secagg", "threshold": 5}},
        "threshold: t = 5 of 10 participants; allowed 6 to 10 (or a fraction above 0.5); a round of this selection may "
        "have 10 participants or as few as 8: a number must be allowed for both",
        [["aggregation.threshold=6"], ["aggregation.threshold=8"], ["aggregation.threshold=0.51"]],
    ),
    (
        {"aggregation": {"protocol": "secagg", "smallest_sum": 11}},
        "at most 10", [["aggregation.smallest_sum=10"]],
    ),
    (
        {"aggregation": {"protocol": "secagg", "smallest_sum": 5, "batches": "ignored"}},
        "smallest_sum: has no effect with batches: ignored; leave it out",
        [["aggregation.smallest_sum=null"]],
    ),
    (
        {"aggregation": with_(NOISE, noise={"noise_multiplier": 1.0, "enforcement": {"tolerated_dropouts": 4}})},
        "at most 3, since a round with fewer than t = 7 ends",
        [["aggregation.noise.enforcement.tolerated_dropouts=3"], ["aggregation.threshold=6"]],
    ),
    (
        {"aggregation": with_(NOISE, threshold=10,
                              noise={"noise_multiplier": 1.0, "enforcement": {"tolerated_dropouts": 1}})},
        "with t = 10 of 10 participants no dropout is tolerated; lower threshold, or leave out enforcement",
        [["aggregation.threshold=9"], ["aggregation.noise.enforcement=null"]],
    ),
    (
        {"aggregation": with_(NOISE, clip=2.0)},
        "clip: has no effect with noise; leave it out and set noise.clip",
        [["aggregation.clip=1.0", "aggregation.noise.clip=2.0"]],
    ),
    (
        {"aggregation": with_(ENFORCED, consistency="none")},
        "noise.enforcement: needs consistency: signed",
        [["aggregation.consistency=signed"]],
    ),
    ({"aggregation": with_(NOISE, weights="samples")}, "set weights: equal", [["aggregation.weights=equal"]]),
    (
        {"aggregation": with_(ENFORCED, protocol="plain")},
        "only protocol: secagg can remove noise; leave it out",
        [["aggregation.noise.enforcement=null"], ["aggregation.protocol=secagg"]],
    ),
    (
        {"aggregation": with_(NOISE, noise={"noise_multiplier": 1.0, "epsilon": 3.0})},
        "set either this or epsilon, not both",
        [["aggregation.noise.epsilon=null"], ["aggregation.noise.noise_multiplier=null"]],
    ),
    (
        {"aggregation": with_(NOISE, noise={"noise_multiplier": 1000.0, "scale": 2.0**20})},
        "more than 65536, the most that can be drawn; lower it",
        [["aggregation.noise.scale=100"]],
    ),
    (
        {"aggregation": with_(NOISE, noise={"noise_multiplier": 0.001, "scale": 1.0,
                                            "mechanism": "discrete-gaussian"})},
        "raise it",
        [["aggregation.noise.scale=10000"]],
    ),
    # -- the ring --
    (
        {"aggregation": {"protocol": "secagg", "weights": "equal", "bits": 18}},
        "10 participants with weights up to 1 at 16 bits need 20 bits, the ring has 18; set aggregation.bits to 20, or "
        "aggregation.levels_bits to 14",
        [["aggregation.bits=20"], ["aggregation.levels_bits=14"]],
    ),
    (
        {"aggregation": {"protocol": "secagg", "weights": "equal", "bits": 8, "levels_bits": 24},
         "population": 300, "selection": {"participants": 290}},
        "set aggregation.bits to 33",
        [["aggregation.bits=33"]],
    ),
    (
        {"aggregation": {"protocol": "secagg", "weights": "samples", "bits": 18}},
        "set aggregation.bits to 20, or aggregation.levels_bits to 14",
        [["aggregation.bits=20"], ["aggregation.levels_bits=14"]],
    ),
    # -- secagg-plus --
    (
        {"aggregation": with_(PLUS, threshold=5)},
        "leave out both to have them computed",
        [["aggregation.threshold=null"]],
    ),
    (
        {"aggregation": with_(PLUS, smallest_sum=5)}, "leave it out", [["aggregation.smallest_sum=null"]],
    ),
    (
        {"aggregation": with_(PLUS, neighbours=2, threshold=2)},
        "leave out neighbours and threshold, or set accept_weaker: true",
        [["aggregation.neighbours=null", "aggregation.threshold=null"], ["aggregation.accept_weaker=true"]],
    ),
    (
        {"aggregation": with_(PLUS, neighbours=5, threshold=4, accept_weaker=True)},
        "neighbours: k = 5 is odd; half of them stand on either side: take 4 or 6",
        [["aggregation.neighbours=4"], ["aggregation.neighbours=6", "aggregation.threshold=5"]],
    ),
    (
        {"aggregation": with_(PLUS, neighbours=4, threshold=2, accept_weaker=True)},
        "allowed 3 to 4",
        [["aggregation.threshold=3"], ["aggregation.threshold=4"]],
    ),
    (
        {"aggregation": with_(PLUS, dishonest=0.4, dropouts=0.4)},
        "at most 2 of 10 may drop out: lower dropouts or dishonest",
        [["aggregation.dropouts=0.2"], ["aggregation.dishonest=0"]],
    ),
    (
        {"population": 200, "selection": {"participants": 100}, "aggregation": with_(PLUS, neighbours=2)},
        "leave no safe threshold; leave out neighbours",
        [["aggregation.neighbours=null"]],
    ),
    # -- DP-SGD --
    (
        {"aggregation": DP},
        "set selection.protocol to bernoulli, with client_rate",
        [["selection={protocol: bernoulli, client_rate: 0.5}"]],
    ),
    (
        {"aggregation": DP, "selection": BERNOULLI, "workload": with_(BASE["workload"], learning_rate=0.2)},
        "leave it out, and set aggregation.learning_rate",
        [["workload.learning_rate=0.1", "aggregation.learning_rate=0.2"]],
    ),
    (
        {"aggregation": DP, "selection": BERNOULLI, "workload": with_(BASE["workload"], epochs=2)},
        "leave it out",
        [["workload.epochs=1"]],
    ),
    (
        {"aggregation": with_(DP, weights="equal"), "selection": BERNOULLI}, "leave it out",
        [["aggregation.weights=samples"]],
    ),
    ({"aggregation": with_(DP, clip="none"), "selection": BERNOULLI}, "clip: none needs sigma: 0",
     [["aggregation.sigma=0"], ["aggregation.clip=1.0"]]),
    (
        {"aggregation": with_(DP, sigma=1e-9), "selection": BERNOULLI},
        "must be at least 1.52588e-05, or 0 for no privacy",
        [["aggregation.sigma=1.52588e-05"], ["aggregation.sigma=0"]],
    ),
    (
        {"aggregation": with_(DP, sigma=1e9), "selection": BERNOULLI}, "must be at most 131072",
        [["aggregation.sigma=131072"]],
    ),
    (
        {"aggregation": DP, "selection": BERNOULLI,
         "workload": {"dataset": "synthetic-cifar10", "training": "simulated"}},
        "set workload.training to real",
        [["workload.training=real"]],
    ),
    # -- privacy --
    (
        {"privacy": {"budget": 3.0}},
        "privacy.budget: 3, but aggregation secagg adds no noise here, so that any round exceeds it; give it noise, or "
        "leave out the budget",
        [["privacy.budget=null"], ["aggregation.weights=equal", "aggregation.noise={noise_multiplier: 20.0}"]],
    ),
    # -- workload --
    (
        {"workload": {"dataset": "synthetic-cifar10", "training": "simulated"}, "time": {"compute": "measured"}},
        "set time.compute: modelled",
        [["time.compute=modelled"]],
    ),
    (
        {"workload": with_(BASE["workload"], samples_per_client=3, partition={"minimum_samples": 5})},
        "raise it or lower the minimum",
        [["workload.samples_per_client=5"], ["workload.partition.minimum_samples=3"]],
    ),
    (
        {"workload": with_(BASE["workload"], learning_rate_milestones=[1], learning_rate_decay=0.4,
                           learning_rate_decay_every=2)},
        "leave out one of the two",
        [["workload.learning_rate_milestones=[]"], ["workload.learning_rate_decay_every=1"]],
    ),
    (
        {"workload": with_(BASE["workload"], learning_rate_milestones=[1])},
        "without learning_rate_decay; set it, e.g. to 0.4",
        [["workload.learning_rate_decay=0.4"]],
    ),
    ({"workload": with_(BASE["workload"], path="x")}, "not digits; leave it out", [["workload.path=null"]]),
    ({"workload": {"dataset": "mnist", "path": "nowhere"}}, "workload.path: nowhere: no such file or folder", []),
    ({"workload": {"dataset": "digits", "model": "vgg11"}}, "allowed: auto, logistic, mlp, cnn",
     [["workload.model=cnn"], ["workload.model=auto"]]),
    # -- availability, links, records, cluster --
    (
        {"availability": {"unavailable": 0.1}},
        "`unavailable` has an effect only with `model: bernoulli`; set that or remove it",
        [["availability.model=bernoulli"], ["availability={}"]],
    ),
    (
        {"availability": {"model": "bernoulli", "unavailable": 0.1, "drawn": True}},
        "give one or remove it",
        [["availability.unavailable=[0.1, 0.2]"], ["availability.drawn=false"]],
    ),
    (
        {"availability": {"dropout": {"rate": [0.1] * 21}}}, "at most 20",
        [[f"availability.dropout.rate={[0.1] * 20}"]],
    ),
    ({"links": {"options": {"a": 1}}}, "`options` are for a user-defined class; set `model`",
     [["links.model=mine:Links"]]),
    ({"records": {"aggregates": [2, 3]}}, "allowed: 1 <= first <= last <= rounds = 2", [["records.aggregates=[2, 2]"]]),
    (
        {"cluster": {"hosts": 2, "clients_per_host": 3}}, "leave out one of the two",
        [["cluster.hosts=auto"], ["cluster.clients_per_host=null"]],
    ),
    (
        {"cluster": {"network": "ray"}, "sweep": {"cluster.address": ["a:1", "b:1"]}},
        "the points of a sweep run on one cluster, give one",
        [["sweep={}", "cluster.address=a:1"]],
    ),
    # -- adversary --
    (
        {"adversary": {"dishonest": 21}}, "at most 20", [["adversary.dishonest=20"]],
    ),
    (
        {"adversary": {"dishonest": 2, "server": ["keep-dishonest-candidates"]}},
        "does not apply to selection random with aggregation secagg; allowed: ",
        [["adversary.server=[prefer-dishonest]"]],
    ),
    (
        {"adversary": {"dishonest": 2, "clients": ["skip-noise"]}},
        "adversary.clients: skip-noise applies to none of this run's protocols; leave it out",
        [["adversary.clients=[]"]],
    ),
]  # fmt: skip


def checked(tmp_path: Path, data: dict[str, Any], overrides: list[str]) -> None:
    file = tmp_path / "advised.yaml"
    file.write_text(yaml.safe_dump(data))
    check(list(points(load(file, overrides), str(file))), str(file), import_classes=False)


@pytest.mark.parametrize(("keys", "says", "advised"), TABLE, ids=lambda value: value[:50] if type(value) is str else "")
def test_advice_helps(keys: dict[str, Any], says: str, advised: list[list[str]], tmp_path: Path) -> None:
    data = BASE | keys
    with pytest.raises(ExperimentError) as refused:
        checked(tmp_path, data, [])
    assert says in str(refused.value)
    for overrides in advised:
        checked(tmp_path, data, overrides)


@given(
    participants=st.integers(1, 10**7), weight=st.integers(1, 10**6), levels=st.integers(1, 24), bits=st.integers(8, 64)
)
def test_advice_on_the_ring_helps(participants: int, weight: int, levels: int, bits: int) -> None:
    """Each piece of advice helps by itself, with any numbers; one more level would not."""
    try:
        Quantisation(1.0, levels, bits).check(participants, weight)
    except ExperimentError as error:
        advice = str(error).partition("; ")[2]
    else:
        assume(False)
    offered = dict(re.findall(r"aggregation\.(\w+) to (\w+)", advice))
    assert offered or advice == "lower selection.participants"
    if "bits" in offered:
        Quantisation(1.0, levels, int(offered["bits"])).check(participants, weight)
        assert int(offered["bits"]) <= 64
    if "levels_bits" in offered:
        assert int(offered["levels_bits"]) < levels
        Quantisation(1.0, int(offered["levels_bits"]), bits).check(participants, weight)
        with pytest.raises(ExperimentError):
            Quantisation(1.0, int(offered["levels_bits"]) + 1, bits).check(participants, weight)
    if "weights" in offered:
        Quantisation(1.0, levels, bits).check(participants, 1)
    assert ("weights" in offered) == (weight > 1 and participants * (2**levels - 1) < 2**bits)


@given(population=st.integers(2, 700), share=st.floats(0.01, 1.0), protocol=st.sampled_from(["lotto", "batches"]))
def test_numbers_that_are_said_to_be_allowed_are(population: int, share: float, protocol: str) -> None:
    """As they are printed, rounded."""
    participants = max(1, int(population * share))
    said = {
        "batches": {"protocol": "verifiable-batch-partition", "privacy": 1, "over_selection": 100.0},
        "lotto": {"protocol": "lotto-client-centric", "refine": {"exclude": 0.6}},
    }[protocol] | {"participants": participants}
    data = BASE | {"population": population, "selection": said, "aggregation": {"protocol": "plain"}}
    try:
        validated(data, "here")
    except ExperimentError as error:
        assume(protocol == "batches" or "refine.exclude:" in str(error))  # else the number is one of participants
        most = float(re.findall(r"at most ([\d.]+)", str(error))[0])
    else:
        assume(False)
    if protocol == "batches":
        said["over_selection"] = most
    else:
        said["refine"] = {"exclude": most}
    validated(data, "here")
