"""Updates that dishonest clients submit instead of their trained updates."""

import itertools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.adversary.misbehaviour import AttackContext
from testbed.adversary.poisoned_updates import LittleIsEnough, LittleOptions, MinMax, z_max
from testbed.aggregation.quantisation import Quantisation
from testbed.errors import ExperimentError, RoundAborted
from testbed.experiment.schema import validated
from tests.engine.federations import Run
from tests.engine.test_server_optimizers import PROTOCOLS
from tests.messages_named import naming
from tests.thoroughness import examples

DISHONEST = [3, 8, 20]
ALL = {"selection": {"participants": 30}, "rounds": 2}


def keys(clients: Any, protocol: str = "plain", **aggregation: Any) -> dict[str, Any]:
    adversary = {"dishonest": DISHONEST, "clients": clients}
    return ALL | {"adversary": adversary, "aggregation": PROTOCOLS[protocol] | {"weights": "equal"} | aggregation}


def submitted(one: Any, protocol: str = "plain") -> Any:
    """Return the update that each client submits in round 1 from the initial model, (30, d)."""
    model = one.workload.initial_model()
    return model, np.array([one.workload.train(client, model, 1).delta for client in range(30)], np.float64)


@pytest.fixture
def run() -> Callable[..., Run]:
    return lambda keys, **more: Run(keys, **more)


@pytest.mark.parametrize(("clients", "factor"), [({"scale-update": {"factor": 3.0}}, 3), ("flip-sign", -1)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_sums_the_poisoned_updates(run: Callable, clients: Any, factor: int, protocol: str) -> None:
    one = run(keys(clients, protocol))
    _, deltas = submitted(one)
    deltas[DISHONEST] *= factor
    assert np.abs(deltas).max() < 1  # nobody's encoder clips it
    one.rounds(1)
    assert len(one.outcomes[0].survivors) == 30
    assert one.outcomes[0].aggregate.mean == pytest.approx(deltas.mean(axis=0), abs=1e-3)


def test_a_scaled_update_replaces_the_model_after_convergence(run: Callable) -> None:
    """Bagdasaryan et al., equation 3: one client's update, times s, in a mean of s updates."""
    one = run(keys("scale-update") | {"adversary": {"dishonest": [3], "clients": "scale-update"}})
    _, deltas = submitted(one)
    mean = one.rounds(1).outcomes[0].aggregate.mean
    assert mean - np.delete(deltas, 3, axis=0).sum(axis=0) / 30 == pytest.approx(deltas[3], abs=1e-6)


@pytest.mark.parametrize("protocol", ["secagg", "lightsecagg", "one-shot"])
def test_an_honest_encoder_clips_each_coordinate(run: Callable, protocol: str) -> None:
    """A scaled update counts at most clip in each coordinate; a mean of plain updates contains all of it."""
    clip = {"clip": 0.3}
    clipped, whole = (
        run(keys({"scale-update": {"factor": 1e4}}, name, **more)) for name, more in ((protocol, clip), ("plain", {}))
    )
    _, deltas = submitted(clipped)
    deltas[DISHONEST] *= 1e4
    assert clipped.rounds(1).outcomes[0].aggregate.mean == pytest.approx(
        np.clip(deltas, -0.3, 0.3).mean(axis=0), abs=1e-3
    )
    assert whole.rounds(1).outcomes[0].aggregate.mean == pytest.approx(deltas.mean(axis=0), rel=1e-4)
    assert np.abs(whole.outcomes[0].aggregate.mean).max() > 10


def test_an_overflowing_factor_gives_the_largest_number(run: Callable) -> None:
    one = run(keys({"scale-update": {"factor": 1e300}}, robust={"rule": "median"})).rounds(1)
    assert one.outcomes[0].state == "completed"
    assert np.abs(one.outcomes[0].aggregate.mean).max() < 0.2


def test_a_client_with_its_own_encoder_moves_the_mean_as_far_as_all_clients_could() -> None:
    """See docs/explanation/poisoning-secagg.md.

    Ring elements beyond a client's own range pass if the sum is possible for this number of honest updates.
    """
    quantisation, d = Quantisation(1.0, 16, 32), 50
    honest = [quantisation.encode(np.zeros(d, np.float32), 1, bytes([i]) * 32) for i in range(9)]
    total = np.sum(honest, axis=0, dtype=np.uint32)
    own = np.append(np.uint32(10 * quantisation.highest) - total[:-1], np.uint32(1))
    mean, weight = quantisation.decode(total + own, 10)
    assert weight == 10
    assert mean == pytest.approx(np.full(d, 1.0))  # clip; an honest encoder's largest update moves it by a tenth
    with pytest.raises(RoundAborted, match="implausible-sum"):
        quantisation.decode(total + own + np.append(np.ones(d, np.uint32), np.uint32(0)), 10)


# -- colluders ---------------------------------------------------------------------------------------------------------


def test_all_colluders_submit_the_mean_minus_z_deviations(run: Callable) -> None:
    one = run(keys({"little-is-enough": {"z": 1.5}}))
    _, deltas = submitted(one)
    own = deltas[DISHONEST]
    deltas[DISHONEST] = own.mean(axis=0) - 1.5 * own.std(axis=0)
    one.rounds(1)
    assert one.outcomes[0].aggregate.mean == pytest.approx(deltas.mean(axis=0), abs=1e-6)


def test_estimates_use_the_first_colluders_with_samples(run: Callable) -> None:
    one = run(keys({"little-is-enough": {"z": 1.0, "estimates": 2}}))
    one.workload.sample_counts[3] = 0
    _, deltas = submitted(one)
    own = deltas[[8, 20]]
    deltas[DISHONEST] = own.mean(axis=0) - own.std(axis=0)
    assert one.rounds(1).outcomes[0].aggregate.mean == pytest.approx(deltas.mean(axis=0), abs=1e-6)


def test_a_single_colluder_submits_its_honest_update(run: Callable) -> None:
    one = run(keys("little-is-enough") | {"adversary": {"dishonest": 1, "clients": "little-is-enough"}})
    _, deltas = submitted(one)
    one.rounds(1)
    assert one.outcomes[0].aggregate.mean == pytest.approx(deltas.mean(axis=0), abs=1e-6)
    assert not [event for event in one.federation.network.events if event.kind == "attack"]


def test_z_max_equals_the_papers_example() -> None:
    """Section 3.1: n = 50 workers, m = 24 of them: s = 2, and Phi(z) < 0.92 (24/26)."""
    assert z_max(50, 24) == pytest.approx(NormalDist().inv_cdf(24 / 26))
    assert z_max(50, 24) == pytest.approx(1.43, abs=0.01)
    assert z_max(50, 12) == pytest.approx(NormalDist().inv_cdf(24 / 38))
    assert z_max(10, 0) == 0.0
    assert z_max(10, 6) == 4.0
    assert z_max(10, 10) == 4.0


def crafted(kind: Any, updates: Any, options: Any = None) -> np.ndarray:
    context = AttackContext(frozenset(), {} if options is None else {kind: options})
    role: Any = type("Role", (kind,), {"context": context})
    return np.asarray(role.crafted(object.__new__(role), np.asarray(updates, np.float64)))


@given(st.integers(0, 2**32), st.integers(2, 9))
@settings(max_examples=examples(100))
def test_min_max_is_as_far_from_each_update_as_the_two_most_distant_updates(seed: int, count: int) -> None:
    updates = np.random.default_rng(seed).normal(size=(count, 6))
    most = max(math.dist(one, other) for one, other in itertools.combinations(updates, 2))
    furthest = max(math.dist(crafted(MinMax, updates), one) for one in updates)
    assert furthest == pytest.approx(most)


def test_colluders_submit_equal_updates_unchanged() -> None:
    same = np.full((4, 3), 0.25)
    assert crafted(MinMax, same).tolist() == [0.25] * 3
    assert crafted(LittleIsEnough, same, LittleOptions(z=2.0)).tolist() == [0.25] * 3


# -- rounds, hosts and exclusions --------------------------------------------------------------------------------------

POISONED = ["scale-update", "flip-sign", {"little-is-enough": {"z": 1.0}}, "min-max"]


@pytest.mark.parametrize("clients", POISONED, ids=str)
def test_hosts_and_resumption_change_nothing(tmp_path: Any, clients: Any) -> None:
    asked = keys(clients) | {"rounds": 4, "selection": {"participants": 12}}
    whole = Run(asked, tmp_path / "whole").rounds()
    Run(asked, tmp_path / "stopped").rounds(2)
    resumed = Run(asked, tmp_path / "stopped", resume=True, hosts=3).rounds()
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    attacks = [[event for event in one.rows("events") if event["kind"] == "attack"] for one in (whole, resumed)]
    assert attacks[0] == attacks[1] != []
    honest = Run(asked | {"adversary": None}).rounds()
    assert honest.federation.state.model.tobytes() != whole.federation.state.model.tobytes()
    later = asked | {"adversary": {**asked["adversary"], "from_round": 5}}
    assert Run(later).rounds().federation.state.model.tobytes() == honest.federation.state.model.tobytes()


def test_measured_compute_gives_the_same_updates(run: Callable) -> None:
    """Measured runs use no memo."""
    models = [
        run(keys({"little-is-enough": {"z": 1.0}}) | {"time": {"compute": compute, "deadline_s": 600}}).rounds(1)
        for compute in ("modelled", "measured")
    ]
    assert models[0].federation.state.model.tobytes() == models[1].federation.state.model.tobytes()


@pytest.mark.parametrize(
    ("clients", "more", "parts"),
    [
        ({"scale-update": {"factor": 0}}, {}, ("scale-update.factor",)),
        ({"flip-sign": {"factor": -1}}, {}, ("flip-sign.factor",)),
        ({"little-is-enough": {"estimates": 1}}, {}, ("little-is-enough.estimates",)),
        ("little-is-enough", {"dishonest": [4]}, ("little-is-enough.estimates", "dishonest")),
    ],
)
def test_invalid_options_are_refused(clients: Any, more: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(ExperimentError, match=naming(*parts)):
        validated(keys(clients) | {"population": 30, "adversary": {"dishonest": 3, "clients": clients} | more}, "mine")


def test_client_state_excludes_collusion(run: Callable) -> None:
    kept = {"workload": {"momentum": 0, "drift_correction": {"name": "scaffold"}}}
    with pytest.raises(ExperimentError, match=naming("min-max", "workload.drift_correction")):
        run(keys("min-max") | kept)


def test_collusion_is_refused_for_gradient_sums() -> None:
    dp_sgd = {
        "selection": {"protocol": "bernoulli", "client_rate": 0.3},
        "aggregation": {"protocol": "dp-sgd-random-participation", "sample_rate": 0.2, "sigma": 1.0},
    }
    parts = "clients", "min-max", "bernoulli", "dp-sgd-random-participation"
    with pytest.raises(ExperimentError, match=naming(*parts)):
        validated(dp_sgd | {"adversary": {"dishonest": 3, "clients": "min-max"}}, "mine")
    validated(dp_sgd | {"adversary": {"dishonest": 3, "clients": ["flip-sign", "flip-labels"]}}, "mine")
