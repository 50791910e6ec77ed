"""Times of all parts of rounds, in whole nanoseconds, so that nested parts stay nested.

The records have the beginning and end of a round, the beginning of a stage, the time at which an answer was complete at
the server, and the computing time of a client. All other times are derived, and the trace says so:

- A stage ends with its last answer; if a client did not answer, when the next stage began or the round ended. The stage
  then includes the wait for the deadline and the server's work after it.
- An exchange without an answer ends with its stage.
- In an asynchronous run clients train at times of their own, perhaps since an earlier round. ``train`` is one stage
  from the round's beginning until its buffer is full. Clients lost in training are shown until then, or until asked
  again.
- The time of an exchange apart from computing is divided among question, look-up at the key directory and answer in
  proportion to the time that each would take alone on the client's own link (its mean rate and latency). This is an
  estimate if the server's link was shared or connections were opened.
- In an exchange without an answer, question, computing and the sent part of the answer take these times, one after the
  other, until the exchange ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from testbed.arrays import Floats, Ids
from testbed.records import RunRecords
from testbed.records.vocabulary import BYTES_PER_MBIT, IN_FLIGHT_STAGES

_LONGEST_S = 1e9  # longer times exceed the range of nanoseconds
PARTS = ("question", "compute", "key directory", "answer")
"""Parts of an exchange, in this order."""


@dataclass(frozen=True)
class Placed:
    """Rounds, stages and exchanges with `begin` and `end`, int64 nanoseconds since the run began.

    Attributes:
        rounds: the rows of `rounds`.
        stages: a row per stage: round, stage, asked, answered, bytes_down, bytes_up, by_deadline (a client did not
            answer, so the end is not recorded).
        exchanges: the rows of `exchanges`, with `of_stage` (index in `stages`), `complete` (the answer arrived).
        parts: for each of `PARTS`, `(m, 2)` begin and end within the m exchanges.
    """

    rounds: pd.DataFrame
    stages: pd.DataFrame
    exchanges: pd.DataFrame
    parts: dict[str, Ids]


def placed(run: RunRecords, numbers: Iterable[int]) -> Placed:
    """Return rounds of a run with their times.

    Args:
        run: the records.
        numbers: of the rounds.

    Raises:
        RunError: the records are damaged.
    """
    numbers = list(numbers)
    rounds = run.rounds[run.rounds["round"].isin(numbers)].reset_index(drop=True)
    rounds["begin"], rounds["end"] = _ns(rounds["started_s"]), _ns(rounds["ended_s"])
    chunks = [rows[rows["round"].isin(numbers)] for rows in run.exchanges_in_stretches()]
    exchanges = pd.concat([rows for rows in chunks if len(rows)] or chunks[:1], ignore_index=True)
    exchanges["begin"] = _ns(exchanges["sent_s"])
    exchanges["complete"] = exchanges["received_s"].notna()
    on_their_own = exchanges["stage"].isin(IN_FLIGHT_STAGES) & (run.experiment.get("asynchronous") is not None)
    stages = _stages(rounds, exchanges, on_their_own)
    end = np.where(exchanges["complete"], _ns(exchanges["received_s"].fillna(0.0)), 0)
    stage_end = stages["end"].to_numpy()[exchanges["of_stage"]]
    # Clipped, so that an exchange stays within its stage: viewers nest slices by their times.
    exchanges["end"] = np.maximum(
        exchanges["begin"], np.where(exchanges["complete"], np.minimum(end, stage_end), stage_end)
    )
    lost = on_their_own & ~exchanges["complete"]
    again = exchanges.sort_values(["client", "begin"], kind="stable").groupby("client")["begin"].shift(-1)
    again = again.fillna(np.inf).reindex(exchanges.index)
    exchanges.loc[lost & (again < exchanges["end"]), "end"] = again.astype(float)
    return Placed(rounds, stages, exchanges, _parts(exchanges, run.clients))


def _ns(seconds: "pd.Series[float]") -> Ids:
    nanoseconds: Ids = np.rint(seconds.to_numpy(np.float64) * 1e9).astype(np.int64)
    return nanoseconds


def _stages(rounds: pd.DataFrame, exchanges: pd.DataFrame, on_their_own: "pd.Series[bool]") -> pd.DataFrame:
    """Return the stages in the order in which they began, and set `of_stage` of the exchanges.

    Activity of clients at times of their own is one stage of its round, and comes first.
    """
    key = exchanges[["round", "sent_s"]].assign(stage=exchanges["stage"].astype(str))
    key["sent_s"] = key["sent_s"].mask(on_their_own, -1.0)
    key["stage"] = key["stage"].mask(on_their_own, IN_FLIGHT_STAGES[0])
    new = (key != key.shift()).any(axis=1).to_numpy()
    exchanges["of_stage"] = np.cumsum(new) - 1
    stages = exchanges.loc[new, ["round", "begin"]].assign(stage=key.loc[new, "stage"])
    began = stages["round"].map(rounds.set_index("round")["begin"])
    stages["begin"] = stages["begin"].where(~on_their_own[new], began)
    stages = stages.reset_index(drop=True)
    together = exchanges.assign(answered=exchanges["outcome"] == "answered").groupby("of_stage")
    stages["asked"] = together.size()
    stages[["answered", "bytes_down", "bytes_up"]] = together[["answered", "bytes_down", "bytes_up"]].sum()
    stages["by_deadline"] = ~together["complete"].all()
    ended = rounds.set_index("round")["end"].reindex(stages["round"]).to_numpy()
    same_round = (stages["round"] == stages["round"].shift(-1)).to_numpy()
    following = np.where(same_round, stages["begin"].shift(-1, fill_value=0), ended)
    last_answer = together["received_s"].max().fillna(0.0)
    end = np.where(stages["by_deadline"], following, np.minimum(_ns(last_answer), following))
    stages["end"] = np.maximum(stages["begin"], end)
    return stages


def _parts(exchanges: pd.DataFrame, clients: pd.DataFrame) -> dict[str, Ids]:
    begin, end = exchanges["begin"].to_numpy(), exchanges["end"].to_numpy()
    complete = exchanges["complete"].to_numpy()
    compute = np.minimum(_ns(exchanges["compute_s"]), end - begin)
    alone_s = _alone(exchanges, clients)
    total_s = alone_s.sum(axis=0)
    share = np.divide(alone_s, total_s, out=np.zeros_like(alone_s), where=total_s > 0)
    filling = np.floor(share * (end - begin - compute)).astype(np.int64)
    alone = np.rint(np.minimum(alone_s, _LONGEST_S) * 1e9).astype(np.int64)
    question, directory, answer = np.where(complete | clients.empty, filling, alone)
    bounds = begin + np.cumsum([np.zeros_like(begin), question, compute, directory, answer], axis=0)
    bounds = np.minimum(bounds, end)
    bounds[-1] = np.where(complete, end, bounds[-1])  # shares are rounded down: the answer gets the rest
    return {name: bounds[at : at + 2].T for at, name in enumerate(PARTS)}


def _alone(exchanges: pd.DataFrame, clients: pd.DataFrame) -> Floats:
    """Return seconds that question, look-up and answer would take alone on the client's own link, `(3, m)`.

    Without a `clients` table all links count as equal and without latency; only the proportions matter then.
    """

    def bytes_of(way: str) -> Floats:
        return (exchanges[f"bytes_{way}"] + exchanges[f"transport_{way}"]).to_numpy(np.float64)

    down, up = bytes_of("down"), bytes_of("up")
    pki_down, pki_up = (exchanges[f"pki_bytes_{way}"].to_numpy(np.float64) for way in ("down", "up"))
    if clients.empty:
        return np.stack([down, pki_down + pki_up, up])
    own = clients.set_index("client").reindex(exchanges["client"])
    latency_s = own["latency_ms"].to_numpy(np.float64) / 1000

    def seconds(size: Floats, way: str) -> Floats:
        rate = own[f"{way}_mbit_s"].to_numpy(np.float64) * BYTES_PER_MBIT
        return np.divide(size, rate, out=np.zeros(len(size)), where=rate > 0)

    looked_up = 2 * latency_s + seconds(pki_up, "up") + seconds(pki_down, "down")
    return np.stack(
        [
            np.where(down > 0, latency_s + seconds(down, "down"), 0.0),
            np.where(pki_down + pki_up > 0, looked_up, 0.0),
            np.where(up > 0, latency_s + seconds(up, "up"), 0.0),
        ]
    )
