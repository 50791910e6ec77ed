"""A user's own module, `MODULE`, with data, models and losses, and helpers that build workloads of it."""

from typing import Any

import numpy as np

from testbed.workload.section import WorkloadSection
from workloads import build

MODULE = '''
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset


def load(count=120, spread=0.5, noise=True):
    """Two clouds, drawn from the global generator."""
    labels = np.arange(count) % 2
    x = np.random.normal(0, spread, (count, 4)) + labels[:, None]
    return x, labels


def values(count=120):
    x = np.random.normal(size=(count, 4))
    return x, x @ [1.0, -2.0, 0.5, 0.0] + 1


def words(count=60):
    return np.arange(count * 5).reshape(count, 5) % 7, np.arange(count) % 2


def few():
    return np.zeros((5, 4)), np.arange(5) % 2


def nothing():
    return 3


def workload(section, population, seed):
    raise RuntimeError("called as a workload")


class Pairs(Dataset):
    def __init__(self, count=60):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return torch.full((4,), float(number % 2)), number % 2


def net(hidden=8, outputs=2, bias=True):
    return nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, outputs, bias=bias))


class Normed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.25), nn.Linear(8, 2))


class Words(nn.Module):
    """Tied weights, a frozen layer, a constant table, and its own initial values."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.out = nn.Linear(6, 7, bias=False)
        self.out.weight = self.embedding.weight
        self.frozen = nn.Linear(7, 7)
        self.frozen.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(7))
        self.register_buffer("places", torch.arange(5))
        self.last = nn.Linear(7, 2)

    def forward(self, words):
        assert self.places.dtype == torch.int64
        hidden = self.embedding(words).mean(dim=1)
        return self.last(self.frozen(self.out(hidden)) * self.scale)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False)
        self.line = nn.Linear(4, 2)

    def forward(self, x):
        return self.line(x)


class Cumulative(nn.Sequential):
    def __init__(self):
        super().__init__(nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 2))


class Twins(nn.Module):
    """Uses a layer's weights without calling it."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.relu(torch.nn.functional.linear(self.line(x), self.line.weight)))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 2)

    def forward(self, x):
        return self.line(x), x


def frozen():
    return nn.Linear(4, 2).requires_grad_(False)


def images():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))


class Unused(nn.Module):
    """Has a layer in the middle that it does not use."""

    def __init__(self):
        super().__init__()
        self.line, self.spare, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.relu(self.line(x)))


class Viewed(nn.Module):
    """As tutorials have it: cannot be given images with the channels last."""

    def __init__(self):
        super().__init__()
        self.filters, self.last = nn.Conv2d(1, 4, 3), nn.Linear(144, 10)

    def forward(self, x):
        return self.last(torch.relu(self.filters(x)).view(-1, 144))


def focal(outputs, labels):
    losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
    return (1 - torch.exp(-losses)) ** 2 * losses


def mean_focal(outputs, labels):
    return focal(outputs, labels).mean()


def infinite(outputs, labels):
    return (outputs.sum() * 0 + float("nan")).detach() + outputs.sum() * 0


def counts(labels, predictions):
    """Refuse predictions that are not classes."""
    return float(np.bincount(predictions, minlength=2)[1] / len(labels))


def detached(outputs, labels):
    return (outputs.argmax(1) != labels).float().mean()


class NoGradient(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

    def forward(self, x):
        return super().forward(x).detach()


class Lazy(nn.Sequential):
    def __init__(self):
        super().__init__(nn.LazyLinear(2))




def of_four(outputs, labels):
    return nn.functional.cross_entropy(outputs.reshape(4, 2), labels.reshape(4))


def tokens(count=60):
    """A label for each position, some of which have none."""
    x = np.arange(count * 5).reshape(count, 5) % 7
    y = (x + 1) % 7
    y[:, 3:] = -100
    return x, y


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 7)

    def forward(self, words):
        return self.table(words).transpose(1, 2)


def own_cross_entropy(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels)


class WithClosure(torch.optim.SGD):
    def step(self, closure):
        closure()


def error_rate(labels, predictions):
    return np.mean(labels != predictions)


instance = nn.Linear(4, 2)
number = 4
'''


def made(population: int = 6, seed: int = 1, **keys: Any) -> Any:
    named = {
        key: keys[key] if ":" in keys[key] or keys[key] == "mlp" else f"mine_to_learn:{keys[key]}"
        for key in ("dataset", "model")
        if key in keys
    }
    usual: dict[str, Any] = {"dataset": "mine_to_learn:load", "model": "mine_to_learn:net"}
    usual |= {"batch_size": 5, "learning_rate": 0.1, "momentum": 0.9}
    return build(WorkloadSection(**(usual | keys | named)), population, seed)


def learned(workload: Any, rounds: int = 8) -> np.ndarray:
    model = workload.initial_model()
    for number in range(1, rounds + 1):
        updates = [workload.train(client, model, number) for client in range(len(workload.sample_counts))]
        model = model + np.mean([update.delta for update in updates], axis=0)
    return model
