"""Rounds of `theorem2`: protocols and servers, counts of their rounds, and the probabilities beside them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.bounds.lotto import allowed, dishonest_fraction_exceeds, secagg_fails
from analysis.bounds.lotto_completed import exceeds_and_completed, exceeds_if_completed
from analysis.reproduction.experiments import declared
from analysis.statistics import Proportion
from testbed.arrays import Floats
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

POPULATION, DISHONEST, PARTICIPANTS, FACTOR, ETA = 100, 10, 10, 1.3, 2.0
ROUNDS = {"small": 300, "paper": 3000}
LOTTO = ("lotto-client-centric", "lotto-server-centric")
_KEEP = "keep-dishonest-candidates"


@dataclass(frozen=True)
class TheoremCondition:
    """One selection protocol under one server.

    Attributes:
        selection: the protocol.
        server: misbehaviours of the server; empty for an honest server.
        minimum: n_min, down to which the server may understate the population; None for protocols without it.
    """

    selection: str
    server: tuple[str, ...] = ()
    minimum: int | None = None

    @property
    def label(self) -> str:
        """Name of the run and of its directory."""
        parts = (self.selection, *self.server, *(() if self.minimum is None else (f"n_min={self.minimum}",)))
        return ",".join(parts)


CONDITIONS = (
    TheoremCondition("random"),
    TheoremCondition("random", ("prefer-dishonest",)),
    *(TheoremCondition(protocol, (_KEEP,), POPULATION) for protocol in LOTTO),
    *(TheoremCondition(protocol, (_KEEP, "understate-population"), POPULATION // 2) for protocol in LOTTO),
)


def experiment_of(condition: TheoremCondition, rounds: int) -> Experiment:
    """Return rounds with a small model, no masks and no dropouts, in which only selection matters.

    Args:
        condition: protocol and server.
        rounds: number of rounds.
    """
    selection: dict[str, Any] = {"protocol": condition.selection, "participants": PARTICIPANTS}
    if condition.minimum is not None:
        selection |= {"over_selection": FACTOR, "min_population": condition.minimum}
    return declared(
        condition.label,
        """
        seed: 1
        workload: {dataset: digits, model: logistic, batch_size: 100}
        aggregation: {protocol: plain}
        cluster: {network: in-process}
        """,
        {
            "rounds": rounds,
            "population": POPULATION,
            "workload.evaluate_every": rounds,
            "selection": selection,
            "adversary": {"dishonest": DISHONEST, "server": list(condition.server)},
        },
    )


def counts_of(condition: TheoremCondition, run: RunRecords) -> pd.DataFrame:
    """Return the number of rounds by outcome, refusal, candidates and dishonest participants.

    Args:
        condition: protocol and server.
        run: records of its rounds.
    """
    rounds = run.rounds[["round", "outcome", "candidates"]].copy()
    dishonest = run.participation.groupby("round")["dishonest"].sum()
    rounds["dishonest"] = dishonest.reindex(rounds["round"], fill_value=0).to_numpy(np.int64)
    rounds["refused"] = rounds["round"].isin(run.events.loc[run.events["kind"] == "refusal", "round"])
    rounds["candidates"] = rounds["candidates"].fillna(0).astype(np.int64)
    counts = rounds.groupby(["outcome", "refused", "candidates", "dishonest"]).size().rename("rounds").reset_index()
    counts.insert(0, "n_min", condition.minimum)
    counts.insert(0, "server", " + ".join(condition.server) or "honest")
    counts.insert(0, "selection", condition.selection)
    return counts


LEAST = (POPULATION, POPULATION // 2)


def bounds_for(least: int, most: int) -> dict[str, float]:
    """Return Pr[x > most] by Theorem 2, and exactly, for an announced and for a completed round.

    Args:
        least: n_min.
        most: k.
    """
    setting = (POPULATION, DISHONEST, PARTICIPANTS, FACTOR)
    eta = (most + 0.5) * POPULATION / (DISHONEST * PARTICIPANTS)  # the middle of the factors with floor(eta c s/n) = k
    return {
        "n_min": least,
        "k": most,
        "Theorem 2": dishonest_fraction_exceeds(*setting, eta, least),
        "announced": exceeds_and_completed(most, *setting, least),
        "completed": exceeds_if_completed(most, *setting, least),
    }


SIZES = ((100, 10, 10, 2.0, 7), (700, 70, 70, 2.0, 49), (200_000, 1000, 200, 10.0, 106))
"""n, c, s, eta and t: this reproduction's size, the largest of the paper's Table 2, and the example of section 3.6."""


def for_size(n: int, c: int, s: int, eta: float, t: int) -> dict[str, float]:
    """Return Theorem 2 and Corollary 1 as printed, and the exact probabilities for a completed round.

    Args:
        n, c, s, eta, t: one of `SIZES`.
    """
    most = allowed(n, c, s, eta)
    return {
        "n": n, "c": c, "s": s, "eta": eta, "t": t,
        "Theorem 2": dishonest_fraction_exceeds(n, c, s, FACTOR, eta),
        "Theorem 2, completed": exceeds_if_completed(most, n, c, s, FACTOR, n),
        "Corollary 1": secagg_fails(c, s, FACTOR, n, t),
        "Corollary 1, completed": exceeds_if_completed(2 * t - s - 1, n, c, s, FACTOR, n),
    }  # fmt: skip


@dataclass(frozen=True)
class ConditionCounts:
    """Rounds of one condition.

    Attributes:
        condition: protocol and server.
        counts: rows with outcome, refused, candidates, dishonest and rounds.
        bounds: rows with k and the probabilities, for the condition's n_min; empty without n_min.
    """

    condition: TheoremCondition
    counts: pd.DataFrame
    bounds: pd.DataFrame

    @property
    def rounds(self) -> int:
        """Number of announced rounds."""
        return int(self.counts["rounds"].sum())

    @property
    def completed(self) -> pd.DataFrame:
        """Rows of the completed rounds that no client refused."""
        return self.counts[(self.counts["outcome"] == "completed") & ~self.counts["refused"].astype(bool)]

    def of_completed(self, value: Callable[[pd.DataFrame], pd.Series]) -> Floats:
        """Return a value of each completed round, `(rounds,)`.

        Args:
            value: function from rows to the value of each row.
        """
        rows = self.completed
        return np.repeat(value(rows).to_numpy(np.float64), rows["rounds"])

    def exceeding(self, most: int, confidence: float = 0.95) -> Proportion:
        """Return the rate of announced rounds with more than `most` dishonest participants.

        Args:
            most: number of dishonest participants.
            confidence: of the interval.
        """
        return Proportion.of(self._beyond(most), self.rounds, confidence)

    def exceeding_if_completed(self, most: int) -> Proportion:
        """Return the rate of completed rounds with more than `most` dishonest participants.

        Args:
            most: number of dishonest participants.
        """
        return Proportion.of(self._beyond(most), int(self.completed["rounds"].sum()))

    def _beyond(self, most: int) -> int:
        rows = self.completed
        return int(rows.loc[rows["dishonest"] > most, "rounds"].sum())

    def bound(self, name: str, most: int) -> float | None:
        """Return a probability of the bounds; None without n_min.

        Args:
            name: column.
            most: k.
        """
        at = self.bounds.loc[self.bounds["k"] == most, name]
        return float(at.iloc[0]) if len(at) else None


def by_condition(counts: pd.DataFrame, bounds: pd.DataFrame) -> list[ConditionCounts]:
    """Return the rounds of each condition, in the conditions' order.

    Args:
        counts: rows of all conditions.
        bounds: rows of all n_min.
    """
    of_each = []
    for condition in CONDITIONS:
        server = " + ".join(condition.server) or "honest"
        chosen = (counts["selection"] == condition.selection) & (counts["server"] == server)
        least = bounds["n_min"] == (condition.minimum or -1)
        of_each.append(ConditionCounts(condition, counts[chosen], bounds[least]))
    return of_each
