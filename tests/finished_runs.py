"""Runs that many tests look at: each is run once a process, and every test gets a copy of its directory."""

import shutil
from collections.abc import Callable
from pathlib import Path


class FinishedRuns:
    """Directories of runs by the experiment that was run.

    Args:
        folder: where the originals lie; no test writes there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._originals: dict[str, Path] = {}

    def copy(self, experiment: str, path: Path, run: Callable[[Path], object]) -> Path:
        """Copy the run of an experiment to `path`, which the test may change.

        Args:
            experiment: all that decides how the run goes, such as the text of its file.
            path: where the copy is to be; nothing is there yet.
            run: runs the experiment into a directory, the first time. When it raises, nothing is kept.

        Returns:
            `path`.
        """
        if experiment not in self._originals:
            original = self._folder / f"{len(self._originals)}"
            shutil.rmtree(original, ignore_errors=True)  # of a run that failed
            run(original)
            self._originals[experiment] = original
        shutil.copytree(self._originals[experiment], path)
        return path
