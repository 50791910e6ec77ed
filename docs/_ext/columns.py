"""The reference of the records' tables: types from the declared schemas, meanings from here.

A test compares MEANINGS with the schemas: each column has a meaning, and each meaning a column.
"""

import pyarrow as pa

from docs._ext.markdown import escaped, table
from testbed.records import clients
from testbed.records.schemas import OPTIONAL_TABLES, SCHEMAS

TABLES = {**SCHEMAS, clients.CLIENTS: clients.SCHEMA}

ROWS = {
    "rounds": "One row per round.",
    "exchanges": "One row per client that was asked in a stage of a round.",
    "participation": "One row per participant of a completed or aborted round.",
    "events": "One row per refusal, misbehaviour, crash, replaced host or coordinator, excluded client, or resume.",
    "privacy": "One row per client and round with the client's data; a repeated round may have several.",
    "staleness": "One row per participant of a completed or aborted round of an asynchronous run.",
    "clients": "One row per client of the population, written when the run begins.",
}
"""The meaning of a row, by table."""

_BYTES, _SECONDS, _CLIENTS, _EPSILON = "bytes", "seconds of the run's clock", "clients", "epsilon"
_SHARE = "share of the planned variance"

MEANINGS: dict[str, dict[str, tuple[str, str]]] = {
    "rounds": {
        "round": ("", "Number of the round, from 1."),
        "outcome": ("", "`completed`, `skipped` (no admissible participants) or `aborted` (no aggregate)."),
        "reason": ("", "Reason of a skipped or aborted round; empty if completed."),
        "started_s": (_SECONDS, "Start of the round."),
        "ended_s": (_SECONDS, "End of the round, with any outcome."),
        "server_compute_s": (_SECONDS, "Compute time of the server in the round."),
        "server_work": ("", "Compute time of the server from the end of each stage to the next one; null in old runs."),
        "behind_s": (_SECONDS, "Live runs: delay of the round by this machine, beyond links and devices; else 0."),
        "population": (_CLIENTS, "Clients that were available when the round began."),
        "candidates": (_CLIENTS, "Clients that could have become participants."),
        "participants": (_CLIENTS, "Selected clients."),
        "survivors": (_CLIENTS, "Participants with their update in the aggregate."),
        "bytes_down": (_BYTES, "Encoded messages from the server to all clients, without transport headers."),
        "bytes_up": (_BYTES, "Encoded messages from all clients to the server."),
        "beacon_bytes_down": (_BYTES, "From the randomness beacon to the server; null in old runs."),
        "beacon_bytes_up": (_BYTES, "From the server to the randomness beacon."),
        "accuracy": (
            "share, 0 to 1",
            "Accuracy of the global model after the round on held-out samples; null: not evaluated, or a regression.",
        ),
        "loss": ("", "Mean loss of the global model on held-out samples; null: not evaluated."),
        "recalls": (
            "share, 0 to 1",
            "Recall of each label, from 0, on held-out samples; null: not evaluated, samples without labels, or an old "
            "run.",
        ),
        "metrics": ("", "Values of `workload.metrics`, in their order, on held-out samples; null: not evaluated."),
        "attack_success": (
            "share, 0 to 1",
            "Share of the held-out samples under attack that the model classifies as the attack's target; null: not "
            "evaluated, or no client poisons samples for a target.",
        ),
        "client_accuracy_mean": (
            "share, 0 to 1",
            "Accuracy of the global model (with `workload.local_layers`: of each client's own model) on each client's "
            "training samples, mean over clients; null: not evaluated, or `workload.client_accuracy` is off.",
        ),
        "client_accuracy_worst_decile": ("share, 0 to 1", "Mean of the same over the 10% worst clients."),
        "client_accuracy_std": ("share, 0 to 1", "Standard deviation of the same over clients."),
    },
    "exchanges": {
        "round": ("", "Number of the round."),
        "stage": ("", "Name of the stage, e.g. `train` or `secagg/masked-input`."),
        "client": ("", "Number of the client, from 0."),
        "sent_s": (_SECONDS, "Start of the stage."),
        "received_s": (_SECONDS, "Arrival of the complete answer at the server; null: it did not arrive."),
        "bytes_down": (_BYTES, "Encoded question, from the server to this client."),
        "bytes_up": (_BYTES, "Encoded answer, from this client to the server."),
        "transport_down": (_BYTES, "Headers, acknowledgements, handshakes and retransmissions, server to client."),
        "transport_up": (_BYTES, "The same, client to server."),
        "pki_bytes_down": (_BYTES, "From the key directory (PKI) to this client."),
        "pki_bytes_up": (_BYTES, "From this client to the key directory."),
        "compute_s": (_SECONDS, "Compute time on this client's device, from the cost table or measured."),
        "outcome": ("", "`answered`, `silent`, `offline`, `dropped`, `late` or `refused`."),
        "as_participant": ("", "Whether the stage counts towards the client's participation and client time."),
    },
    "participation": {
        "round": ("", "Number of the round."),
        "client": ("", "Number of the participant."),
        "survived": ("", "Whether its update is in the aggregate."),
        "dishonest": ("", "Whether it works for a malicious server."),
    },
    "events": {
        "round": ("", "Number of the round."),
        "stage": ("", "Stage of the event; empty: outside of stages."),
        "party": ("", "Client, server, host or coordinator that the event concerns."),
        "kind": ("", "Kind of event, e.g. `refusal`, `misbehaviour`, `crash`, `resume`, `excluded`, `stopped`."),
        "detail": ("", "Failed check, action of the malicious party, or error with its line."),
    },
    "privacy": {
        "round": ("", "Number of the round."),
        "client": ("", "Number of the client."),
        "epsilon": (_EPSILON, "Epsilon spent so far, with the noise that participants really added."),
        "planned_epsilon": (_EPSILON, "Epsilon so far if every round had all of its planned noise."),
        "colluding_epsilon": (_EPSILON, "Epsilon so far against a malicious server with the dishonest clients."),
        "delta": ("probability", "Delta of the three epsilons."),
        "noise": (_SHARE, "Noise in the sum if all survivors have added theirs; null: the client is in no sum."),
        "honest_noise": (_SHARE, "Noise that was really added."),
        "colluding_noise": (_SHARE, "Noise that the server and its accomplices cannot subtract."),
    },
    "staleness": {
        "round": ("", "Number of the round."),
        "client": ("", "Number of the participant."),
        "staleness": ("rounds", "Rounds since the client received the model: tau."),
        "scale": ("", "Weight of the update for its staleness: 1 / (1 + tau)^a."),
        "sent_s": (_SECONDS, "Time at which the client was sent the model."),
        "ready_s": (_SECONDS, "Time at which the server had the update (`plain`), or knew that it was complete."),
    },
    "clients": {
        "client": ("", "Number of the client, from 0."),
        "class": ("", "Class of the client; empty without `classes` in the experiment."),
        "down_mbit_s": ("Mbit/s", "Downlink; on a bandwidth trace, or with outages, the mean over a period."),
        "up_mbit_s": ("Mbit/s", "Uplink, likewise."),
        "latency_ms": ("milliseconds", "One-way delay between client and server."),
        "loss": ("probability", "Probability of packet loss, each way."),
        "device_factor": ("", "Compute time as a multiple of that of the reference machine."),
        "samples": ("samples", "Training samples."),
    },
}
"""By table and column: the unit (empty: none) and the meaning."""

SUMMARY: dict[str, tuple[str, str]] = {
    "label": ("", "Name of the run in tables."),
    "name": ("", "Name of the experiment."),
    "seed": ("", "Seed of the run; null: none."),
    "selection": ("", "Selection protocol."),
    "aggregation": ("", "Aggregation protocol."),
    "population": (_CLIENTS, "All clients."),
    "rounds_completed": ("rounds", "Rounds with a new model."),
    "rounds_skipped": ("rounds", "Rounds without admissible participants."),
    "rounds_aborted": ("rounds", "Rounds that ended without an aggregate."),
    "mean_round_s": (_SECONDS, "Mean duration of a completed round."),
    "mean_client_s": (_SECONDS, "Mean time of a participant in a completed round, first question to last answer."),
    "server_bytes_per_round": (_BYTES, "Mean traffic of the server in a completed round, both ways."),
    "client_bytes_per_round": (_BYTES, "Mean traffic of a participant in a completed round, with the key directory."),
    "transport_bytes_per_round": (_BYTES, "Mean transport overhead of the server's traffic."),
    "round_s_per_update": (_SECONDS, "Duration of all rounds, failed ones too, divided by the completed ones."),
    "server_bytes_per_update": (_BYTES, "Traffic of all rounds, failed ones too, divided by the completed ones."),
    "failed_rounds_s": (_SECONDS, "Duration of all skipped and aborted rounds."),
    "failed_rounds_bytes": (_BYTES, "Traffic of all skipped and aborted rounds."),
    "server_compute_s_per_round": (_SECONDS, "Mean compute time of the server in a completed round."),
    "participants_mean": (_CLIENTS, "Mean number of participants of a completed round."),
    "survivors_mean": (_CLIENTS, "Mean number of survivors of a completed round."),
    "participants_lost": (_CLIENTS, "Participants without their update in a sum, over all rounds."),
    "dropouts": (_CLIENTS, "Clients that left during a stage, over all rounds."),
    "dropped_by_stage.STAGE": (_CLIENTS, "Dropouts of one stage."),
    "offline": (_CLIENTS, "Clients that were unavailable at their first question in a round, over all rounds."),
    "late": ("answers", "Answers after the deadline."),
    "refusals": ("", "Number of refusals."),
    "unexpected_refusals": ("", "Refusals in a run without misbehaviour; null: none."),
    "diverged": ("", "Updates that were not finite: clients, rounds, and the key to change; null: none."),
    "crashes": ("", "Crashes of clients' code (`on_crash: drop`)."),
    "reasons": ("", "Reasons of skipped and aborted rounds, in one line; null: none."),
    "reasons.NAME": ("rounds", "Rounds with this reason."),
    "behind_rounds": ("rounds", "Live runs: rounds in which the machine could not keep up."),
    "behind_factor": ("", "Live runs: real duration of these rounds divided by the emulated one; null: none."),
    "final_accuracy": ("share, 0 to 1", "Last measured accuracy."),
    "best_accuracy": ("share, 0 to 1", "Best measured accuracy."),
    "final_attack_success": ("share, 0 to 1", "Last measured `attack_success`; null: none."),
    "final_client_accuracy_mean": ("share, 0 to 1", "Last measured `client_accuracy_mean`; null: not measured."),
    "final_client_accuracy_worst_decile": ("share, 0 to 1", "Last measured `client_accuracy_worst_decile`."),
    "final_client_accuracy_std": ("share, 0 to 1", "Last measured `client_accuracy_std`."),
    "final_perplexity": ("", "Last measured perplexity, exp(mean loss of a word); null: no language model."),
    "best_perplexity": ("", "Best measured perplexity."),
    "training": ("", "`real` or `simulated`."),
    "fairness_gap": ("", "F: largest minus smallest share of rounds in which a client participated."),
    "fairness_gap_completed": ("", "The same over completed rounds only; skipped rounds do not reduce it."),
    "aggregation_cardinality": (_CLIENTS, "C: mean number of updates in a round's sum; failed rounds count as 0."),
    "multi_round_privacy_strong": (_CLIENTS, "T strong (equation 5 of Multi-RoundSecAgg)."),
    "multi_round_privacy_weak": (
        _CLIENTS,
        "T weak: size of the smallest group with a sum that the server can compute.",
    ),
    "multi_round_privacy_weak_certified": ("", "Whether T weak is proved to be the smallest."),
    "multi_round_privacy_weak_lower_bound": (_CLIENTS, "Proved lower bound of T weak if it is not certified."),
    "noise_multiplier": ("", "Given, or solved for epsilon (runs with noise, like the next seven); null: unknown."),
    "privacy_delta": ("probability", "Delta of the epsilons."),
    "privacy_clients": (_CLIENTS, "Honest clients with privacy cost."),
    "epsilon_max": (_EPSILON, "Maximum over these clients."),
    "epsilon_median": (_EPSILON, "Median over these clients."),
    "planned_epsilon_max": (_EPSILON, "Maximum if every round had its planned noise."),
    "colluding_epsilon_max": (_EPSILON, "Maximum against a malicious server and its accomplices."),
    "privacy_caveats": ("", "Leakage that the epsilons do not cover."),
    "reached.TARGET": ("", "Whether the run has reached a target of its experiment (`targets`)."),
    "time_to_target_s.TARGET": (_SECONDS, "Time of reaching it; null: not reached."),
    "rounds_to_target.TARGET": ("rounds", "Round of reaching it; null: not reached."),
    "server_bytes_to_target.TARGET": (_BYTES, "Traffic of the server until then."),
    "client_bytes_to_target.TARGET": (_BYTES, "Traffic of all clients until then, with the key directory."),
    "stopped": ("", "Privacy budget or target (`stop_at`) that ended the run; null: neither did."),
    "clock": ("", "`virtual` or `wall`."),
    "virtual_s": (_SECONDS, "End of the last round."),
    "wall_s": ("seconds of wall-clock time", "Real duration of the run."),
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
