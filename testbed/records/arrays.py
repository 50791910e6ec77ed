"""Arrays in ``.npz`` files (checkpoints, aggregates), which are no larger in memory than on disk.

`numpy.load` makes room for what an array's header says, and unpacks what is packed, before it looks at the data: a
file of a kilobyte can ask for terabytes. What `numpy.savez` writes is not packed, so here a member that is, or whose
header does not say just the bytes that follow it, is damage. Pickled objects are refused, as `allow_pickle=False` does.
"""

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from testbed.files import limits

ERRORS = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile)
"""What `Arrays` raises: of the system, and when a file is damaged."""

_LONGEST_HEADER = 10_000
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Arrays:
    """The arrays in a file, by their names, each read when it is asked for; a context manager.

    Args:
        source: the file's path, or the file, open for reading; raises `ERRORS`.
    """

    def __init__(self, source: Path | IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(source)
        members = self._zip.infolist()
        self._members = {member.filename.removesuffix(".npy"): member for member in members}
        if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
            raise ValueError("a packed array")
        file = self._zip.fp
        assert file is not None
        size = file.seek(0, 2)
        if size > limits.ARRAYS_BYTES or sum(member.file_size for member in members) > size:
            raise ValueError("more bytes of arrays than there are in the file")

    def __enter__(self) -> "Arrays":
        return self

    def __exit__(self, *error: Any) -> None:
        self._zip.close()

    @property
    def names(self) -> list[str]:
        """In the order of the file."""
        return list(self._members)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        member = self._members[name]
        with self._zip.open(member) as file:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise ValueError("an array of another version")
            shape, by_column, kind = _HEADERS[version](file, max_header_size=_LONGEST_HEADER)
            content = file.read()  # no more than the member's size, which is no more than the file's
        if kind.hasobject or math.prod(shape) * kind.itemsize != len(content):
            raise ValueError("an array of other bytes than its header says")
        if by_column:
            return np.frombuffer(content, kind).reshape(shape[::-1]).T.copy(order="F")
        return np.frombuffer(content, kind).reshape(shape).copy()
