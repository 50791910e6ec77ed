"""Disaggregation: the participants of each sum, from the sums alone and each client's number of participations.

Lam, Wei, Brooks, Reddi, Mitzenmacher, Gradient Disaggregation, ICML 2021, arXiv 2106.06089.

The observer of `analysis.attacks.reconstruction` knows P, the participants of each sum. This observer does not: it has
the sums, and for each client the number of participations in each window of some rounds, as device analytics report
(section 4.2). If updates hardly change, sums are P times constants, so that each column of P lies in the column space
of the sums, and adds up to the client's counts in the windows. The client's column is taken to be the one, of all
columns of zeros and ones with these counts, that is nearest to that space (in the sum of absolute distances along its
complement, so that the search is a mixed-integer linear programme). Directions count the more the less the sums reach
into them. With the estimated P the sums are then solved for the updates as there.

Clients that are always in the same sums have the same column: the column can be found, but of their updates only the
sum. Clients with the same counts are given the same column, even if their columns differ.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix, eye_array, hstack, vstack

from analysis.attacks.reconstruction import Reconstruction, View, measured, view
from analysis.attacks.victims import Victims
from analysis.multi_round.mixed_integer import standard_output_silenced
from analysis.multi_round.participation import strong_privacy
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.records import RunRecords

Integers = npt.NDArray[np.int64]

_LEAST = 1e-24  # of the largest squared singular value: less is rounding


@dataclass(frozen=True)
class Disaggregation:
    """The outcome of a disaggregation attack.

    Attributes:
        true: the server's view, with the true P.
        window: number of completed rounds for which counts are known.
        estimated: `(r, n)` bool, the estimated P.
        unsolved: clients without a proven nearest column within the time limit.
        with_true: the updates solved with the true P; of `analysis.attacks.reconstruction`.
        with_estimated: the updates solved with the estimated P.
    """

    true: View
    window: int
    estimated: npt.NDArray[np.bool_]
    unsolved: int
    with_true: Reconstruction
    with_estimated: Reconstruction

    def row(self) -> dict[str, Any]:
        """Return the outcome as one flat object, for JSON."""
        matrix = self.true.participation
        exact = (self.estimated == matrix).all(axis=0)
        in_sums = matrix.any(axis=0)
        true_errors, errors = (made.table["error"].dropna() for made in (self.with_true, self.with_estimated))
        return {
            "first_round": int(self.true.rounds[0]),
            "last_round": int(self.true.rounds[-1]),
            "completed": len(self.true.rounds),
            "window": self.window,
            "clients": int(in_sums.sum()),
            "columns_found": int((exact & in_sums).sum()),
            "entries_found": float((self.estimated == matrix)[:, in_sums].mean()),
            "unsolved": self.unsolved,
            "always_together": strong_privacy(matrix[:, in_sums]),
            "determined": int(self.with_true.table["determined"].sum()),
            "median_error": float(errors.median()),
            "median_error_known": float(true_errors.median()),
        }

    def text(self) -> str:
        """Return the outcome as text, ending in a line feed."""
        row = self.row()
        lines = [
            "rounds {first_round} to {last_round}: {completed} completed; {clients} clients in at least one sum",
            "attacker knows: each client's number of participations in every {window} completed rounds",
            "inferred participants           {columns_found} of {clients} clients in all rounds, "
            f"{row['entries_found']:.2%} of all entries",
            "clients always summed together  at least {always_together} (batch size T)",
            "updates determined by the sums  {determined} of {clients}",
            "error |d - d^|^2 / |d|^2        median {median_error:.4g}; with known participants "
            "{median_error_known:.4g}",
        ]
        if row["unsolved"]:
            lines.append("warning: the search for {unsolved} clients reached its time limit; raise --time-limit")
        return "\n".join([*lines, ""]).format_map(row)


def disaggregate(
    run: RunRecords, first: int, last: int, window: int, time_limit_s: float, victims: Victims | None = None
) -> Disaggregation:
    """Attack the rounds `first` to `last` of a run.

    Args:
        run: its records, with aggregates.
        first, last: rounds; only completed ones count.
        window: number of completed rounds for which counts are known.
        time_limit_s: limit of the search for one client's column, in seconds.
        victims: of the run; None: made from the run.

    Raises:
        ExperimentError: as `view` does; or if there are not more completed rounds than clients in their sums.
    """
    victims = Victims(run) if victims is None else victims
    observed = view(run, first, last)
    rounds, clients = len(observed.rounds), int(observed.participation.any(axis=0).sum())
    if rounds <= clients:
        raise ExperimentError(
            f"{run.path}: {rounds} completed rounds of {clients} clients: any column would fit; select more rounds "
            "than clients"
        )
    estimated, unsolved = columns(observed.sums, counts(observed.participation, window), window, time_limit_s)
    truth = victims.updates(observed.model, int(observed.rounds[0]))
    with_true = measured(observed, victims.weights, truth)
    with_estimated = measured(replace(observed, participation=estimated), victims.weights, truth)
    return Disaggregation(observed, window, estimated, unsolved, with_true, with_estimated)


def counts(participation: npt.NDArray[np.bool_], window: int) -> Integers:
    """Return the number of participations of each client in each window.

    Args:
        participation: `(r, n)` bool, P.
        window: number of rounds; the last window may be shorter.

    Returns:
        `(windows, n)`.
    """
    begins = np.arange(0, len(participation), window)
    return np.add.reduceat(participation.astype(np.int64), begins, axis=0)


def columns(sums: Floats, counted: Integers, window: int, time_limit_s: float) -> tuple[npt.NDArray[np.bool_], int]:
    """Estimate P from the sums and the counts.

    Args:
        sums: `(r, d)`, more rounds than clients that are in some sum.
        counted: `(windows, n)` participations of each client in each window.
        window: number of rounds of a window.
        time_limit_s: limit for one client, in seconds.

    Returns:
        `(r, n)` bool, and the number of clients for which the nearest column is not proven; they have the nearest
        column that was found in time.
    """
    rounds, clients = len(sums), counted.shape[1]
    in_sums = int((counted.sum(axis=0) > 0).sum())
    # The sums are `(r, d)` with a large d: their left singular vectors are those of an `(r, r)` matrix.
    left, squares, _ = np.linalg.svd(sums @ sums.T)
    changes = np.sqrt(np.maximum(squares[in_sums:], squares[0] * _LEAST))
    # A direction counts the more, the less the sums reach into it: changes of the updates blur the others.
    beside = left[:, in_sums:].T * (changes.min() / changes)[:, None]
    matrix, unsolved = np.zeros((rounds, clients), np.bool_), 0
    solved: dict[tuple[int, ...], tuple[npt.NDArray[np.bool_], bool]] = {}
    for client in range(clients):
        key = tuple(counted[:, client].tolist())
        if key not in solved:
            solved[key] = _nearest(beside, counted[:, client], window, time_limit_s)
        matrix[:, client], proven = solved[key]
        unsolved += not proven
    return matrix, unsolved


def _nearest(beside: Floats, counted: Integers, window: int, time_limit_s: float) -> tuple[npt.NDArray[np.bool_], bool]:
    """Return the column `(r,)` with these counts that is nearest to the orthogonal complement of `beside`."""
    across, rounds = beside.shape
    windows = np.zeros((len(counted), rounds))
    windows[np.arange(rounds) // window, np.arange(rounds)] = 1
    # |beside x| <= distances, with the sum of distances minimised: absolute values in a linear programme.
    along, distances = csr_matrix(beside), eye_array(across)
    nothing = csr_matrix((len(counted), across))
    with standard_output_silenced():
        result = milp(
            np.concatenate((np.zeros(rounds), np.ones(across))),
            integrality=np.concatenate((np.ones(rounds), np.zeros(across))),
            bounds=Bounds(0, np.concatenate((np.ones(rounds), np.full(across, np.inf)))),
            constraints=[
                LinearConstraint(vstack((hstack((along, -distances)), hstack((-along, -distances)))), -np.inf, 0),
                LinearConstraint(hstack((csr_matrix(windows), nothing)), counted, counted),
            ],
            options={"time_limit": time_limit_s},
        )
    if result.x is None:  # no solution in time: take any column with the right counts
        column = np.arange(rounds) % window < np.repeat(counted, window)[:rounds]
        return column, False
    return result.x[:rounds] > 0.5, result.status == 0  # 0: proven optimal
