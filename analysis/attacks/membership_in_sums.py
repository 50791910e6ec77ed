"""Membership inference on a recorded run, for several observations: each update, all sums, one sum, the last model.

The score of a sample is the cosine of an update and of the negative gradient of the sample's loss at the model that the
update started from: Li, Li, Ribeiro, Effective passive membership inference attacks in federated learning against
overparameterized models, ICLR 2023 (as Zhu et al., FedMIA, arXiv 2402.06289, equation (7), state it). The attack needs
no shadow models: the attacker has the models, the observed updates or sums, and the sample with its label. Over several
rounds the paper takes the mean; here rounds are weighted.

- ``update``: each client's own updates, as a server without secure aggregation has them.
- ``sums``: a round's score is that of its mean update, times its participants: linear in the sum, so that the scores
  can be solved for the clients over all rounds (`analysis.attacks.client_scores`). Clients that are always summed
  together have one score: a member is then a sample of any of them.
- ``round``: the sum of one round in which the client was, the first.
- ``model``: an outsider's view, by the loss under the last model: Yeom, Giacomelli, Fredrikson, Jha, Privacy Risk in
  Machine Learning, CSF 2018, arXiv 1709.01604, section 3.

Each attack is tried on the same samples: members, chosen from the training data of all clients that are in a sum, and
as many held-out ones with the same labels. For a member, ``update`` and ``sums`` also name its source, the client with
the highest score (source inference: Hu, Salcic, Sun, Dobbie, Zhang, ICDM 2021, arXiv 2109.05659; by the cosine instead
of the loss of the client's model, which sums do not give).
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from analysis.attacks.client_scores import client_scores
from analysis.attacks.reconstruction import View
from analysis.attacks.roc import Discrimination, discrimination
from analysis.attacks.sums_seen import Facts, SumsSeen
from analysis.statistics import Proportion
from testbed.arrays import Floats, Ids
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords
from testbed.workload.specs import datasets
from workloads.data.clients.contract import Batch
from workloads.training.classification import TorchWorkload

Observation = Literal["update", "sums", "round", "model"]
OBSERVATIONS: tuple[Observation, ...] = get_args(Observation)

_SAME = 9  # decimals of scores: scores of clients always summed together differ by rounding alone


@dataclass(frozen=True)
class Trials:
    """The samples that the attacks are tried on.

    Attributes:
        samples: `(2 m, ...)` and their labels: members, then held-out samples.
        clients: `(m,)` int64, the client of each member. Each held-out sample is tested against the client of the
            member in its place.
        holders: `(m,)` all clients that hold each member; more than one for shared samples.
    """

    samples: Batch
    clients: npt.NDArray[np.int64]
    holders: tuple[frozenset[int], ...]

    @classmethod
    def sample(
        cls, workload: TorchWorkload, clients: npt.NDArray[np.int64], most: int, seed: int, several: bool = False
    ) -> "Trials":
        """Choose members among the clients' data at random, and as many held-out samples.

        A member is skipped if no held-out sample of its label is left, or an equal sample was chosen before: a sample
        that several clients hold is tested once, for one of them.

        Args:
            workload: of the run.
            clients: `(c,)` clients in question.
            most: most members.
            seed: of the choice.
            several: whether several clients may hold a sample.

        Raises:
            ExperimentError: if fewer than two members are left.
        """
        rng = np.random.default_rng(seed)
        others, labels = workload.data.held_out()
        classes = labels.numpy() if labels.dim() == 1 and not labels.is_floating_point() else np.zeros(len(labels))
        left = {label: rng.permutation(np.flatnonzero(classes == label)).tolist() for label in np.unique(classes)}
        counts = np.asarray(workload.sample_counts)[clients]
        ends = np.cumsum(counts)
        chosen: list[tuple[torch.Tensor, torch.Tensor]] = []
        taken, clients_of_members = [], []
        holders_by_key: dict[bytes, set[int]] = {}
        for number in rng.permutation(int(ends[-1])).tolist():
            if len(chosen) == most:
                break
            holder = int(np.searchsorted(ends, number, side="right"))
            client, place = int(clients[holder]), number - int(ends[holder] - counts[holder])
            inputs, its_labels = workload.data.shard(client)
            label = its_labels[place].item() if its_labels.dim() == 1 and not its_labels.is_floating_point() else 0
            key = _key(inputs[place], its_labels[place])
            if left.get(label) and key not in holders_by_key:
                holders_by_key[key] = {client}
                chosen.append((inputs[place], its_labels[place]))
                taken.append(left[label].pop())  # of the same label, so that labels alone tell nothing
                clients_of_members.append(client)
        if len(chosen) < 2:
            raise ExperimentError(
                f"workload: {ends[-1]} training samples and {len(others)} held-out ones give {len(chosen)} pairs with "
                "the same label; at least two pairs are needed"
            )
        members = [torch.stack(part) for part in zip(*chosen, strict=True)]
        samples = torch.cat((members[0], others[taken])), torch.cat((members[1], labels[taken]))
        if several:
            for client in clients.tolist():
                for sample in zip(*workload.data.shard(client), strict=True):
                    if (key := _key(*sample)) in holders_by_key:
                        holders_by_key[key].add(client)
        return cls(samples, np.array(clients_of_members, np.int64), tuple(map(frozenset, holders_by_key.values())))


def _key(inputs: torch.Tensor, label: torch.Tensor) -> bytes:
    return inputs.numpy().tobytes() + label.numpy().tobytes()


def _several(experiment: Experiment) -> bool:
    """Return whether several clients may hold the same sample."""
    partition = experiment.workload.partition
    return partition.scheme == "overlapping" or partition.shared_samples > 0


def _unlike(experiment: Experiment) -> str:
    """Return the reason why held-out samples differ from a client's by more than training; empty if there is none."""
    # A client's updates also fit its other samples of the same kind: with generated handwriting a third of the members
    # was detected at 1 % false positives among other writers' images, and 8 % among the same writers'.
    section = experiment.workload
    spec = datasets().get(section.dataset)
    if spec is not None and spec.owner is not None:
        why = f"each client is one {spec.owner}, and most held-out samples are others'"
    elif section.partition.scheme == "by-column" or section.partition.is_own:
        why = f"workload.partition.scheme {section.partition.scheme} may give each client a kind of samples of its own"
    else:
        return ""
    return f"{why}: a difference in scores may show the client that holds a sample, not that it was trained on"


@dataclass(frozen=True)
class Membership:
    """Membership inference on one run.

    Attributes:
        run: its records.
        facts: facts on the rounds, with T and the ledger.
        by_observation: separation of members and others, by observation.
        sources: rate of members with a correctly named client, by observation that gives single clients' scores.
        unlike: reason why members and others differ beside being trained on; empty if there is none.
    """

    run: RunRecords
    facts: Facts
    by_observation: dict[Observation, Discrimination]
    sources: dict[Observation, Proportion]
    unlike: str

    @property
    def warnings(self) -> list[str]:
        """Warnings on the validity of the result, one line each."""
        return [warning for warning in (self.facts.warning, self.unlike) if warning]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per observation, for tables and JSON."""
        named = {
            observation: vars(proportion) | {"rate": proportion.rate}
            for observation, proportion in self.sources.items()
        }
        return [
            {
                "run": self.run.label,
                **self.facts.row(),
                "seen": observation,
                "members": result.members,
                "others": result.others,
                "others_alike": not self.unlike,
                "auc": result.auc,
                "auc_low": result.auc_low,
                "auc_high": result.auc_high,
                "false_positive_rate": result.level,
                "false_positives": result.false_positives,
                "true_positive_rate": result.true_positives.rate,
                "true_positive_rate_low": result.true_positives.low,
                "true_positive_rate_high": result.true_positives.high,
                "source": named.get(observation, {}).get("rate"),
                "source_low": named.get(observation, {}).get("low"),
                "source_high": named.get(observation, {}).get("high"),
                "true_positive_rate_at_most": None if observation == "update" else self.facts.most_found(result.level),
            }
            for observation, result in self.by_observation.items()
        ]


def membership(
    run: RunRecords,
    first: int | None = None,
    last: int | None = None,
    *,
    samples: int = 300,
    level: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
) -> Membership:
    """Attack the rounds `first` to `last` of a run.

    Args:
        run: its records, with aggregates.
        first, last: rounds; None: the first and last with recorded aggregates.
        samples: most members to test, and as many others.
        level: allowed rate of false positives.
        confidence: of the intervals.
        seed: of the choice of samples.

    Raises:
        ExperimentError: as `SumsSeen.of` does; or if the workload has no gradients of single samples.
    """
    observed = SumsSeen.of(run, first, last)
    experiment = observed.victims.experiment
    trials = Trials.sample(observed.workload, observed.clients, samples, seed, _several(experiment))
    scores, rng = _scores(observed, trials), np.random.default_rng(seed)
    clients, half = np.tile(trials.clients, 2), len(trials.clients)
    first_round = observed.view.participation.argmax(axis=0)
    samples_asked = np.arange(2 * half)
    own: dict[Observation, Floats] = {
        "update": scores.updates[clients, samples_asked],
        "sums": scores.sums[clients, samples_asked],
        "round": scores.rounds[first_round[clients], samples_asked],
        "model": scores.model,
    }
    by_observation = {
        name: discrimination(values[:half], values[half:], level, confidence) for name, values in own.items()
    }
    sources: dict[Observation, Proportion] = {
        "update": _named(observed.clients, trials, scores.updates, confidence),
        # In random order: argmax takes the first of clients that are always together and tie.
        "sums": _named(rng.permutation(observed.clients), trials, scores.sums.round(_SAME), confidence),
    }
    return Membership(run, observed.facts(), by_observation, sources, _unlike(experiment))


@dataclass(frozen=True)
class _Scores:
    """Scores of s samples.

    Attributes:
        updates, sums: `(n, s)` by client; NaN for clients in no sum.
        rounds: `(r, s)` by round.
        model: `(s,)`.
    """

    updates: Floats
    sums: Floats
    rounds: Floats
    model: Floats


def _scores(observed: SumsSeen, trials: Trials) -> _Scores:
    view, workload, count = observed.view, observed.workload, len(trials.samples[1])
    of_sums, norms = (np.zeros((len(view.rounds), count)) for _ in range(2))
    of_updates = np.zeros((view.participation.shape[1], count))
    for place, number in enumerate(view.rounds.tolist()):
        model, total = observed.model(number), view.sums[place]
        updates = observed.updates(place, model)
        clients = np.array(list(updates), np.int64)
        directions = _unit(np.array([*updates.values(), total], np.float32))
        begin = 0
        for gradients, _ in workload.sample_gradients(model, trials.samples):
            part = slice(begin, begin := begin + len(gradients))
            norms[place, part] = np.linalg.norm(gradients, axis=1)
            cosines = -(_unit(gradients) @ directions.T)
            of_sums[place, part] = cosines[:, -1]
            # Weighted by the norm: the gradient of a learned sample vanishes, and its direction is noise.
            of_updates[clients, part] += cosines[:, :-1].T * norms[place, part]
    losses = np.concatenate([losses for _, losses in workload.sample_gradients(observed.final_model, trials.samples)])
    rounds = view.participation.sum(axis=0)[:, None]
    # The largest possible sum of a client's weighted cosines (Cauchy-Schwarz), so that scores are at most 1.
    totals = np.sqrt((view.participation.T @ np.square(norms)) * rounds)
    means: Floats = np.where(rounds > 0, of_updates / np.where(totals > 0, totals, 1.0), np.nan)
    return _Scores(means, _solved(view, observed.weights, of_sums, norms), of_sums, -losses.astype(np.float64))


def _named(clients: Ids, trials: Trials, scores: Floats, confidence: float) -> Proportion:
    """Return the rate of members that are held by the client with the highest score among `clients`."""
    best = clients[scores[clients, : len(trials.clients)].argmax(axis=0)]
    correct = [client in holders for client, holders in zip(best.tolist(), trials.holders, strict=True)]
    return Proportion.of(sum(correct), len(correct), confidence)


def _solved(view: View, weights: Floats, cosines: Floats, norms: Floats) -> Floats:
    """Return the contribution of each client to a round's cosine, which is that of a mean over its participants."""
    scale = np.sqrt(np.square(norms).mean(axis=0))
    totals = view.participation @ weights
    return client_scores(
        view.participation, weights, cosines * norms / np.where(scale > 0, scale, 1.0) * totals[:, None]
    )


def _unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Scale rows to norm 1; rows of norm 0 stay."""
    norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    norms[norms == 0] = 1
    unit: npt.NDArray[np.float32] = np.divide(rows, norms, dtype=np.float32)
    return unit
