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
many held-out ones with the same labels.
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
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from workloads.data.clients.contract import Batch
from workloads.training.classification import TorchWorkload

Seen = Literal["update", "sums", "round", "model"]
SEEN: tuple[Seen, ...] = get_args(Seen)


@dataclass(frozen=True)
class Trials:
    """The samples that are asked about.

    Attributes:
        samples: `(2 m, ...)` and their labels: members, then held-out ones.
        clients: `(m,)` int64, whose data each member is in. Of each held-out sample the same is asked as of the member
            in its place.
    """

    samples: Batch
    clients: npt.NDArray[np.int64]

    @classmethod
    def drawn(cls, workload: TorchWorkload, clients: npt.NDArray[np.int64], most: int, seed: int) -> "Trials":
        """At most so many members of these clients' data, at random, and as many held-out samples.

        A member whose label no held-out sample has any more is left out, and another one drawn.

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
        for number in rng.permutation(int(ends[-1])).tolist():
            if len(chosen) == most:
                break
            holder = int(np.searchsorted(ends, number, side="right"))
            client, place = int(clients[holder]), number - int(ends[holder] - counts[holder])
            inputs, its_labels = workload.data.shard(client)
            label = its_labels[place].item() if its_labels.dim() == 1 and not its_labels.is_floating_point() else 0
            if left.get(label):
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
        return cls(samples, np.array(whose, np.int64))


@dataclass(frozen=True)
class Membership:
    """What came of it for one run.

    Attributes:
        run: its records.
        facts: of the rounds, with T and the ledger.
        told: by what was seen, how well members are told from others.
    """

    run: RunRecords
    facts: Facts
    told: dict[Seen, Discrimination]

    def rows(self) -> list[dict[str, Any]]:
        """One for each of `SEEN`, for tables and JSON."""
        return [
            {
                "run": self.run.label,
                **self.facts.row(),
                "seen": seen,
                "members": one.members,
                "others": one.others,
                "auc": one.auc,
                "auc_low": one.auc_low,
                "auc_high": one.auc_high,
                "false_positive_rate": one.level,
                "false_positives": one.false_positives,
                "found": one.found.rate,
                "found_low": one.found.low,
                "found_high": one.found.high,
                "found_at_most": None if seen == "update" else self.facts.most_found(one.level),
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
    trials = Trials.drawn(seen.workload, seen.clients, samples, seed)
    told = {name: discrimination(*scores, level, confidence) for name, scores in _scores(seen, trials).items()}
    return Membership(run, seen.facts(), told)


def _scores(seen: SumsSeen, trials: Trials) -> dict[Seen, tuple[Floats, Floats]]:
    """By what was seen, the scores of members and of the others."""
    view, workload, whose = seen.view, seen.workload, np.tile(trials.clients, 2)
    rounds, asked = view.participation[:, whose], np.arange(len(whose))
    of_updates, of_sums, norms = (np.zeros((len(view.rounds), len(whose))) for _ in range(3))
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
            there = rounds[place, part]
            column = np.searchsorted(clients, whose[part][there])
            of_updates[place, asked[part][there]] = cosines[there, column]
    first = rounds.argmax(axis=0)
    final = seen.final_model
    losses = np.concatenate([losses for _, losses in workload.sample_gradients(final, trials.samples)])
    scores: dict[Seen, Floats] = {
        "update": _mean_over_rounds(of_updates, norms, rounds),
        "sums": _solved(view, seen.weights, of_sums, norms)[whose, asked],
        "round": of_sums[first, asked],
        "model": -losses.astype(np.float64),
    }
    half = len(trials.clients)
    return {name: (found[:half], found[half:]) for name, found in scores.items()}


def _mean_over_rounds(cosines: Floats, norms: Floats, rounds: npt.NDArray[np.bool_]) -> Floats:
    """`(s,)` over the rounds that count, `(r, s)` bool; each by the norm of the sample's gradient."""
    counted = np.where(rounds, norms, 0.0)
    total = np.sqrt(np.square(counted).sum(axis=0) * rounds.sum(axis=0))
    means: Floats = (cosines * counted).sum(axis=0) / np.where(total > 0, total, 1.0)
    return means


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
