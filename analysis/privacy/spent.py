"""The privacy spent by the clients of a run, read from its records."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from testbed.errors import ExperimentError
from testbed.records import RunRecords

EPSILONS = ("epsilon", "planned_epsilon", "colluding_epsilon")


@dataclass(frozen=True)
class Spending:
    """The privacy spent in one run.

    Attributes:
        run: the records.
        delta: of all epsilons.
        budget: the experiment's, or None.
        stopped: why the run ended before its last round; empty otherwise.
        rounds: number of recorded rounds.
        clients: a row for each honest client that was charged, by client: rounds (with the client in their sum, or
            attempts), the three epsilons. Dishonest clients are charged, too, but need no protection from themselves.
        by_round: a row per recorded round: charged (honest clients), and of each epsilon so far the largest
            (``..._max``) and the median over the honest clients that were ever charged (``..._median``).
    """

    run: RunRecords
    delta: float
    budget: float | None
    stopped: str
    rounds: int
    clients: pd.DataFrame
    by_round: pd.DataFrame

    @property
    def label(self) -> str:
        """The run's label."""
        return self.run.label


def spending(run: RunRecords) -> Spending:
    """Return the privacy spent in a run, also in one that goes on.

    Raises:
        ExperimentError: if no client has been charged yet, or rows of the ledger are missing.
    """
    check_complete(run)
    rows = run.ledger_of_honest_clients()
    if rows.empty:
        raise ExperimentError(
            f"{run.path}: no client is charged in this run's privacy ledger: no round has a sum; `testbed bound "
            "privacy` prints the guarantees of its experiment"
        )
    last = rows.groupby("client").agg(rounds=("noise", "count"), **{name: (name, "last") for name in EPSILONS})
    section = run.experiment.get("privacy") or {}
    budget = section.get("budget")
    return Spending(
        run=run,
        delta=float(rows["delta"].iloc[0]),
        budget=None if budget is None else float(budget),
        stopped=run.why_stopped,
        rounds=len(run.rounds),
        clients=last,
        by_round=_by_round(rows, run.rounds["round"].tolist()),
    )


def check_complete(run: RunRecords) -> None:
    """Raise `ExperimentError` if a client with an update in a sum has no row in the ledger of that round."""
    took_part = run.participation
    in_sums = took_part.loc[took_part["survived"], ["round", "client"]]
    # The ledger may hold rows of clients that are in no sum, but each client in a sum must be charged.
    charged = run.frame("privacy")[["round", "client"]].drop_duplicates()
    merged = in_sums.merge(charged, on=["round", "client"], how="left", indicator="charged")
    if missing := int((merged["charged"] == "left_only").sum()):
        raise ExperimentError(
            f"{run.path}: the privacy ledger (privacy.parquet) lacks {missing} of the {len(in_sums)} rows that this "
            "run's participation requires: the file was lost or cut; restore it, or the spent privacy is unknown"
        )


def _by_round(rows: pd.DataFrame, rounds: list[int]) -> pd.DataFrame:
    clients, place = np.unique(rows["client"].to_numpy(), return_inverse=True)
    spent = np.zeros((len(EPSILONS), len(clients)))
    charged = np.zeros(len(clients), np.bool_)
    values, numbers = rows[list(EPSILONS)].to_numpy(np.float64).T, rows["round"].to_numpy()
    rows_by_round: list[dict[str, Any]] = []
    for number in rounds:
        begin, end = np.searchsorted(numbers, (number, number + 1))
        spent[:, place[begin:end]] = values[:, begin:end]
        charged[place[begin:end]] = True
        row: dict[str, Any] = {"round": number, "charged": len(np.unique(place[begin:end]))}
        for name, epsilons in zip(EPSILONS, spent[:, charged], strict=True):
            row |= {
                f"{name}_max": epsilons.max(initial=0.0),
                f"{name}_median": np.median(epsilons) if len(epsilons) else 0.0,
            }
        rows_by_round.append(row)
    return pd.DataFrame(rows_by_round)
