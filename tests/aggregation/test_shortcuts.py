"""Shortcuts inside one process are, bit for bit, the long way.

Masks that stay seeds until somebody looks, against masks that are all expanded; and pure functions that are computed
once for all parties (`testbed.crypto.memo`), against everybody's own work.
"""

import asyncio
import os
import pickle
import random
import threading
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.quantisation import Quantisation, Quantised
from testbed.aggregation.secagg.client import SecAggClient
from testbed.crypto import InvalidKey
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.masks import add_masks, mask, word_dtype
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError, ProtocolError, TestbedError
from testbed.experiment.schema import validated
from testbed.messages import Vector, detach, encode
from testbed.network import masked_vectors, sums
from testbed.network.masked_vectors import MaskedVector, Masks, Seed, agreed_seed
from testbed.network.sums import merged, ring_total
from tests.engine.federations import Run
from tests.fuzz.rounds import MIXES, ROUNDS, _federation
from tests.messages_named import naming
from tests.thoroughness import examples

# -- vectors and their sums -------------------------------------------------------------------------------------------


PAIRS = [PrivateKey.from_seed(bytes([number]) * 32) for number in range(1, 5)]
AGREED = {
    agreed_seed(own.public, peer.public, purpose): own.agree(peer.public, purpose)
    for own in PAIRS
    for peer in PAIRS
    for purpose in (b"one", b"another")
    if own is not peer
}
SEEDS: list[Seed] = [*(bytes([number]) * 32 for number in range(3)), *AGREED]


def known(seed: Seed) -> bytes:
    return seed if isinstance(seed, bytes) else AGREED[seed]


def expanded(plain: Any, masks: Masks, bits: int) -> Any:
    """The elements under their masks, one Python integer at a time."""
    drawn = {seed: mask(known(seed), len(plain), bits) for seed in masks.counts}
    return [
        (int(value) + sum(count * int(drawn[seed][k]) for seed, count in masks.counts.items())) % 2**bits
        for k, value in enumerate(plain)
    ]


def one_end_of(draw: st.DrawFn, seeds: list[Seed]) -> list[PrivateKey]:
    """Of each seed that is agreed on."""
    ends = [draw(st.sampled_from(seed[1:])) for seed in seeds if isinstance(seed, tuple)]
    return [pair for pair in PAIRS if pair.public in ends]


@st.composite
def masked(draw: st.DrawFn, bits: int, length: int) -> MaskedVector:
    plain = np.array([draw(st.integers(0, 2**bits - 1)) for _ in range(length)], word_dtype(bits))
    terms = draw(st.lists(st.tuples(st.sampled_from(SEEDS), st.sampled_from([1, -1])), max_size=8))
    seeds = [seed for seed, _ in terms]
    return MaskedVector(plain, bits, Masks(seeds, [sign for _, sign in terms], keys=one_end_of(draw, seeds)))


@given(st.data(), st.integers(1, 64), st.integers(0, 5))
def test_a_masked_vector_is_what_its_masks_make_of_it(data: st.DataObject, bits: int, length: int) -> None:
    vector = data.draw(masked(bits, length))
    before = np.asarray(vector.plain).tobytes()
    assert vector.values.tolist() == expanded(vector.plain, vector.masks, bits)
    plain = Vector(vector.values, bits)
    assert vector == plain
    assert (vector.pack(), vector.digest(), len(vector)) == (plain.pack(), plain.digest(), len(plain))
    assert np.asarray(vector.plain).tobytes() == before
    sent = pickle.loads(pickle.dumps(data.draw(masked(bits, length))))  # noqa: S301  # our own bytes
    assert sent.values.tolist() == expanded(sent.plain, sent.masks, bits)


@given(st.data(), st.integers(1, 64), st.integers(0, 4), st.integers(1, 6))
def test_sums_are_the_same_whoever_has_expanded(data: st.DataObject, bits: int, length: int, count: int) -> None:
    """Some vectors with their masks as seeds, some without, in any grouping; and seeds that the server takes off."""
    vectors = [data.draw(masked(bits, length)) for _ in range(count)]
    looked_at = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    mixed = [Vector(v.values, bits) if looked else v for v, looked in zip(vectors, looked_at, strict=True)]
    seeds = data.draw(st.lists(st.sampled_from(SEEDS), max_size=5))
    signs = data.draw(st.lists(st.sampled_from([1, -1]), min_size=len(seeds), max_size=len(seeds)))
    long_way = ring_total([Vector(v.values, bits) for v in vectors]).materialised()
    add_masks(long_way, [known(seed) for seed in seeds], signs, bits)
    more = Masks(seeds, signs, keys=PAIRS)
    cut = data.draw(st.integers(0, count))
    parts = [ring_total(part) for part in (mixed[:cut], mixed[cut:]) if part]
    short_way = merged(parts).with_masks(more).materialised()
    assert short_way.tolist() == long_way.tolist()


def test_masks_that_cancel_are_never_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*arguments: Any) -> None:
        raise AssertionError("somebody has expanded a mask")

    monkeypatch.setattr(masked_vectors, "add_masks", look)
    monkeypatch.setattr(sums, "add_masks", look)
    monkeypatch.setattr(PrivateKey, "exchange", look)
    plain, agreed = np.arange(3, dtype=np.uint32), agreed_seed(PAIRS[0].public, PAIRS[1].public, b"one")
    pair = [
        MaskedVector(plain, 32, Masks([SEEDS[0], SEEDS[1], agreed], [1, 1, 1], keys=PAIRS[:1])),
        MaskedVector(plain, 32, Masks([SEEDS[0], agreed], [-1, -1])),
    ]
    total = ring_total(pair)
    assert total.masks.counts == {SEEDS[1]: 1}
    assert total.with_masks(Masks([SEEDS[1]], [-1])).materialised().tolist() == [0, 2, 4]
    with pytest.raises(AssertionError, match="expanded"):
        total.materialised()
    with pytest.raises(AssertionError, match="expanded"):
        detach_and_look(pair[0])


def detach_and_look(vector: MaskedVector) -> None:
    from testbed.aggregation.secagg.messages import Masked

    assert len(encode(Masked(Vector(np.asarray(vector.plain), 32)))) == detach(Masked(vector)).size
    encode(Masked(vector))


def test_masks_of_different_generators_are_not_summed() -> None:
    plain = np.arange(3, dtype=np.uint32)
    one = MaskedVector(plain, 32, Masks([SEEDS[0]], [1]))
    other = MaskedVector(plain, 32, Masks([SEEDS[1]], [1], "aegis-256x4"))
    with pytest.raises(ProtocolError, match="aes-256-ctr, some by aegis-256x4"):
        ring_total([one, other])
    with pytest.raises(ProtocolError, match=naming("masks")):
        ring_total([other]).with_masks(Masks([SEEDS[2]], [1]))


@pytest.mark.parametrize("seed", [bytes(31), b"", (b"", bytes(32), bytes(31)), (b"", bytes(33), bytes(32))])
def test_a_seed_of_another_length_is_refused_at_once(seed: Seed) -> None:
    with pytest.raises(InvalidKey):
        Masks([seed], [1])


quantisations = st.builds(
    Quantisation, st.sampled_from([0.5, 1.0]), st.sampled_from([4, 16, 20]), st.sampled_from([12, 16, 32, 47, 64])
)


@given(quantisations, st.integers(0, 3), st.integers(1, 4), st.integers(0, 99))
def test_elements_that_are_made_when_summed_are_those_that_were_made_before(
    quantisation: Quantisation, length: int, count: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    weight = max(1, min(7, (2**quantisation.bits - 1) // quantisation.highest // count))
    if weight * count * quantisation.highest >= 2**quantisation.bits:
        return
    made = [
        quantisation.quantised(generator.uniform(-1, 1, length).astype(np.float32), weight, generator.bytes(32))
        for _ in range(count)
    ]
    before = [Vector(np.asarray(one), quantisation.bits) for one in made]
    late = [MaskedVector(one, quantisation.bits, Masks()) for one in made]
    assert [len(one) for one in late] == [len(one) for one in before]
    assert ring_total(late).materialised().tobytes() == ring_total(before).materialised().tobytes()
    assert ring_total([*before[:1], *late[1:]]).values.tobytes() == ring_total(before).values.tobytes()
    assert [one.pack() for one in late] == [one.pack() for one in before]


@settings(max_examples=examples(10))
@given(st.sampled_from([16, 32, 47]), st.integers(1, 40), st.integers(1, 3), st.integers(0, 99))
def test_many_elements_are_made_on_all_cores(bits: int, count: int, cores: int, seed: int) -> None:
    quantisation = Quantisation(1.0, 8, bits)
    generator, used = np.random.default_rng(seed), set()
    made = [quantisation.quantised(generator.uniform(-1, 1, 5).astype(np.float32), 1, bytes(32)) for _ in range(count)]
    before = ring_total([Vector(np.asarray(one), bits) for one in made])
    start, together = threading.Barrier(min(cores, max(1, count // 8))), Quantised.add_to

    def add_to(one: Quantised, total: Any) -> None:
        if threading.get_ident() not in used:
            used.add(threading.get_ident())
            start.wait(10)
        together(one, total)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: cores)
        patch.setattr(Quantised, "add_to", add_to)
        total = ring_total([MaskedVector(one, bits, Masks()) for one in made])
    assert total.values.tobytes() == before.values.tobytes()
    assert len(used) == start.parties


# -- whole runs -------------------------------------------------------------------------------------------------------

NOISE = {"mechanism": "skellam", "noise_multiplier": 1.0, "scale": 64}
AGGREGATIONS: list[dict[str, Any]] = [
    {"protocol": "secagg", "threshold": 0.6},
    {"protocol": "secagg", "threshold": 0.6, "bits": 29},
    {"protocol": "secagg", "threshold": 0.6, "prg": "aegis-256x4"},
    {"protocol": "secagg", "threshold": 0.6, "bits": 64, "weights": "equal"},
    {"protocol": "secagg", "threshold": 0.8, "consistency": "none"},
    {"protocol": "secagg", "threshold": 0.6, "bits": 16, "levels_bits": 8, "weights": "equal"},
    {"protocol": "secagg", "threshold": 0.6, "weights": "equal", "noise": NOISE},
    {
        "protocol": "secagg", "threshold": 0.6, "weights": "equal",
        "noise": {**NOISE, "enforcement": {"tolerated_dropouts": 2}},
    },
    {
        "protocol": "secagg-plus", "neighbours": 4, "threshold": 3, "accept_weaker": True, "dishonest": 0.1,
        "dropouts": 0.1,
    },
]  # fmt: skip
SELECTIONS: list[dict[str, Any]] = [
    {"protocol": "random", "participants": 8},
    {"protocol": "batch-partition", "participants": 8, "privacy": 2},
    {"protocol": "lotto-client-centric", "participants": 7, "over_selection": 2},
]
ADVERSARIES: list[dict[str, Any] | None] = [
    None,
    None,
    {"clients": ["deal-inconsistent-shares"], "dishonest": 0.1},
    {"server": ["contradict-dropouts"], "dishonest": 0.2},
    {"server": ["shrink-the-sum"], "dishonest": 0.2},
    {"server": ["split-the-sharing"], "dishonest": 0.2},
]
STAGES = ["random", "secagg/share-keys", "secagg/masked-input", "secagg/consistency", "secagg/unmask"]


def told(run: Run) -> list[Any]:
    """Return the results that equal runs share, round by round, or the reason of their end."""
    found: list[Any] = []
    while not run.federation.finished:
        try:
            run.rounds(1)
        except TestbedError as error:
            return [*found, f"{type(error).__name__}: {error}"]
        outcome, network = run.outcomes[-1], run.federation.network
        exchanges = [
            [str(np.asarray(getattr(stage, one.name)).tolist()) for one in fields(stage)] for stage in network.exchanges
        ]
        facts = (outcome.state, outcome.reason, outcome.participants.tolist(), outcome.survivors.tolist())
        found.append((facts, outcome.model.tobytes(), network.now_s, exchanges, list(map(str, network.events))))
    return found


@settings(max_examples=examples(40))
@given(
    st.sampled_from(AGGREGATIONS),
    st.sampled_from(SELECTIONS),
    st.sampled_from(ADVERSARIES),
    st.sampled_from(STAGES),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_no_result_depends_on_shortcuts(
    aggregation: Any, selection: Any, adversary: Any, stage: str, rate: float, hosts: int, seed: int
) -> None:
    keys = {
        "seed": seed,
        "rounds": 2,
        "population": 20,
        "selection": selection,
        "aggregation": aggregation,
        "availability": {"dropout": {"rate": rate, "stage": stage}},
    }
    if adversary is not None:
        keys["adversary"] = adversary
    both = []
    for masks, count in (("symbolic", hosts), ("materialised", 1)):
        with pytest.MonkeyPatch.context() as patch:
            if masks == "materialised":
                patch.setattr(RunPlan, "results", None)
            try:
                run = Run({**keys, "aggregation": {**aggregation, "masks": masks}}, hosts=count)
            except (ValueError, ExperimentError) as error:  # these do not go together; said in the same words
                both.append([str(error).replace(masks, "")])
                continue
            assert run.plan.symbolic_masks == (masks == "symbolic")
            assert (run.plan.results is None) == (masks == "materialised")
            both.append(told(run))
    assert both[0] == both[1]


@settings(max_examples=examples(15))
@given(st.sampled_from([mix for mix in MIXES if mix[1]["protocol"].startswith("secagg")]), st.integers(0, 10**6))
def test_nor_does_what_a_changed_message_leads_to(mix: Any, seed: int) -> None:
    """One question or answer of each round is changed on its way, an update among them."""
    both = []
    for masks in ("symbolic", "materialised"):
        selection, aggregation = mix
        rng = random.Random(seed)  # noqa: S311 - cases are no secrets
        hosts, federation = _federation(selection, {**aggregation, "masks": masks}, rng)
        found: list[Any] = []
        for _ in range(ROUNDS):
            hosts.plan()
            try:
                outcome = asyncio.run(federation.run_next_round())
            except TestbedError as error:
                found.append(f"{type(error).__name__}: {error}")
                break
            found.append((hosts.did, outcome.state, outcome.reason, outcome.model.tobytes()))
            found.append(list(map(str, federation.network.events)))
        both.append(found)
    assert both[0] == both[1]


@pytest.mark.parametrize("masks", ["symbolic", "materialised"])
def test_who_changes_an_input_in_place_hears_that_it_would_be_lost(masks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's class that does so would have another model with symbols than without, and nothing would say so."""
    made = SecAggClient._masked

    def changed(self: SecAggClient, peers: list[int]) -> Vector:
        vector = made(self, peers)
        vector.values[0] += 1
        return vector

    monkeypatch.setattr(SecAggClient, "_masked", changed)
    run = Run(
        {"population": 8, "selection": {"participants": 4}, "aggregation": {"protocol": "secagg", "masks": masks}}
    )
    with pytest.raises(TestbedError, match="read-only"):
        run.rounds(1)


# -- where masks may stay seeds ---------------------------------------------------------------------------------------


def plan(**keys: Any) -> RunPlan:
    return RunPlan(validated({"population": 20, "seed": 1, **keys}, "test"), 1)


def test_masks_are_seeds_where_nobody_measures_or_waits() -> None:
    assert plan().symbolic_masks
    for time in ({"compute": "measured"}, {"clock": "wall"}):
        assert not plan(time=time).symbolic_masks
        assert plan(time=time).results is None
    assert not plan(aggregation={"protocol": "plain"}).symbolic_masks
    assert not plan(aggregation={"protocol": "secagg-plus", "masks": "materialised"}).symbolic_masks


@pytest.mark.parametrize("time", [{"compute": "measured"}, {"clock": "wall"}])
def test_seeds_that_would_make_measured_time_wrong_are_refused(time: dict[str, str]) -> None:
    with pytest.raises(ExperimentError, match=r"aggregation.masks: symbolic: .*time\.compute: modelled"):
        plan(time=time, aggregation={"protocol": "secagg", "masks": "symbolic"})


def test_secrets_do_not_follow_from_how_masks_are_emulated() -> None:
    secrets = {
        plan(aggregation={"protocol": "secagg", "masks": masks}).randomness.secret(1, 1, "x")
        for masks in (None, "symbolic", "materialised")
    }
    assert len(secrets) == 1
