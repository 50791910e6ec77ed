"""Reconstruction of single updates from many sums, by least squares.

So et al., Multi-RoundSecAgg, arXiv 2106.03328, appendix H.2.

A `View` is the server's view of some rounds of a run. When a model has converged, updates hardly change from round to
round, and the server's sums are (31): P times the weighted updates, plus their changes. If P has full rank, least
squares (32) gives every update. If not, the solution of minimum norm is the best possible: for clients that are always
in the same sums, as in a batch, their weighted mean. The paper stops at the inverse; this is the same attack for every
P.

The norm is that of the clients' updates, each squared and times its weight: then members of a batch get their mean for
all weights. Where P has full rank the choice does not matter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.attacks.victims import Victims
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from testbed.records.arrays import RoundAggregate

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class View:
    """The server's view of a range of rounds: the completed ones.

    Attributes:
        rounds: `(r,)` numbers of the completed rounds.
        skipped: number of other rounds in the range.
        participation: `(r, n)` bool, P: the clients in each sum.
        sums: `(r, d)` float64, sums of the updates times their weights.
        model: `(d,)` float32 at the start of the first of them.
    """

    rounds: Integers
    skipped: int
    participation: npt.NDArray[np.bool_]
    sums: Floats
    model: npt.NDArray[np.float32]


def view(run: RunRecords, first: int, last: int) -> View:
    """Return the server's view of the rounds `first` to `last`, both included.

    Args:
        run: its records, with aggregates.
        first, last: rounds.

    Raises:
        ExperimentError: if there are no such rounds, none of them completed, or the aggregate of one is not recorded;
            if the run is asynchronous, or combines updates by a rule; or if its records are inconsistent.
    """
    if run.experiment.get("asynchronous") is not None:
        raise ExperimentError(
            f"{run.path}: an asynchronous run, in which clients trained on models of several rounds and scaled their "
            "updates; attacks by least squares need updates of one model"
        )
    if (run.experiment["aggregation"].get("robust") or {}).get("rule") is not None:
        raise ExperimentError(
            f"{run.path}: combines updates by a rule (aggregation.robust), so that its rounds have no sums to solve; "
            "its server sees each update by itself"
        )
    recorded = run.rounds
    done = len(recorded)
    if not 1 <= first <= last <= done:
        raise ExperimentError(f"{run.path}: rounds {first} to {last}; there are rounds 1 to {done}, the earlier first")
    stretch = recorded[recorded["round"].between(first, last)]
    rounds = stretch.loc[stretch["outcome"] == "completed", "round"].to_numpy(np.int64)
    if not len(rounds):
        raise ExperimentError(f"{run.path}: none of rounds {first} to {last} was completed; select more rounds")
    aggregates: list[RoundAggregate] = []
    for number in rounds.tolist():
        aggregate = run.aggregate(number)
        if aggregate is None:
            raise ExperimentError(
                f"{run.path}: has no aggregate of round {number}; run it with records.aggregates: all, "
                f"or [{first}, {last}]"
            )
        model_and_mean = np.concatenate((aggregate.model, aggregate.mean))
        if (aggregates and len(model_and_mean) != 2 * len(aggregates[0].model)) or len(aggregate.model) != len(
            aggregate.mean
        ):
            raise ExperimentError(f"{run.path}: the aggregate of round {number} is of another model; run it again")
        if not np.isfinite(model_and_mean).all():
            raise ExperimentError(f"{run.path}: the aggregate of round {number} is not finite; run it again")
        aggregates.append(aggregate)
    rows = run.participation
    rows = rows[rows["survived"] & rows["round"].isin(rounds)]
    population = int(run.experiment["population"])
    if rows["client"].max() >= population:
        raise ExperimentError(
            f"{run.path}: client {rows['client'].max()} took part, of a population of {population}: experiment.yaml "
            "does not belong to these records"
        )
    participation = np.zeros((len(rounds), population), np.bool_)
    participation[np.searchsorted(rounds, rows["round"]), rows["client"]] = True
    sums = np.array([aggregate.mean * aggregate.weight for aggregate in aggregates])
    return View(rounds, last - first + 1 - len(rounds), participation, sums, aggregates[0].model)


# -- least squares ----------------------------------------------------------------------------------------------------


_DETERMINED = 1 - 1e-6


@dataclass(frozen=True)
class Estimates:
    """The server's estimates of the clients' updates.

    Attributes:
        clients: `(m,)` clients that are in some sum.
        updates: `(m, d)` float64, estimates of their updates.
        rank: rank of P.
        determined: `(m,)` bool: whether the sums leave no freedom for the client's update (were updates constant).
        condition: largest over smallest singular value of P, the largest amplification of changes in the updates.
    """

    clients: Integers
    updates: Floats
    rank: int
    determined: npt.NDArray[np.bool_]
    condition: float


def estimates(view: View, weights: Floats) -> Estimates:
    """Solve (31) for the updates, all coordinates at once.

    Args:
        view: the server's view.
        weights: `(n,)` weight of each client's update in a sum, above 0 for clients that are in one.
    """
    clients = np.flatnonzero(view.participation.any(axis=0))
    scale = np.sqrt(weights[clients])  # so that members of a batch get their weighted mean
    left, singular, right = np.linalg.svd(view.participation[:, clients] * scale, full_matrices=False)
    rank = int((singular > singular[0] * max(len(left), len(clients)) * np.finfo(np.float64).eps).sum())
    left, singular, right = left[:, :rank], singular[:rank], right[:rank]
    solve = (right.T / singular) @ left.T / scale[:, None]
    determined = _determined(view.participation[:, clients].astype(np.float64))
    return Estimates(clients, solve @ view.sums, rank, determined, float(singular[0] / singular[-1]))


def _determined(participation: Floats) -> npt.NDArray[np.bool_]:
    """Return whether each unit vector is in the row space of P, `(m,)`."""
    # The weights scale columns of P and do not matter.
    right = _row_space(participation)
    return np.asarray(np.einsum("ki,ki->i", right, right) > _DETERMINED)


def spanned(participation: npt.ArrayLike, group: Integers) -> bool:
    """Return whether the sum over the clients `group` alone is a combination of the rows of P.

    Args:
        participation: `(rounds, n)`, P.
        group: client numbers.

    Example:
        >>> spanned([[True, True, False], [False, True, False]], np.array([0]))
        True
    """
    matrix = np.asarray(participation, np.float64)
    indicator = np.zeros(matrix.shape[1])
    indicator[group] = 1
    right = _row_space(matrix)
    return bool(np.square(right @ indicator).sum() > _DETERMINED * len(group))  # the projection keeps its length


def spanned_groups(participation: npt.NDArray[np.bool_], groups: Integers) -> npt.NDArray[np.bool_]:
    """Return `spanned` for the group of each client, for groups of clients with equal columns of P.

    Args:
        participation: `(rounds, n)`, P.
        groups: `(n,)` group of each client.

    Returns:
        `(n,)` bool.
    """
    # Equal columns of P are equal in its row space, too.
    right = _row_space(participation.astype(np.float64))
    return np.asarray(np.einsum("ki,ki->i", right, right) * np.bincount(groups)[groups] > _DETERMINED)


def _row_space(matrix: Floats) -> Floats:
    """Return an orthonormal basis of the row space, `(rank, n)`."""
    _, singular, right = np.linalg.svd(matrix, full_matrices=False)
    rows: Floats = right[singular > singular[0] * max(matrix.shape) * np.finfo(np.float64).eps]
    return rows


def errors(estimated: Floats, true: npt.NDArray[np.float32]) -> Floats:
    """Return e_i of (33), the squared distance over the squared norm of the truth; NaN where that norm is 0.

    Args:
        estimated, true: `(m, d)`.

    Returns:
        `(m,)`.
    """
    return _quotients(estimated, true, lambda guess, update: (((guess - update) ** 2).sum(), (update**2).sum()))


def cosines(estimated: Floats, true: npt.NDArray[np.float32]) -> Floats:
    """Return the cosines of the angles between estimates and truth; NaN where one of them is 0.

    Args:
        estimated, true: `(m, d)`.

    Returns:
        `(m,)`.
    """
    return _quotients(
        estimated, true, lambda guess, update: (guess @ update, np.sqrt((guess @ guess) * (update @ update)))
    )


def _quotients(
    estimated: Floats, true: npt.NDArray[np.float32], parts: Callable[[Floats, Floats], tuple[Any, Any]]
) -> Floats:
    """Return the quotient of the parts of each row, `(m,)`; NaN over 0. Row by row, to avoid copies of (m, d)."""
    parts_of_rows = [parts(guess, update.astype(np.float64)) for guess, update in zip(estimated, true, strict=True)]
    above, below = np.array(parts_of_rows, np.float64).reshape(-1, 2).T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below > 0, above / below, np.nan)


# -- measured on a run ------------------------------------------------------------------------------------------------


_OTHER_TRAINING = 0.05  # of the first sum's norm: above, training again does not give the run's updates


@dataclass(frozen=True)
class Reconstruction:
    """The outcome of a reconstruction.

    Attributes:
        view: the server's view.
        estimates: the server's estimates.
        table: one row per client in some sum: client, error (33), cosine, determined, rounds.
        deviation: distance of the first sum from that of the true updates, relative to its norm; 0 but for rounding
            (and quantisation) when the truth is right.
    """

    view: View
    estimates: Estimates
    table: pd.DataFrame
    deviation: float


def reconstruct(run: RunRecords, first: int, last: int, victims: Victims | None = None) -> Reconstruction:
    """Attack the rounds `first` to `last` of a run, and compare the estimates with the updates of the first of them.

    Args:
        run: its records, with aggregates.
        first, last: rounds; only completed ones count.
        victims: of the run; None: made from the run.

    Raises:
        ExperimentError: as `view` does; or if the run's workload cannot be built again.
    """
    victims = Victims(run) if victims is None else victims
    observed = view(run, first, last)
    return measured(observed, victims.weights, victims.updates(observed.model, int(observed.rounds[0])))


def measured(observed: View, weights: npt.NDArray[np.float64], truth: npt.NDArray[np.float32]) -> Reconstruction:
    """Estimate the updates from a view and compare them with the truth.

    Args:
        observed: the server's view.
        weights: `(n,)` weight of each client's update in a sum.
        truth: `(n, d)` float32, the true updates of the view's first round.
    """
    solution = estimates(observed, weights)
    true = truth[solution.clients]
    first = observed.participation[0, solution.clients]
    deviation = relative_distance(observed.sums[0], (weights[solution.clients] * first) @ true)
    table = pd.DataFrame(
        {
            "client": solution.clients,
            "error": errors(solution.updates, true),
            "cosine": cosines(solution.updates, true),
            "determined": solution.determined,
            "rounds": observed.participation[:, solution.clients].sum(axis=0),
        }
    )
    return Reconstruction(observed, solution, table, deviation)


def relative_distance(reference: Floats, other: Floats) -> float:
    """Return the norm of the difference of two `(d,)` vectors over that of the first; 0 where the first is 0.

    Args:
        reference: `(d,)`.
        other: `(d,)`.
    """
    norm = float(np.linalg.norm(reference))
    return float(np.linalg.norm(reference - other)) / norm if norm else 0.0


def other_training(deviation: float) -> str:
    """Return a warning where training again gives another first sum than the run's; empty where it does not."""
    if deviation <= _OTHER_TRAINING:
        return ""
    return (
        f"training again gives another first sum ({deviation:.2g} of its norm): clipped or dishonest updates, "
        "other data, or another version"
    )
