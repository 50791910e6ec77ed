"""Reproductions set what they train with: a default that changes must not change what a kept result is of."""

from collections.abc import Callable

import pytest

from analysis.reproduction.distributed_noise import dropouts
from analysis.reproduction.inversion import other_models
from analysis.reproduction.lotto import fig1a, heterogeneous_clients, overhead, table1, theorem2, unpredictability
from analysis.reproduction.multi_round_secagg import fig10, fig11, tasks, training, v1_fig8
from analysis.reproduction.pinned import TIME, WORKLOAD
from analysis.reproduction.random_participation import accuracy
from analysis.reproduction.random_participation import tasks as dp_sgd_tasks
from analysis.reproduction.secagg import expansion
from testbed.experiment.schema import Experiment

RANDOM = {"protocol": "random"}
BUILT: dict[str, Callable[[], Experiment]] = {
    "fig1a": lambda: fig1a.experiment(20, 20, "random", ["shrink-the-sum"], {"threshold": 14}, 2, 1, 1),
    "fig8": lambda: heterogeneous_clients.experiment(
        heterogeneous_clients.SETTINGS["FEMNIST"]["small"], "x", 2, RANDOM, {"seed": [1]}
    ),
    "table1": lambda: table1.experiment(table1.VARIANTS["Server-Centric"], 250, 20),
    "table2": lambda: overhead.experiment(overhead.SCALES["small"], "FEMNIST", "testbed", 100, [RANDOM]),
    "theorem2": lambda: theorem2.experiment_of(theorem2.CONDITIONS[0], 5),
    "unpredictability": lambda: unpredictability.experiment_of("lotto-client-centric", "honest", 5, 1),
    "inversion": lambda: other_models.experiment("send-different-models", (2,), 1, {"protocol": "secagg"}),
    "distributed-noise": lambda: dropouts.experiment(2, 1),
    "random-participation": lambda: accuracy.experiment("x", dp_sgd_tasks.DIGITS, [(0.0, 0.1)], 1),
    "expansion": lambda: expansion.experiment(16, "none"),
    "fig10": lambda: fig10.experiment(fig10.SCALES["small"], fig10.DECAYING, 1),
    "fig11": lambda: fig11.experiment("digits"),
    "fig7": lambda: training.experiment(tasks.DIGITS, "IID", 1, [RANDOM], [0.1]),
    "v1-fig8": lambda: v1_fig8.experiment(v1_fig8.SCALES["small"], 1),
}


@pytest.mark.parametrize("name", BUILT)
def test_no_default_is_left_to_later_versions(name: str) -> None:
    built = BUILT[name]()
    assert built.workload.model_fields_set >= WORKLOAD.keys()
    assert built.time.model_fields_set >= TIME.keys()
