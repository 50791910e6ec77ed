"""Runs with one seed: their simulated conditions are paired, and the masks that hide updates are unrelated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.secagg.messages import MaskInput
from testbed.engine.plan import RunPlan
from testbed.experiment.inputs import located, secrets_context, with_digests
from testbed.experiment.schema import validated

KEYS: dict[str, Any] = {
    "seed": 3,
    "rounds": 2,
    "selection": {"protocol": "random", "participants": 8},
    "aggregation": {
        "protocol": "secagg", "bits": 32, "weights": "equal", "noise": {"noise_multiplier": 8.0, "scale": 64.0},
    },
}  # fmt: skip
OTHERS = {
    "another name": {"name": "another"},
    "another learning rate": {"workload": {"learning_rate": 0.2}},
    "other links": {"links": {"up_mbit_s": 3.0}},
}


def masked_inputs(done: Any) -> dict[int, np.ndarray]:
    """Return each client's masked input of round 1."""
    network, got = done.federation.network, {}
    ask = network.ask

    async def spying(recipients: Any, message: Any, **options: Any) -> Any:
        replies = await ask(recipients, message, **options)
        if isinstance(message, MaskInput) and message.round == 1:
            vectors = await network.hosts.vectors((1, len(network.exchanges) - 1), recipients)
            got.update({client: vector.values.astype(np.uint32) for client, vector in vectors.items()})
        return replies

    network.ask = spying
    done.rounds(1)
    return got


@pytest.mark.parametrize("other", OTHERS)
def test_masks_and_noise_of_two_runs_with_one_seed_do_not_cancel(other: str, run: Callable[..., Any]) -> None:
    first, second, again = (run(KEYS | keys) for keys in ({}, OTHERS[other], {}))
    inputs, others, same = masked_inputs(first), masked_inputs(second), masked_inputs(again)
    assert inputs.keys() == others.keys()  # participation is paired
    for client, values in inputs.items():
        assert np.array_equal(values, same[client])
        apart = np.abs((values - others[client]).astype(np.int32).astype(np.int64))
        assert np.median(apart) > 2**27  # of 2**31: uniform differences have 2**30
    assert not np.array_equal(first.outcomes[0].model, second.outcomes[0].model)  # other noise


def test_simulation_and_identities_depend_on_the_seed_alone() -> None:
    one, two, other_seed = (
        RunPlan(validated({"seed": 3, "name": "one"} | keys, "test"), 0).randomness
        for keys in ({}, {"name": "two"}, {"seed": 4})
    )
    draws = [of.generator("availability", 5, "dropout").integers(0, 2**63, 4).tolist() for of in (one, two, other_seed)]
    assert draws[0] == draws[1] != draws[2]
    kept = [of.identity_secret(7, 0, "signing key") for of in (one, two, other_seed)]
    assert kept[0] == kept[1] != kept[2]
    assert len({of.secret(7, 1, "secagg mask key") for of in (one, two, other_seed)}) == 3


def test_a_longer_run_begins_as_the_shorter_one(run: Callable[..., Any]) -> None:
    first, longer = (masked_inputs(run(KEYS | keys)) for keys in ({}, {"rounds": KEYS.get("rounds", 10) + 3}))
    for client, values in first.items():
        assert np.array_equal(values, longer[client])


def test_runs_under_lotto_have_the_same_lots_for_any_aggregation(run: Callable[..., Any]) -> None:
    selection = {"protocol": "lotto-client-centric", "participants": 5, "over_selection": 2.5}
    chosen = [
        [outcome.participants.tolist() for outcome in run(keys | {"seed": 3, "selection": selection}).rounds().outcomes]
        for keys in ({"aggregation": {"protocol": "plain"}}, {"aggregation": {"protocol": "secagg"}})
    ]
    assert chosen[0] == chosen[1]
    assert len({tuple(one) for one in chosen[0]}) > 1


def context(keys: dict[str, Any]) -> bytes:
    return secrets_context(validated(keys, "test"))


LOTTO = {"protocol": "lotto-server-centric", "participants": 5}


def test_settings_without_effect_on_results_change_no_secret() -> None:
    same = [
        {},
        {"rounds": 11},  # the first ten are the same
        {"seed": 3, "population": 100},  # the default, written out
        {"cluster": {"hosts": 3, "network": "in-process"}},
        {"output": {"directory": "elsewhere"}},
        {"records": {"aggregates": "all"}},
        {"provenance": {"label": "x"}},
    ]
    assert len({context({"seed": 3} | keys) for keys in same}) == 1


def test_every_setting_changes_them() -> None:
    different: list[dict[str, Any]] = [
        {},
        {"name": "x"},
        {"seed": 4},
        {"aggregation": {"protocol": "secagg", "weights": "equal", "noise": {"epsilon": 3.0}}},
        {"aggregation": {"protocol": "secagg", "weights": "equal", "noise": {"epsilon": 3.0}}, "rounds": 11},
        {"selection": LOTTO, "adversary": {"dishonest": 2, "server": ["grind-round"]}},
        {"selection": LOTTO, "adversary": {"dishonest": 2, "server": ["grind-round"]}, "rounds": 11},
        {"workload": {"learning_rate": 0.2}},
        {"selection": {"protocol": "weighted-random"}},
        {"selection": {"protocol": "oort"}},
        {"selection": {"protocol": "min-separation", "separation": 2}},
        {"selection": {"protocol": "balls-in-bins", "bins": 4}},
        {"aggregation": {"protocol": "secagg-plus"}},
        {"aggregation": {"protocol": "plain"}},
        {"aggregation": {"protocol": "lightsecagg"}},
        {"aggregation": {"protocol": "flamingo", "committee": {"size": 4}}},
        {"aggregation": {"protocol": "flamingo", "committee": {"size": 6}}},
        {"aggregation": {"protocol": "one-shot"}},
        {"aggregation": {"protocol": "one-shot", "committee": {"size": 30}}},
        {"aggregation": {"protocol": "pine"}},
        {"aggregation": {"protocol": "pine", "helper": 1}},
        {"aggregation": {"protocol": "secagg", "weights": "equal"}},
        {
            "aggregation": {
                "protocol": "secagg",
                "weights": "equal",
                "noise": {"mechanism": "correlated", "strategy": "identity", "noise_multiplier": 1.0},
            }
        },
        {"availability": {"model": "always", "dropout": {"rate": 0.1}}},
        {"privacy": {"delta": 1e-5}},
    ]
    secagg = {"aggregation": {"protocol": "secagg"}}
    assert context({"seed": 3} | secagg) == context({"seed": 3, "rounds": 11} | secagg)
    assert len({context({"seed": 3} | keys) for keys in different}) == len(different)


def test_they_are_the_same_after_resuming_and_on_another_machine(tmp_path: Any) -> None:
    trace = tmp_path / "trace.csv"
    keys = {"seed": 3, "availability": {"model": "trace", "path": str(trace)}}
    experiment = validated(keys, "test")
    stored = validated(experiment.plain() | {"provenance": {"label": "x"}}, "test")
    assert secrets_context(experiment) == secrets_context(stored) == secrets_context(located(experiment))
    elsewhere = validated(keys | {"availability": {"model": "trace", "path": "other/trace.csv"}}, "test")
    assert secrets_context(elsewhere) == secrets_context(experiment)


def traced(path: str, files: dict[str, str], **more: Any) -> Any:
    """Return an experiment with a trace, for which the run has recorded these digests."""
    return with_digests(validated({"seed": 3, "availability": {"model": "trace", "path": path}} | more, "test"), files)


def test_the_content_of_files_counts_and_not_where_they_lie() -> None:
    one = traced("a/monday.csv", {"a/monday.csv": "11"})
    assert secrets_context(one) == secrets_context(traced("b/copy.csv", {"b/copy.csv": "11"}))
    assert secrets_context(one) == secrets_context(with_digests(located(one), {"a/monday.csv": "11"}))
    assert secrets_context(one) != secrets_context(traced("a/tuesday.csv", {"a/tuesday.csv": "22"}))
    assert secrets_context(traced("a", {})) == context({"seed": 3, "availability": {"model": "trace", "path": "a"}})
    unused = {"a/monday.csv": "11", "a/tuesday.csv": "22"}
    assert secrets_context(traced("a/monday.csv", unused)) == secrets_context(one)


def test_each_key_has_its_own_file() -> None:
    """Two files that change places are another experiment; so is one that options of the user's own code name."""
    digests = {"a.csv": "11", "b.csv": "22"}
    places = [
        traced("a.csv", digests, workload={"dataset": "mnist", "path": "b.csv"}),
        traced("b.csv", digests, workload={"dataset": "mnist", "path": "a.csv"}),
        traced("a.csv", digests, workload={"dataset": "mnist", "path": "a.csv"}),
    ]
    own = {"dataset": "pandas:read_csv", "model": "x.y:Z", "options": {"filepath_or_buffer": "b.csv"}}
    places += [traced("a.csv", digests | {"b.csv": digest}, workload=own) for digest in ("22", "33")]
    assert len(set(map(secrets_context, places))) == len(places)


@pytest.mark.parametrize("files", [None, 3, ["a.csv"], {"a.csv": 4}])
def test_damaged_records_of_digests_are_no_crash(files: Any) -> None:
    keys = {"seed": 3, "availability": {"model": "trace", "path": "a.csv"}, "provenance": {"files": files}}
    assert len(context(keys)) == 32


@pytest.mark.parametrize("protocol", ["secagg", "secagg-plus", "flamingo"])
def test_how_masks_are_emulated_changes_no_secret(protocol: str) -> None:
    section = {"protocol": protocol} | ({"committee": {"size": 4}} if protocol == "flamingo" else {})
    ways = [{}, {"masks": "symbolic"}, {"masks": "materialised"}]
    keys = {"seed": 3, "time": {"compute": "modelled"}}
    assert len({context(keys | {"aggregation": section | way}) for way in ways}) == 1


def test_a_key_of_a_later_version_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic import Field, create_model

    from testbed.experiment.schema import Experiment

    later = create_model("Later", __base__=Experiment, new_key=(int, Field(5)))
    keys = {"seed": 3, "rounds": 2}
    assert secrets_context(later.model_validate(keys)) == context(keys)
    assert secrets_context(later.model_validate(keys | {"new_key": 6})) != context(keys)
