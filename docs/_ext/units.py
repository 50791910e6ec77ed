"""Units of the numbers in an experiment file: most keys end in theirs, and the others are listed here."""

ENDINGS = {
    "_mbit_s": "Mbit/s (10⁶ bits a second)",
    "_ms": "milliseconds",
    "_s": "seconds",
    "_bytes": "bytes",
    "_hours": "hours",
    "_hour": "hour of the day",
    "_bits": "bits",
    "_rounds": "rounds",
    "_samples": "samples",
}
NO_UNIT = "none"
"""Shares, probabilities, factors, exponents and names."""

UNITS = {
    # Numbers of things.
    "rounds": "rounds",
    "from_round": "rounds",
    "every": "rounds",
    "learning_rate_decay_every": "rounds",
    "learning_rate_milestones": "rounds",
    "evaluate_every": "rounds",
    "max_round_gap": "rounds",
    "separation": "rounds",
    "max_participations": "rounds",
    "bins": "bins",
    "pacer_step": "rounds",
    "max_staleness": "rounds",
    "aggregates": "rounds",
    "population": "clients",
    "min_population": "clients",
    "participants": "clients",
    "privacy": "clients",
    "signatures": "clients",
    "neighbours": "clients",
    "smallest_sum": "clients",
    "buffers": "vectors of the model's length",
    "bands": "rounds",
    "min_separation": "rounds",
    "tolerated_dropouts": "clients",
    "clients_per_host": "clients",
    "workload.local_layers.first": "layers",
    "workload.local_layers.last": "layers",
    "clients_at_once": "clients",
    "concurrency": "clients",
    "evaluate_clients": "clients",
    "workload.flower.run_config": "the app's own",
    "aggregation.threshold": "clients, or a share of them",
    "aggregation.max_colluders": "clients, or a share of them",
    "aggregation.min_survivors": "clients, or a share of them",
    "aggregation.helper": "client number",
    "aggregation.norm_bound": "L2 norm of an update",
    "aggregation.committee.size": "clients",
    "aggregation.committee.threshold": "clients, or a share of them",
    "aggregation.committee.members": "client numbers",
    "serves_rounds": "rounds",
    "privacy.canaries.clients": "clients, or a share of them",
    "privacy.canaries.norm": "L2 norm of an update",
    "adversary.dishonest": "clients, or a share of them, or their numbers",
    "time.stage_quorums": "clients, or a share of them",
    "samples_per_client": "samples",
    "batch_size": "samples",
    "epochs": "passes over a client's samples",
    "shards_per_client": "shards",
    "vocabulary_size": "words",
    "sequence_length": "words",
    "image_size": "pixels",
    "hosts": "processes",
    "gpus_per_host": "GPUs",
    "parallel_runs": "runs",
    "segments_per_acknowledgement": "packets",
    "initial_window_segments": "segments",
    "loss_burst_packets": "packets",
    # Measures.
    "bits": "bits",
    "bucket": "coordinates",
    "rank": "dimensions",
    "security": "bits",
    "correctness": "bits",
    "time.costs": "seconds per operation or element",
    "time.stage_deadlines": "seconds",
    "per_byte": "bytes per byte",
    "pacer_delta": "percentile points",
    "round_threshold": "percentile",
    "sample_window": "times the clients wanted",
    "aggregation.noise.clip": "L2 norm of an update",
    "aggregation.noise.scale": "integer steps",
    "aggregation.noise.noise_multiplier": "standard deviations over the L2 norm that is hidden",
    "aggregation.clip": "as updates have, or gradients (plain numbers)",
    "aggregation.sigma": "as gradients have (plain numbers)",
    "budget": "epsilon",
    "targets": "accuracy: share of 1, or per cent with %",
    "stop_at.accuracy": "share of 1",
}
"""By the last part of a key's path, or by the whole path."""

UNITLESS = frozenset(
    [
        "seed",
        "alpha",
        "learning_rate",
        "momentum",
        "weight_decay",
        "learning_rate_decay",
        "client_rate",
        "assumed_unavailable",
        "exploration",
        "exploration_decay",
        "exploration_minimum",
        "penalty",
        "cut_off",
        "clip",
        "blacklist_share",
        "over_selection",
        "exclude",
        "epsilon",
        "delta",
        "bias",
        "dishonest",
        "dropouts",
        "sample_rate",
        "factor",
        "fastest",
        "slowest",
        "exponent",
        "staleness_exponent",
        "median",
        "sigma",
        "rate",
        "hazard",
        "unavailable",
        "lowest",
        "highest",
        "online_shape",
        "offline_shape",
        "amplitude",
        "scale",
        "column",
        "share",
        "proximal",
        "last",
        "beta1",
        "beta2",
        "tau",
        "device",
        "loss",
        "perplexity",
    ]
)
_LIKE_THEIR_LINK = ("minimum", "maximum", "mean", "median", "sigma")


def unit_of(path: str) -> str:
    """The unit of the key at `path`: NO_UNIT for plain numbers, empty where nobody has said."""
    above, _, name = path.replace("[]", "").rpartition(".")
    if path in UNITS:
        return UNITS[path]
    if name in _LIKE_THEIR_LINK and above.startswith(("links.", "classes.")):
        return unit_of(above) + (" (normal), none (log-normal)" if name == "sigma" else "")
    if name in UNITS:
        return UNITS[name]
    for ending, unit in ENDINGS.items():
        if name.endswith(ending):
            return unit
    return NO_UNIT if name in UNITLESS else ""
