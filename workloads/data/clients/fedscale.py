"""FedScale's mappings: which file is whose image, and of which class.

Lai et al. 2022 (arXiv 2105.11367). A mapping is a CSV file; in the authors' words its columns are
``client_id,sample_path,label_name,label_id``. As their loader does, the first line is skipped, whatever the columns are
called there; the first column is the client, the second the file, the last one the class.
"""

import csv
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from testbed.errors import ExperimentError
from testbed.files import limits

NEEDED = "FedScale's folder with client_data_mapping"
OTHERWISE = "take its row out of the mapping"
_COLUMNS = "client_id,sample_path,label_name,label_id"
_LEAST_COLUMNS = 3
_MOST_CLASSES = 100_000
_LONGEST_LABEL = 20

Row = tuple[str, str, int]
"""Client, file and label of an image."""


def mapping(file: Path, classes: int = _MOST_CLASSES) -> Iterator[Row]:
    """The rows of a mapping.

    Args:
        file: a CSV file with a line of headings.
        classes: more than any label.

    Raises:
        ExperimentError: a file that is absent, has no headings, too few columns, or a label that is no such number.
    """
    try:
        with file.open(newline="", encoding="utf-8") as text:
            rows = csv.reader(limits.lines(text, limits.USERS_BYTES))
            columns = _columns(next(rows, []), file)
            for number, row in enumerate(rows, start=2):
                if row:
                    yield _row(row, columns, classes, f"{file}, line {number}")
    except (OSError, UnicodeDecodeError, limits.TooLarge, csv.Error) as error:
        raise ExperimentError(
            f"workload.path: {file} cannot be read ({error}); give FedScale's folder, with this file in it"
        ) from None


def of_clients(file: Path, classes: int = _MOST_CLASSES) -> dict[str, list[tuple[str, int]]]:
    """(file, label) of each client's images, in the order of the mapping; raises as `mapping`."""
    found: dict[str, list[tuple[str, int]]] = {}
    for client, path, label in mapping(file, classes):
        found.setdefault(client, []).append((path, label))
    return found


def held_out(file: Path, classes: int = _MOST_CLASSES) -> list[tuple[str, int]]:
    """(file, label) of each held-out image; raises as `mapping`, and where there is none."""
    found = [(path, label) for _, path, label in mapping(file, classes)]
    if not found:
        raise ExperimentError(f"workload.path: {file} has no rows; the held-out images are needed")
    return found


def check_there(root: Path, files: Iterable[str], part: str) -> None:
    """Raise `ExperimentError` for images that are not below a folder: folders are listed, and no image is opened.

    Args:
        root: the folder that the mapping's paths are from.
        files: the mapping's paths.
        part: whose they are, for the error.
    """
    listed: dict[Path, set[str]] = {}
    lacking = []
    for file in files:
        folder = (root / file).parent
        if folder not in listed:
            listed[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
        if Path(file).name not in listed[folder]:
            lacking.append(file)
    if lacking:
        raise ExperimentError(
            f"workload.path: {root} lacks {len(lacking)} of {part} images, the first {lacking[0]}; add them or take "
            "their rows out of the mapping"
        )


def _columns(heading: list[str], file: Path) -> int:
    """How many there are."""
    if len(heading) < _LEAST_COLUMNS:
        raise ExperimentError(
            f"workload.path: {file} begins with {','.join(heading)!r}; columns like FedScale's are needed, {_COLUMNS}"
        )
    if heading[-1].strip().isdecimal():
        raise ExperimentError(
            f"workload.path: {file} begins with {','.join(heading)!r}, which FedScale's loader would skip as headings; "
            f"put the line {_COLUMNS} before it"
        )
    return len(heading)


def _row(row: list[str], columns: int, classes: int, where: str) -> Row:
    if len(row) != columns:
        raise ExperimentError(f"workload.path: {where}: {len(row)} columns, and the headings are {columns}")
    client, path, label = (cell.strip() for cell in (row[0], row[1], row[-1]))
    if not label.isdecimal() or len(label) > _LONGEST_LABEL or int(label) >= classes:
        shown = repr(label) if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]!r}..."
        raise ExperimentError(
            f"workload.path: {where}: label_id {shown}; a whole number from 0 to {classes - 1} is needed"
        )
    if not client or not path or Path(path).is_absolute() or ".." in Path(path).parts:
        raise ExperimentError(f"workload.path: {where}: client_id and a sample_path inside the folder are needed")
    return client, path, int(label)
