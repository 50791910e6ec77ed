"""Measures of one run, as tidy frames per round, and means with 95% intervals.

Definitions, following Lotto (arXiv 2401.02880, section 5.2, Table 2):

- round time: from the start of the round to its updated model, as the server sees it;
- client time: from the first message of a client's participation to its last answer, mean over the round's participants
  (a participant that never answered is left out);
- server traffic: all encoded bytes between the server and clients in the round, whether or not they participate;
- client traffic: a participant's bytes in the round, including its traffic with the PKI, mean over participants.

Some rounds are skipped or aborted and yield no update, so there are two means. The mean over *completed rounds* is the
cost of a successful round (`analysis.statistics.mean_interval`). The cost *per update* charges failed rounds to the
updates (`per_update_interval`): the total over all rounds, divided by the number of completed rounds. Without failed
rounds the two are equal.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from testbed.records import RunRecords
from testbed.records.vocabulary import IN_FLIGHT_STAGES

OUTCOMES = ("completed", "skipped", "aborted")
FAILED = "skipped and aborted rounds"
"""Stage name under which the costs of failed rounds stand beside those of the stages."""
STAGE_COSTS = ["duration_s", "bytes_down", "bytes_up"]
_BYTES = ["bytes_down", "bytes_up", "pki_bytes_down", "pki_bytes_up"]
_TRANSPORT = ["transport_down", "transport_up"]


def per_round(run: RunRecords) -> pd.DataFrame:
    """Return one row per recorded round, with any outcome.

    Columns: round, outcome, reason, ended_s, round_s (s), client_s (s; NaN without participants), server_bytes,
    client_bytes (NaN without participants), transport_bytes (added by the transport to server_bytes), server_compute_s,
    participants, survivors, accuracy and loss (NaN if not measured).
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
    copied = ["server_compute_s", "participants", "survivors", "accuracy", "loss"]
    frame[copied] = rounds[copied]
    return frame


def _sums(run: RunRecords, by: list[str]) -> pd.DataFrame:
    """Return bytes of all exchanges, summed by columns of which ``round`` is the first, in the order of the records."""
    columns = [*_BYTES, *_TRANSPORT]
    parts = [
        rows.groupby(by, sort=False, observed=True)[columns].sum()
        for rows in run.exchanges_in_stretches([*by, *columns])
    ]
    return pd.concat(parts) if len(parts) != 1 else parts[0]


def _client_times(run: RunRecords) -> pd.Series:
    """Return client time (s) by round.

    Late answers do not count: the server had closed the connection.
    """
    rows = run.exchanges_of_participants
    rows = rows[rows["as_participant"]]
    clients = rows.groupby(["round", "client"]).agg(first=("sent_s", "min"), last=("received_s", "max"))
    return (clients["last"] - clients["first"]).groupby("round").mean()


def _client_traffic(run: RunRecords) -> pd.Series:
    """Return mean bytes of a participant, including the PKI, by round."""
    rows = run.exchanges_of_participants
    # The divisor is all participants: one that never answered has traffic, too.
    totals = rows[_BYTES].sum(axis=1).groupby(rows["round"]).sum()
    return totals / run.participation.groupby("round").size()


def by_stage(run: RunRecords) -> pd.DataFrame:
    """Return one row per round and stage, in the order in which the stages began.

    Columns: round, outcome, stage, duration_s, bytes_down (server to clients), bytes_up, pki_bytes_down, pki_bytes_up.
    A stage lasts until the next stage begins, the last stage until the round ends. The server's work after a stage
    belongs to that stage, and work before the first stage belongs to the first. The durations of a round therefore add
    up to its round time. A stage that occurs twice in a round is one row. In an asynchronous run clients train at times
    of their own; ``train`` is then the time in which the buffer fills.
    """
    stages = _sums(run, ["round", "stage", "sent_s"]).reset_index()
    stages["stage"] = stages["stage"].astype(str)
    stages = stages.merge(run.rounds[["round", "outcome", "started_s", "ended_s"]], on="round", how="inner")
    asynchronous = run.experiment.get("asynchronous") is not None
    if asynchronous:
        stages = _of_buffers(stages)
    # Stable: a stage without duration (no client was reachable) stays before the next stage.
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
    """Return stages of asynchronous rounds: clients' own activity at the beginning of the round, training last."""
    on_their_own = stages["stage"].isin(IN_FLIGHT_STAGES)
    begins = stages["started_s"].where(on_their_own, stages["sent_s"])
    order = (on_their_own & (stages["stage"] == IN_FLIGHT_STAGES[0])).to_numpy().argsort(kind="stable")
    return stages.assign(sent_s=begins, place=np.arange(len(stages))).iloc[order]


def per_update_by_stage(run: RunRecords, by_round: pd.DataFrame) -> pd.DataFrame:
    """Return the mean cost of a completed round in each stage; index stage, columns duration_s, bytes_down, bytes_up.

    Skipped and aborted rounds form a stage `FAILED`; the frame is empty if no round was completed.

    Args:
        run: the records.
        by_round: `by_stage` of the records.
    """
    updates = int((run.rounds["outcome"] == "completed").sum())
    if not updates:
        return pd.DataFrame(columns=STAGE_COSTS, dtype=np.float64)
    stages = by_round["stage"].where(by_round["outcome"] == "completed", FAILED)
    return by_round.assign(stage=stages).groupby("stage", sort=False)[STAGE_COSTS].sum() / updates


def mean_by_stage(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the mean of `per_update_by_stage` over runs with a completed round; empty if there is no such run."""
    nonempty = [frame for frame in frames if not frame.empty]
    if not nonempty:
        return pd.DataFrame(columns=STAGE_COSTS, dtype=np.float64)
    return pd.concat(nonempty).groupby(level=0, sort=False).sum() / len(nonempty)


def stage_order(orders: Sequence[Sequence[str]]) -> list[str]:
    """Return all stages in one order that agrees with each protocol's order: a stage stands before its successor."""
    merged: list[str] = []
    for names in orders:
        place = len(merged)
        # Backwards, since the place of a new stage is that of its successor.
        for name in reversed([str(name) for name in names]):
            if name in merged:
                place = merged.index(name)
            else:
                merged.insert(place, name)
    return merged


def outcomes_of(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the total cost of rounds by outcome.

    Args:
        rounds: the frame of `per_round`.

    Returns:
        index completed, skipped, aborted; columns rounds, seconds, bytes (server traffic).
    """
    grouped = rounds.groupby("outcome").agg(
        rounds=("round", "size"), seconds=("round_s", "sum"), bytes=("server_bytes", "sum")
    )
    return grouped.reindex(list(OUTCOMES), fill_value=0)
