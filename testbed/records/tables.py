"""What is recorded: the tables of a run and their columns. Times are virtual seconds since the run began."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from testbed.network.recorder import OUTCOMES, Event, Exchanges

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
            ("transport_down", pa.int64()),  # headers and acknowledgements that went with them, server to this client
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
}
OPTIONAL_TABLES = frozenset({"privacy"})
"""Tables that only some runs have; elsewhere there is no file, and they are empty."""


def _words(codes: Any, words: tuple[str, ...]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int16()), pa.array(words, pa.string()))


def exchanges_table(round_number: int, stages: list[Exchanges]) -> pa.Table:
    """The `exchanges` rows of one round."""
    schema = SCHEMAS["exchanges"]
    names = tuple(dict.fromkeys(stage.stage for stage in stages))
    if not stages:
        return schema.empty_table()

    def join(name: str) -> Any:
        return np.concatenate([getattr(stage, name) for stage in stages])

    def spread(values: list[Any], kind: Any) -> Any:
        return np.repeat(np.asarray(values, kind), [len(stage.clients) for stage in stages])

    received = join("received_s")
    columns = {
        "round": spread([round_number] * len(stages), np.int32),
        "stage": _words(spread([names.index(stage.stage) for stage in stages], np.int16), names),
        "client": join("clients"),
        "sent_s": spread([stage.sent_s for stage in stages], np.float64),
        "received_s": pa.array(received, mask=np.isnan(received)),
        "outcome": _words(join("outcome").astype(np.int16), OUTCOMES),
        "as_participant": spread([stage.as_participant for stage in stages], np.bool_),
    }
    columns |= {name: join(name) for name in schema.names if name not in columns}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def events_table(round_number: int, events: list[Event]) -> pa.Table:
    """The `events` rows of one round."""
    rows = [
        {"round": round_number, "stage": e.stage, "party": e.party, "kind": e.kind, "detail": e.detail} for e in events
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["events"])


def participation_table(
    round_number: int, participants: Any, survivors: Any, dishonest: Collection[int] = ()
) -> pa.Table:
    """The `participation` rows of one round: `(p,)` participants, the survivors and the dishonest among them."""
    return pa.table(
        [
            np.full(len(participants), round_number, np.int32),
            np.asarray(participants, np.int64),
            np.isin(participants, survivors),
            np.isin(participants, list(dishonest)),
        ],
        schema=SCHEMAS["participation"],
    )


def privacy_table(round_number: int, columns: Mapping[str, Any]) -> pa.Table:
    """The `privacy` rows of one round: its columns but for the round, `(k,)` each; a missing number is NaN."""
    schema = SCHEMAS["privacy"]
    count = len(columns["client"])
    arrays = [
        np.full(count, round_number, np.int32) if name == "round" else pa.array(columns[name], from_pandas=True)
        for name in schema.names
    ]
    return pa.table(arrays, schema=schema)


def with_later_columns(table: pa.Table) -> pa.Table:
    """`table` with 0 (or false) where a run of an earlier version lacks columns: they say what it did not have."""
    for column, none in (("transport_down", 0), ("transport_up", 0), ("dishonest", False), ("behind_s", 0.0)):
        at = table.schema.get_field_index(column)
        if at >= 0 and table.column(at).null_count:
            table = table.set_column(at, table.schema.field(at), table.column(at).fill_null(none))
    return table
