"""The reference of the records' tables: dtypes from their declarations, meanings from here.

A test holds MEANINGS to what is declared: no column without a meaning, no meaning of a column that is not there.
"""

import pyarrow as pa

from docs._ext.markdown import escaped, table
from testbed.records import clients
from testbed.records.schemas import OPTIONAL_TABLES, SCHEMAS

TABLES = {**SCHEMAS, clients.CLIENTS: clients.SCHEMA}

ROWS = {
    "rounds": "One row per round.",
    "exchanges": "One row per client that was asked in a stage of a round.",
    "participation": "One row per participant of a round, completed or aborted.",
    "events": "One row per refusal, misbehaviour, crash, replaced host or coordinator, client left out, resume.",
    "privacy": "One row per client and round that its data were in; a round that was run again may have several.",
    "staleness": "One row per participant of a round of an asynchronous run, completed or aborted.",
    "clients": "One row per client of the population, written when the run begins.",
}
"""What a row of each table is."""

_BYTES, _SECONDS, _CLIENTS, _EPSILON = "bytes", "seconds of the run's clock", "clients", "epsilon"
_SHARE = "share of the planned variance"

MEANINGS: dict[str, dict[str, tuple[str, str]]] = {
    "rounds": {
        "round": ("", "Number of the round, from 1."),
        "outcome": ("", "`completed`, `skipped` (nobody could be selected) or `aborted` (nothing came of it)."),
        "reason": ("", "Why it was skipped or aborted; empty when completed."),
        "started_s": (_SECONDS, "When it began."),
        "ended_s": (_SECONDS, "When it ended, for whatever reason."),
        "server_compute_s": (_SECONDS, "The server's own work in it."),
        "server_work": (
            "",
            "The same by stage: seconds from its end up to the next one; null in earlier versions.",
        ),
        "behind_s": (
            _SECONDS,
            "Live runs: how long the machine, not links and devices, held the round up; else 0.",
        ),
        "population": (_CLIENTS, "Clients that were there when it began."),
        "candidates": (_CLIENTS, "Clients that could have become participants: what selection chose from."),
        "participants": (_CLIENTS, "Clients that were selected."),
        "survivors": (_CLIENTS, "Participants whose update is in the aggregate."),
        "bytes_down": (_BYTES, "From the server to all clients, as encoded, without headers of the transport."),
        "bytes_up": (_BYTES, "From all clients to the server."),
        "beacon_bytes_down": (_BYTES, "From the randomness beacon to the server; null in runs of earlier versions."),
        "beacon_bytes_up": (_BYTES, "From the server to the randomness beacon."),
        "accuracy": (
            "share, 0 to 1",
            "Of the global model after the round, on held-out samples; null: not evaluated, or values are "
            "learned, which are neither right nor wrong.",
        ),
        "loss": ("", "Mean loss of the global model on held-out samples; null: not evaluated."),
        "recalls": (
            "share, 0 to 1",
            "Of each label, from 0, the held-out samples that the model classifies correctly; null: not evaluated, or "
            "samples have no label of their own, or the run is of an earlier version.",
        ),
        "metrics": (
            "",
            "Of `workload.metrics`, in their order, on held-out samples; null: not evaluated, or none named.",
        ),
        "attack_success": (
            "share, 0 to 1",
            "Of held-out samples on which poisoning is to have an effect, those that the model takes for the attack's "
            "target; null: not evaluated, or nobody poisons samples for a target.",
        ),
        "client_accuracy_mean": (
            "share, 0 to 1",
            "Accuracy of the global model after the round on each client's own training samples (with "
            "`workload.local_layers`: of the client's own model), mean over clients; null: not evaluated, or "
            "`workload.client_accuracy` is off.",
        ),
        "client_accuracy_worst_decile": (
            "share, 0 to 1",
            "The same, mean over the tenth of the clients with the lowest accuracy.",
        ),
        "client_accuracy_std": ("share, 0 to 1", "The same, standard deviation over clients."),
    },
    "exchanges": {
        "round": ("", "Number of the round."),
        "stage": ("", "Which question, e.g. `train` or `secagg/masked-input`."),
        "client": ("", "Number of the client, from 0."),
        "sent_s": (_SECONDS, "When the stage began."),
        "received_s": (_SECONDS, "When the answer was complete at the server; null: it never was."),
        "bytes_down": (_BYTES, "The question, from the server to this client, as encoded."),
        "bytes_up": (_BYTES, "The answer, from this client to the server."),
        "transport_down": (
            _BYTES,
            "Headers, acknowledgements, handshakes and what is sent again, server to this client.",
        ),
        "transport_up": (_BYTES, "The same, this client to the server."),
        "pki_bytes_down": (_BYTES, "From the key directory (PKI) to this client."),
        "pki_bytes_up": (_BYTES, "From this client to the key directory."),
        "compute_s": (_SECONDS, "Work on this client's device: from the cost table and its speed, or measured."),
        "outcome": ("", "`answered`, `silent`, `offline`, `dropped`, `late` or `refused`."),
        "as_participant": ("", "Whether the stage counts to the client's participation, and so to its client time."),
    },
    "participation": {
        "round": ("", "Number of the round."),
        "client": ("", "Number of the participant."),
        "survived": ("", "Whether its update is in the aggregate."),
        "dishonest": ("", "Whether it works for a malicious server."),
    },
    "events": {
        "round": ("", "Number of the round."),
        "stage": ("", "In which stage it was; empty: in none."),
        "party": ("", "Whom it is about: a client, the server, a host, the coordinator."),
        "kind": ("", "What happened, e.g. `refusal`, `misbehaviour`, `crash`, `resumed`, `excluded`, `stopped`."),
        "detail": ("", "More of it: which check failed, what the malicious party did, error and line."),
    },
    "privacy": {
        "round": ("", "Number of the round."),
        "client": ("", "Number of the client that has been charged."),
        "epsilon": (_EPSILON, "Achieved so far, with the noise that participants have really added."),
        "planned_epsilon": (_EPSILON, "So far, had every round had all of its planned noise."),
        "colluding_epsilon": (
            _EPSILON,
            "So far, against a malicious server with the dishonest clients as accomplices.",
        ),
        "delta": ("probability", "At which the three hold."),
        "noise": (
            _SHARE,
            "If all survivors have added theirs; null: the client is in no sum.",
        ),
        "honest_noise": (_SHARE, "What was really added."),
        "colluding_noise": (_SHARE, "What server and accomplices cannot subtract."),
    },
    "staleness": {
        "round": ("", "Number of the round."),
        "client": ("", "Number of the participant."),
        "staleness": ("rounds", "Between the one in which it was sent the model and this one: tau."),
        "scale": ("", "What its update counts of itself for that: 1 / (1 + tau)^a."),
        "sent_s": (_SECONDS, "When it was sent the model."),
        "ready_s": (_SECONDS, "When the server had its update (`plain`), or knew that it was there."),
    },
    "clients": {
        "client": ("", "Number of the client, from 0."),
        "class": ("", "Its class; empty where the experiment has no `classes`."),
        "down_mbit_s": ("Mbit/s", "Its downlink; on a bandwidth trace, or with outages, the mean over a period."),
        "up_mbit_s": ("Mbit/s", "Its uplink, likewise."),
        "latency_ms": ("milliseconds", "One-way delay between it and the server."),
        "loss": ("probability", "That a packet is lost, each way."),
        "device_factor": ("", "How many times longer than the reference machine it computes."),
        "samples": ("samples", "How many it trains on."),
    },
}
"""By table and column: the unit (empty: none) and the meaning."""

SUMMARY: dict[str, tuple[str, str]] = {
    "label": ("", "What the run is called in tables."),
    "name": ("", "The experiment's name."),
    "seed": ("", "Its seed; null: none."),
    "selection": ("", "Its selection protocol."),
    "aggregation": ("", "Its aggregation protocol."),
    "population": (_CLIENTS, "All clients."),
    "rounds_completed": ("rounds", "Rounds that gave a new model."),
    "rounds_skipped": ("rounds", "Rounds in which nobody could be selected."),
    "rounds_aborted": ("rounds", "Rounds that began and gave nothing."),
    "mean_round_s": (_SECONDS, "Mean duration of a completed round."),
    "mean_client_s": (_SECONDS, "Mean time of a participant in a completed round, first question to last answer."),
    "server_bytes_per_round": (_BYTES, "Mean traffic of the server in a completed round, both ways."),
    "client_bytes_per_round": (
        _BYTES,
        "Mean traffic of a participant in a completed round, key directory included.",
    ),
    "transport_bytes_per_round": (
        _BYTES,
        "What the transport adds to the server's traffic.",
    ),
    "round_s_per_update": (_SECONDS, "Duration of all rounds, failed ones too, over the completed ones."),
    "server_bytes_per_update": (_BYTES, "Traffic of all rounds, failed ones too, over the completed ones."),
    "failed_rounds_s": (_SECONDS, "Duration of all skipped and aborted rounds."),
    "failed_rounds_bytes": (_BYTES, "Traffic of all skipped and aborted rounds."),
    "server_compute_s_per_round": (_SECONDS, "Mean of the server's own work in a completed round."),
    "participants_mean": (_CLIENTS, "Mean number of participants of a completed round."),
    "survivors_mean": (_CLIENTS, "Mean number of survivors of a completed round."),
    "participants_lost": (_CLIENTS, "Participants whose update is in no sum, for whatever reason, over all rounds."),
    "dropouts": (_CLIENTS, "Clients that went away in the middle of a stage, over all rounds."),
    "dropped_by_stage.STAGE": (_CLIENTS, "Those of one stage."),
    "offline": (_CLIENTS, "Clients that were away when they were first asked in a round, over all rounds."),
    "late": ("answers", "Answers after the deadline."),
    "refusals": ("", "How many refusals are on record."),
    "unexpected_refusals": ("", "Which they were, where nobody was to be dishonest; null: none."),
    "diverged": ("", "How many clients' update was not finite, in which rounds, what to change; null: none was."),
    "crashes": ("", "How often a client's code crashed (`on_crash: drop`)."),
    "reasons": ("", "Why rounds were skipped or aborted, in a line; null: none was."),
    "reasons.NAME": ("rounds", "How many for each reason."),
    "behind_rounds": ("rounds", "Live: rounds in which the machine could not keep up."),
    "behind_factor": ("", "Live: how many times as long these took as links and devices say; null: there are none."),
    "final_accuracy": ("share, 0 to 1", "The last that was measured."),
    "best_accuracy": ("share, 0 to 1", "The best that was measured."),
    "final_attack_success": (
        "share, 0 to 1",
        "Of the held-out samples that poisoned ones are to change, the last that was measured; null: none are.",
    ),
    "final_client_accuracy_mean": (
        "share, 0 to 1",
        "Mean over clients of the accuracy on a client's own samples, the last that was measured; null: it is not "
        "(`workload.client_accuracy`).",
    ),
    "final_client_accuracy_worst_decile": ("share, 0 to 1", "The same of the worst tenth of the clients."),
    "final_client_accuracy_std": ("share, 0 to 1", "Standard deviation over clients of the same accuracies."),
    "final_perplexity": ("", "exp(mean loss of a word), the last that was measured; null: no language model."),
    "best_perplexity": ("", "The best that was measured."),
    "training": ("", "`real` or `simulated`."),
    "fairness_gap": ("", "F: largest less smallest share of rounds that a client has taken part in."),
    "fairness_gap_completed": ("", "The same by rounds that gave a sum, which skipped ones do not make smaller."),
    "aggregation_cardinality": (_CLIENTS, "C: mean number of updates in a round's sum, failed rounds counted as 0."),
    "multi_round_privacy_strong": (_CLIENTS, "T strong (equation 5 of Multi-RoundSecAgg)."),
    "multi_round_privacy_weak": (_CLIENTS, "T weak: the fewest clients whose sum the server can compute."),
    "multi_round_privacy_weak_certified": ("", "Whether it is proved that there are no fewer."),
    "multi_round_privacy_weak_lower_bound": (_CLIENTS, "What is proved if not."),
    "noise_multiplier": (
        "",
        "Given, or found for an epsilon (runs with noise, like the next seven); null: unknown.",
    ),
    "privacy_delta": ("probability", "At which the epsilons hold."),
    "privacy_clients": (_CLIENTS, "Honest clients that have been charged."),
    "epsilon_max": (_EPSILON, "The largest of these clients'."),
    "epsilon_median": (_EPSILON, "Their median."),
    "planned_epsilon_max": (_EPSILON, "The largest, had every round had its planned noise."),
    "colluding_epsilon_max": (_EPSILON, "The largest against a malicious server and its accomplices."),
    "privacy_caveats": ("", "What the epsilons do not cover."),
    "reached.TARGET": ("", "Whether the run has reached a target that its experiment names (`targets`)."),
    "time_to_target_s.TARGET": (_SECONDS, "When; null: it has not."),
    "rounds_to_target.TARGET": ("rounds", "In which round; null: it has not."),
    "server_bytes_to_target.TARGET": (_BYTES, "Traffic of the server until then."),
    "client_bytes_to_target.TARGET": (_BYTES, "Traffic of all clients until then, key directory included."),
    "stopped": ("", "Why the privacy budget or a target (`stop_at`) ended the run; null: neither did."),
    "clock": ("", "`virtual` or `wall`."),
    "virtual_s": (_SECONDS, "When the last round ended."),
    "wall_s": ("seconds of wall-clock time", "How long the run really took."),
}
"""The keys of summary.json. A key with `HALF_WIDTH` behind it is half of the mean's 95% interval over rounds."""

HALF_WIDTH = "_half_width"


def dtype(kind: pa.DataType) -> str:
    """The type of a column, as pandas and Parquet readers see it."""
    return "text (categorical)" if pa.types.is_dictionary(kind) else str(kind).replace("string", "text")


def page() -> str:
    """Return the page of all columns, as Markdown."""
    intro = (
        "All columns of a run's tables and all keys of its summary. How to read them: [a run's records](records.md)."
    )
    return f"# Columns of the records\n\n{intro}\n\n{tables()}"


def tables() -> str:
    """Return all tables as Markdown, each below a heading of the second level."""
    parts = []
    for name, schema in TABLES.items():
        optional = " Only some runs have it." if name in OPTIONAL_TABLES else ""
        parts.append(f"## `{name}.parquet`\n\n{ROWS[name]}{optional}\n\n")
        rows = []
        for column in schema:
            unit, meaning = MEANINGS[name][column.name]
            rows.append([f"`{column.name}`", escaped(meaning), unit or "–", dtype(column.type)])
        parts.append(table(["column", "meaning", "unit", "type"], rows) + "\n")
    rows = [[f"`{key}`", escaped(meaning), unit or "–"] for key, (unit, meaning) in SUMMARY.items()]
    parts.append("## `summary.json`\n\nOne flat object, after the last round; null: not known, or not measured.\n\n")
    parts.append(
        f"{table(['key', 'meaning', 'unit'], rows)}\nMeans over completed rounds also have `KEY{HALF_WIDTH}`: "
    )
    return "".join(parts) + "half of their 95% confidence interval (Student's t over rounds).\n"
