"""A run directory while it is written: held by its lock, with a log that says how the run began and ended.

Its ``experiment.yaml`` says where the run's numbers come from: software versions, commit, machine; no names of hosts
or users, no paths; `provenance.id`, random, tells it from all others. `provenance.modules` there are the digests of
the user's own modules when the run began, `provenance.plugins` says which packages offer classes by name, and their
versions; `provenance.changed_code` has an entry for each time that somebody insisted
on resuming with others, `provenance.more_rounds` one for each time that the run was given more rounds.
"""

import contextlib
import os
import platform
import secrets
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from testbed.aggregation.contract import uses_symbolic_masks
from testbed.errors import CodeCrashed, RunError, TestbedError, reason
from testbed.experiment.inputs import SECRETS, SECRETS_FORM, digests, plugin_classes, secrets_rounds
from testbed.experiment.written import written_keys
from testbed.plugins import installed
from testbed.records import RunDirectory, RunRecords
from testbed.records.former_codes import RECORDS_VERSION
from testbed.records.locks import run_lock
from testbed.records.log import RunLog
from testbed.running.more_rounds import with_more_rounds
from testbed.running.preparation import PlannedRun
from testbed.version import VERSION

_PACKAGES = ("ray", "torch", "numpy")


def provenance() -> dict[str, Any]:
    """Return plain data for a run's ``experiment.yaml``.

    Keys: ``versions``, ``records`` (version of names), ``git_commit``, ``machine`` and ``started``.

    ``git_commit`` is None when the testbed does not run from a checkout; ``-dirty`` at its end says that tracked
    files were changed. ``machine.memory_bytes`` is physical memory. ``started`` is the time now, in UTC.
    """
    return {
        "versions": _versions(),
        "records": RECORDS_VERSION,
        "git_commit": _git_commit(Path(__file__).resolve().parents[2]),
        "machine": {"cpus": os.cpu_count(), "processor": _processor(), "memory_bytes": _memory_bytes()},
        "started": now(),
    }


def now() -> str:
    """Return the current time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"testbed": VERSION, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def _git_commit(checkout: Path) -> str | None:
    # Only the testbed's own checkout: an installed testbed may well lie inside a repository of the user's.
    if not (checkout / ".git").exists():
        return None
    describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        output = subprocess.run(describe, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return output.stdout.strip() or None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def with_changed_code(
    recorded: Mapping[str, Any], after_round: int, changed: tuple[str, ...], now: Mapping[str, str], at: str
) -> dict[str, Any]:
    """Return the provenance of a run that continues with other own modules than recorded.

    Args:
        recorded: the recorded provenance.
        after_round: the last round with the old modules.
        changed: names of the changed modules.
        now: digests of the modules as they are.
        at: time of the change, UTC.
    """
    entry = {"after_round": after_round, "at": at, "changed": list(changed), "modules": dict(now)}
    return {**recorded, "changed_code": [*(recorded.get("changed_code") or []), entry]}


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
        files: by path, the digests of the experiment's files when the run began.
        former_rounds: see `with_digests`.

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
        # Before the first look at the records: another process may still write them.
        self._lock.enter_context(run_lock(run.path))
        try:
            if not run.exists:  # under the lock: somebody else may have begun one here since we looked
                RunDirectory.create(run.path, _resolved(run, place))
            self.records = RunDirectory.reopen(run.path)
            stored = RunRecords(run.path).experiment
            recorded = stored.get("provenance") or {}
            self.files: Mapping[str, str] = recorded.get("files") or {}
            self.former_rounds = secrets_rounds(recorded, int(stored.get("rounds", run.point.experiment.rounds)))
            if run.changed:
                origin = with_changed_code(stored["provenance"], run.rounds_done, run.changed, run.modules, now())
                stored = stored | {"provenance": origin}
            if run.has_more_rounds:
                stored = with_more_rounds(stored, run.point.experiment, self.records, now())
            if run.changed or run.has_more_rounds:
                self.records.replace_experiment(stored)
            self.outcomes: list[str] = self.records.table("rounds")["outcome"].to_pylist()
        # KeyboardInterrupt, too: nobody else would release the lock.
        except BaseException:
            self._lock.close()
            raise
        self._log = RunLog(run.path)
        experiment = run.point.experiment
        fields = {"label": run.label, "point": place, "points": places, "rounds": experiment.rounds}
        if run.exists:
            changed = {"changed_code": list(run.changed)} if run.changed else {}
            self._log.write("run-resumed", **fields, after_round=len(self.outcomes), **changed)
        else:
            self._log.write(
                "run-started", **fields, population=experiment.population, network=experiment.cluster.network
            )

    def finish(self, summarise: Callable[[RunRecords], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Summarise the run; returns the summary."""
        try:
            summary = summarise(RunRecords(self.run.path))
            self.records.write_summary(summary)
        except BaseException as error:
            self.end(error)
            name_point(error, self.run)
            raise
        ended_early = {"reason": summary["stopped"]} if summary.get("stopped") else {}
        self._end("run-ended", rounds=self.run.point.experiment.rounds, wall_s=summary["wall_s"], **ended_early)
        return summary

    def end(self, error: BaseException | None = None, *, stopped: bool = False) -> None:
        """Release the directory before the run has ended.

        Args:
            error: the cause; a `KeyboardInterrupt` is no failure, and neither is a closed pipe.
            stopped: another run has failed, or the user stops all runs: `error` is only a consequence.
        """
        if error is None or stopped or isinstance(error, KeyboardInterrupt):
            self._end("run-stopped")
        elif isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            self._end("run-stopped", error="nobody reads its output")  # rich ends the process in `run | head`
        else:
            message = reason(error, 500) if isinstance(error, Exception) else type(error).__name__
            trace = {"traceback": error.trace} if isinstance(error, CodeCrashed) and error.trace else {}
            self._end("run-failed", error=message, **trace)

    def _end(self, event: str, **fields: Any) -> None:
        if not self._over:
            self._over = True
            self._log.write(event, **fields)
            self.records.push_log()
            self._lock.close()


def name_point(error: BaseException, run: PlannedRun) -> None:
    """Prefix the error's lines with the point of the sweep.

    Args:
        error: the error.
        run: the run of the point.
    """
    point = run.point.label
    if point and isinstance(error, TestbedError):
        error.args = ("\n".join(f"sweep point {point}: {line}" for line in str(error).splitlines()), *error.args[1:])
    elif point and isinstance(error, Exception):
        error.add_note(f"at sweep point {point}")


def _resolved(run: PlannedRun, place: int) -> dict[str, Any]:
    """Return the content of ``experiment.yaml`` for the point at this position of its sweep, counted from 1."""
    experiment = run.point.experiment
    # Random even with a seed: it distinguishes runs, and is no result.
    origin: dict[str, Any] = {"id": secrets.token_hex(6), **provenance(), SECRETS: SECRETS_FORM}
    # Simulation choices must be the same when the run is resumed, although its secrets are not reproducible.
    if experiment.seed is None:
        origin["simulation_seed"] = run.simulation_seed
    if experiment.aggregation.supports_symbolic_masks:
        symbolic = uses_symbolic_masks(experiment.aggregation, experiment.time.work_is_modelled)
        origin["masks"] = "symbolic" if symbolic else "materialised"
    if files := digests(experiment):
        origin["files"] = files
    if run.modules:
        origin["modules"] = dict(run.modules)
    offered = [installed.offering(name) for _, name in plugin_classes(experiment)]
    if plugins := {each.target: f"{each.kind}.{each.name} of {each.origin}" for each in offered if each is not None}:
        origin["plugins"] = plugins
    point: dict[str, Any] = {"label": run.label, "sweep": run.point.values, "written": written_keys(experiment)}
    if run.point.values:
        point["point"] = place
    if run.point.names:
        point["sweep_labels"] = dict(run.point.names)
    return experiment.plain() | {"provenance": {**point, **origin}}
