"""Client states on disk: one file for each client and round, in the run's directory.

A client that trains in round t starts from its state of an earlier round r, the last one with its update in the sum.
Only the server knows r, and sends it with its next question. The new state becomes current if the sum of round t has
the client's update.

No file is ever changed, so a client's result is a function of files that stay. A replacement for a host that died
computes the same results from the same questions, and a run resumes from the files that its checkpoint names.

A client keeps at most three files of 4p bytes while it trains and two between its rounds: the states that the last
checkpoint and the one before may name. The earlier checkpoint replaces a damaged last one.
"""

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.errors import ClusterError, RunError
from testbed.files.atomic import atomic_write

FOLDER = "client-states"
"""Folder of the state files in a run's directory."""

_SHARED = ".shared"  # holds a random number: a machine that can read it shares this directory
_PER_FOLDER = 1000  # clients


class ClientStates:
    """States of the clients of one run.

    Several threads and processes may use a directory at the same time, each for clients of its own.

    Args:
        directory: the run's directory; None: a temporary one, deleted with the object.
    """

    def __init__(self, directory: Path | None) -> None:
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="testbed-client-states-")
            directory = Path(self._temporary.name)
        self.path = directory / FOLDER

    def read(self, client: int, round_number: int, length: int) -> npt.NDArray[np.float32]:
        """Return the (length,) float32 state that the client made in a round.

        Raises:
            RunError: the state is missing or damaged. Another starting point would be another experiment.
        """
        file = self._file(client, round_number)
        try:
            # Little-endian on every machine: hosts of one run may differ.
            state = np.fromfile(file, "<f4")
        except OSError as error:
            raise self._lost(file, error.strerror or "cannot be read") from None
        if len(state) != length:
            raise self._lost(file, f"has {len(state)} numbers, not {length}")
        return state

    def write(self, client: int, round_number: int, state: npt.NDArray[np.float32], basis: int) -> None:
        """Write the state that a client made in a round, and delete the client's outdated files.

        Args:
            client: the client.
            round_number: the round.
            state: (length,) float32.
            basis: round of the state from which the client started.

        Raises:
            RunError: the file cannot be written.
        """
        file = self._file(client, round_number)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(file, error.strerror or str(error)) from None
        with atomic_write(file, lambda why: self._unwritable(file, why)) as opened:
            opened.write(np.ascontiguousarray(state, "<f4").data)
        # After the new file is safe: a kill in between leaves one file too many, never one too few.
        for other in self._no_longer_named(client, round_number, basis):
            self._file(client, other).unlink(missing_ok=True)  # a replaced host may have done so

    def _no_longer_named(self, client: int, round_number: int, basis: int) -> Iterator[int]:
        """Yield earlier rounds with states that neither the next checkpoint nor the last two can name."""
        rounds = [int(file.stem) for file in self._folder(client).glob("*.f32") if file.stem.isdigit()]
        earlier = sorted(other for other in rounds if other < basis)
        if earlier and basis == round_number - 1:  # the checkpoint before the last is of before that round
            earlier.pop()
        yield from earlier
        yield from (other for other in rounds if basis < other < round_number)  # no sum had them

    def check(self, last_rounds: Ids, length: int) -> None:
        """Raise `RunError` if a state that a checkpoint names is missing or damaged.

        Args:
            last_rounds: (n,) round of each client's state; 0: the client has no state.
            length: length of a state.
        """
        for client in np.flatnonzero(last_rounds).tolist():
            file = self._file(client, int(last_rounds[client]))
            try:
                size = file.stat().st_size
            except OSError as error:
                raise self._lost(file, error.strerror or "cannot be read") from None
            # By the size only: reading millions of states would delay the start; `read` checks again.
            if size != 4 * length:
                raise self._lost(file, f"has {size} bytes, not {4 * length}")

    # -- hosts on other machines ---------------------------------------------------------------------------------

    def share(self) -> str:
        """Write a mark into the directory and return it; a machine that can read the mark shares the directory."""
        # Random: another machine may have a directory of the same path that is not shared.
        mark = secrets.token_hex(16)
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise self._unwritable(self.path, error.strerror or str(error)) from None
        with atomic_write(self.path / _SHARED, lambda why: self._unwritable(self.path, why)) as opened:
            opened.write(mark.encode())
        return mark

    def check_shared(self, mark: str) -> None:
        """Raise `ClusterError` if this machine does not see the directory in which `share` left this mark."""
        try:
            text = (self.path / _SHARED).read_text()
        except OSError:
            text = ""
        # A node without the shared directory would start its clients from states that are missing there.
        if text != mark:
            raise ClusterError(
                f"{self.path.parent}: clients keep their states in this directory, but not every node can read it; "
                "give an --out that all nodes share, or run on one node"
            )

    def _folder(self, client: int) -> Path:
        return self.path / f"{client // _PER_FOLDER:06d}" / f"{client:09d}"

    def _file(self, client: int, round_number: int) -> Path:
        return self._folder(client) / f"{round_number:07d}.f32"

    @staticmethod
    def _lost(file: Path, why: str) -> RunError:
        return RunError(
            f"{file}: the client's state is lost ({why}), and the run cannot be resumed without it; restore the file "
            "from a copy, or start again with another --out"
        )

    @staticmethod
    def _unwritable(file: Path, why: str) -> RunError:
        return RunError(f"{file}: cannot write: {why}; earlier records are intact, rerun with --resume")
