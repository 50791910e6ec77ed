"""Property inference on a recorded run: each client's labels and their shares, for several observations.

Kerkouche, Acs, Fritz, Client-specific Property Inference against Secure Aggregation in Federated Learning, WPES 2023,
arXiv 2303.03908; the property is the clients' labels.

The attacker has its own labelled samples from the same distribution: the held-out ones. For each round, it composes
data sets of them, trains on each from that round's model as the clients do, and fits a linear detector from updates to
shares of the labels (ridge regression; the mixtures are uniform, the sizes are chosen at random among the clients').
The detector is applied to the round's sum, with its constant once for each participant, and the result is solved for
the clients (`analysis.attacks.client_scores`).

- ``update``: the detectors' mean over a client's own updates, as a server without secure aggregation has them.
- ``sums``: all rounds' sums, solved, compared with the client's own labels.
- ``group``: the same, compared with the labels of all clients that are always in the same sums, once for each group.
- ``round``: one round's sum, the first that the client was in, compared with the client's own labels.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from analysis.attacks.client_scores import client_scores, ridge
from analysis.attacks.roc import Discrimination, discrimination
from analysis.attacks.sums_seen import Facts, SumsSeen
from analysis.statistics import Proportion
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from workloads.data.clients.contract import Batch
from workloads.training.classification import TorchWorkload

Observation = Literal["update", "sums", "group", "round"]
OBSERVATIONS: tuple[Observation, ...] = get_args(Observation)


@dataclass(frozen=True)
class LabelEstimate:
    """Accuracy of the estimated labels of the clients.

    Attributes:
        top: rate of clients (or groups) with a named most frequent label; any of several most frequent ones is right.
        top_guessed: the same rate for one label for all clients, the one that is right most often.
        off: mean over clients of half the sum of the differences between estimated and true shares.
        off_guessed: the same for the mean of all clients as the estimate.
        holds: detection of the labels that a client holds at all, over all clients and labels; None if all clients hold
            all labels, or none.
    """

    top: Proportion
    top_guessed: float
    off: float
    off_guessed: float
    holds: Discrimination | None

    @classmethod
    def of(cls, estimated: Floats, shares: Floats, confidence: float) -> "LabelEstimate":
        """Compare estimates with the truth.

        Args:
            estimated: `(m, labels)` estimated shares.
            shares: `(m, labels)` true shares.
            confidence: of the intervals.
        """
        largest = shares == shares.max(axis=1, keepdims=True)
        right = largest[np.arange(len(estimated)), estimated.argmax(axis=1)]
        positive = shares > 0
        both = positive.any() and not positive.all()
        return cls(
            top=Proportion.of(int(right.sum()), len(right), confidence),
            top_guessed=float(largest.mean(axis=0).max()),
            off=_off(estimated, shares),
            off_guessed=_off(shares.mean(axis=0, keepdims=True), shares),
            holds=discrimination(estimated[positive], estimated[~positive], confidence=confidence) if both else None,
        )


@dataclass(frozen=True)
class PropertyInference:
    """Property inference on one run.

    Attributes:
        run: its records.
        facts: facts on the rounds, with T and the ledger.
        shadows: number of data sets that the attacker composed for each round.
        by_observation: accuracy of the estimates, by observation.
    """

    run: RunRecords
    facts: Facts
    shadows: int
    by_observation: dict[Observation, LabelEstimate]

    @property
    def warnings(self) -> list[str]:
        """Warnings on the validity of the result, one line each."""
        return [self.facts.warning] if self.facts.warning else []

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per observation, for tables and JSON."""
        return [
            {
                "run": self.run.label,
                **self.facts.row(),
                "seen": observation,
                "shadows": self.shadows,
                "top_label": estimate.top.rate,
                "top_label_low": estimate.top.low,
                "top_label_high": estimate.top.high,
                "top_label_guessed": estimate.top_guessed,
                "shares_off": estimate.off,
                "shares_off_guessed": estimate.off_guessed,
                "holds_auc": None if estimate.holds is None else estimate.holds.auc,
                "holds_auc_low": None if estimate.holds is None else estimate.holds.auc_low,
                "holds_auc_high": None if estimate.holds is None else estimate.holds.auc_high,
            }
            for observation, estimate in self.by_observation.items()
        ]


def property_inference(
    run: RunRecords,
    first: int | None = None,
    last: int | None = None,
    *,
    shadows: int = 60,
    confidence: float = 0.95,
    seed: int = 0,
) -> PropertyInference:
    """Attack the rounds `first` to `last` of a run.

    Args:
        run: its records, with aggregates.
        first, last: rounds; None: the first and last with recorded aggregates.
        shadows: data sets that the attacker composes for each round, two or more.
        confidence: of the intervals.
        seed: of the attacker's choices.

    Raises:
        ExperimentError: as `SumsSeen.of` does; or if samples have no label that is a class.
    """
    observed = SumsSeen.of(run, first, last)
    counts = _label_counts(run, observed.workload)
    clients, participation = observed.clients, observed.view.participation
    with np.errstate(invalid="ignore"):
        shares = counts / counts.sum(axis=1, keepdims=True)
    by_update, by_sum = _detected(observed, counts.shape[1], shadows, seed)
    rounds = participation.sum(axis=0)[:, None]
    estimated: dict[Observation, Floats] = {
        "update": by_update[clients] / rounds[clients],
        "sums": client_scores(participation, observed.weights, by_sum * (participation @ observed.weights)[:, None])[
            clients
        ],
        "round": by_sum[participation.argmax(axis=0)][clients],
    }
    places, of_groups = _of_groups(observed, shares)
    by_observation = {
        name: LabelEstimate.of(numbers, shares[clients], confidence) for name, numbers in estimated.items()
    }
    by_observation["group"] = LabelEstimate.of(estimated["sums"][places], of_groups, confidence)
    by_observation = {name: by_observation[name] for name in OBSERVATIONS}
    return PropertyInference(run, observed.facts(), shadows, by_observation)


def _detected(observed: SumsSeen, labels: int, shadows: int, seed: int) -> tuple[Floats, Floats]:
    """Apply the detectors: `(n, labels)` sum over each client's own updates, `(r, labels)` on each round's mean."""
    view, rng, own = observed.view, np.random.default_rng(seed), _OwnSamples(observed.workload, labels)
    by_update, by_sum = np.zeros((view.participation.shape[1], labels)), np.zeros((len(view.rounds), labels))
    sizes = np.asarray(observed.workload.sample_counts)[observed.clients]
    for place, number in enumerate(view.rounds.tolist()):
        model = observed.model(number)
        mixtures, updates = [], []
        for shadow in range(shadows):
            samples = own.sample(int(rng.choice(sizes)), rng)
            mixtures.append(np.bincount(samples[1].numpy(), minlength=labels) / len(samples[1]))
            # Numbers beyond the population: no client of the run has the random numbers of a shadow.
            updates.append(observed.workload.train_on(samples, model, number, view.participation.shape[1] + shadow))
        detector = Detector.fit(np.array(updates, np.float64), np.array(mixtures))
        # Shadows are single updates, so the detector takes a mean, not a sum.
        mean = view.sums[place] / (view.participation[place] @ observed.weights)
        by_sum[place] = detector(mean[None])[0]
        for client, update in observed.updates(place, model).items():
            by_update[client] += detector(update[None].astype(np.float64))[0]
    return by_update, by_sum


@dataclass(frozen=True)
class Detector:
    """A linear function from updates to shares of labels.

    Attributes:
        centre: `(d,)` mean of the updates that the detector was fitted to.
        slopes: `(d, labels)`.
        mean: `(labels,)` mean of the shares that the detector was fitted to.
    """

    centre: Floats
    slopes: Floats
    mean: Floats

    @classmethod
    def fit(cls, updates: Floats, shares: Floats) -> "Detector":
        """Fit a detector to `(k, d)` updates and their `(k, labels)` shares, by ridge regression."""
        centre, mean = updates.mean(axis=0), shares.mean(axis=0)
        rows = updates - centre
        return cls(centre, rows.T @ ridge(rows @ rows.T, shares - mean), mean)

    def __call__(self, updates: Floats) -> Floats:
        """Return the estimated shares `(k, labels)` of `(k, d)` updates."""
        shares: Floats = (updates - self.centre) @ self.slopes + self.mean
        return shares


class _OwnSamples:
    """The attacker's own samples: the held-out ones."""

    def __init__(self, workload: TorchWorkload, labels: int) -> None:
        self._inputs, self._labels = workload.data.held_out()
        labels_of_samples = self._labels.numpy()
        self._of_label = [np.flatnonzero(labels_of_samples == label) for label in range(labels)]
        self._there = np.flatnonzero([len(places) > 0 for places in self._of_label])

    def sample(self, size: int, rng: np.random.Generator) -> Batch:
        """Choose `size` samples in a uniform mixture of labels; samples repeat where a label has too few."""
        # Dirichlet's law with ones is uniform over mixtures, so that the detector sees skewed clients, too.
        counts = rng.multinomial(size, rng.dirichlet(np.ones(len(self._there))))
        places = []
        for label, count in zip(self._there.tolist(), counts.tolist(), strict=True):
            places_of_label = self._of_label[label]
            places += rng.choice(places_of_label, count, replace=count > len(places_of_label)).tolist()
        chosen = torch.tensor(places)
        return self._inputs[chosen], self._labels[chosen]


def _label_counts(run: RunRecords, workload: TorchWorkload) -> npt.NDArray[np.int64]:
    counts = workload.label_counts()
    _, labels = workload.data.held_out()
    if counts.shape[1] < 2 or labels.dim() != 1 or labels.is_floating_point():
        raise ExperimentError(
            f"{run.path}: its samples have no label that is one of several classes (next words, or values), so that "
            "clients have no share of it"
        )
    return counts


def _of_groups(observed: SumsSeen, shares: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return one member and the shares of each group of clients that are always in the same sums.

    Returns:
        `(groups,)` index of one member in `observed.clients`, and `(groups, labels)` mean shares of the members,
        weighted as in the sums.
    """
    groups, places = np.unique(observed.groups[observed.clients], return_index=True)
    mean_shares = []
    for group in groups.tolist():
        members = np.flatnonzero((observed.groups == group) & np.isfinite(shares).all(axis=1))
        mean_shares.append(observed.weights[members] @ shares[members] / observed.weights[members].sum())
    return places, np.array(mean_shares)


def _off(estimated: Floats, shares: Floats) -> float:
    return float(np.abs(np.clip(estimated, 0, 1) - shares).sum(axis=1).mean() / 2)
