"""The tables that are recorded: the columns of each, with their types."""

import pyarrow as pa

_WORD = pa.dictionary(pa.int16(), pa.string())

SCHEMAS: dict[str, pa.Schema] = {
    # One row per round.
    "rounds": pa.schema(
        [
            ("round", pa.int32()),
            ("outcome", pa.string()),  # completed, skipped (nobody admissible), aborted
            ("reason", pa.string()),  # empty when completed
            ("started_s", pa.float64()),
            ("ended_s", pa.float64()),
            ("server_compute_s", pa.float64()),
            # The same by stage, in their order: after it has ended, up to the next one; before the first one: "round".
            ("server_work", pa.list_(pa.struct([("stage", pa.string()), ("compute_s", pa.float64())]))),
            ("behind_s", pa.float64()),  # for which the machine, and not links and devices, held the round up (live)
            ("population", pa.int64()),
            ("candidates", pa.int64()),
            ("participants", pa.int64()),
            ("survivors", pa.int64()),
            ("bytes_down", pa.int64()),  # server to clients
            ("bytes_up", pa.int64()),  # clients to server
            ("beacon_bytes_down", pa.int64()),  # randomness beacon to server; null in runs of earlier versions
            ("beacon_bytes_up", pa.int64()),
            ("accuracy", pa.float64()),  # null in rounds without an evaluation
            ("loss", pa.float64()),
            ("recalls", pa.list_(pa.float64())),  # of each label; null also in runs of earlier versions
            ("metrics", pa.list_(pa.float64())),  # of workload.metrics, in their order; null where there are none
            ("attack_success", pa.float64()),  # of poisoned samples; null also in runs of earlier versions
            # Over the clients' own samples (workload.client_accuracy); null also in runs of earlier versions.
            ("client_accuracy_mean", pa.float64()),
            ("client_accuracy_worst_decile", pa.float64()),
            ("client_accuracy_std", pa.float64()),
        ]
    ),
    # One row per client asked in a stage.
    "exchanges": pa.schema(
        [
            ("round", pa.int32()),
            ("stage", _WORD),
            ("client", pa.int64()),
            ("sent_s", pa.float64()),  # when the stage began
            ("received_s", pa.float64()),  # when the answer was complete at the server; null: never
            ("bytes_down", pa.int64()),  # server to this client
            ("bytes_up", pa.int64()),  # this client to server
            ("transport_down", pa.int64()),  # what the transport adds to them, server to this client
            ("transport_up", pa.int64()),
            ("pki_bytes_down", pa.int64()),  # PKI to this client
            ("pki_bytes_up", pa.int64()),
            ("compute_s", pa.float64()),  # on this client's device
            ("outcome", _WORD),  # answered, silent, offline, dropped, late, refused
            ("as_participant", pa.bool_()),  # counts to the client's participation (and its client time)
        ]
    ),
    # One row per participant of a round; completed and aborted rounds.
    "participation": pa.schema(
        [
            ("round", pa.int32()),
            ("client", pa.int64()),
            ("survived", pa.bool_()),
            ("dishonest", pa.bool_()),  # works for a malicious server
        ]
    ),
    # Refusals, attacks, misbehaviour, restarts.
    "events": pa.schema(
        [
            ("round", pa.int32()),
            ("stage", pa.string()),
            ("party", pa.string()),
            ("kind", pa.string()),
            ("detail", pa.string()),
        ]
    ),
    # One row per client and round that its data were in, of runs whose aggregation adds noise; and before it one for
    # each attempt at the round that was not recorded and may have released them, too.
    "privacy": pa.schema(
        [
            ("round", pa.int32()),
            ("client", pa.int64()),
            ("epsilon", pa.float64()),  # so far, with the noise that participants have really added
            ("planned_epsilon", pa.float64()),  # so far, had every round had all of the planned noise
            ("colluding_epsilon", pa.float64()),  # so far, against a malicious server with the dishonest participants
            ("delta", pa.float64()),  # of all three
            ("noise", pa.float64()),  # share of the planned variance if all survivors add theirs; null: not in the sum
            ("honest_noise", pa.float64()),  # share that was really added
            ("colluding_noise", pa.float64()),  # share that the server and its accomplices cannot subtract
        ]
    ),
    # One row per participant of a round of an asynchronous run.
    "staleness": pa.schema(
        [
            ("round", pa.int32()),
            ("client", pa.int64()),
            ("staleness", pa.int64()),  # rounds since the one in which it was sent the model
            ("scale", pa.float64()),  # what its update counts of itself for that
            ("sent_s", pa.float64()),  # when it was sent the model
            ("ready_s", pa.float64()),  # when the server had its update, or knew that it was there
        ]
    ),
}
OPTIONAL_TABLES = frozenset({"privacy", "staleness"})
"""Tables that only some runs have; elsewhere there is no file, and they are empty."""
