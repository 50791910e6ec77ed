"""Whether a sample was in a client's training data, asked of what was seen of a real run: each update, all rounds'
sums, one round's sum, or the last model.

The score of a sample is the cosine of an update and of the negative gradient of the sample's loss at the model that the
update started from: Li, Li, Ribeiro, Effective passive membership inference attacks in federated learning against
overparameterized models, ICLR 2023 (as Zhu et al., FedMIA, arXiv 2402.06289, equation (7), state it). It takes no
shadow models: the attacker has the models, what it has seen of the updates, and the sample with its label. Over several
rounds the paper takes the mean; here rounds count by the norm of the sample's gradient, since that of a sample which
the model knows vanishes, and its direction is noise.

- ``update``: each client's own updates, as a server without secure aggregation has them.
- ``sums``: a round's score is that of its mean update, times its participants: linear in the sum, so that it is solved
  for the clients over all rounds (`analysis.attacks.client_scores`). Clients that are always summed together have one
  score: a member is then a sample of any of them.
- ``round``: the sum of one round in which the client was, the first.
- ``model``: an outsider's, by the loss under the last model: Yeom, Giacomelli, Fredrikson, Jha, Privacy Risk in Machine
  Learning, CSF 2018, arXiv 1709.01604, section 3.

Each is asked about the same samples: members, drawn from the training data of all clients that are in a sum, and as
many held-out ones with the same labels. Of a member ``update`` and ``sums`` also say whose it is, the client with the
highest score (source inference: Hu, Salcic, Sun, Dobbie, Zhang, ICDM 2021, arXiv 2109.05659; by the cosine instead of
the loss of the client's model, which sums do not give).
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

Seen = Literal["update", "sums", "round", "model"]
SEEN: tuple[Seen, ...] = get_args(Seen)

_SAME = 9  # decimals of scores: those of clients always summed together differ by rounding alone


@dataclass(frozen=True)
class Trials:
    """The samples that are asked about.

    Attributes:
        samples: `(2 m, ...)` and their labels: members, then held-out ones.
        clients: `(m,)` int64, whose data each member is in. Of each held-out sample the same is asked as of the member
            in its place.
        holders: `(m,)` all clients whose data each member is in; more than one with samples that are shared.
    """

    samples: Batch
    clients: npt.NDArray[np.int64]
    holders: tuple[frozenset[int], ...]

    @classmethod
    def drawn(
        cls, workload: TorchWorkload, clients: npt.NDArray[np.int64], most: int, seed: int, several: bool = False
    ) -> "Trials":
        """At most so many members of these clients' data, at random, and as many held-out samples.

        A member whose label no held-out sample has any more is left out, and another one drawn; so is one that is the
        same as one before: what several clients hold is asked about once, of one of them.

        Raises:
            ExperimentError: fewer than two members are left.
        """
        rng = np.random.default_rng(seed)
        others, labels = workload.data.held_out()
        classes = labels.numpy() if labels.dim() == 1 and not labels.is_floating_point() else np.zeros(len(labels))
        left = {label: rng.permutation(np.flatnonzero(classes == label)).tolist() for label in np.unique(classes)}
        counts = np.asarray(workload.sample_counts)[clients]
        ends = np.cumsum(counts)
        chosen: list[tuple[torch.Tensor, torch.Tensor]] = []
        taken, whose = [], []
        known: dict[bytes, set[int]] = {}
        for number in rng.permutation(int(ends[-1])).tolist():
            if len(chosen) == most:
                break
            holder = int(np.searchsorted(ends, number, side="right"))
            client, place = int(clients[holder]), number - int(ends[holder] - counts[holder])
            inputs, its_labels = workload.data.shard(client)
            label = its_labels[place].item() if its_labels.dim() == 1 and not its_labels.is_floating_point() else 0
            key = _key(inputs[place], its_labels[place])
            if left.get(label) and key not in known:
                known[key] = {client}
                chosen.append((inputs[place], its_labels[place]))
                taken.append(left[label].pop())
                whose.append(client)
        if len(chosen) < 2:
            raise ExperimentError(
                f"workload: {ends[-1]} training samples and {len(others)} held-out ones give {len(chosen)} pairs with "
                "the same label; two are needed"
            )
        members = [torch.stack(part) for part in zip(*chosen, strict=True)]
        samples = torch.cat((members[0], others[taken])), torch.cat((members[1], labels[taken]))
        if several:
            for client in clients.tolist():
                for one in zip(*workload.data.shard(client), strict=True):
                    if (key := _key(*one)) in known:
                        known[key].add(client)
        return cls(samples, np.array(whose, np.int64), tuple(map(frozenset, known.values())))


def _key(inputs: torch.Tensor, label: torch.Tensor) -> bytes:
    return inputs.numpy().tobytes() + label.numpy().tobytes()


def _several(experiment: Experiment) -> bool:
    """Whether a sample may be with several clients."""
    partition = experiment.workload.partition
    return partition.scheme == "overlapping" or partition.shared_samples > 0


def _unlike(experiment: Experiment) -> str:
    """Why held-out samples differ from a client's in more than that it has not trained on them; empty: by chance alone.

    A client's updates fit its other samples of the same kind, too: of generated handwriting a third of the members was
    found at 1 % false positives among other writers' images, and 8 % among the same writers'.
    """
    section = experiment.workload
    spec = datasets().get(section.dataset)
    if spec is not None and spec.owner is not None:
        why = f"each client is one {spec.owner}, and most held-out samples are others'"
    elif section.partition.scheme == "by-column" or section.partition.is_own:
        why = f"workload.partition.scheme {section.partition.scheme} may give each client a kind of samples of its own"
    else:
        return ""
    return f"{why}: what tells members may be whose they are, not that they were trained on"


@dataclass(frozen=True)
class Membership:
    """What came of it for one run.

    Attributes:
        run: its records.
        facts: of the rounds, with T and the ledger.
        told: by what was seen, how well members are told from others.
        sources: of how many members the client is named, by what was seen; of those that single clients' scores are of.
        unlike: why members and others differ beside being trained on; empty: by chance alone.
    """

    run: RunRecords
    facts: Facts
    told: dict[Seen, Discrimination]
    sources: dict[Seen, Proportion]
    unlike: str

    @property
    def warnings(self) -> list[str]:
        """What is wrong with it."""
        return [said for said in (self.facts.warning, self.unlike) if said]

    def rows(self) -> list[dict[str, Any]]:
        """One for each of `SEEN`, for tables and JSON."""
        named = {seen: vars(one) | {"rate": one.rate} for seen, one in self.sources.items()}
        return [
            {
                "run": self.run.label,
                **self.facts.row(),
                "seen": seen,
                "members": one.members,
                "others": one.others,
                "others_alike": not self.unlike,
                "auc": one.auc,
                "auc_low": one.auc_low,
                "auc_high": one.auc_high,
                "false_positive_rate": one.level,
                "false_positives": one.false_positives,
                "true_positive_rate": one.found.rate,
                "true_positive_rate_low": one.found.low,
                "true_positive_rate_high": one.found.high,
                "source": named.get(seen, {}).get("rate"),
                "source_low": named.get(seen, {}).get("low"),
                "source_high": named.get(seen, {}).get("high"),
                "true_positive_rate_at_most": None if seen == "update" else self.facts.most_found(one.level),
            }
            for seen, one in self.told.items()
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
    """Attack rounds `first` to `last` of a run.

    Args:
        run: its records, with aggregates.
        first, last: None: of those whose aggregates are recorded.
        samples: members that are asked about, at most; and as many others.
        level: the rate of false positives that is allowed.
        confidence: of the intervals.
        seed: of the choice of samples.

    Raises:
        ExperimentError: as `SumsSeen.of` does; or single samples have no gradients.
    """
    seen = SumsSeen.of(run, first, last)
    experiment = seen.victims.experiment
    trials = Trials.drawn(seen.workload, seen.clients, samples, seed, _several(experiment))
    scores, rng = _scores(seen, trials), np.random.default_rng(seed)
    whose, half = np.tile(trials.clients, 2), len(trials.clients)
    first_round = seen.view.participation.argmax(axis=0)
    asked = np.arange(2 * half)
    own: dict[Seen, Floats] = {
        "update": scores.updates[whose, asked],
        "sums": scores.sums[whose, asked],
        "round": scores.rounds[first_round[whose], asked],
        "model": scores.model,
    }
    told = {name: discrimination(each[:half], each[half:], level, confidence) for name, each in own.items()}
    sources: dict[Seen, Proportion] = {
        "update": _named(seen.clients, trials, scores.updates, confidence),
        "sums": _named(rng.permutation(seen.clients), trials, scores.sums.round(_SAME), confidence),
    }
    return Membership(run, seen.facts(), told, sources, _unlike(experiment))


@dataclass(frozen=True)
class _Scores:
    """Of s samples.

    Attributes:
        updates, sums: `(n, s)` by client; NaN for those in no sum.
        rounds: `(r, s)` by round.
        model: `(s,)`.
    """

    updates: Floats
    sums: Floats
    rounds: Floats
    model: Floats


def _scores(seen: SumsSeen, trials: Trials) -> _Scores:
    view, workload, count = seen.view, seen.workload, len(trials.samples[1])
    of_sums, norms = (np.zeros((len(view.rounds), count)) for _ in range(2))
    of_updates = np.zeros((view.participation.shape[1], count))
    for place, number in enumerate(view.rounds.tolist()):
        model, total = seen.model(number), view.sums[place]
        updates = seen.updates(place, model)
        clients = np.array(list(updates), np.int64)
        directions = _unit(np.array([*updates.values(), total], np.float32))
        begin = 0
        for gradients, _ in workload.sample_gradients(model, trials.samples):
            part = slice(begin, begin := begin + len(gradients))
            norms[place, part] = np.linalg.norm(gradients, axis=1)
            cosines = -(_unit(gradients) @ directions.T)
            of_sums[place, part] = cosines[:, -1]
            of_updates[clients, part] += cosines[:, :-1].T * norms[place, part]
    losses = np.concatenate([losses for _, losses in workload.sample_gradients(seen.final_model, trials.samples)])
    rounds = view.participation.sum(axis=0)[:, None]
    totals = np.sqrt((view.participation.T @ np.square(norms)) * rounds)
    means: Floats = np.where(rounds > 0, of_updates / np.where(totals > 0, totals, 1.0), np.nan)
    return _Scores(means, _solved(view, seen.weights, of_sums, norms), of_sums, -losses.astype(np.float64))


def _named(clients: Ids, trials: Trials, scores: Floats, confidence: float) -> Proportion:
    """Of how many members the one of `clients` with the highest score holds it."""
    best = clients[scores[clients, : len(trials.clients)].argmax(axis=0)]
    right = [client in holders for client, holders in zip(best.tolist(), trials.holders, strict=True)]
    return Proportion.of(sum(right), len(right), confidence)


def _solved(view: View, weights: Floats, cosines: Floats, norms: Floats) -> Floats:
    """`(n, s)` what each client adds to a round's cosine, which is that of a mean over its participants."""
    scale = np.sqrt(np.square(norms).mean(axis=0))
    totals = view.participation @ weights
    return client_scores(
        view.participation, weights, cosines * norms / np.where(scale > 0, scale, 1.0) * totals[:, None]
    )


def _unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Rows of norm 1; those of norm 0 stay."""
    norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    norms[norms == 0] = 1
    unit: npt.NDArray[np.float32] = np.divide(rows, norms, dtype=np.float32)
    return unit
