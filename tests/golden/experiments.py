"""Small experiments with pinned records: each protocol, selection, noise and client algorithm at least once."""

from dataclasses import dataclass, replace
from typing import Any, Literal

SEED = 11


@dataclass(frozen=True)
class GoldenExperiment:
    """One experiment and the workload that its clients train.

    Attributes:
        keys: the sections that differ from `BASE`.
        workload: ``pulling`` and ``quadratics`` are the numpy workloads of `tests.engine`; ``digits`` is the product's
            own, which trains with torch.
        model_depends_on_cpu: another CPU may round the model differently (README.md).
    """

    keys: dict[str, Any]
    workload: Literal["pulling", "quadratics", "digits"] = "pulling"
    model_depends_on_cpu: bool = False

    @property
    def sections(self) -> dict[str, Any]:
        """The experiment as plain data."""
        return BASE | self.keys


BASE: dict[str, Any] = {
    "name": "golden",
    "seed": SEED,
    "rounds": 2,
    "population": 12,
    "selection": {"protocol": "random", "participants": 8},
    "time": {"compute": "modelled", "deadline_s": 20},
}
UNSTEADY: dict[str, Any] = {
    "devices": {"model": "zipf", "slowest": 4.0},
    "links": {"up_mbit_s": [1, 5, 44], "latency_ms": [5, 100], "server_down_mbit_s": 20},
    "availability": {"dropout": {"rate": 0.3, "stage": "random"}},
}
DIGITS: dict[str, Any] = {"dataset": "digits", "model": "logistic", "test_samples": 100}

SECAGG: dict[str, Any] = {"protocol": "secagg", "threshold": 0.6}
SECAGG_PLUS: dict[str, Any] = {
    "protocol": "secagg-plus", "neighbours": 6, "threshold": 4, "dropouts": 0.3, "accept_weaker": True,
}  # fmt: skip
LIGHTSECAGG: dict[str, Any] = {"protocol": "lightsecagg", "threshold": 0.5, "max_colluders": 0.3}
FLAMINGO: dict[str, Any] = {"protocol": "flamingo", "committee": {"size": 6, "threshold": 4}, "dropouts": 0.5}
ONE_SHOT: dict[str, Any] = {"protocol": "one-shot", "committee": {"size": 6, "threshold": 4}, "max_colluders": 1}
PINE: dict[str, Any] = {"protocol": "pine", "helper": 3, "norm_bound": 20.0, "min_survivors": 4}
DP_SGD: dict[str, Any] = {
    "protocol": "dp-sgd-random-participation", "sample_rate": 0.3, "clip": 1.0, "sigma": 1.0, "momentum": 0.9,
}  # fmt: skip

BERNOULLI: dict[str, Any] = {"protocol": "bernoulli", "client_rate": 0.6}
BATCHES: dict[str, Any] = {"protocol": "batch-partition", "participants": 6, "privacy": 2}
MIN_SEPARATION: dict[str, Any] = {"protocol": "min-separation", "participants": 4, "separation": 2}
CLIENT_CENTRIC: dict[str, Any] = {
    "protocol": "lotto-client-centric", "participants": 5, "over_selection": 2.0, "signatures": 4,
}  # fmt: skip
SERVER_CENTRIC = CLIENT_CENTRIC | {"protocol": "lotto-server-centric"}
VERIFIABLE_BATCHES: dict[str, Any] = {
    "protocol": "verifiable-batch-partition", "participants": 4, "privacy": 2, "over_selection": 3.0, "signatures": 3,
}  # fmt: skip


def aggregated(aggregation: dict[str, Any], **sections: Any) -> GoldenExperiment:
    """Return an experiment with an aggregation and with dropouts."""
    return GoldenExperiment(UNSTEADY | {"aggregation": aggregation} | sections)


def selected(selection: dict[str, Any], **sections: Any) -> GoldenExperiment:
    """Return an experiment with a selection under secure aggregation and with dropouts."""
    return GoldenExperiment(UNSTEADY | {"rounds": 3, "selection": selection, "aggregation": SECAGG} | sections)


def noisy(noise: dict[str, Any], aggregation: dict[str, Any] = SECAGG, **sections: Any) -> GoldenExperiment:
    """Return an experiment with differential privacy."""
    return aggregated(aggregation | {"weights": "equal", "noise": noise}, **sections)


def buffered(aggregation: dict[str, Any]) -> GoldenExperiment:
    """Return an experiment with asynchronous rounds."""
    return GoldenExperiment(
        {
            "rounds": 4,
            "selection": {"participants": 4},
            "aggregation": aggregation,
            "asynchronous": {"concurrency": 8},
            "devices": {"model": "zipf", "slowest": 9.0},
            "links": {"latency_ms": 20, "transport": "none"},
            "time": {"compute": "modelled", "deadline_s": 1e6, "costs": {"train.parameter_example": 0.01}},
        }
    )


def learning(workload: dict[str, Any], aggregation: dict[str, Any] = SECAGG) -> GoldenExperiment:
    """Return an experiment with a client algorithm on quadratic losses."""
    return GoldenExperiment(
        {"rounds": 3, "aggregation": aggregation, "workload": {"learning_rate": 0.2, "momentum": 0, **workload}},
        "quadratics",
    )


def trained(workload: dict[str, Any], **sections: Any) -> GoldenExperiment:
    """Return an experiment on the digits."""
    return GoldenExperiment({"aggregation": SECAGG, "workload": DIGITS | workload} | sections, "digits", True)


def attacked(
    aggregation: dict[str, Any],
    *,
    server: Any = (),
    clients: Any = (),
    dishonest: Any = (1, 6),
    **sections: Any,
) -> GoldenExperiment:
    """Return an experiment with a malicious server or dishonest clients."""
    adversary = {"dishonest": list(dishonest), "server": list(server), "clients": list(clients)}
    keys = {"aggregation": aggregation, "adversary": adversary} | sections
    return GoldenExperiment(keys, "digits", True) if "workload" in sections else GoldenExperiment(keys)


AGGREGATIONS = {
    "plain": aggregated({"protocol": "plain"}),
    "secagg": aggregated(SECAGG),
    "secagg, materialised masks": aggregated(SECAGG | {"masks": "materialised"}),
    "secagg, nothing signed": aggregated(SECAGG | {"threshold": 0.7, "consistency": "none", "model_binding": "none"}),
    "secagg, batches": aggregated(SECAGG, selection=BATCHES),
    "secagg-plus": aggregated(SECAGG_PLUS),
    "lightsecagg": aggregated(LIGHTSECAGG),
    "flamingo, materialised masks": aggregated(FLAMINGO | {"masks": "materialised"}),
    "flamingo": aggregated(FLAMINGO, rounds=3),
    "flamingo, drawn committee": aggregated(
        FLAMINGO | {"committee": {"selection": "lotto-client-centric", "size": 4, "threshold": 3, "over_selection": 2}}
    ),
    "one-shot": aggregated(ONE_SHOT),
    "one-shot, drawn committee": aggregated(
        ONE_SHOT | {"committee": {"selection": "lotto-server-centric", "size": 4, "threshold": 3, "over_selection": 2}}
    ),
    "pine": aggregated(PINE),
    "e-seafl": aggregated({"protocol": "e-seafl", "assisting_nodes": [3, 5], "min_survivors": 4}),
    "dp-sgd": trained({"momentum": 0}, aggregation=DP_SGD, selection=BERNOULLI),
}
SELECTIONS = {
    "weighted-random": selected({"protocol": "weighted-random", "participants": 6}),
    "bernoulli": selected(BERNOULLI),
    "partition": selected({"protocol": "partition", "participants": 6}, availability={}),
    "oort": selected({"protocol": "oort", "participants": 6, "pacer_step": 2, "unexplored": "check-in"}),
    "min-separation": selected(MIN_SEPARATION),
    "balls-in-bins": selected({"protocol": "balls-in-bins", "bins": 2}),
    "balls-in-bins, coins of clients": selected({"protocol": "balls-in-bins", "bins": 2, "coins": "clients"}),
    "lotto-client-centric": selected(CLIENT_CENTRIC),
    "lotto-client-centric, refined": selected(CLIENT_CENTRIC | {"refine": {"combine": "or"}}),
    "lotto-server-centric": selected(SERVER_CENTRIC),
    "lotto-server-centric, public beacon": selected(SERVER_CENTRIC | {"round_beacon": "public"}),
    "verifiable-batch-partition": selected(VERIFIABLE_BATCHES),
    "batch-partition, pinned": selected(BATCHES | {"membership": "pinned"}),
}
NOISE = {
    "skellam": noisy({"mechanism": "skellam", "noise_multiplier": 0.5}),
    "discrete-gaussian": noisy({"mechanism": "discrete-gaussian", "noise_multiplier": 0.5}, SECAGG_PLUS),
    "enforced skellam": noisy(
        {"mechanism": "skellam", "noise_multiplier": 0.5, "enforcement": {"tolerated_dropouts": 2}}
    ),
    "correlated": replace(
        noisy({"mechanism": "correlated", "noise_multiplier": 2.0, "clip": 0.5}, selection=MIN_SEPARATION, rounds=3),
        model_depends_on_cpu=True,
    ),
    "noise without masks": noisy({"mechanism": "skellam", "epsilon": 8.0}, {"protocol": "plain"}),
}
LEARNING = {
    "fedprox": trained({"proximal": 0.1}),
    "scaffold": learning({"drift_correction": {"name": "scaffold"}}),
    "feddyn": learning({"drift_correction": {"name": "feddyn", "alpha": 0.4}}, {"protocol": "plain"}),
    "fedper": learning({"local_layers": {"last": 2}}, SECAGG_PLUS),
    "adapters": trained({"adapters": {"rank": 2}}),
    "clients at once": trained({"clients_at_once": 4}),
    "server optimizer": aggregated(LIGHTSECAGG | {"server_optimizer": {"name": "yogi"}}),
    "random-k": aggregated(SECAGG | {"compression": {"name": "random-k", "share": 0.3}}),
    "top-k": aggregated({"protocol": "plain", "compression": {"name": "top-k", "share": 0.2}}),
    "quantised": aggregated({"protocol": "plain", "compression": {"name": "quantise", "bits": 6}}),
    "robust rule": aggregated(
        {"protocol": "plain", "weights": "equal", "robust": {"rule": "multi-krum", "max_dishonest": 1}}
    ),
    "buffered": buffered({"protocol": "plain"}),
    "buffered secagg": buffered(SECAGG | {"model_binding": "none"}),
}
MISBEHAVIOURS = {
    "contradict-dropouts, secagg": attacked(
        SECAGG | {"threshold": 0.7, "consistency": "none"}, server=[{"contradict-dropouts": {"victim": 4}}]
    ),
    "break-batch": attacked(SECAGG, server=["break-batch"], selection=BATCHES),
    "parallel-lists": attacked(SECAGG, server=["parallel-lists"], selection=CLIENT_CENTRIC),
    "inconsistent shares": attacked(SECAGG, clients=["deal-inconsistent-shares"]),
    "send-different-models": attacked(SECAGG, server=["send-different-models"]),
    "skip-noise": attacked(
        SECAGG | {"weights": "equal", "noise": {"mechanism": "skellam", "noise_multiplier": 0.5}},
        clients=["skip-noise"],
    ),
    "contradict-dropouts, lightsecagg": attacked(LIGHTSECAGG, server=["contradict-dropouts"]),
    "unopenable pieces": attacked(LIGHTSECAGG, clients=["seal-unopenable-pieces"]),
    "contradict-dropouts, flamingo": attacked(FLAMINGO, server=["contradict-dropouts"]),
    "decrypt-wrongly": attacked(FLAMINGO, clients=["decrypt-wrongly"], dishonest=range(6), **UNSTEADY),
    "contradict-dropouts, one-shot": attacked(ONE_SHOT, server=["contradict-dropouts"]),
    "rejected shares": attacked(ONE_SHOT, clients=["reject-shares"]),
    "pine, wrong proof": attacked(PINE, clients=["wrong-proof"]),
    "pine, smaller sum": attacked(PINE, server=["shrink-the-sum"]),
    "claim-membership": attacked(
        ONE_SHOT | {"committee": {"selection": "lotto-client-centric", "size": 4, "threshold": 3, "over_selection": 2}},
        clients=["claim-membership"],
    ),
    "forge-signatures": attacked(SECAGG, server=["forge-signatures"], selection=SERVER_CENTRIC),
    "flip-labels": attacked(SECAGG, clients=["flip-labels"], workload=DIGITS),
    "scaled updates": attacked({"protocol": "plain"}, clients=["scale-update", "inflate-utility"]),
}
EXPERIMENTS = AGGREGATIONS | SELECTIONS | NOISE | LEARNING | MISBEHAVIOURS
ON_RAY = "fedprox"
