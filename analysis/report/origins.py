"""Provenance of each run's numbers, and the command that repeats the run."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.report.settings import value_text
from testbed.flattening import flattened
from testbed.records import RunRecords

_ASIDE = ("written", "label", "sweep", "sweep_labels", "point")  # in other tables of the page


def provenance(runs: Sequence[RunRecords], folder: Path) -> dict[str, Any]:
    """Return versions, commit, machine, seed and digests of the runs, and the command that repeats each run.

    Args:
        runs: the records.
        folder: folder of the page, from which the commands are run.

    Returns:
        ``common``: [name, value] that all runs share; ``runs``: for each run its ``label``, the ``command`` that
            repeats it, whether it is ``repeatable`` (with a seed, the numbers are equal) and ``facts`` of this run
            only, [name, value].
    """
    every = [_facts(run) for run in runs]
    shared = {name: value for name, value in every[0].items() if all(facts.get(name) == value for facts in every)}
    if len(runs) == 1:
        shared = {}
    origins = [
        {
            "label": run.label,
            "command": repeat_command(run, folder),
            "repeatable": run.experiment.get("seed") is not None,
            "facts": [[name, value] for name, value in facts.items() if name not in shared],
        }
        for run, facts in zip(runs, every, strict=True)
    ]
    return {"common": [[name, value] for name, value in shared.items()], "runs": origins}


def repeat_command(run: RunRecords, folder: Path) -> str:
    """Return the command line, for use in `folder`, that repeats the experiment of a run.

    Its paths are relative, so that they reveal nothing about this machine and remain valid when the page is moved
    together with the runs. Relative paths within the experiment count from the working directory of the run, which is
    not recorded. The command therefore changes to the working directory of this process or, if that lacks the files, to
    the nearest folder above the run that has them.

    Args:
        run: the records.
        folder: folder of the page.
    """
    relative = _relative_files(run)
    start = folder.absolute()
    if relative:
        start = Path.cwd()
        above = run.path.absolute().parents
        start = next((place for place in (start, *above) if all((place / file).exists() for file in relative)), start)
    where = Path(os.path.relpath(run.path.absolute(), start))
    repeat = ["testbed", "run", str(where / "experiment.yaml"), "--out", f"{where}-again"]
    if where.name in ("", ".", ".."):  # the page lies in the run's own directory
        repeat[-1] = os.path.relpath(run.path.absolute().with_name(f"{run.path.absolute().name}-again"), start)
    back = os.path.relpath(start, folder.absolute())
    return shlex.join(repeat) if back == "." else f"cd {shlex.quote(back)} && {shlex.join(repeat)}"


def _relative_files(run: RunRecords) -> list[str]:
    """Return relative paths of the files that the run read in its working directory, including the user's modules."""
    origin = run.experiment.get("provenance") or {}
    modules = [path for path, digest in (origin.get("modules") or {}).items() if not digest.startswith("version ")]
    return modules + [path for path in origin.get("files") or {} if not Path(path).is_absolute()]


def _facts(run: RunRecords) -> dict[str, str]:
    origin = {key: part for key, part in (run.experiment.get("provenance") or {}).items() if key not in _ASIDE}
    facts = {"directory": run.path, "seed": run.experiment.get("seed"), **dict(flattened(origin, keep_empty=True))}
    return {key.replace("_", " "): value_text(value) for key, value in facts.items()}
