"""Shakespeare from LEAF's files: the next character in a role's lines, one role per client. Nothing is downloaded.

Caldas et al. 2018 (LEAF, arXiv 1812.01097), after McMahan et al. 2017 (arXiv 1602.05629). A role's ``x`` is a list of
windows of 80 characters, ``y`` of the characters that follow them (`workloads.data.clients.leaf` describes the
folders). Characters are numbered as by LEAF, in the order of `CHARACTERS`; other characters count as the space that
LEAF uses for unknown ones. A window takes 88 bytes of memory: all 4.2 million of them 370 MB in each process.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.workload.section import WorkloadSection
from testbed.workload.specs import Form
from workloads.data.clients import owners
from workloads.data.clients.contract import Dataset
from workloads.data.clients.leaf import LeafFolder, LeafUsers
from workloads.data.clients.owners import LabelledValues
from workloads.data.clients.sequences import OwnedSequences

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80
_UNKNOWN = " "
_BEYOND = re.compile(r"[^\x00-\xff]")
_NEEDED = "the folder with LEAF's json files of Shakespeare"
_BYTES = np.full(256, CHARACTERS.index(_UNKNOWN), dtype=np.uint8)
_BYTES[np.frombuffer(CHARACTERS.encode("ascii"), dtype=np.uint8)] = np.arange(len(CHARACTERS))


def numbers(text: str) -> NDArray[np.uint8]:
    """Return the number of each character of a text, (characters,) uint8.

    Example:
        >>> numbers("a z").tolist()
        [53, 1, 78]
    """
    try:
        encoded = text.encode("latin-1")
    except UnicodeEncodeError:  # not "replace": it inserts question marks, which occur in the plays
        encoded = _BEYOND.sub(_UNKNOWN, text).encode("latin-1")
    return _BYTES[np.frombuffer(encoded, dtype=np.uint8)]


def windows(x: Any, y: Any, length: int) -> LabelledValues:
    """Return a role's windows and the next characters.

    Args:
        x: a list of texts of `length` characters.
        y: as many texts of one character.
        length: characters of a window.

    Raises:
        ValueError: anything else; the message states fault and remedy.
    """
    if not all(isinstance(part, list) and all(isinstance(text, str) for text in part) for part in (x, y)):
        raise ValueError("x and y must be lists of texts; preprocess the data again")
    if not x or len(x) != len(y):
        raise ValueError(f"{len(x)} windows and {len(y)} next characters; one each, and at least one, are needed")
    misfit = next((text for text in x if len(text) != length), None)
    if misfit is not None:
        raise ValueError(
            f"a window of {len(misfit)} characters, and {length} are needed; set workload.sequence_length to the "
            "length of the windows in the files"
        )
    if any(len(text) != 1 for text in y):
        raise ValueError("y must be single characters, those after the windows; preprocess the data again")
    return LabelledValues(numbers("".join(x)).reshape(-1, length), numbers("".join(y)).astype(np.int64))


class Shakespeare(OwnedSequences):
    """The roles of Shakespeare's plays as clients.

    Args:
        section: path, sequence_length (None: 80), samples_per_client, test_samples.
        population, seed: of the experiment; the seed chooses the clients if there are more roles.

    Raises:
        ExperimentError: files that are absent or damaged, windows of another length, or too few roles.
    """

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        length = section.sequence_length or WINDOW
        folder = LeafFolder.needed(owners.folder(section.path, _NEEDED), _NEEDED)
        files = LeafUsers(folder, lambda x, y: windows(x, y, length), population, seed, "role")
        super().__init__(files, section, seed, len(CHARACTERS), len(CHARACTERS))
        self.description = (
            f"Shakespeare (LEAF json), windows of {length} characters and the next of {len(CHARACTERS)}, {population} "
            f"roles with {self.sample_counts.sum()} windows"
        )


SPECS = (
    Dataset(
        name="shakespeare",
        summary="the next character in a role's lines, from files",
        form=Form.SEQUENCE,
        default_model="char-lstm",
        owner="role",
        files=_NEEDED,
        reads=("sequence_length",),
        load=Shakespeare,
    ),
)
