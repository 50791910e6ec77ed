"""Measures of one run of the comparison, from its records alone: times, bytes, stages and rounds."""

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
"""Phases of an aggregation: the stages before the masked update, its own stage, and the stages after it; selection and
training belong to none."""

_MB = 1e6


def protocol_of(run: RunRecords) -> AggregationProtocol:
    """Return the aggregation of a run, as the engine made it."""
    return aggregation_protocol(Experiment.model_validate(run.experiment).aggregation)


def phases(run: RunRecords, compared: ComparedProtocol) -> dict[str, str]:
    """Return the phase of each stage of a run's aggregation.

    Args:
        run: records of the run.
        compared: the protocol.
    """
    parameters = protocol_of(run).parameters
    order = parameters.stages_of_round()
    at = order.index(compared.upload)
    set_up = dict.fromkeys(order[:at], PHASES[0])
    further = [stage for stage in parameters.further_stages if stage not in order]
    recovery = dict.fromkeys([*order[at + 1 :], *further], PHASES[2])
    return {**set_up, compared.upload: PHASES[1], **recovery}


def row(run: RunRecords, compared: ComparedProtocol) -> dict[str, Any]:
    """Return the measured columns of the table, as means over completed rounds; None without a completed round.

    Client seconds are work on a client's device, as a mean over the participants, by phase. Server seconds are the
    server's own work after the end of a stage of the phase. Elapsed seconds are waiting and work of a phase together.
    MB are 10^6 bytes of a participant in the aggregation alone.

    Args:
        run: records of the run.
        compared: the protocol.
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
    """Return the server's own seconds of one round (`rounds.server_work`), by phase."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for entry in work:
        if entry["stage"] in of_stage:
            seconds[of_stage[entry["stage"]]] += entry["compute_s"]
    return seconds


def _fewest_questions(exchanges: pd.DataFrame, served: pd.DataFrame) -> int | None:
    """Return the fewest questions to a participant of a completed round that answered all of them."""
    questions = exchanges.merge(served[["round", "client"]].drop_duplicates(), on=["round", "client"])
    by_client = questions.groupby(["round", "client"])["outcome"]
    counts = by_client.size()[by_client.agg(lambda outcomes: bool((outcomes == "answered").all()))]
    return int(counts.min()) if len(counts) else None


def promised(run: RunRecords) -> dict[str, Any]:
    """Return the protocol's guarantees for a round with these participants.

    Returns:
        The number of participants that may be lost; the fewest clients in a sum that an honest-but-curious server sees;
        and the number that may collude with a malicious server ("none" if that server sees updates).
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
