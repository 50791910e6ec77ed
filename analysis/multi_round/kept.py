"""Cache of a run's weak privacy, in a file beside the run's records.

The file is used for the same participation matrix, the same search (digest of its source files, version of the solver)
and the same time limit. A certified value is used for every time limit, since a proof does not depend on it. Any other
file, such as a damaged one, is ignored. If the directory is not writable, the search is repeated each time.
"""

import contextlib
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from analysis.multi_round.over_rounds import WeakPrivacy, weak_privacy
from testbed.errors import RunError
from testbed.files import limits
from testbed.files.atomic import atomic_write
from testbed.records import RunRecords

FILE = "multi-round-privacy.json"
# Modules that decide a value: a change of any of them makes all stored values stale.
_SEARCH = (
    "bound_search",
    "dependent_columns",
    "mixed_integer",
    "over_rounds",
    "participation",
    "row_spaces",
    "small_codes",
)


def weak_privacy_of(run: RunRecords, matrix: npt.NDArray[np.uint8], time_limit_s: float) -> WeakPrivacy:
    """Return the weak T of a run, from the file beside its records or by a search.

    Args:
        run: the run; the file is written into its directory.
        matrix: `(rounds, clients)` 0/1, from `participation_matrix`.
        time_limit_s: limit of the search in seconds of processor time, see `weak_privacy`.
    """
    file = run.path / FILE
    key = {"participation": _digest(matrix), "search": _search()}
    if (stored := _read(file, key, time_limit_s, _smallest_sum(matrix))) is not None:
        return stored
    searched = weak_privacy(matrix, time_limit_s=time_limit_s)
    # As from the file, so that a report does not depend on the cache.
    privacy = WeakPrivacy(searched.value, searched.lower_bound)
    result = {"value": privacy.value, "lower_bound": privacy.lower_bound}
    # A cache is optional: records on a read-only disk can be analysed, too.
    with contextlib.suppress(RunError), atomic_write(file, RunError) as open_file:
        open_file.write((json.dumps({**key, "time_limit_s": time_limit_s, **result}) + "\n").encode())
    return privacy


def _read(file: Path, key: dict[str, str], time_limit_s: float, most: int) -> WeakPrivacy | None:
    """Return the privacy in a file; None for another key, another time limit, or values that are impossible.

    Args:
        file: the cache.
        key: digests of the participation matrix and of the search.
        time_limit_s: limit of the search in seconds of processor time.
        most: upper bound on T, in clients.
    """
    try:
        stored: Any = json.loads(limits.whole(file, limits.SMALL_JSON_BYTES))
        if any(stored[name] != value for name, value in key.items()):
            return None
        privacy = WeakPrivacy(stored["value"], stored["lower_bound"])
        same_limit = stored["time_limit_s"] == time_limit_s
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # JSON of any depth and type
        return None
    # No isinstance: `true` in a damaged file is an instance of int.
    if type(privacy.value) is not int or type(privacy.lower_bound) is not int:
        return None
    possible = 1 <= privacy.lower_bound <= privacy.value <= most
    return privacy if possible and (privacy.certified or same_limit) else None


def _smallest_sum(matrix: npt.NDArray[np.uint8]) -> int:
    """Return the number of clients in the smallest sum of a round: the server has this sum, so T is not larger."""
    sizes = matrix.sum(axis=1, dtype=np.int64)
    return int(sizes[sizes > 0].min(initial=matrix.shape[1]))


def _digest(matrix: npt.NDArray[np.uint8]) -> str:
    packed = np.packbits(np.ascontiguousarray(matrix, np.uint8))
    # Packed bits are padded with zeros, so matrices of different shapes may have the same bytes.
    return hashlib.sha256(repr(matrix.shape).encode() + packed.tobytes()).hexdigest()


@cache
def _search() -> str:
    """Return the digest of the search's source files and of the solver's version."""
    digest = hashlib.sha256(scipy.__version__.encode())
    for module in _SEARCH:
        digest.update(Path(__file__).with_name(f"{module}.py").read_bytes())
    return digest.hexdigest()
