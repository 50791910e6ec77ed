"""The reference of the records' tables: dtypes from their declarations, meanings from here.

A test holds MEANINGS to what is declared: no column without a meaning, no meaning of a column that is not there.
"""

import pyarrow as pa

from docs._ext.markdown import escaped, table
from testbed.records.tables import OPTIONAL_TABLES, SCHEMAS

ROWS = {
    "rounds": "One row per round.",
    "exchanges": "One row per client that was asked in a stage of a round.",
    "participation": "One row per participant of a round, completed or aborted.",
    "events": "One row per refusal, misbehaviour, crash, replaced host or coordinator, client left out, resume.",
    "privacy": "One row per client and round that its data were in; a round that was run again may have several.",
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
        "accuracy": ("share, 0 to 1", "Of the global model after the round, on held-out samples; null: not evaluated."),
        "loss": ("", "Mean loss of the global model on held-out samples; null: not evaluated."),
    },
    "exchanges": {
        "round": ("", "Number of the round."),
        "stage": ("", "Which question, e.g. `train` or `secagg/mask-input`."),
        "client": ("", "Number of the client, from 0."),
        "sent_s": (_SECONDS, "When the stage began."),
        "received_s": (_SECONDS, "When the answer was complete at the server; null: it never was."),
        "bytes_down": (_BYTES, "The question, from the server to this client, as encoded."),
        "bytes_up": (_BYTES, "The answer, from this client to the server."),
        "transport_down": (
            _BYTES,
            "Headers and acknowledgements around both messages, server to this client.",
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
}
"""By table and column: the unit (empty: none) and the meaning."""


def dtype(kind: pa.DataType) -> str:
    """The type of a column, as pandas and Parquet readers see it."""
    return "text (categorical)" if pa.types.is_dictionary(kind) else str(kind).replace("string", "text")


def tables() -> str:
    """All tables as MyST Markdown, below headings of the second level."""
    parts = []
    for name, schema in SCHEMAS.items():
        optional = " Only some runs have it." if name in OPTIONAL_TABLES else ""
        parts.append(f"({name}-table)=\n### `{name}.parquet`\n\n{ROWS[name]}{optional}\n\n")
        rows = []
        for column in schema:
            unit, meaning = MEANINGS[name][column.name]
            rows.append([f"`{column.name}`", escaped(meaning), unit or "–", dtype(column.type)])
        parts.append(table(["column", "meaning", "unit", "type"], rows) + "\n")
    return "".join(parts)
