"""A run directory while it is written: held by its lock, with a log that says how the run began and ended."""

import contextlib
from collections.abc import Mapping
from typing import Any

from testbed.errors import CodeCrashed, RunError, TestbedError, reason
from testbed.experiment.input_files import digests
from testbed.records import RunDirectory, RunRecords
from testbed.records.changed_code import with_changed_code
from testbed.records.lock import held
from testbed.records.log import RunLog
from testbed.running.preparation import PlannedRun
from testbed.running.provenance import now, provenance
from testbed.running.results import summary


class OpenRun:
    """One run, held by this process until `stop`, `fail` or `finish`; each may come after another, and does nothing.

    Args:
        run: its directory is made if there is none.
        place: which point of the sweep this is, from 1.
        places: how many points the sweep has.

    Attributes:
        run: the run.
        records: its directory.
        outcomes: of the rounds that were recorded when it was opened.

    Raises:
        RunError: the directory is in use by another process, or cannot be written.
    """

    def __init__(self, run: PlannedRun, place: int, places: int) -> None:
        self.run = run
        self._lock = contextlib.ExitStack()
        self._over = False
        if not run.exists:
            try:
                run.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RunError(f"{run.path}: cannot make the directory: {error.strerror}") from None
        self._lock.enter_context(held(run.path))
        try:
            if not run.exists:  # under the lock: somebody else may have begun one here since we looked
                RunDirectory.create(run.path, _resolved(run))
            self.records = RunDirectory.reopen(run.path)
            if run.changed:
                stored = RunRecords(run.path).experiment
                origin = with_changed_code(stored["provenance"], run.rounds_done, run.changed, run.modules, now())
                self.records.replace_experiment(stored | {"provenance": origin})
            self.outcomes: list[str] = self.records.table("rounds")["outcome"].to_pylist()
        except BaseException:
            self._lock.close()
            raise
        self._log = RunLog(run.path)
        experiment = run.point.experiment
        said = {"label": run.label, "point": place, "points": places, "rounds": experiment.rounds}
        if run.exists:
            changed = {"changed_code": list(run.changed)} if run.changed else {}
            self._log.write("run-resumed", **said, after_round=len(self.outcomes), **changed)
        else:
            self._log.write("run-started", **said, population=experiment.population, network=experiment.cluster.network)

    def finish(self) -> Mapping[str, Any]:
        """Summarise the run; returns the summary."""
        try:
            told = summary(RunRecords(self.run.path))
            self.records.write_summary(told)
        except BaseException as error:
            self.end(error)
            name_point(error, self.run)
            raise
        ended_early = {"reason": told["stopped"]} if told.get("stopped") else {}
        self._end("run-ended", rounds=self.run.point.experiment.rounds, wall_s=told["wall_s"], **ended_early)
        return told

    def end(self, error: BaseException | None = None, *, stopped: bool = False) -> None:
        """Give the directory up before the run has ended.

        Args:
            error: what ended it; a `KeyboardInterrupt` is no failure.
            stopped: another run has failed, or somebody wants it all to stop: `error` is only what that led to.
        """
        if error is None or stopped or isinstance(error, KeyboardInterrupt):
            self._end("run-stopped")
        else:
            said = reason(error, 500) if isinstance(error, Exception) else type(error).__name__
            trace = {"traceback": error.trace} if isinstance(error, CodeCrashed) and error.trace else {}
            self._end("run-failed", error=said, **trace)

    def _end(self, event: str, **fields: Any) -> None:
        if not self._over:
            self._over = True
            self._log.write(event, **fields)
            self.records.push_log()
            self._lock.close()


def name_point(error: BaseException, run: PlannedRun) -> None:
    """Let the error say which point of a sweep it is of: its lines begin with it."""
    point = run.point.label
    if point and isinstance(error, TestbedError):
        error.args = ("\n".join(f"sweep point {point}: {line}" for line in str(error).splitlines()), *error.args[1:])
    elif point and isinstance(error, Exception):
        error.add_note(f"at sweep point {point}")


def _resolved(run: PlannedRun) -> dict[str, Any]:
    """What a run directory's ``experiment.yaml`` holds."""
    experiment, origin = run.point.experiment, provenance()
    if experiment.seed is None:
        origin["simulation_seed"] = run.simulation_seed
    if files := digests(experiment):
        origin["files"] = files
    if run.modules:
        origin["modules"] = dict(run.modules)
    return experiment.plain() | {"provenance": {"label": run.label, "sweep": run.point.values, **origin}}
