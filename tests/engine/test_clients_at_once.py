"""A federation with hosts that train several participants as one computation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from testbed.errors import ExperimentError
from testbed.experiment.inputs import secrets_context
from testbed.experiment.schema import Experiment
from tests.engine.federations import Run
from tests.engine.test_same_results import UNSTEADY
from tests.messages_named import naming
from workloads import build

DIGITS = {
    "dataset": "digits",
    "model": "cnn",
    "batch_size": 8,
    "learning_rate": 0.02,
    "partition": {"scheme": "dirichlet", "alpha": 2.0},
}
KEYS = {"workload": DIGITS, "selection": {"participants": 9}, "aggregation": {"protocol": "plain"}}


def together(number: int, **keys: Any) -> dict[str, Any]:
    """Return the experiment with this number of clients at once."""
    return KEYS | keys | {"workload": DIGITS | keys.get("workload", {}) | {"clients_at_once": number}}


def learned(run: Callable[..., Run], keys: dict[str, Any], **options: Any) -> Run:
    section = Experiment.model_validate({"population": 30, "seed": 3} | keys).workload
    return run(keys, workload=lambda population: build(section, population, 3), **options)


@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_the_run_is_the_plain_one_but_for_rounding(run: Callable[..., Run], aggregation: str) -> None:
    keys = {
        "rounds": 10,
        "aggregation": {"protocol": aggregation},
        **{key: UNSTEADY[key] for key in ("links", "availability")},
    }
    plain = learned(run, KEYS | keys, name="plain").rounds()
    batched = learned(run, together(4, **keys), name="batched").rounds()
    assert [o.participants.tolist() for o in batched.outcomes] == [o.participants.tolist() for o in plain.outcomes]
    curve, of_batched = ([row["accuracy"] for row in one.rows("rounds")] for one in (plain, batched))
    assert np.allclose(of_batched, curve, atol=0.01)
    assert curve[-1] > 0.5
    tables = [[{**row, "detail": None} for row in one.rows("exchanges")] for one in (plain, batched)]
    assert tables[0] == tables[1]  # bytes and seconds of every exchange
    model, model_of_batched = plain.federation.state.model, batched.federation.state.model
    assert np.linalg.norm(model_of_batched - model) < 0.02 * np.linalg.norm(model)  # in secagg rounding is quantised


@pytest.mark.parametrize("hosts", [2, 3])
def test_the_number_of_hosts_changes_no_bit(run: Callable[..., Run], hosts: int) -> None:
    one, several = (learned(run, together(4), hosts=number).rounds(3) for number in (1, hosts))
    assert several.federation.state.model.tobytes() == one.federation.state.model.tobytes()


def test_it_is_recorded_and_changes_no_secret() -> None:
    plain, batched = (Experiment.model_validate({"population": 30} | keys) for keys in (KEYS, together(4)))
    assert batched.plain()["workload"]["clients_at_once"] == 4
    assert "clients_at_once" not in plain.plain()["workload"]  # records from before the key existed stay the same
    assert secrets_context(batched) == secrets_context(plain)  # the same selection, so that the two can be compared


def test_a_client_with_unreadable_data_drops_out_alone(run: Callable[..., Run]) -> None:
    def made(section: Any, population: int) -> Any:
        workload: Any = build(section, population, 3)
        shard = workload.data.shard

        def broken(client: int) -> tuple[Tensor, Tensor]:
            if client == 11:
                raise OSError("no such file")
            return shard(client)

        workload.data.shard = broken
        return workload

    section = Experiment.model_validate({"population": 30} | together(4)).workload
    keys = together(4, selection={"participants": 30}, on_crash="drop")
    ended = run(keys, workload=lambda population: made(section, population)).rounds(1)
    (outcome,) = ended.outcomes
    assert outcome.survivors.tolist() == [client for client in range(30) if client != 11]


def test_workloads_that_train_one_client_at_a_time_are_refused() -> None:
    for keys, match in (
        ({"time": {"compute": "measured"}}, "workload.clients_at_once: 4 excludes time.compute: measured"),
        ({"time": {"clock": "wall"}}, "workload.clients_at_once: 4 excludes time.clock: wall"),
        (
            {
                "aggregation": {
                    "protocol": "dp-sgd-random-participation",
                    "clip": 1.0,
                    "sigma": 1.0,
                    "sample_rate": 0.1,
                },
                "selection": {"protocol": "bernoulli", "client_rate": 0.5},
                "workload": {"batch_size": 20, "learning_rate": 0.05},
            },
            "excludes workload.clients_at_once: 4: clients send one gradient",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            Experiment.model_validate({"population": 30} | together(4, **keys))
    with pytest.raises(ExperimentError, match=naming("clients_at_once", "digits")):
        Run(together(4))  # `Pulling`, in fact


def test_the_workload_is_asked_once_for_the_participants_of_a_host(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    batched = learned(run, together(4), hosts=2)
    asked: list[list[int]] = []
    train_together = batched.workload.train_together

    def counted(clients: list[int], model: Any, round_number: int) -> Any:
        asked.append(list(clients))
        return train_together(clients, model, round_number)

    monkeypatch.setattr(batched.workload, "train_together", counted)
    batched.rounds(1)
    participants = batched.outcomes[0].participants
    assert sorted(asked) == sorted([participants[participants % 2 == host].tolist() for host in range(2)])
