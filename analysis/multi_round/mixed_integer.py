"""Search for the lightest word as a mixed integer program (HiGHS, through scipy)."""

import ctypes
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from analysis.multi_round.row_spaces import Space

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Solved:
    """Result of the solver.

    Attributes:
        lower_bound: weight in clients; no word is lighter, up to the solver's tolerance of 1e-6 on a whole number.
        support: classes of the lightest word of the solver; None without a word.
    """

    lower_bound: int
    support: tuple[int, ...] | None


def solve(space: Space, time_limit_s: float) -> Solved:
    """Return the lightest word that the solver finds in time, and a lower bound on the weight of every word.

    Variables: z (the combination), u_j <= 1 where column j may be non-zero, v_j = 1 for a column that is 1. The program
    minimises the weight of u subject to |(A^T z)_j| <= u_j, (A^T z)_j >= 2 v_j - 1 and sum v >= 1. The combination is
    scaled so that its largest coefficient is 1, hence the program needs no big constant.

    Args:
        space: the space.
        time_limit_s: time limit of the solver, in seconds.
    """
    from scipy import sparse  # the import takes a third of a second, and most runs need no solver
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows, columns = space.rows.shape
    transposed = sparse.csr_matrix(space.rows.T.astype(np.float64))
    identity, none = sparse.identity(columns), sparse.csr_matrix((columns, columns))
    cost = np.concatenate((np.zeros(rows), space.sizes / space.unit, np.zeros(columns)))
    some_is_one = np.concatenate((np.zeros(rows + columns), np.ones(columns)))
    binary = np.concatenate((np.zeros(rows), np.ones(2 * columns)))
    with standard_output_silenced():
        result = milp(
            cost,
            integrality=binary,
            bounds=Bounds(np.where(binary, 0, -np.inf), np.where(binary, 1, np.inf)),
            constraints=[
                LinearConstraint(sparse.hstack((transposed, -identity, none)), -np.inf, 0),
                LinearConstraint(sparse.hstack((-transposed, -identity, none)), -np.inf, 0),
                LinearConstraint(sparse.hstack((transposed, none, -2 * identity)), -1, np.inf),
                LinearConstraint(some_is_one, 1, np.inf),
            ],
            # Presolving gains nothing here; without it HiGHS prints a stray line of its own less often.
            options={"time_limit": time_limit_s, "mip_rel_gap": 0.0, "presolve": False},
        )
    support = None
    if result.x is not None:
        # The solver's z is in floating point. Only the support is used; the word is then solved for in integers.
        support = tuple(np.flatnonzero(result.x[rows : rows + columns] > 0.5).tolist())
    bound = result.mip_dual_bound
    proved = bound is not None and math.isfinite(bound)
    # A dual bound of 5.0000001 proves 5, not 6; one of 4.9 proves 5, as weights are whole.
    return Solved(space.unit * math.ceil(bound - _TOLERANCE) if proved else 0, support)


# -- silence ----------------------------------------------------------------------------------------------------------


@contextmanager
def standard_output_silenced() -> Iterator[None]:
    """Drop the block's standard output, including output of C code.

    HiGHS prints a line in some searches, and no option suppresses it.
    """
    c_library = ctypes.CDLL(None)
    sys.stdout.flush()
    c_library.fflush(None)
    # The descriptor itself: C code does not write to sys.stdout.
    original = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        sys.stdout.flush()
        c_library.fflush(None)
        os.dup2(original, 1)
        os.close(original)
