"""The local optimizers equal torch's classes, bit for bit, and reset between rounds."""

import numpy as np
import pytest
import torch
from torch import nn

from testbed.workload.section import WorkloadSection
from workloads import build
from workloads.training.optimizers import local_optimizer

SETTINGS = [
    ("sgd", {"momentum": 0.9, "weight_decay": 0.01}),
    ("sgd", {"momentum": 0.0}),
    ("adamw", {"momentum": 0.9}),
    ("adamw", {"momentum": 0.8, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "keys"), SETTINGS)
def test_steps_equal_those_of_torch(name: str, keys: dict) -> None:
    section = WorkloadSection(optimizer=name, **keys)
    start = torch.from_numpy(np.random.default_rng(0).normal(size=40).astype(np.float32))
    target = torch.from_numpy(np.random.default_rng(1).normal(size=40).astype(np.float32))
    mine = nn.Parameter(start.clone())
    optimizer = local_optimizer(section, [mine])
    for rate in (0.05, 0.02):  # the second begins without the state of the first
        with torch.no_grad():
            mine.copy_(start)
        theirs = nn.Parameter(start.clone())
        decay = section.weight_decay
        stock = (
            torch.optim.AdamW([theirs], lr=rate, betas=(section.momentum, 0.999), weight_decay=decay, fused=True)
            if name == "adamw"
            else torch.optim.SGD([theirs], lr=rate, momentum=section.momentum, weight_decay=decay, fused=True)
        )
        optimizer.reset(rate)
        for _ in range(5):
            optimizer.zero_grad()
            stock.zero_grad()
            for parameter in (mine, theirs):
                (parameter - target).square().sum().backward()
            optimizer.step()
            stock.step()
        assert torch.equal(mine, theirs)
        assert float((mine - start).detach().abs().max()) > 0.01


def test_a_round_of_adamw_does_not_depend_on_rounds_before() -> None:
    section = WorkloadSection(dataset="digits", optimizer="adamw", learning_rate=0.001)
    first, second = (build(section, population=20, seed=3) for _ in range(2))
    model = first.initial_model()
    first.train(2, model, 1)
    first.train(5, model, 1)
    assert np.array_equal(first.train(7, model, 2).delta, second.train(7, model, 2).delta)
