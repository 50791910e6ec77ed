"""FedScale's mappings: the owner and the class of each image.

Lai et al. 2022 (arXiv 2105.11367). A mapping is a CSV file; its authors name the columns
``client_id,sample_path,label_name,label_id``. As in their loader, the first line is skipped without reading its names;
the first column is the client, the second the file, the last the class.
"""

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.files import limits
from workloads.data.clients import owners
from workloads.data.clients.images import LabelledImages

MAPPINGS = "client_data_mapping"
NEEDED = "FedScale's folder with client_data_mapping"
OTHERWISE = "take its row out of the mapping"
_COLUMNS = "client_id,sample_path,label_name,label_id"
_LEAST_COLUMNS = 3
_MOST_CLASSES = 100_000
_LONGEST_LABEL = 20

Row = tuple[str, str, int]
"""Client, file and label of an image."""


def read_mapping(file: Path, classes: int = _MOST_CLASSES) -> Iterator[Row]:
    """Yield the rows of a mapping.

    Args:
        file: a CSV file with a line of headings.
        classes: larger than any label.

    Raises:
        ExperimentError: a file that is absent, has no headings or too few columns, or an invalid label.
    """
    try:
        with file.open(newline="", encoding="utf-8") as text:
            rows = csv.reader(limits.lines(text, limits.USERS_BYTES))
            # The first line is skipped, as in FedScale's loader.
            columns = _columns(next(rows, []), file)
            for number, row in enumerate(rows, start=2):
                if row:
                    yield _row(row, columns, classes, f"{file}, line {number}")
    except (OSError, UnicodeDecodeError, limits.TooLarge, csv.Error) as error:
        raise ExperimentError(
            f"workload.path: {file} cannot be read ({error}); give FedScale's folder, with this file in it"
        ) from None


class MappedImages:
    """Images of the owners that are clients: labels in memory, an image when it is used.

    Args:
        root: the folder with `MAPPINGS`.
        folders: the folders to which the paths of the two mappings are relative, for training and held out.
        opened: function from a file to its pixels.
        owner: word for an owner in errors.
        population, seed: of the experiment; the seed chooses the clients if there are more owners.
        test_samples: number of held-out images to use; None: all.
        classes: larger than any label.

    Attributes:
        counts: number of training samples of each client.
        test_count: number of held-out images.
        largest_label: largest label of all owners' images and the held-out ones.

    Raises:
        ExperimentError: as `read_mapping`, and for too few owners.
    """

    _AT_ONCE = 1000

    def __init__(
        self,
        root: Path,
        folders: tuple[Path, Path],
        opened: Callable[[Path], NDArray[np.uint8]],
        owner: str,
        population: int,
        seed: int,
        test_samples: int | None,
        classes: int = _MOST_CLASSES,
    ) -> None:
        self._train, self._test = folders
        self._opened = opened
        train, test = (root / MAPPINGS / f"{part}.csv" for part in ("train", "test"))
        rows: dict[str, list[tuple[str, int]]] = {}
        for client, path, label in read_mapping(train, classes):
            rows.setdefault(client, []).append((path, label))
        self._rows = [rows[name] for name in owners.choose(rows, population, seed, owner, train)]
        held_out = [(path, label) for _, path, label in read_mapping(test, classes)]
        if not held_out:
            raise ExperimentError(f"workload.path: {test} has no rows; the held-out images are needed")
        self._test_rows = [held_out[place] for place in owners.test_subset(len(held_out), test_samples, seed)]
        self.largest_label = max(label for images in (*rows.values(), held_out) for _, label in images)
        self.counts, self.test_count = [len(images) for images in self._rows], len(self._test_rows)

    def check_there(self) -> None:
        """Raise `ExperimentError` for missing images; folders are listed, but no image is opened."""
        listed: dict[Path, set[str]] = {}
        rows = [row for images in self._rows for row in images]
        for root, part, needed in ((self._train, "the clients'", rows), (self._test, "the held-out", self._test_rows)):
            lacking = []
            for file, _ in needed:
                folder = (root / file).parent
                if folder not in listed:
                    listed[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
                if Path(file).name not in listed[folder]:
                    lacking.append(file)
            if lacking:
                raise ExperimentError(
                    f"workload.path: {root} lacks {len(lacking)} of {part} images, the first {lacking[0]}; add them or "
                    "take their rows out of the mapping"
                )

    def labels(self, client: int) -> NDArray[np.int64]:
        return np.array([label for _, label in self._rows[client]], dtype=np.int64)

    def of(self, client: int, numbers: NDArray[np.int64]) -> LabelledImages:
        return self._images(self._train, [self._rows[client][number] for number in numbers])

    def test_parts(self) -> Iterator[LabelledImages]:
        for start in range(0, len(self._test_rows), self._AT_ONCE):
            yield self._images(self._test, self._test_rows[start : start + self._AT_ONCE])

    def _images(self, folder: Path, rows: list[tuple[str, int]]) -> LabelledImages:
        images = np.stack([self._opened(folder / path) for path, _ in rows])
        return LabelledImages(images, np.array([label for _, label in rows], dtype=np.int64))


def _columns(heading: list[str], file: Path) -> int:
    """Check the headings and return their number."""
    if len(heading) < _LEAST_COLUMNS:
        raise ExperimentError(
            f"workload.path: {file} begins with {','.join(heading)!r}; columns like FedScale's are needed, {_COLUMNS}"
        )
    # A first line with a label is data: skipping it would lose an image silently.
    if heading[-1].strip().isdecimal():
        raise ExperimentError(
            f"workload.path: {file} begins with {','.join(heading)!r}, which FedScale's loader would skip as headings; "
            f"put the line {_COLUMNS} before it"
        )
    return len(heading)


def _row(row: list[str], columns: int, classes: int, where: str) -> Row:
    if len(row) != columns:
        raise ExperimentError(f"workload.path: {where}: {len(row)} columns for {columns} headings")
    client, path, label = (cell.strip() for cell in (row[0], row[1], row[-1]))
    if not label.isdecimal() or len(label) > _LONGEST_LABEL or int(label) >= classes:
        shown = repr(label) if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]!r}..."
        raise ExperimentError(
            f"workload.path: {where}: label_id {shown}; a whole number from 0 to {classes - 1} is needed"
        )
    # A mapping comes from others: its paths must not lead out of the folder.
    if not client or not path or Path(path).is_absolute() or ".." in Path(path).parts:
        raise ExperimentError(f"workload.path: {where}: client_id and a sample_path inside the folder are needed")
    return client, path, int(label)
