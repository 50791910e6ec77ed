"""The privacy of one run, measured: guesses of the inserted canaries (`testbed.privacy.canaries`) from recorded views.

There are two observers. The server sees each round's sum and its participants: a canary's score is the sum of the sums
that it took part in, along its direction. (A server that adds the noise itself has seen more than that; then the row is
for observers of its releases.) An outsider sees the first model and the last one, and neither sums nor participants.
Both know the canaries. Better guesses may be possible, so that the result is a lower bound on epsilon, which more
correct guesses would raise.

As many canaries with the highest scores are guessed to be inserted as with the lowest to be left out. The total is
tried for a few fixed shares of the canaries, each at an equal part of the error, so that the confidence holds for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

import workloads
from analysis.privacy.guesses import epsilon_of_separation, epsilon_proven, separation
from analysis.privacy.report import Planned, adds_noise, of_run
from analysis.privacy.spent import Spending, spending
from testbed.arrays import Floats, Ids
from testbed.engine.canaries import canary_section
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from testbed.privacy.canaries import canary, is_inserted
from testbed.privacy.section import PrivacySection
from testbed.randomness import Randomness
from testbed.records import RunRecords

Observer = Literal["server", "outsider"]
OBSERVERS: tuple[Observer, ...] = get_args(Observer)

_SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # fractions of the canaries to guess
_AT_ONCE = 2**25  # numbers of canaries in memory


@dataclass(frozen=True)
class Guessed:
    """The guesses that prove the largest epsilon.

    Attributes:
        canaries, guesses, right: m, r, v.
        epsilon: proven, with the requested confidence.
    """

    canaries: int
    guesses: int
    right: int
    epsilon: float


@dataclass(frozen=True)
class Audit:
    """The audit of one run by one observer.

    Attributes:
        run: its records.
        observer: the party that guesses.
        guessed: the guesses, and the epsilon that they prove.
        estimate: epsilon if scores are normal, and differ by their mean alone: no bound (Andrew et al., section 3).
        delta: of all epsilons.
        spent: the run's ledger; None: the run adds no noise.
        plan: guarantees of its selection; None: no noise, or its user-defined classes are not available.
    """

    run: RunRecords
    observer: Observer
    guessed: Guessed
    estimate: float
    delta: float
    spent: Spending | None
    plan: Planned | None

    @property
    def achieved(self) -> float | None:
        """The largest epsilon of a client, by the ledger; None without noise."""
        return None if self.spent is None else float(self.spent.clients["epsilon"].max())

    @property
    def planned(self) -> float | None:
        """The largest epsilon of a client as if every round had all of its noise; None without noise."""
        return None if self.spent is None else float(self.spent.clients["planned_epsilon"].max())

    @property
    def guaranteed(self) -> float | None:
        """The guarantee of the selection against a server that follows the protocol; None if unknown."""
        return None if self.plan is None else float(self.plan.guarantees[0].cost.epsilon)

    @property
    def server_adds_noise(self) -> bool:
        """Whether the server saw sums before they had noise; the audit is then of its releases."""
        return self.plan is not None and self.plan.guarantees[0].server == "trusted"

    @property
    def refuted(self) -> bool:
        """Whether the proven epsilon is larger than the ledger's."""
        return self.achieved is not None and self.guessed.epsilon > self.achieved

    def row(self, confidence: float) -> dict[str, Any]:
        """Return the audit as a row of the table and of JSON."""
        return {
            "run": self.run.label,
            "observer": self.observer,
            "canaries": self.guessed.canaries,
            "guesses": self.guessed.guesses,
            "right": self.guessed.right,
            "audited_epsilon": self.guessed.epsilon,
            "confidence": confidence,
            "estimated_epsilon": self.estimate,
            "achieved_epsilon": self.achieved,
            "planned_epsilon": self.planned,
            "guaranteed_epsilon": self.guaranteed,
            "delta": self.delta,
            "refuted": self.refuted,
        }


def audits(
    runs: Sequence[RunRecords], observers: Sequence[Observer] = OBSERVERS, confidence: float = 0.95
) -> list[Audit]:
    """Audit each run as each observer.

    Args:
        runs: records, with canaries.
        observers: parties that guess.
        confidence: of each bound.

    Raises:
        ExperimentError: if a run has no canaries, or lacks the observer's view.
    """
    results = []
    for run in runs:
        canaries = Canaries(run)
        spent = spending(run) if adds_noise(run) else None
        plan = None if spent is None else of_run(run, spent)
        section = canaries.experiment.privacy or PrivacySection()
        delta = section.delta_for(canaries.experiment.population) if spent is None else spent.delta
        for observer in observers:
            scores = canaries.scores(observer)
            try:
                estimate = epsilon_of_separation(separation(scores, canaries.inserted), delta)
            except ValueError as error:
                raise ExperimentError(f"{run.path}: {error}; set privacy.canaries.clients higher") from None
            guessed = best_guesses(scores, canaries.inserted, delta, confidence)
            results.append(Audit(run, observer, guessed, estimate, delta, spent, plan))
    return results


def best_guesses(scores: Floats, inserted: npt.NDArray[np.bool_], delta: float, confidence: float) -> Guessed:
    """Return the guesses that prove the largest epsilon.

    Args:
        scores: `(m,)` scores of the canaries.
        inserted: `(m,)` the truth.
        delta: of epsilon.
        confidence: of the bound.
    """
    canaries, order = len(scores), np.argsort(scores, kind="stable")
    error = (1 - confidence) / len(_SHARES)  # union bound over the shares
    tried = []
    for share in _SHARES:
        per_end = max(1, round(share * canaries / 2))
        # No canary may be at both ends.
        lowest, highest = order[:per_end], order[canaries - min(per_end, canaries - per_end) :]
        guesses = len(lowest) + len(highest)
        right = int((~inserted[lowest]).sum() + inserted[highest].sum())
        proven = epsilon_proven(canaries, guesses, right, delta, 1 - error)
        tried.append(Guessed(canaries, guesses, right, proven))
    return max(
        tried,
        key=lambda guesses_of_share: (guesses_of_share.epsilon, guesses_of_share.right / guesses_of_share.guesses),
    )


class Canaries:
    """The canaries of a run, and their scores.

    Args:
        run: its records.

    Attributes:
        experiment: the run's.
        clients: `(m,)` sorted.
        inserted: `(m,)` bool: whether each canary was inserted.

    Raises:
        ExperimentError: if the run has no canaries.
    """

    def __init__(self, run: RunRecords) -> None:
        self.experiment: Experiment = validated(run.experiment, str(run.path / "experiment.yaml"))
        section = canary_section(self.experiment)
        if section is None:
            raise ExperimentError(
                f"{run.path}: has no canaries; run it with --set privacy.canaries.clients=0.5 (half of the clients) "
                "and records.aggregates: all"
            )
        self._run = run
        seed = self.experiment.seed
        if seed is None:
            # Without a seed in the experiment, the run recorded the one that its canaries were drawn with.
            seed = int((self.experiment.provenance or {})["simulation_seed"])
        self._randomness = Randomness(seed)
        dishonest = RunPlan(self.experiment, seed).dishonest
        self.clients: Ids = section.draw(self.experiment.population, dishonest, self._randomness)
        # The same keyed coins as in the run, which does not record them.
        coins = [is_inserted(self._randomness, client) for client in self.clients.tolist()]
        self.inserted: npt.NDArray[np.bool_] = np.array(coins, np.bool_)

    def scores(self, observer: Observer) -> Floats:
        """Return the scores of the canaries by an observer's view.

        Args:
            observer: the party that guesses.

        Returns:
            `(m,)`.

        Raises:
            ExperimentError: if the view is not recorded.
        """
        return self._by_server() if observer == "server" else self._by_outsider()

    def _by_server(self) -> Floats:
        rounds, recorded = self._run.rounds, self._run.participation
        done = rounds.loc[rounds["outcome"] == "completed", "round"].tolist()
        if not done:
            raise ExperimentError(f"{self._run.path}: no round was completed, so there is nothing to audit")
        survived = recorded[recorded["survived"]]
        scores = np.zeros(len(self.clients))
        in_sums = {number: rows.to_numpy(np.int64) for number, rows in survived.groupby("round")["client"]}
        for block, directions in self._directions(len(self._aggregate(done[0])[1])):
            for number in done:
                weight, mean = self._aggregate(number)
                in_sum = np.isin(self.clients[block], in_sums.get(number, np.zeros(0, np.int64)))
                # The server saw the weighted sum; records hold its mean.
                scores[block[in_sum]] += directions[in_sum] @ (mean * weight).astype(np.float32)
        return scores

    def _aggregate(self, number: int) -> tuple[float, Floats]:
        aggregate = self._run.aggregate(number)
        if aggregate is None:
            raise ExperimentError(
                f"{self._run.path}: has no aggregate of round {number}, which the server saw; run it with "
                "records.aggregates: all, or audit with --observer outsider"
            )
        return aggregate.weight, aggregate.mean

    def _by_outsider(self) -> Floats:
        last = self._run.model
        if last is None:
            raise ExperimentError(f"{self._run.path}: no round is recorded, so there is no model to audit")
        workload = workloads.build(self.experiment.workload, self.experiment.population, self._randomness.seed)
        moved = last - workload.initial_model()
        scores = np.zeros(len(self.clients))
        for block, directions in self._directions(len(moved)):
            scores[block] = directions @ moved
        return scores

    def _directions(self, dimension: int) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]]:
        """Yield indices of canaries, as many at a time as fit in memory, with their `(indices, d)` unit vectors."""
        for block in np.array_split(np.arange(len(self.clients)), -(-len(self.clients) * dimension // _AT_ONCE)):
            clients = self.clients[block].tolist()
            yield block, np.array([canary(self._randomness, client, dimension) for client in clients])
