"""One run's measures, as tidy frames per round, and means with 95% intervals.

Definitions, following Lotto (arXiv 2401.02880, section 5.2, Table 2):

- round time: from the start of the round to its updated model, as the server sees it;
- client time: from the first message that concerns a client's participation to its last answer, mean over the
  round's participants (one that never answered has none and is left out);
- server traffic: all encoded bytes between the server and clients in the round, whoever was asked;
- client traffic: a participant's bytes in the round, its traffic with the PKI included, mean over participants.

Not every round yields an update: some are skipped, some aborted. Two means follow, and both are offered. The mean over
*completed rounds* says what a round costs when it works (`analysis.statistics.mean_interval`); the cost *per update*
charges the failed rounds to the updates that came out (`per_update_interval`): all that was spent over the number of
completed rounds. Without failed rounds the two are equal.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from testbed.records import RunRecords
from testbed.records.vocabulary import IN_FLIGHT_STAGES

OUTCOMES = ("completed", "skipped", "aborted")
FAILED = "skipped and aborted rounds"
"""Stands for a stage, where their cost is a part beside those of the stages."""
STAGE_COSTS = ["duration_s", "bytes_down", "bytes_up"]
_BYTES = ["bytes_down", "bytes_up", "pki_bytes_down", "pki_bytes_up"]
_TRANSPORT = ["transport_down", "transport_up"]


def per_round(run: RunRecords) -> pd.DataFrame:
    """One row per recorded round, whatever became of it.

    Columns: round, outcome, reason, ended_s, round_s (s), client_s (s; NaN without participants), server_bytes,
    client_bytes (NaN without participants), transport_bytes (what the transport adds to server_bytes),
    server_compute_s, participants, survivors, accuracy and loss (NaN when not measured).
    """
    rounds = run.rounds
    frame = rounds[["round", "outcome", "reason", "ended_s"]].copy()
    frame["round_s"] = rounds["ended_s"] - rounds["started_s"]
    sums = _sums(run, ["round"])
    frame["client_s"] = frame["round"].map(_client_times(run)).astype(np.float64)
    frame["server_bytes"] = frame["round"].map(sums["bytes_down"] + sums["bytes_up"]).fillna(0).astype(np.int64)
    frame["client_bytes"] = frame["round"].map(_client_traffic(run)).astype(np.float64)
    transport = sums["transport_down"] + sums["transport_up"]
    frame["transport_bytes"] = frame["round"].map(transport).fillna(0).astype(np.int64)
    kept = ["server_compute_s", "participants", "survivors", "accuracy", "loss"]
    frame[kept] = rounds[kept]
    return frame


def _sums(run: RunRecords, by: list[str]) -> pd.DataFrame:
    """Bytes of all exchanges, summed by columns of which ``round`` is the first, in the order of the records."""
    columns = [*_BYTES, *_TRANSPORT]
    parts = [
        rows.groupby(by, sort=False, observed=True)[columns].sum()
        for rows in run.exchanges_in_stretches([*by, *columns])
    ]
    return pd.concat(parts) if len(parts) != 1 else parts[0]


def _client_times(run: RunRecords) -> pd.Series:
    """Client time (s) by round. An answer that was late does not count: the server had closed the connection."""
    rows = run.exchanges_of_participants
    rows = rows[rows["as_participant"]]
    clients = rows.groupby(["round", "client"]).agg(first=("sent_s", "min"), last=("received_s", "max"))
    return (clients["last"] - clients["first"]).groupby("round").mean()


def _client_traffic(run: RunRecords) -> pd.Series:
    """Mean bytes of a participant, PKI included, by round."""
    rows = run.exchanges_of_participants
    totals = rows[_BYTES].sum(axis=1).groupby(rows["round"]).sum()
    return totals / run.participation.groupby("round").size()


def by_stage(run: RunRecords) -> pd.DataFrame:
    """One row per round and stage, in the order in which the stages began.

    Columns: round, outcome, stage, duration_s, bytes_down (server to clients), bytes_up, pki_bytes_down,
    pki_bytes_up. A stage lasts until the next one begins, the last one until the round ends, so the server's work
    after a stage belongs to it; work before the first stage belongs to the first. The durations of a round
    therefore sum to its round time. A stage that was asked twice in a round is one row. In an asynchronous run clients
    train when they do: there ``train`` is the time in which the buffer is filled.
    """
    stages = _sums(run, ["round", "stage", "sent_s"]).reset_index()
    stages["stage"] = stages["stage"].astype(str)
    stages = stages.merge(run.rounds[["round", "outcome", "started_s", "ended_s"]], on="round", how="inner")
    asynchronous = run.experiment.get("asynchronous") is not None
    if asynchronous:
        stages = _of_buffers(stages)
    # Stable: a stage of no duration (nobody was reachable) keeps its place before the next one.
    stages = stages.sort_values(["round", "sent_s"], kind="stable", ignore_index=True)
    same_round = stages["round"].eq(stages["round"].shift())
    begins = stages["sent_s"].where(same_round, stages["started_s"])
    ends = begins.shift(-1).where(stages["round"].eq(stages["round"].shift(-1)), stages["ended_s"])
    stages["duration_s"] = ends - begins
    if asynchronous:
        stages = stages.sort_values(["round", "place"])
    grouped = stages.groupby(["round", "outcome", "stage"], sort=False)
    return grouped[["duration_s", *_BYTES]].sum().reset_index()


def _of_buffers(stages: pd.DataFrame) -> pd.DataFrame:
    """Stages of asynchronous rounds, with all that clients did on their own at the round's beginning, training last."""
    on_their_own = stages["stage"].isin(IN_FLIGHT_STAGES)
    begins = stages["started_s"].where(on_their_own, stages["sent_s"])
    order = (on_their_own & (stages["stage"] == IN_FLIGHT_STAGES[0])).to_numpy().argsort(kind="stable")
    return stages.assign(sent_s=begins, place=np.arange(len(stages))).iloc[order]


def per_update_by_stage(run: RunRecords, by_round: pd.DataFrame) -> pd.DataFrame:
    """What a completed round takes in each stage, index stage: duration_s, bytes_down, bytes_up, means.

    Skipped and aborted rounds are a stage of their own, `FAILED`, per completed round; empty when none was completed.

    Args:
        run: the records.
        by_round: `by_stage` of them.
    """
    updates = int((run.rounds["outcome"] == "completed").sum())
    if not updates:
        return pd.DataFrame(columns=STAGE_COSTS, dtype=np.float64)
    stages = by_round["stage"].where(by_round["outcome"] == "completed", FAILED)
    return by_round.assign(stage=stages).groupby("stage", sort=False)[STAGE_COSTS].sum() / updates


def mean_by_stage(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The mean of `per_update_by_stage` of several runs, those without a completed round aside; empty: all are."""
    there = [frame for frame in frames if not frame.empty]
    if not there:
        return pd.DataFrame(columns=STAGE_COSTS, dtype=np.float64)
    return pd.concat(there).groupby(level=0, sort=False).sum() / len(there)


def stage_order(orders: Sequence[Sequence[str]]) -> list[str]:
    """All stages, merged from each protocol's order so that every one of these holds: a stage before its successor."""
    merged: list[str] = []
    for names in orders:
        place = len(merged)
        for name in reversed([str(name) for name in names]):
            if name in merged:
                place = merged.index(name)
            else:
                merged.insert(place, name)
    return merged


def outcomes_of(rounds: pd.DataFrame) -> pd.DataFrame:
    """What rounds of each outcome took: index completed, skipped, aborted; columns rounds, seconds, bytes (server).

    Args:
        rounds: the frame that `per_round` has made.
    """
    grouped = rounds.groupby("outcome").agg(
        rounds=("round", "size"), seconds=("round_s", "sum"), bytes=("server_bytes", "sum")
    )
    return grouped.reindex(list(OUTCOMES), fill_value=0)
