"""Measures of one run of the comparison, from its records alone: times, bytes, stages and outcomes of each round."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison.measures import by_stage, per_round
from analysis.reproduction.aggregation_comparison.protocols import ComparedProtocol
from testbed.aggregation.contract import AggregationProtocol
from testbed.engine.registry import aggregation_protocol
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

PHASES = ("set-up", "upload", "recovery")
"""Phases of an aggregation: the stages before the masked update, its own stage, and the stages after it; selection and
training belong to none."""

TRAINING = "train"
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


def rounds_of(run: RunRecords, compared: ComparedProtocol) -> Iterator[dict[str, Any]]:
    """Yield the measured columns of each round.

    Client seconds are work on a client's device, as a mean over the participants, by phase. The busiest client is the
    client with the most work, participant or not. Server seconds are the server's own work after the end of a stage of
    the phase. Elapsed seconds are waiting and work of a phase together. MB are 10^6 bytes of a participant in the
    aggregation alone.

    Args:
        run: records of the run.
        compared: the protocol.
    """
    of_stage = phases(run, compared)
    stages = by_stage(run)
    everybody = run.exchanges
    everybody = everybody.assign(phase=everybody["stage"].astype(str).map(of_stage)).dropna(subset="phase")
    own = run.exchanges_of_participants
    own = own.assign(phase=own["stage"].astype(str).map(of_stage)).dropna(subset="phase")
    works = run.rounds.set_index("round")["server_work"]
    for row in per_round(run).to_dict("records"):
        number = row["round"]
        served = run.participation[run.participation["round"] == number]
        mine, elapsed = own[own["round"] == number], stages[stages["round"] == number]
        phased = elapsed.assign(phase=elapsed["stage"].map(of_stage))
        work, people = _by_phase(works[number], of_stage), max(1, len(served))
        columns: dict[str, Any] = {
            "round": int(number),
            "outcome": str(row["outcome"]),
            "reason": str(row["reason"] or ""),
            "lost": len(served) - int(row["survivors"]) if row["outcome"] == "completed" else None,
            "round s": float(row["round_s"]),
            "training s": float(elapsed.loc[elapsed["stage"] == TRAINING, "duration_s"].sum()),
            "server s": float(row["server_compute_s"]),
            "client s": float(mine["compute_s"].sum()) / people,
            "MB up": float(mine["bytes_up"].sum()) / _MB / people,
            "MB down": float(mine["bytes_down"].sum()) / _MB / people,
            "questions": _fewest_questions(mine),
            "most questions": int(mine.groupby("client").size().max()) if len(mine) else None,
            "stages": int(phased.dropna(subset="phase")["stage"].nunique()),
            **_busiest(everybody[everybody["round"] == number]),
        }
        for phase in PHASES:
            part = mine[mine["phase"] == phase]
            columns[f"client s ({phase})"] = float(part["compute_s"].sum()) / people
            columns[f"server s ({phase})"] = work[phase]
            columns[f"elapsed s ({phase})"] = float(phased.loc[phased["phase"] == phase, "duration_s"].sum())
            columns[f"MB up ({phase})"] = float(part["bytes_up"].sum()) / _MB / people
        yield columns


def _busiest(exchanges: pd.DataFrame) -> dict[str, float]:
    """Return the most work and the most bytes, up and down, of one client in one round's aggregation."""
    if exchanges.empty:
        return {"busiest client s": 0.0, "busiest client MB": 0.0}
    by_client = exchanges.groupby("client")[["compute_s", "bytes_up", "bytes_down"]].sum()
    return {
        "busiest client s": float(by_client["compute_s"].max()),
        "busiest client MB": float((by_client["bytes_up"] + by_client["bytes_down"]).max()) / _MB,
    }


def _by_phase(work: Sequence[Mapping[str, Any]], of_stage: Mapping[str, str]) -> dict[str, float]:
    """Return the server's own seconds of one round (`rounds.server_work`), by phase."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for entry in work:
        if entry["stage"] in of_stage:
            seconds[of_stage[entry["stage"]]] += float(entry["compute_s"])
    return seconds


def _fewest_questions(exchanges: pd.DataFrame) -> int | None:
    """Return the fewest questions to a participant that answered all of them; None if there is no such client."""
    by_client = exchanges.groupby("client")["outcome"]
    counts = by_client.size()[by_client.agg(lambda outcomes: bool((outcomes == "answered").all()))]
    return int(counts.min()) if len(counts) else None


def promised(experiment: Experiment, participants: int) -> dict[str, Any]:
    """Return the protocol's guarantees for a round with these participants.

    Args:
        experiment: one point.
        participants: number of participants.

    Returns:
        The fewest clients in a sum that an honest-but-curious server sees, and the number that may collude with a
        malicious server ("none" if that server sees updates).
    """
    guarantees = aggregation_protocol(experiment.aggregation).guarantees(participants)
    colluders = guarantees.max_colluders
    return {"least sum": guarantees.min_sum_size, "may collude": f"{colluders}" if colluders >= 0 else "none"}
