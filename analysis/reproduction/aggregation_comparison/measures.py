"""What one run of the comparison says: times, bytes, stages and rounds, from its records alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison.measures import by_stage, per_round
from analysis.reproduction.aggregation_comparison.protocols import ComparedProtocol
from analysis.statistics import mean_interval
from testbed.aggregation.contract import AggregationProtocol
from testbed.engine.registry import aggregation_protocol
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

PHASES = ("set-up", "upload", "recovery")
"""The stages before the masked update is sent, that one, and those behind it; selection and training are neither."""

_MB = 1e6


def protocol_of(run: RunRecords) -> AggregationProtocol:
    """The aggregation of a run, as the engine made it."""
    return aggregation_protocol(Experiment.model_validate(run.experiment).aggregation)


def phases(run: RunRecords, compared: ComparedProtocol) -> dict[str, str]:
    """The phase of each stage of the run's aggregation."""
    parameters = protocol_of(run).parameters
    order = parameters.stages_of_round()
    at = order.index(compared.upload)
    set_up = dict.fromkeys(order[:at], PHASES[0])
    further = [stage for stage in parameters.further_stages if stage not in order]
    recovery = dict.fromkeys([*order[at + 1 :], *further], PHASES[2])
    return {**set_up, compared.upload: PHASES[1], **recovery}


def row(run: RunRecords, compared: ComparedProtocol) -> dict[str, Any]:
    """Columns of the table, means over completed rounds; None where none was.

    Client seconds are work on a client's device, mean over participants, by phase; server seconds are its own work once
    a stage of the phase has ended; elapsed ones are what it waits and works in a phase. MB are 10^6 bytes of a
    participant in the aggregation alone.
    """
    rounds, of_stage = per_round(run), phases(run, compared)
    done = rounds[rounds["outcome"] == "completed"]
    counts = {outcome: int((rounds["outcome"] == outcome).sum()) for outcome in ("completed", "aborted", "skipped")}
    exchanges = run.exchanges_of_participants
    exchanges = exchanges[exchanges["round"].isin(done["round"])]
    exchanges = exchanges.assign(phase=exchanges["stage"].astype(str).map(of_stage)).dropna(subset="phase")
    stages = by_stage(run)
    stages = stages[stages["outcome"] == "completed"]
    stages = stages.assign(phase=stages["stage"].map(of_stage)).dropna(subset="phase")
    served = run.participation[run.participation["round"].isin(done["round"])]
    people, updates = len(served), len(done)
    columns: dict[str, Any] = {
        "completed": counts["completed"],
        "aborted": counts["aborted"],
        "skipped": counts["skipped"],
        "stages": int(stages.groupby("round")["stage"].nunique().max()) if updates else None,
        "questions": _fewest_questions(exchanges, served),
    }
    for phase in PHASES:
        columns[f"client s ({phase})"] = _share(exchanges[exchanges["phase"] == phase]["compute_s"], people)
    columns["client s"] = _share(exchanges["compute_s"], people)
    columns["server s"] = _mean(done["server_compute_s"])
    worked = [_by_phase(work, of_stage) for work in run.rounds.loc[run.rounds["outcome"] == "completed", "server_work"]]
    for phase in PHASES:
        columns[f"server s ({phase})"] = _mean(pd.Series([of_phase[phase] for of_phase in worked], dtype=float))
    for phase in PHASES:
        columns[f"elapsed s ({phase})"] = _share(stages[stages["phase"] == phase]["duration_s"], updates)
    columns["round s"] = _mean(done["round_s"])
    columns["MB down"] = _share(exchanges["bytes_down"] / _MB, people)
    columns["MB up"] = _share(exchanges["bytes_up"] / _MB, people)
    for phase in PHASES[:2]:
        columns[f"MB up ({phase})"] = _share(exchanges[exchanges["phase"] == phase]["bytes_up"] / _MB, people)
    return columns


def _by_phase(work: Sequence[Mapping[str, Any]], of_stage: Mapping[str, str]) -> dict[str, float]:
    """The server's own seconds of one round (`rounds.server_work`), by phase."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for entry in work:
        if entry["stage"] in of_stage:
            seconds[of_stage[entry["stage"]]] += entry["compute_s"]
    return seconds


def _fewest_questions(exchanges: pd.DataFrame, served: pd.DataFrame) -> int | None:
    """In a completed round, to a participant that answered all that it was asked."""
    questions = exchanges.merge(served[["round", "client"]].drop_duplicates(), on=["round", "client"])
    by_client = questions.groupby(["round", "client"])["outcome"]
    counts = by_client.size()[by_client.agg(lambda outcomes: bool((outcomes == "answered").all()))]
    return int(counts.min()) if len(counts) else None


def promised(run: RunRecords) -> dict[str, Any]:
    """What the protocol promises of a round with these participants.

    How many may be lost, the fewest in a sum that a server sees that follows the protocol, and how many may collude
    with one that does not; None: that one sees updates.
    """
    participants = int(run.experiment["selection"]["participants"])
    guarantees = protocol_of(run).guarantees(participants)
    colluders = guarantees.max_colluders
    return {
        "may be lost": participants - guarantees.min_sum_size,
        "least sum": guarantees.min_sum_size,
        "may collude": f"{colluders}" if colluders >= 0 else "none",
    }


def _share(values: "pd.Series[float]", of: int) -> float | None:
    return float(values.sum()) / of if of else None


def _mean(values: "pd.Series[float]") -> float | None:
    return mean_interval(values).mean
