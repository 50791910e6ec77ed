"""Folders and files that a command will write: known before the work whether it can."""

import tempfile
from pathlib import Path

from testbed.errors import ExperimentError


def check_folder(option: str, directory: Path) -> None:
    """Make the folder that `option` names, if need be; raises `ExperimentError` when nothing can be written there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ExperimentError(f"{option}: {directory} cannot be written to ({error.strerror}); give another") from None


def check_file(option: str, file: Path) -> None:
    """As `check_folder`, of the folder of a file; a folder of the file's name is an error, too."""
    if file.is_dir():
        raise ExperimentError(f"{option}: {file} is a folder; give a file in it")
    check_folder(option, file.parent)
