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


def check_more_rounds(stored: Experiment, given: Experiment, path: Path) -> None:
    """Raise `ExperimentError` (one line) where a run cannot go on to the number of rounds that is given.

    Args:
        stored: the run's experiment, as recorded.
        given: the experiment to resume with; its number of rounds differs.
        path: the run's directory.
    """
    if given.rounds < stored.rounds:
        raise ExperimentError(
            f"{path}: this run has rounds: {stored.rounds}, the experiment has {given.rounds}; a run can be given more "
            f"rounds, not fewer: --set rounds={stored.rounds} resumes it as it is"
        )
    begins = f"{path}: rounds: {stored.rounds} to {given.rounds} is not possible:"
    before, after = (getattr(one.aggregation, "noise", None) for one in (stored, given))
    if before is not None and after is not None and before.rounds != after.rounds:
        key = f"aggregation.noise.rounds: {before.rounds}"
        if isinstance(before, Noise):
            raise ExperimentError(
                f"{begins} the noise keeps epsilon {before.epsilon:g} over {before.rounds} rounds ({key}); add --set "
                f"aggregation.noise.rounds={before.rounds} to go on with the same noise, which {given.rounds} rounds "
                f"make worth less, or {_START_AGAIN}"
            )
        raise ExperimentError(
            f"{begins} its noise is correlated over {before.rounds} rounds ({key}) and ends with them; {_START_AGAIN}, "
            "and with aggregation.noise.rounds as large as you may need"
        )
    if given.adversary is not None and (named := given.adversary.depending_on_rounds()):
        raise ExperimentError(
            f"{begins} adversary.{named} acts by the number of rounds, so that a longer run differs from its first "
            f"round on; {_START_AGAIN}"
        )


def recorded_rounds(stored: Experiment, given: Experiment) -> int:
    """The rounds with which a run is resumed: those given, or those recorded if it has been given more since.

    So an interrupted run of 3 rounds that was given 6 goes on to 6, though the file of its experiment still says 3.

    Args:
        stored: the run's experiment, as recorded.
        given: the experiment to resume with.
    """
    history = (stored.provenance or {}).get(MORE_ROUNDS) or []
    former = {entry["rounds"] for entry in history if isinstance(entry, dict)}
    return stored.rounds if given.rounds in former and given.rounds < stored.rounds else given.rounds


def check_not_ended(experiment: Experiment, records: RunDirectory, path: Path) -> None:
    """Raise `ExperimentError` where the last round met the target that ends the run (`stop_at`).

    Args:
        experiment: of the run.
        records: of the run, all of whose rounds are done.
        path: its directory.
    """
    rounds = records.table("rounds")
    if experiment.stop_at is None or not len(rounds):
        return
    target, last = experiment.stop_at.target, rounds.slice(len(rounds) - 1).to_pylist()[0]
    changed = pc.any(pc.equal(rounds["outcome"], "completed")).as_py()
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
    """Raise `ExperimentError` where the recorded rounds have spent the privacy budget."""
    ledger = open_ledger(plan, workload)
    if ledger is None:
        return
    ledger.keep_in(RunDirectory.reopen(path))
    if ledger.spent:
        raise ExperimentError(f"{path}: privacy.budget: {ledger.spent}; more rounds need a larger one: {_START_AGAIN}")


def with_more_rounds(
    stored: Mapping[str, Any], experiment: Experiment, records: RunDirectory, at: str
) -> dict[str, Any]:
    """The plain experiment of a run that is given the rounds of ``experiment``, with an entry in its provenance."""
    origin, every = stored.get("provenance") or {}, experiment.workload.evaluate_every
    entry = more_rounds_entry(records.table("rounds"), int(stored["rounds"]), experiment.rounds, every, at)
    history = [*(origin.get(MORE_ROUNDS) or []), entry]
    return {**stored, "rounds": experiment.rounds, "provenance": {**origin, MORE_ROUNDS: history}}
