"""Schemas of the recorded tables: the columns of each, with their types."""

import pyarrow as pa

_WORD = pa.dictionary(pa.int16(), pa.string())

SCHEMAS: dict[str, pa.Schema] = {
    # One row per round.
    "rounds": pa.schema(
        [
            ("round", pa.int32()),
            ("outcome", pa.string()),  # completed, skipped (no admissible participants), aborted
            ("reason", pa.string()),  # empty when completed
            ("started_s", pa.float64()),
            ("ended_s", pa.float64()),
            ("server_compute_s", pa.float64()),
            # server_compute_s by stage, in order: from a stage's end to the next stage; before the first: "round".
            ("server_work", pa.list_(pa.struct([("stage", pa.string()), ("compute_s", pa.float64())]))),
            ("behind_s", pa.float64()),  # delay by the machine, not by links and devices (live)
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
            ("transport_down", pa.int64()),  # added to bytes_down by the transport, server to this client
            ("transport_up", pa.int64()),
            ("pki_bytes_down", pa.int64()),  # PKI to this client
            ("pki_bytes_up", pa.int64()),
            ("compute_s", pa.float64()),  # on this client's device
            ("outcome", _WORD),  # answered, silent, offline, dropped, late, refused
            ("as_participant", pa.bool_()),  # part of the client's participation (and of its client time)
        ]
    ),
    # One row per participant of a round; completed and aborted rounds.
    "participation": pa.schema(
        [
            ("round", pa.int32()),
            ("client", pa.int64()),
            ("survived", pa.bool_()),
            ("dishonest", pa.bool_()),  # colludes with a malicious server
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
    # One row per client and round with its data, of runs with noise in the aggregation; before it, one row for
    # each unrecorded attempt at the round, which may have released the data, too.
    "privacy": pa.schema(
        [
            ("round", pa.int32()),
            ("client", pa.int64()),
            ("epsilon", pa.float64()),  # so far, with the noise that participants actually added
            ("planned_epsilon", pa.float64()),  # so far, if every round had all of the planned noise
            ("colluding_epsilon", pa.float64()),  # so far, against a malicious server with the dishonest participants
            ("delta", pa.float64()),  # of all three
            ("noise", pa.float64()),  # share of the planned variance if all survivors add theirs; null: not in the sum
            ("honest_noise", pa.float64()),  # share that was actually added
            ("colluding_noise", pa.float64()),  # share that the server and its accomplices cannot subtract
        ]
    ),
    # One row per participant of a round of an asynchronous run.
    "staleness": pa.schema(
        [
            ("round", pa.int32()),
            ("client", pa.int64()),
            ("staleness", pa.int64()),  # rounds since it received the model
            ("scale", pa.float64()),  # weight factor of its update for this staleness
            ("sent_s", pa.float64()),  # when the model was sent to it
            ("ready_s", pa.float64()),  # when the server had its update, or knew of it
        ]
    ),
}
OPTIONAL_TABLES = frozenset({"privacy", "staleness"})
"""Tables that only some runs have; in other runs the file is missing and the table is empty."""
