"""A server's view of a run under secure aggregation, for inference: the models, the sums, and their participants.

Beside the view stand its bounds (T, the ledger), and the truth that inference is compared with.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.attacks.reconstruction import View, other_training, relative_distance, spanned_groups, view
from analysis.attacks.roc import most_found
from analysis.attacks.victims import Victims
from analysis.multi_round.over_rounds import WeakPrivacy, weak_privacy
from analysis.multi_round.participation import strong_privacy
from analysis.privacy.report import adds_noise
from analysis.privacy.spent import Spending, spending
from testbed.aggregation.dp_sgd_random_participation import RandomParticipationParameters
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.arrays import Floats, Ids
from testbed.engine.canaries import canary_section
from testbed.errors import ExperimentError
from testbed.experiment.sections import RecordsSection
from testbed.records import RunRecords
from workloads.training.classification import TorchWorkload

_SEARCH_S = 20.0


@dataclass(frozen=True)
class SumsSeen:
    """The view of a range of rounds of one run.

    Attributes:
        run: its records.
        view: sums and participation.
        victims: the truth.
        workload: workload of the victims; its network is of torch.
        clients: `(m,)` honest clients that are in some sum and have samples.
        weights: `(n,)` weight of each client's update in a sum.
    """

    run: RunRecords
    view: View
    victims: Victims
    workload: TorchWorkload
    clients: Ids
    weights: Floats

    @classmethod
    def of(cls, run: RunRecords, first: int | None = None, last: int | None = None) -> "SumsSeen":
        """Return the view of the rounds `first` to `last`.

        Args:
            run: its records, with aggregates.
            first, last: rounds; None: the first and last with recorded aggregates.

        Raises:
            ExperimentError: as `analysis.attacks.reconstruction.view` and `Victims` do; or if the clients did not send
                updates of a torch network trained on their data.
        """
        begin, end = _recorded(run)
        observed = view(run, begin if first is None else first, end if last is None else last)
        victims = Victims(run)
        workload = _torch_workload(run, victims)
        if workload.dimension != len(observed.model):
            raise ExperimentError(
                f"{run.path}: its models have {len(observed.model)} parameters, and the experiment's has "
                f"{workload.dimension}: experiment.yaml does not belong to these records"
            )
        recorded = run.participation
        dishonest = recorded.loc[recorded["dishonest"], "client"].unique()
        clients = np.flatnonzero(observed.participation.any(axis=0) & (np.asarray(workload.sample_counts) > 0))
        clients = np.setdiff1d(clients, dishonest)  # they may tell their updates, or send false ones
        if not len(clients):
            raise ExperimentError(
                f"{run.path}: no honest client with samples is in a sum of these rounds; select more rounds"
            )
        return cls(run, observed, victims, workload, clients, victims.weights)

    def model(self, number: int) -> npt.NDArray[np.float32]:
        """Return the model at the start of a round, `(d,)`."""
        aggregate = self.run.aggregate(number)
        assert aggregate is not None  # `view` has read it
        return aggregate.model

    @property
    def final_model(self) -> npt.NDArray[np.float32]:
        """`(d,)` the model after the run's last round, which is public."""
        model = self.run.model
        assert model is not None  # a round was completed
        return model

    def updates(self, place: int, model: npt.NDArray[np.float32]) -> dict[int, npt.NDArray[np.float32]]:
        """Train the updates of a round again.

        Args:
            place: index of the round in the view.
            model: `(d,)` float32, at the start of the round.

        Returns:
            `(d,)` update of each participant, by client, ascending.
        """
        number = int(self.view.rounds[place])
        clients: Iterable[int] = np.flatnonzero(self.view.participation[place]).tolist()
        return {client: self.workload.train(client, model, number).delta for client in clients}

    @cached_property
    def groups(self) -> npt.NDArray[np.int64]:
        """`(n,)` group of each client: clients that are always in the same sums have equal numbers."""
        _, numbers = np.unique(self.view.participation.T, axis=0, return_inverse=True)
        return numbers.reshape(-1)

    @property
    def isolated(self) -> int:
        """Number of `clients` for which the sums determine the update of their group, were it constant."""
        return int(spanned_groups(self.view.participation, self.groups)[self.clients].sum())

    def facts(self) -> "Facts":
        """Return the facts on the view that tables show, without its arrays."""
        updates = self.updates(0, self.view.model)
        total = sum(self.weights[client] * update.astype(np.float64) for client, update in updates.items())
        matrix = self.view.participation
        return Facts(
            first_round=int(self.view.rounds[0]),
            last_round=int(self.view.rounds[-1]),
            completed=len(self.view.rounds),
            clients=len(self.clients),
            privacy=weak_privacy(matrix[:, matrix.any(axis=0)], _SEARCH_S),  # clients in no sum cannot be isolated
            strong_privacy=strong_privacy(matrix),
            isolated=self.isolated,
            noise=noise_of(self.victims.experiment.aggregation),
            spent=spending(self.run) if adds_noise(self.run) else None,
            deviation=relative_distance(self.view.sums[0], total),
        )


@dataclass(frozen=True)
class Facts:
    """Facts on a range of rounds.

    Attributes:
        first_round, last_round, completed: numbers of the first and last round, and number of completed rounds.
        clients: number of honest clients with samples that are in some sum.
        privacy: weak multi-round privacy T of these rounds.
        strong_privacy: strong multi-round privacy T.
        isolated: number of `clients` for which the sums determine the update of their group, were it constant.
        noise: noise of the run's aggregation; None: without.
        spent: the run's ledger; None: without noise.
        deviation: distance of the first sum from that of the updates trained again, relative to its norm.
    """

    first_round: int
    last_round: int
    completed: int
    clients: int
    privacy: WeakPrivacy
    strong_privacy: int
    isolated: int
    noise: Any
    spent: Spending | None
    deviation: float

    @property
    def warning(self) -> str:
        """Warning on the truth, in one line; empty if there is none."""
        return "" if self.spent is not None else other_training(self.deviation)  # noise makes any sum differ

    @property
    def epsilon(self) -> float | None:
        """The largest epsilon of a client, by the ledger; None without noise."""
        return None if self.spent is None else float(self.spent.clients["epsilon"].max())

    def most_found(self, level: float) -> float | None:
        """Return the largest true-positive rate of any attack (`roc.most_found`); None without noise."""
        return None if self.spent is None or self.epsilon is None else most_found(self.epsilon, self.spent.delta, level)

    @property
    def shown_privacy(self) -> str:
        """T as shown in tables."""
        return f"{self.privacy.value}" if self.privacy.certified else f"≥{self.privacy.lower_bound}"

    @property
    def shown_noise(self) -> str:
        """Label of the run's noise in figures; empty without noise."""
        if self.spent is None:
            return ""
        multiplier = getattr(self.noise, "noise_multiplier", None)
        return "noise" if multiplier is None else f"noise {multiplier:g}"

    def row(self) -> dict[str, Any]:
        """Return the facts as columns of JSON and CSV."""
        return {
            "first_round": self.first_round,
            "last_round": self.last_round,
            "completed": self.completed,
            "clients": self.clients,
            "multi_round_privacy_weak": self.privacy.value,
            "multi_round_privacy_weak_certified": self.privacy.certified,
            "multi_round_privacy_weak_lower_bound": self.privacy.lower_bound,
            "multi_round_privacy_strong": self.strong_privacy,
            "isolated": self.isolated,
            "epsilon": self.epsilon,
            "delta": None if self.spent is None else self.spent.delta,
            "truth_deviation": self.deviation,
            "truth_holds": not self.warning,
        }


def _recorded(run: RunRecords) -> tuple[int, int]:
    """Return the first and the last recorded round with an aggregate."""
    section = RecordsSection.model_validate(run.experiment.get("records") or {})
    if section.aggregates == "none":
        raise ExperimentError(f"{run.path}: has not recorded its aggregates; run it with --set records.aggregates=all")
    first, last = (1, len(run.rounds)) if section.aggregates == "all" else section.aggregates
    return first, min(last, len(run.rounds))


def _torch_workload(run: RunRecords, victims: Victims) -> TorchWorkload:
    experiment, workload = victims.experiment, victims.workload
    if isinstance(experiment.aggregation, RandomParticipationParameters):
        raise ExperimentError(
            f"{run.path}: under {experiment.aggregation.protocol} clients send gradients of random samples, not "
            "updates; attacks on updates do not apply"
        )
    if canary_section(experiment) is not None:
        raise ExperimentError(
            f"{run.path}: its canaries sent known vectors (privacy.canaries), not updates; run it without canaries"
        )
    # A subclass may train on something else than its samples' losses, which the attack's gradients assume.
    if not isinstance(workload, TorchWorkload) or type(workload).train is not TorchWorkload.train:
        raise ExperimentError(
            f"{run.path}: workload.dataset {experiment.workload.dataset}: has its own training, so that gradients of "
            "single samples, or updates of other data, are not known; use a data set with built-in training "
            "(workload.training: real)"
        )
    return workload
