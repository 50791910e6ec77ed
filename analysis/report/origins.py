"""Where the numbers of each run come from, and the command that repeats it."""

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
    """Versions, commit, machine, seed and digests, and how to repeat each run.

    Args:
        runs: the records.
        folder: where the page is; the commands are to be run there.

    Returns:
        ``common``: [name, value] that all runs share; ``runs``: of each its ``label``, the ``command`` that runs its
        experiment once more, whether that is ``repeatable`` (with a seed, the numbers are the same) and ``facts`` of
        the run alone, [name, value].
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
    """The command line that runs the experiment of a run once more, to be typed in `folder`.

    Its paths are relative, so that they say nothing of this machine and still hold when the page is moved together
    with the runs. Relative paths within the experiment count from the working directory of the run, which the records
    do not name: the command first changes to the working directory of this process or, where that lacks the files, to
    the nearest folder above the run that has them.
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
    """Relative paths of the files that the run has read in its working directory, the user's own modules among them."""
    origin = run.experiment.get("provenance") or {}
    modules = [path for path, digest in (origin.get("modules") or {}).items() if not digest.startswith("version ")]
    return modules + [path for path in origin.get("files") or {} if not Path(path).is_absolute()]


def _facts(run: RunRecords) -> dict[str, str]:
    origin = {key: part for key, part in (run.experiment.get("provenance") or {}).items() if key not in _ASIDE}
    facts = {"directory": run.path, "seed": run.experiment.get("seed"), **dict(flattened(origin, keep_empty=True))}
    return {key.replace("_", " "): value_text(value) for key, value in facts.items()}
