"""Clients mask only with those that were sent the same model: `aggregation.model_binding`."""

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest

from testbed.adversary.secagg.dishonest_clients import SecAggAccomplice
from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.secagg.messages import KEYS_DOMAIN, AdvertOf, KeyAdvert, ShareKeys, advert_content
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.graph import RegularGraph
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.engine.registry import aggregation_protocol
from testbed.errors import RoundAborted
from testbed.messages import Vector
from testbed.parties.client import RoleSpec
from testbed.training import Train, training_digest
from tests.aggregation.federations import SmallFederation

N, T, D = 7, 5, 6
VICTIM = 2
EXPERIMENT = b"a test's own id."
CHECK = "aggregation.keys-or-model-mismatch"
OTHERS = [client for client in range(N) if client != VICTIM]
DELTAS = np.random.default_rng(8).uniform(-1, 1, (N, D))
PLUS = SecAggPlusParameters(neighbours=4, threshold=4, bits=32, dropouts=0.2, dishonest=0, accept_weaker=True)
PARAMETERS = {
    "signed": (SecAggParameters(threshold=T, bits=32), SecAgg),
    "unsigned survivors": (SecAggParameters(threshold=T, bits=32, consistency="none"), SecAgg),
    "secagg-plus": (PLUS, SecAggPlus),
}


class Gullible:
    """Leaves out no client with keys that are signed for another model."""

    def usable_adverts(self, state: Any, adverts: Any) -> Any:
        return adverts


class GullibleSecAgg(Gullible, SecAgg):
    pass


class GullibleSecAggPlus(Gullible, SecAggPlus):
    pass


GULLIBLE = {SecAgg: GullibleSecAgg, SecAggPlus: GullibleSecAggPlus}


def model(value: float = 0.0) -> Vector:
    return Vector(np.full(D, value, np.float32), 0)


async def trained_apart(small: Any, asked: Any) -> AggregationRound:
    """Groups have different training tasks; the server uses the last one."""
    await small.network.begin_round(1)
    for clients, question in asked:
        await small.network.ask(np.array(clients, np.int64), question)
    return AggregationRound(
        1, small.network, small.everybody, small.everybody, small.environment.directory, D, EXPERIMENT,
        small.randomness, training=asked[-1][1],
    )  # fmt: skip


def play(name: str, asked: Any, *, gullible: bool = False, binding: str = "signed") -> Any:
    parameters, protocol = PARAMETERS[name]
    parameters = parameters.model_copy(update={"model_binding": binding})
    small = SmallFederation(DELTAS, parameters, protocol=GULLIBLE[protocol] if gullible else protocol)

    async def whole_round() -> Any:
        start = await trained_apart(small, asked)
        try:
            return await small.protocol.aggregate(start)
        except RoundAborted as ended:
            return ended
        finally:
            small.network.end_round()

    return small, asyncio.run(whole_round())


APART = [([VICTIM], Train(1, model())), (OTHERS, Train(1, model(0.5)))]
TOGETHER = [(list(range(N)), Train(1, model(0.5)))]


@pytest.mark.parametrize("name", PARAMETERS)
def test_who_was_sent_another_model_is_in_no_sum(name: str) -> None:
    """The honest server leaves it out, by its signature, and the others do not notice."""
    small, outcome = play(name, APART)
    assert outcome.survivors.tolist() == OTHERS
    assert small.misbehaviour() == [(VICTIM, "advertised keys: the Ed25519 signature does not hold")]
    assert small.refusals() == []
    assert np.allclose(outcome.mean, DELTAS[OTHERS].mean(axis=0), atol=1e-3)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_server_that_says_nothing_of_it_is_refused_before_any_input_leaves(name: str) -> None:
    small, outcome = play(name, APART, gullible=True)
    assert outcome.reason == "below-threshold"
    hurt = set(range(N))
    if name == "secagg-plus":
        hurt = set(RegularGraph.of_round(bytes(32), 1, range(N), PLUS.neighbourhood(N)).around(VICTIM))
        assert 2 < len(hurt) < N
    assert {client for client, check in small.refusals() if check == CHECK} == hurt
    asked = {delivery.kind.stage for delivery, _ in small.hosts.seen}
    assert "secagg/masked-input" not in asked


@pytest.mark.parametrize("name", PARAMETERS)
def test_without_binding_they_are_summed(name: str) -> None:
    small, outcome = play(name, APART, binding="none")
    assert outcome.survivors.tolist() == list(range(N))
    events = [event.detail for event in small.network.events if event.kind == "weak-binding"]
    assert len(events) == 1
    assert "a malicious server may send each another one" in events[0]


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_costs_no_byte_and_the_time_of_one_hash(name: str) -> None:
    seen = {}
    for binding in ("signed", "none"):
        small, outcome = play(name, TOGETHER, binding=binding)
        seen[binding] = (small.network.exchanges, outcome)
    (bound, with_), (free, without) = seen["signed"], seen["none"]
    assert np.array_equal(with_.mean, without.mean)
    for one, other in zip(bound, free, strict=True):
        assert (one.bytes_up == other.bytes_up).all()
        assert (one.bytes_down == other.bytes_down).all()
        more = one.compute_s - other.compute_s
        hashed = 4 * D * REFERENCE_COSTS["sha256.byte"] if one.stage == "secagg/advertise-keys" else 0.0
        assert more == pytest.approx(np.full(N, hashed), abs=1e-15)


@pytest.mark.parametrize("measured", [False, True])
def test_one_process_hashes_a_model_once_and_everybody_where_compute_is_measured(
    measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters, protocol = PARAMETERS["signed"]
    small = SmallFederation(DELTAS, parameters, protocol=protocol)
    small.environment.compute = ComputeModel(measured, REFERENCE_COSTS)
    hashed, pack = [], Vector._packed
    monkeypatch.setattr(Vector, "_packed", lambda self: hashed.append(len(self)) or pack(self))
    outcome = small.run()
    assert outcome.survivors.tolist() == list(range(N))  # everybody's signature verifies
    assert len(hashed) == (N + 1 if measured else 1)  # the server's own is always made


def test_the_digest_is_that_of_all_that_was_asked() -> None:
    asked = Train(1, model())
    assert training_digest(asked, anew=False) == training_digest(Train(1, model()), anew=True)
    assert training_digest(asked, anew=False) != training_digest(Train(2, model()), anew=False)
    assert training_digest(asked, anew=False) != training_digest(Train(1, model(1e-30)), anew=False)


def test_a_server_that_checks_signatures_must_know_what_it_asked() -> None:
    small = SmallFederation(DELTAS, PARAMETERS["signed"][0])

    async def forgotten() -> Any:
        start = await small.begin()
        start.training = None
        await small.protocol.aggregate(start)

    with pytest.raises(RoundAborted, match="no-training"):
        asyncio.run(forgotten())


# -- accomplices ----------------------------------------------------------------------------------------------------


def advert_for(small: Any, client: int, advert: KeyAdvert, question: Train) -> AdvertOf:
    """Return an accomplice's genuine keys, signed for any model."""
    content = advert_content(1, client, advert.sealing_key, advert.mask_key, training_digest(question, anew=True))
    signature = small.client(client).identity.signing.sign(KEYS_DOMAIN + EXPERIMENT, content)
    return AdvertOf(client, advert.sealing_key, advert.mask_key, signature)


def answers_of_the_victim(accomplices: list[int], listed: list[int]) -> list[str]:
    """Return the victim's refusal of a list of these keys, if any; only the victim was sent this model."""
    parameters = PARAMETERS["signed"][0]
    role = RoleSpec(SecAggAccomplice, parameters, frozenset(accomplices))
    small = SmallFederation(DELTAS, parameters, protocol=GullibleSecAgg, roles=[role])

    async def shown() -> Any:
        start = await trained_apart(small, APART)
        state = small.protocol.begin(start)
        await small.protocol.advertise_keys(state)
        adverts = state.adverts
        rows = [
            advert_for(small, client, adverts[client], APART[0][1])
            if client in accomplices
            else AdvertOf(client, *[getattr(adverts[client], key) for key in ("sealing_key", "mask_key", "signature")])
            for client in listed
        ]
        replies = await small.network.ask(np.array([VICTIM]), ShareKeys(1, rows))
        return [refusal.check for refusal in replies.missing.refusals]

    return asyncio.run(shown())


def test_accomplices_sign_for_both_models_and_are_too_few() -> None:
    """2t - s - 1 = 2 of them, as many as the protocol tolerates: no list that holds the victim passes."""
    accomplices = [5, 6]
    assert len(accomplices) == aggregation_protocol(PARAMETERS["signed"][0]).guarantees(N).max_colluders
    for size in range(1, N + 1):
        for listed in itertools.combinations(range(N), size):
            if VICTIM not in listed:
                continue
            expected = "secagg.wrong-size" if size < T else CHECK
            assert answers_of_the_victim(accomplices, list(listed)) == [expected], listed


def test_with_enough_of_them_the_victim_is_summed_with_nobody_else() -> None:
    """t - 1 accomplices, more than 2t - s, may sign anything; the bound stays the same."""
    accomplices = [3, 4, 5, 6]
    assert len(accomplices) == T - 1 > aggregation_protocol(PARAMETERS["signed"][0]).guarantees(N).max_colluders
    assert answers_of_the_victim(accomplices, [VICTIM, *accomplices]) == []
    assert answers_of_the_victim(accomplices, [1, VICTIM, *accomplices]) == [CHECK]
