"""Federations with a server optimizer instead of adding the mean."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from testbed.errors import ExperimentError
from testbed.experiment.inputs import plugin_classes
from testbed.experiment.schema import Experiment
from testbed.experiment.schema import validated as validated_experiment

PROTOCOLS: dict[str, dict[str, Any]] = {
    "plain": {"protocol": "plain"},
    "secagg": {"protocol": "secagg", "threshold": 0.6},
    "lightsecagg": {"protocol": "lightsecagg", "threshold": 0.5, "max_colluders": 0.3},
    "flamingo": {"protocol": "flamingo", "dropouts": 0.5, "committee": {"size": 8, "threshold": 5}},
    "one-shot": {"protocol": "one-shot", "committee": {"size": 12}, "max_colluders": 2},
    "pine": {"protocol": "pine", "norm_bound": 25.0},
    "secagg-plus": {
        "protocol": "secagg-plus", "neighbours": 8, "threshold": 6, "dropouts": 0.3, "accept_weaker": True,
    },
}  # fmt: skip
UNSTEADY = {
    "selection": {"participants": 14},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
    "rounds": 6,
}


def keys(protocol: str, **optimizer: Any) -> dict[str, Any]:
    section = {"server_optimizer": optimizer} if optimizer else {}
    return UNSTEADY | {"aggregation": PROTOCOLS[protocol] | section}


def by_adam(model: np.ndarray, means: list[np.ndarray]) -> np.ndarray:
    """Algorithm 2 with eta 0.05, beta_1 0.9, beta_2 0.99, tau 0.001."""
    x, m, v = model.astype(np.float64), np.zeros(len(model)), np.full(len(model), 1e-6)
    for mean in means:
        m, v = 0.9 * m + 0.1 * mean, 0.99 * v + 0.01 * mean**2
        x = x + 0.05 * m / (np.sqrt(v) + 1e-3)
    return x


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_model_follows_the_papers_step_from_the_means(run: Callable, protocol: str) -> None:
    one = run(keys(protocol, name="adam", learning_rate=0.05), "run").rounds()
    means = [outcome.aggregate.mean for outcome in one.outcomes if outcome.aggregate is not None]
    survivors = {len(outcome.survivors) for outcome in one.outcomes}
    assert len(means) >= 4
    assert len(survivors) > 1  # some have dropped out
    expected = by_adam(one.workload.initial_model(), means)
    assert one.federation.state.model == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_it_the_mean_is_added(run: Callable, protocol: str) -> None:
    one = run(keys(protocol) | {"availability": {}}, "run").rounds(1)
    (outcome,) = one.outcomes
    expected = (one.workload.initial_model() + outcome.aggregate.mean).astype(np.float32)
    assert one.federation.state.model.tobytes() == expected.tobytes()
    assert not any(name.startswith("server_optimizer") for name in one.federation.state.memory)


@pytest.mark.parametrize("name", ["momentum", "adagrad", "adam", "yogi"])
def test_a_resumed_run_steps_on(run: Callable, name: str) -> None:
    """Same bits as a run in one go, on another number of hosts."""
    asked = keys("secagg", name=name)
    whole = run(asked, "whole").rounds()
    run(asked, "stopped").rounds(3)
    resumed = run(asked, "stopped", resume=True, hosts=3).rounds()
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    memory, kept = whole.federation.state.memory, resumed.federation.state.memory
    assert memory.keys() == kept.keys()
    assert set(memory) == {"server_optimizer/m"} | ({"server_optimizer/v"} if name != "momentum" else set())
    assert all(memory[one].tobytes() == kept[one].tobytes() for one in memory)
    # The optimizer's state matters: without it the next model differs.
    run(asked, "forgetful").rounds(3)
    forgot = run(asked, "forgetful", resume=True)
    object.__setattr__(forgot.federation.state, "memory", {})
    assert forgot.rounds().federation.state.model.tobytes() != whole.federation.state.model.tobytes()


def test_an_aborted_round_leaves_model_and_state_as_they_were(run: Callable) -> None:
    asked = keys("secagg", name="adam") | {"availability": {"dropout": {"rate": 0.4, "stage": "secagg/masked-input"}}}
    one, seen = run(asked | {"rounds": 10}, "run"), []
    for _ in range(10):
        before = one.federation.state
        one.rounds(1)
        seen.append(one.outcomes[-1].state)
        after = one.federation.state
        same = [after.model.tobytes() == before.model.tobytes()]
        kept = after.memory.items() if before.memory else ()
        same += [array.tobytes() == before.memory[name].tobytes() for name, array in kept]
        assert set(same) == {seen[-1] == "aborted"}
    assert {"aborted", "completed"} == set(seen)


def test_noise_is_accounted_for_as_without(run: Callable) -> None:
    noise = {"weights": "equal", "noise": {"mechanism": "skellam", "clip": 1.0, "noise_multiplier": 1.0}}
    spent: list[list[float]] = []
    for more in ({}, {"server_optimizer": {"name": "yogi"}}):
        one = run({"aggregation": {"protocol": "secagg", "bits": 40} | noise | more}, f"run{len(spent)}").rounds(2)
        spent.append([row["epsilon"] for row in one.rows("privacy")])
    assert spent[0] == spent[1] != []


def test_dp_sgd_steps_itself() -> None:
    data = {
        "selection": {"protocol": "bernoulli", "client_rate": 0.3},
        "aggregation": {
            "protocol": "dp-sgd-random-participation", "sample_rate": 0.2, "sigma": 1.0,
            "server_optimizer": {"name": "adam"},
        },
    }  # fmt: skip
    with pytest.raises(ExperimentError) as error:
        validated_experiment(data, "mine.yaml")
    assert str(error.value) == (
        "mine.yaml: aggregation.server_optimizer: dp-sgd-random-participation has its own step "
        "(aggregation.learning_rate, aggregation.momentum); leave server_optimizer out"
    )


def test_it_is_written_only_where_it_is_set_and_a_class_is_named_with_its_key() -> None:
    without, with_class = (
        Experiment.model_validate({"aggregation": {"protocol": "secagg"} | more})
        for more in ({}, {"server_optimizer": {"name": "mine:Own"}})
    )
    assert "server_optimizer" not in without.plain()["aggregation"]
    assert plugin_classes(without) == []
    assert plugin_classes(with_class) == [("aggregation.server_optimizer.name", "mine:Own")]
    with pytest.raises(ValidationError, match="is unknown; allowed: momentum"):
        Experiment.model_validate({"aggregation": {"protocol": "plain", "server_optimizer": {"name": "adan"}}})
