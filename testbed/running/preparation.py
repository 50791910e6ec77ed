"""Preparation of runs: the directory of each point, existing runs, and whether they belong to the experiment."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.errors import ExperimentError, RunError
from testbed.experiment.inputs import check_unchanged, plugin_classes
from testbed.experiment.reading import read_yaml
from testbed.experiment.schema import Experiment, Point, validated
from testbed.files.names import directory_names, file_name
from testbed.flattening import flattened
from testbed.plugins.sources import digests
from testbed.records import RunDirectory
from testbed.records.point_names import canonical
from testbed.records.tables import stopped
from testbed.records.writer import is_empty
from testbed.running.more_rounds import check_more_rounds, check_not_ended, recorded_rounds

ACCEPT_CHANGED_CODE = "--accept-changed-code"
"""The option that resumes a run although the user's own modules have changed."""

_MAY_DIFFER = ("cluster", "output", "provenance")  # no result depends on them


@dataclass(frozen=True)
class PlannedRun:
    """One point of an experiment and the directory of its run.

    Attributes:
        point: the point.
        path: its run directory.
        simulation_seed: replaces the experiment's seed if it has none.
        exists: whether a run exists there, to be resumed.
        rounds_done: number of recorded rounds.
        complete: all rounds are run, merged and summarised; nothing is left to do.
        stopped: why it ended before its last round and may not continue, in one line; empty otherwise.
        modules: digests of the user's own modules as they are now (`testbed.plugins.sources.digests`).
        changed: the modules that differ from the recorded ones, if it resumes in spite of that.
        has_more_rounds: whether the experiment has more rounds than the run has recorded in its ``experiment.yaml``.
        note: how the run departs from the given experiment, in one line; empty if it does not.
    """

    point: Point
    path: Path
    simulation_seed: int
    exists: bool = False
    rounds_done: int = 0
    complete: bool = False
    stopped: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    has_more_rounds: bool = False
    note: str = ""

    @property
    def label(self) -> str:
        """Names the run for a person: the point's label, or the experiment's name when there is no sweep."""
        return self.point.label or self.point.experiment.name

    @property
    def rounds_finished(self) -> bool:
        """Whether all its rounds are recorded, or it may have no more."""
        return self.rounds_done >= self.point.experiment.rounds or bool(self.stopped)


def default_directory(experiment: Experiment) -> str | Path:
    """Return the default directory of the records: ``output.directory`` (may be a URI), else ``runs/<name>``."""
    return experiment.output.directory or Path("runs") / file_name(experiment.name)


def planned(points: Sequence[Point], out: Path, *, resume: bool, accept_changed_code: bool = False) -> list[PlannedRun]:
    """Return the runs of all points, in their order.

    Without a seed, all points of a sweep get the same random `simulation_seed`, so that they differ in nothing else;
    resumed runs keep theirs, and missing runs take it from the others.

    Args:
        points: all points of one experiment.
        out: the run's directory, or the sweep's.
        resume: existing runs will be resumed, rather than being an error.
        accept_changed_code: resume also runs whose own modules have changed since.

    Raises:
        RunError: a directory exists and (without resume) must not, or is no run directory.
        ExperimentError: an existing run is of another experiment.
    """
    if len(points) > 1 and (out / "experiment.yaml").exists():
        raise RunError(f"{out}: holds a single run; give another --out for a sweep")
    names = directory_names([point.label for point in points])
    begun = _begun(out) if resume and points[0].label else {}
    paths = [
        begun.get(canonical(point.values), out / name) if point.label else out
        for point, name in zip(points, names, strict=True)
    ]
    stored: dict[Path, PlannedRun] = {}
    for point, path in zip(points, paths, strict=True):
        if resume and (path / "experiment.yaml").is_file():
            stored[path] = _existing(point, path, accept_changed_code)
        else:
            _refuse_existing(path)
    # One seed for all points, so that they differ in nothing but the swept values.
    seed = next((run.simulation_seed for run in stored.values()), secrets.randbits(63))
    return [
        stored.get(path) or PlannedRun(point, path, seed, modules=digests(_names(point)))
        for point, path in zip(points, paths, strict=True)
    ]


def _begun(out: Path) -> dict[str, Path]:
    """Return the existing runs of a sweep by their swept values, as the name of a point may have changed."""
    begun: dict[str, Path] = {}
    for file in sorted(out.glob("*/experiment.yaml")):
        try:
            provenance = read_yaml(file).get("provenance")
        except ExperimentError:  # told where the run itself is resumed
            continue
        if isinstance(provenance, dict) and provenance.get("sweep"):
            begun.setdefault(canonical(provenance["sweep"]), file.parent)
    return begun


def _names(point: Point) -> list[str]:
    return [name for _, name in plugin_classes(point.experiment)]


def _refuse_existing(path: Path) -> None:
    """Raise the errors of `RunDirectory.create` for all points, before the first one runs."""
    if not path.exists() or is_empty(path):
        return
    if (path / "experiment.yaml").is_file():
        raise RunError(f"{path}: already holds a run; give another --out, or --resume to continue it")
    sweep = path.is_dir() and next(path.glob("*/experiment.yaml"), None) is not None
    problem = "holds the runs of a sweep" if sweep else "exists and is not an empty directory"
    raise RunError(f"{path}: {problem}; give another --out")


def _existing(point: Point, path: Path, accept_changed_code: bool) -> PlannedRun:
    """Return the run at `path`, which must be a run of `point`."""
    file = path / "experiment.yaml"
    stored = validated(read_yaml(file), str(file))
    rounds = recorded_rounds(stored, point.experiment)
    note = ""
    if rounds != point.experiment.rounds:
        note = f"rounds: {point.experiment.rounds}: this run was given {rounds} rounds since and keeps them"
        plain = point.experiment.model_dump(mode="json", exclude_unset=True)
        point = replace(point, experiment=validated({**plain, "rounds": rounds}, str(file)))
    experiment = point.experiment
    if experiment.rounds != stored.rounds:
        check_more_rounds(stored, experiment, path)
    # Another setting would continue a different run under the same records.
    for key, was, now in differences(stored.plain() | {"rounds": experiment.rounds}, experiment.plain()):
        raise ExperimentError(
            f"{path}: this run has {key}: {was}, the experiment {now}; "
            "resume with the experiment as it was, or give another --out"
        )
    provenance = stored.provenance or {}
    check_unchanged(provenance.get("files") or {}, point.experiment, str(path))
    modules = digests(_names(point))
    changed = changed_modules(provenance, modules)
    if changed and not accept_changed_code:
        raise ExperimentError(
            f"{path}: --resume: your own {', '.join(changed)} changed since this run began; restore the "
            f"recorded version, give another --out, or insist with {ACCEPT_CHANGED_CODE}, which the run records"
        )
    seed = stored.seed if stored.seed is not None else provenance.get("simulation_seed")
    if not isinstance(seed, int) or seed < 0:
        raise ExperimentError(f"{file}: provenance.simulation_seed: is required to resume a run without seed")
    records = RunDirectory.reopen(path)
    checkpoint = records.checkpoint()
    done = 0 if checkpoint is None else checkpoint.round_number
    merged = not (path / "parts").exists() and (path / "summary.json").is_file()
    why = stopped(path, done) if done < stored.rounds else ""
    more = experiment.rounds > stored.rounds and not why
    if more and done == stored.rounds:
        check_not_ended(experiment, records, path)
    complete = (done >= experiment.rounds or bool(why)) and merged
    return PlannedRun(point, path, seed, True, done, complete, why, modules, changed, more, note)


def differences(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted keys in which two plain experiments differ, with both values as text.

    Args:
        stored: the recorded experiment.
        requested: the experiment to resume with.
    """
    flat = [dict(flattened(plain)) for plain in (stored, requested)]
    for key in dict.fromkeys((*flat[1], *flat[0])):
        if key.partition(".")[0] not in _MAY_DIFFER and flat[0].get(key) != flat[1].get(key):
            was, now = (repr(side[key]) if key in side else "nothing" for side in flat)
            yield key, was, f"has {now}"


def changed_modules(recorded: Mapping[str, Any], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the own modules that differ from a run's records, sorted: changed, gone, or new.

    Args:
        recorded: the run's provenance; if it is older than the recording of own modules, nothing counts as changed.
        now: digests of the modules as they are (`testbed.plugins.sources.digests`).
    """
    if "modules" not in recorded and "changed_code" not in recorded:
        return ()
    changes = recorded.get("changed_code") or []
    then = changes[-1]["modules"] if changes else recorded["modules"]
    return tuple(sorted(name for name in {**then, **now} if then.get(name) != now.get(name)))
