"""What clients keep from round to round: one file for each client and round, in the run's directory.

A client that trains in round t begins with what it made in an earlier round r, the last one whose sum had its update,
and writes what counts from then on if this round's sum has it, too. Only the server knows, and says so with its next
question. So no file is ever changed, and what a client makes is a function of files that stay: a host that died is
given the round's questions once more and makes the same, wherever it runs, and a run goes on from a checkpoint with the
files that this checkpoint names. A client that has never been in a sum has no file: it begins as all do.

Of a client's files those stay that the last checkpoint may name, or the one before it, which stands in for one that is
damaged; others go when it trains the next time. So there are at most three files of 4p bytes for a client that has
taken part, two between its rounds, and in memory the one that is in use.
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
"""Of these files, in a run's directory."""

_SHARED = ".shared"  # holds a number that nobody on a machine without this directory can know
_PER_FOLDER = 1000  # clients


class ClientStates:
    """The states of the clients of one run. Threads and processes may have it open, each with clients of its own.

    Args:
        directory: the run's; None: a temporary one, which goes with the object.
    """

    def __init__(self, directory: Path | None) -> None:
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="testbed-client-states-")
            directory = Path(self._temporary.name)
        self.path = directory / FOLDER

    def read(self, client: int, round_number: int, length: int) -> npt.NDArray[np.float32]:
        """`(length,)` float32, what the client made in a round.

        Raises `RunError` where that is missing or damaged: another beginning would be another experiment.
        """
        file = self._file(client, round_number)
        try:
            state = np.fromfile(file, "<f4")
        except OSError as error:
            raise self._lost(file, error.strerror or "cannot be read") from None
        if len(state) != length:
            raise self._lost(file, f"has {len(state)} numbers, not {length}")
        return state

    def write(self, client: int, round_number: int, state: npt.NDArray[np.float32], basis: int) -> None:
        """Keep what the client has made in a round, beginning with that of round `basis`; raises `RunError`."""
        file = self._file(client, round_number)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(file, error.strerror or str(error)) from None
        with atomic_write(file, lambda why: self._unwritable(file, why)) as opened:
            opened.write(np.ascontiguousarray(state, "<f4").data)
        for other in self._no_longer_named(client, round_number, basis):
            self._file(client, other).unlink(missing_ok=True)

    def _no_longer_named(self, client: int, round_number: int, basis: int) -> Iterator[int]:
        """The rounds before this one that neither the last checkpoint names, nor the one before, nor the next."""
        rounds = [int(file.stem) for file in self._folder(client).glob("*.f32") if file.stem.isdigit()]
        earlier = sorted(other for other in rounds if other < basis)
        if earlier and basis == round_number - 1:  # the checkpoint before the last is of before that round
            earlier.pop()
        yield from earlier
        yield from (other for other in rounds if basis < other < round_number)  # no sum had them

    def check(self, last_rounds: Ids, length: int) -> None:
        """Raise `RunError` where a state is missing or damaged that a checkpoint names.

        Args:
            last_rounds: `(n,)` the round of each client's state, 0: it has none.
            length: of each.
        """
        for client in np.flatnonzero(last_rounds).tolist():
            file = self._file(client, int(last_rounds[client]))
            try:
                size = file.stat().st_size
            except OSError as error:
                raise self._lost(file, error.strerror or "cannot be read") from None
            if size != 4 * length:
                raise self._lost(file, f"has {size} bytes, not {4 * length}")

    # -- hosts on other machines ---------------------------------------------------------------------------------

    def share(self) -> str:
        """Leave a mark in the directory, and return it: whoever sees it sees the states."""
        mark = secrets.token_hex(16)
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise self._unwritable(self.path, error.strerror or str(error)) from None
        with atomic_write(self.path / _SHARED, lambda why: self._unwritable(self.path, why)) as opened:
            opened.write(mark.encode())
        return mark

    def check_shared(self, mark: str) -> None:
        """Raise `ClusterError` unless this machine sees the directory in which `share` left this mark."""
        try:
            text = (self.path / _SHARED).read_text()
        except OSError:
            text = ""
        if text != mark:
            raise ClusterError(
                f"{self.path.parent}: clients keep states there (workload), and not every node sees that directory; "
                "give an --out that all nodes share, or run on one node"
            )

    def _folder(self, client: int) -> Path:
        return self.path / f"{client // _PER_FOLDER:06d}" / f"{client:09d}"

    def _file(self, client: int, round_number: int) -> Path:
        return self._folder(client) / f"{round_number:07d}.f32"

    @staticmethod
    def _lost(file: Path, why: str) -> RunError:
        return RunError(
            f"{file}: the client's state is lost ({why}), and the run cannot be resumed without it; restore it "
            "from a copy, or start again with another --out"
        )

    @staticmethod
    def _unwritable(file: Path, why: str) -> RunError:
        return RunError(f"{file}: cannot write: {why}; what was recorded before is intact, rerun with --resume")
