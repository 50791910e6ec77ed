"""Server optimizers (Reddi et al. 2021, Algorithm 2) against the formulas in scalars, and torch where they meet."""

from collections.abc import Callable
from math import copysign, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.aggregation.server_optimizers import (
    FederatedAveraging,
    ServerOptimizer,
    ServerOptimizerSection,
    next_model,
    server_optimizer,
)
from testbed.errors import ExperimentError
from tests.thoroughness import examples

V = {
    "adagrad": lambda v, square, beta2: v + square,
    "adam": lambda v, square, beta2: beta2 * v + (1 - beta2) * square,
    "yogi": lambda v, square, beta2: v - (1 - beta2) * square * (copysign(1, v - square) if v != square else 0),
}
"""The third lines of Algorithm 2, of one coordinate."""


def optimizer(name: str, **keys: Any) -> ServerOptimizer:
    return server_optimizer(ServerOptimizerSection(name=name, **keys))


def models(chosen: ServerOptimizer, model: Any, means: Any) -> list[np.ndarray]:
    """After each step."""
    memory: dict[str, np.ndarray] = {"another's": np.zeros(3)}
    found = [np.asarray(model, np.float32)]
    for mean in means:
        found.append(next_model(chosen, memory, found[-1], np.asarray(mean, np.float64)))
    assert memory["another's"].tolist() == [0, 0, 0]
    assert all(made.dtype == np.float32 for made in found)
    return found[1:]


def test_by_hand() -> None:
    """Two steps of 3 and of -1 from 10, with eta 0.5, beta_1 0.5, beta_2 0.75, tau 2: v begins with 4."""
    keys = {"learning_rate": 0.5, "beta1": 0.5, "tau": 2.0}
    means = [[3.0], [-1.0]]
    # m: 1.5, then 0.75 - 0.5 = 0.25. v of adagrad: 4 + 9 = 13, 14; of adam: 3 + 2.25 = 5.25, 3.9375 + 0.25 = 4.1875;
    # of yogi: 4 < 9, so 4 + 2.25 = 6.25, then 6.25 > 1, so 6.25 - 0.25 = 6.
    expected = {
        "adagrad": (10 + 0.75 / (sqrt(13) + 2), 0.125 / (sqrt(14) + 2)),
        "adam": (10 + 0.75 / (sqrt(5.25) + 2), 0.125 / (sqrt(4.1875) + 2)),
        "yogi": (10 + 0.75 / (2.5 + 2), 0.125 / (sqrt(6) + 2)),
    }
    for name, (first, further) in expected.items():
        more = {} if name == "adagrad" else {"beta2": 0.75}
        found = models(optimizer(name, **keys, **more), [10.0], means)
        assert [float(one[0]) for one in found] == pytest.approx([first, first + further], abs=1e-6)
    # FedAvgM: m = 3, then 1.5 - 1 = 0.5.
    found = models(optimizer("momentum", learning_rate=0.5, beta1=0.5), [10.0], means)
    assert [float(one[0]) for one in found] == [11.5, 11.75]


@given(
    st.sampled_from(["adagrad", "adam", "yogi"]),
    st.lists(st.lists(st.floats(-8, 8, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    st.floats(0.001, 2),
    st.floats(0, 0.99),
    st.floats(0, 0.99),
    st.floats(0.01, 1),
)
@settings(max_examples=examples(60), deadline=None)
def test_each_coordinate_goes_by_the_formulas(
    name: str, means: list[list[float]], rate: float, beta1: float, beta2: float, tau: float
) -> None:
    more = {} if name == "adagrad" else {"beta2": beta2}
    found = models(optimizer(name, learning_rate=rate, beta1=beta1, tau=tau, **more), [1.0, -2.0, 0.0], means)
    for coordinate, x in enumerate([1.0, -2.0, 0.0]):
        m, v = 0.0, tau**2
        for step, mean in enumerate(means):
            delta = mean[coordinate]
            m = beta1 * m + (1 - beta1) * delta
            v = V[name](v, delta**2, beta2)
            x += rate * m / (sqrt(v) + tau)
            assert float(found[step][coordinate]) == pytest.approx(x, rel=1e-4, abs=1e-4 * rate / tau)


@pytest.mark.parametrize(
    ("section", "made"),
    [
        (
            {"name": "momentum", "learning_rate": 0.3, "beta1": 0.8},
            lambda x: torch.optim.SGD([x], lr=0.3, momentum=0.8),
        ),
        (
            {"name": "adagrad", "learning_rate": 0.3, "tau": 0.05},
            lambda x: torch.optim.Adagrad([x], lr=0.3, initial_accumulator_value=0.05**2, eps=0.05),
        ),
    ],
    ids=["momentum", "adagrad"],
)
def test_torch_steps_alike_where_its_formulas_are_the_same(section: dict[str, Any], made: Callable) -> None:
    means = np.random.default_rng(3).normal(0, 0.4, (7, 50))
    start = np.linspace(-1, 1, 50, dtype=np.float32)
    x = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    theirs = made(x)
    for mean, mine in zip(means, models(optimizer(**section), start, means), strict=True):
        x.grad = -torch.tensor(mean)
        theirs.step()
        assert mine == pytest.approx(x.detach().numpy(), abs=1e-5)


@given(st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=9), st.data())
def test_none_adds_the_mean(model: list[float], data: st.DataObject) -> None:
    """FedAvg, bit for bit; momentum that keeps nothing equals it, except for the rounding of its state."""
    size = len(model)
    mean = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size)))
    start = np.array(model, np.float32)
    memory: dict[str, np.ndarray] = {}
    assert isinstance(server_optimizer(None), FederatedAveraging)
    added = next_model(server_optimizer(None), memory, start, mean)
    assert added.tobytes() == (start + mean).astype(np.float32).tobytes()
    assert memory == {}
    (slow,) = models(optimizer("momentum", beta1=0.0), start, [mean])
    assert slow == pytest.approx(added, rel=1e-6, abs=1e-6)


def test_what_is_unset_is_what_the_schema_says() -> None:
    values = {
        name: {key: ServerOptimizerSection(name=name).value(key) for key in kind}
        for name, kind in {
            "momentum": ("learning_rate", "beta1"),
            "adagrad": ("learning_rate", "beta1", "tau"),
            "adam": ("learning_rate", "beta1", "beta2", "tau"),
            "yogi": ("learning_rate", "beta1", "beta2", "tau"),
        }.items()
    }
    assert values["momentum"] == {"learning_rate": 1.0, "beta1": 0.9}
    assert values["adagrad"] == {"learning_rate": 0.1, "beta1": 0.0, "tau": 0.001}
    assert values["adam"] == values["yogi"] == {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 0.001}


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"name": "lion"}, "'lion' is unknown; allowed: momentum, adagrad, adam, yogi, package.module:Name"),
        ({}, "Field required"),
        ({"name": "momentum", "tau": 0.1}, "tau: only for adagrad and adam and yogi; momentum"),
        ({"name": "adagrad", "beta2": 0.9}, "beta2: only for adam and yogi; adagrad"),
        ({"name": "adam", "options": {"a": 1}}, "options: only for a user-defined class; adam"),
        ({"name": "mine:Own", "beta1": 0.5}, "beta1: only for built-in optimizers"),
        ({"name": "adam", "tau": 0}, "greater than 0"),
        ({"name": "adam", "beta2": 1}, "less than 1"),
        ({"name": "adam", "learning_rate": float("inf")}, "finite number"),
        ({"name": "adam", "rate": 1}, "not permitted"),
    ],
)
def test_a_wrong_section_is_refused_with_what_is_allowed(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as error:
        ServerOptimizerSection(**keys)
    assert says in str(error.value)


class Halved(ServerOptimizer):
    """A user's own."""

    def __init__(self, section: ServerOptimizerSection, share: float = 0.5) -> None:
        super().__init__(section)
        self.share = share

    def step(self, state: Any, model: Any, mean: Any) -> Any:
        return model + self.share * mean, {"steps": state.get("steps", np.zeros((), np.int64)) + 1}


class Returns(ServerOptimizer):
    def step(self, state: Any, model: Any, mean: Any) -> Any:
        return self.section.options["what"]


class NoOptimizer:
    pass


HERE = __name__


def test_a_user_defined_class_steps() -> None:
    memory: dict[str, np.ndarray] = {}
    chosen = optimizer(f"{HERE}:Halved", options={"share": 0.25})
    for model in (1.5, 2.0):
        found = next_model(chosen, memory, np.array([model - 0.5], np.float32), np.array([2.0]))
        assert found.tolist() == [model]
    assert {name: array.tolist() for name, array in memory.items()} == {"server_optimizer/steps": 2}


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("Missing", {}, "aggregation.server_optimizer.name: {here}:Missing: module {here} has no class Missing"),
        ("NoOptimizer", {}, "must be a class that inherits from testbed.aggregation.server_optimizers.ServerOptimizer"),
        ("Halved", {"shares": 1}, "aggregation.server_optimizer.options.shares: unknown option; did you mean 'share'?"),
    ],
)
def test_a_class_that_does_not_keep_the_contract_is_refused(name: str, options: dict, says: str) -> None:
    with pytest.raises(ExperimentError) as error:
        optimizer(f"{HERE}:{name}", options=options)
    assert says.format(here=HERE) in str(error.value)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (None, "not NoneType"),
        ((np.zeros(3), {}), "not a model of shape (3,)"),
        ((np.zeros(2), None), "not tuple"),
        ((np.zeros(2), {"m": np.array(["a"])}), "not tuple"),
    ],
)
def test_a_step_that_returns_something_else_is_one_line(what: Any, says: str) -> None:
    chosen = Returns(ServerOptimizerSection(name=f"{HERE}:Returns", options={"what": what}))
    with pytest.raises(ExperimentError) as error:
        next_model(chosen, {}, np.zeros(2, np.float32), np.zeros(2))
    assert str(error.value).startswith("aggregation.server_optimizer.name: ")
    assert str(error.value).endswith(says)
    assert "\n" not in str(error.value)
