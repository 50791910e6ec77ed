"""The public seed of graphs and committees: drawn when registration closes, by the seed and not by the name."""

from typing import Any

from testbed.engine.plan import RunPlan
from testbed.experiment.schema import validated
from testbed.parties.pki import Directory


def public_seed(name: str, seed: int | None) -> bytes:
    written: dict[str, Any] = {
        "name": name,
        "rounds": 1,
        "population": 20,
        "workload": {"dataset": "digits", "model": "logistic"},
        "selection": {"protocol": "random", "participants": 5},
        "aggregation": {"protocol": "flamingo", "committee": {"size": 5, "threshold": 4}},
    }
    experiment = validated(written | ({} if seed is None else {"seed": seed}), name)
    workload: Any = None  # only announced numbers of samples are read from it
    return RunPlan(experiment, seed or 0).completed(Directory.empty(20), workload).public_seed


def test_it_follows_from_the_seed_and_not_from_the_name() -> None:
    """The name is known before clients register: an adversary could otherwise register at favourable places."""
    assert public_seed("one", 7) == public_seed("other", 7)
    assert public_seed("one", 7) != public_seed("one", 8)
    assert len(public_seed("one", 7)) == 32
    assert public_seed("one", 7) != bytes(32)


def test_without_a_seed_it_is_unpredictable() -> None:
    assert public_seed("one", None) != public_seed("one", None)
