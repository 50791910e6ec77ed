"""More rounds for a run that is there: ``testbed run EXPERIMENT.yaml --out DIR --resume --set rounds=N``.

The run then equals one that had N rounds from the beginning: the same model, the same tables. Afterwards a plain
``--resume`` goes on to the N rounds that the run has recorded. Where the rounds
themselves depend on how many there are, that cannot be, and the run is refused more rounds in one line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from testbed.engine.plan import RunPlan
from testbed.engine.privacy_recorder import open_ledger
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.privacy.noise import Noise
from testbed.records import RunDirectory
from testbed.records.last_evaluations import MORE_ROUNDS, more_rounds_entry
from testbed.records.targets import measured
from testbed.workload.contract import Workload

_START_AGAIN = "start again with another --out"


def check_more_rounds(stored: Experiment, requested: Experiment, path: Path) -> None:
    """Raise `ExperimentError` (one line) if a run cannot continue to the requested number of rounds.

    Args:
        stored: the run's experiment, as recorded.
        requested: the experiment to resume with; its number of rounds differs.
        path: the run's directory.
    """
    if requested.rounds < stored.rounds:
        raise ExperimentError(
            f"{path}: this run has rounds: {stored.rounds}, the experiment has {requested.rounds}; a run can be given "
            f"more rounds, not fewer: --set rounds={stored.rounds} resumes it as it is"
        )
    begins = f"{path}: rounds: {stored.rounds} to {requested.rounds} is not possible:"
    before, after = (getattr(experiment.aggregation, "noise", None) for experiment in (stored, requested))
    # Noise is planned for a number of rounds: another number changes the noise of the first round already.
    if before is not None and after is not None and before.rounds != after.rounds:
        key = f"aggregation.noise.rounds: {before.rounds}"
        if isinstance(before, Noise):
            raise ExperimentError(
                f"{begins} the noise keeps epsilon {before.epsilon:g} over {before.rounds} rounds ({key}); add --set "
                f"aggregation.noise.rounds={before.rounds} to go on with the same noise, which {requested.rounds} "
                f"rounds make worth less, or {_START_AGAIN}"
            )
        raise ExperimentError(
            f"{begins} its noise is correlated over {before.rounds} rounds ({key}) and ends with them; {_START_AGAIN}, "
            "and with aggregation.noise.rounds as large as you may need"
        )
    if requested.adversary is not None and (named := requested.adversary.depending_on_rounds()):
        raise ExperimentError(
            f"{begins} adversary.{named} acts by the number of rounds, so that a longer run differs from its first "
            f"round on; {_START_AGAIN}"
        )


def recorded_rounds(stored: Experiment, requested: Experiment) -> int:
    """Return the number of rounds to resume a run with: the requested one, or a larger one recorded since.

    An interrupted run of 3 rounds that was extended to 6 thus continues to 6, even if its experiment file still says 3.

    Args:
        stored: the run's experiment, as recorded.
        requested: the experiment to resume with.
    """
    history = (stored.provenance or {}).get(MORE_ROUNDS) or []
    former = {entry["rounds"] for entry in history if isinstance(entry, dict)}
    return stored.rounds if requested.rounds in former and requested.rounds < stored.rounds else requested.rounds


def check_not_ended(experiment: Experiment, records: RunDirectory, path: Path) -> None:
    """Raise `ExperimentError` if the last round met the target that ends the run (`stop_at`).

    Args:
        experiment: the run's experiment.
        records: the run's records; all its rounds are done.
        path: the run's directory.
    """
    rounds = records.table("rounds")
    if experiment.stop_at is None or not len(rounds):
        return
    target, last = experiment.stop_at.target, rounds.slice(len(rounds) - 1).to_pylist()[0]
    changed = pc.any(pc.equal(rounds["outcome"], "completed")).as_py()
    # A longer run would not have evaluated this round, and so would not have stopped.
    if last["round"] % experiment.workload.evaluate_every or last["accuracy"] is None or not changed:
        return
    loss = float("nan") if last["loss"] is None else last["loss"]
    further = dict(zip(experiment.workload.metrics, last["metrics"] or (), strict=False))
    if target.met(measured(target.metric, last["accuracy"], loss, further)):
        raise ExperimentError(
            f"{path}: stop_at: {target.label} was reached in round {last['round']}, the last one, so that a longer run "
            f"would have ended there, too; {_START_AGAIN} and without stop_at"
        )


def check_budget_left(plan: RunPlan, workload: Workload, path: Path) -> None:
    """Raise `ExperimentError` if the recorded rounds have spent the privacy budget.

    Args:
        plan: the run's plan.
        workload: its workload.
        path: the run's directory.
    """
    ledger = open_ledger(plan, workload)
    if ledger is None:
        return
    ledger.keep_in(RunDirectory.reopen(path))
    if ledger.spent:
        raise ExperimentError(f"{path}: privacy.budget: {ledger.spent}; more rounds need a larger one: {_START_AGAIN}")


def with_more_rounds(
    stored: Mapping[str, Any], experiment: Experiment, records: RunDirectory, at: str
) -> dict[str, Any]:
    """Return the plain experiment of a run that is extended, with an entry in its provenance.

    Args:
        stored: the run's plain experiment, as recorded.
        experiment: the experiment with more rounds.
        records: the run's records.
        at: time of the extension, UTC.
    """
    origin, every = stored.get("provenance") or {}, experiment.workload.evaluate_every
    entry = more_rounds_entry(records.table("rounds"), int(stored["rounds"]), experiment.rounds, every, at)
    history = [*(origin.get(MORE_ROUNDS) or []), entry]
    return {**stored, "rounds": experiment.rounds, "provenance": {**origin, MORE_ROUNDS: history}}
