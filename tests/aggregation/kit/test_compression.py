"""Updates that are compressed, under each aggregation."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.aggregation.kit.compression import (
    Compression,
    RandomK,
    coordinates,
    count_of,
    largest,
    quantised,
)
from testbed.aggregation.plain import Plain, PlainClient, PlainParameters, SendUpdate, Update
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from testbed.errors import RoundAborted
from testbed.messages import Vector
from testbed.parties.client import RoleSpec, handles
from tests.aggregation.federations import EXPERIMENT, SmallFederation
from tests.thoroughness import examples

D = 40
DELTAS = np.random.default_rng(0).uniform(-1, 1, (9, D)).astype(np.float32)
SAMPLES = [3, 1, 4, 1, 5, 9, 2, 6, 5]
TOP, RANDOM = {"name": "top-k", "share": 0.1}, {"name": "random-k", "share": 0.1}
QUANTISE = {"name": "quantise", "bits": 4, "bucket": 16}


def plain(compression: dict[str, Any] | None, deltas: Any = DELTAS, **more: Any) -> SmallFederation:
    return SmallFederation(deltas, PlainParameters(compression=compression), protocol=Plain, samples=SAMPLES, **more)


def summed(name: str, **keys: Any) -> SmallFederation:
    common = {"levels_bits": 16, "bits": 40, "compression": RANDOM} | keys
    if name == "secagg":
        return SmallFederation(DELTAS, SecAggParameters(threshold=0.6, **common), protocol=SecAgg, samples=SAMPLES)
    parameters = SecAggPlusParameters(neighbours=6, threshold=5, dropouts=0.3, accept_weaker=True, **common)
    return SmallFederation(DELTAS, parameters, protocol=SecAggPlus, samples=SAMPLES)


def weighted(deltas: Any, clients: Any = range(9)) -> Any:
    shares = np.array([SAMPLES[client] for client in clients], np.float64)
    return shares @ np.array([deltas[client] for client in clients], np.float64) / shares.sum()


# -- vectors sent ------------------------------------------------------------------------------------------------------


values = st.lists(st.floats(-1e3, 1e3, width=32) | st.sampled_from([0.0, 1.0, -1.0]), min_size=1, max_size=30)


@given(values, st.data())
def test_the_largest_are_those_of_a_sorted_list(given_: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(given_)))
    by_size = sorted(range(len(given_)), key=lambda place: (-abs(given_[place]), place))
    assert largest(np.array(given_, np.float32), count).tolist() == sorted(by_size[:count])


@pytest.mark.parametrize(
    ("share", "dimension", "count"), [(0.1, 40, 4), (0.1, 41, 5), (1, 7, 7), (1e-9, 7, 1), (0.3, 10, 3)]
)
def test_a_share_is_rounded_up(share: float, dimension: int, count: int) -> None:
    assert count_of(share, dimension) == count


def rounded_slowly(values: list[float], bits: int, bucket: int, coins: list[Fraction]) -> list[tuple[float, int]]:
    """QSGD, section 3.1, number by number: the bucket's norm, and the level with its sign."""
    made, most = [], 2 ** (bits - 1) - 1
    for i, value in enumerate(values):
        first = i // bucket * bucket
        norm = float(np.float32(np.sqrt(sum(float(other) ** 2 for other in values[first : first + bucket]))))
        place = Fraction(abs(float(value))) / Fraction(norm) * most if norm else Fraction(0)
        level = min(most, int(place) + (place - int(place) + coins[i] >= 1))
        made.append((norm, -level if value < 0 else level))
    return made


@settings(max_examples=examples(100))
@given(values, st.integers(2, 12), st.integers(1, 9), st.binary(min_size=32, max_size=32))
def test_quantising_is_qsgd(given_: list[float], bits: int, bucket: int, coins: bytes) -> None:
    from testbed.crypto.masks import STREAM_SLACK, key_stream

    stream = np.empty(4 * len(given_) + STREAM_SLACK, np.uint8)
    key_stream(coins)(stream, 4 * len(given_))
    drawn = [Fraction(int(word), 2**32) for word in stream[: 4 * len(given_)].view("<u4")]
    vector = quantised(np.array(given_, np.float32), bits, bucket, coins)
    most = 2 ** (bits - 1) - 1
    slowly = rounded_slowly(np.array(given_, np.float32).tolist(), bits, bucket, drawn)
    expected = [norm * level / most for norm, level in slowly]
    assert vector.values.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-37)


@pytest.mark.parametrize(("bits", "bucket"), [(2, 512), (4, 16), (8, 512)])
def test_quantised_values_are_right_on_average(bits: int, bucket: int) -> None:
    draws = 4000
    exact = DELTAS[0]
    mean = np.zeros(D)
    for number in range(draws):
        mean += quantised(exact, bits, bucket, number.to_bytes(32, "big")).values / draws
    steps = [float(np.linalg.norm(exact[i // bucket * bucket :][:bucket])) / (2 ** (bits - 1) - 1) for i in range(D)]
    deviation = np.array(steps) / 2 / np.sqrt(draws)  # at most
    assert (np.abs(mean - exact) < 5 * deviation).all()
    assert np.abs(quantised(exact, bits, bucket, bytes(32)).values - exact).max() > 5 * deviation.max()


def test_long_updates_are_quantised_like_short_ones() -> None:
    """Coins come in chunks, which must not show: buckets that span them have one norm."""
    update = np.random.default_rng(1).normal(size=(1 << 16) + 1000).astype(np.float32)
    vector = quantised(update, 8, 600, b"c" * 32)
    for first in (0, (1 << 16) // 600 * 600, len(update) // 600 * 600):
        part = update[first : first + 600]
        step = np.linalg.norm(part) / 127
        error = np.abs(vector.values[first : first + 600] - part)
        assert error.max() < step * 1.0001
        assert error.max() > step / 2


@settings(max_examples=examples(50))
@given(st.integers(1, 10**6), st.data())
def test_coordinates_follow_from_experiment_and_round(round_number: int, data: st.DataObject) -> None:
    dimension = data.draw(st.integers(1, 200))
    count = data.draw(st.integers(1, dimension))
    drawn = coordinates(EXPERIMENT, round_number, dimension, count)
    assert len(set(drawn.tolist())) == count
    assert drawn.tolist() == sorted(drawn.tolist())
    assert drawn[0] >= 0
    assert drawn[-1] < dimension
    coordinates.cache_clear()
    assert coordinates(EXPERIMENT, round_number, dimension, count).tolist() == drawn.tolist()


def test_each_coordinate_is_drawn_equally_often() -> None:
    rounds, count = 4000, 4
    drawn = np.zeros(D)
    for number in range(rounds):
        drawn[coordinates(EXPERIMENT, number, D, count)] += 1
    deviation = np.sqrt(rounds * 0.1 * 0.9)
    assert np.abs(drawn - rounds * count / D).max() < 5 * deviation
    others = coordinates(b"another experiment", 0, D, 20)
    assert others.tolist() != coordinates(EXPERIMENT, 0, D, 20).tolist()


# -- results -----------------------------------------------------------------------------------------------------------


def test_the_largest_coordinates_of_each_are_averaged() -> None:
    kept = []
    for delta in DELTAS:
        places = np.argsort(-np.abs(delta))[:4].tolist()
        kept.append([float(delta[i]) if i in places else 0.0 for i in range(D)])
    assert plain(TOP).run().mean == pytest.approx(weighted(kept), abs=1e-8)


@pytest.mark.parametrize("name", ["plain", "secagg", "secagg-plus"])
def test_the_rounds_coordinates_are_averaged(name: str) -> None:
    small = plain(RANDOM) if name == "plain" else summed(name)
    for number in (1, 2):
        mean = small.run(number).mean
        places = coordinates(EXPERIMENT, number, D, 4)
        expected = np.zeros(D)
        expected[places] = 10 * weighted(DELTAS)[places]
        assert mean == pytest.approx(expected, abs=1e-6 if name == "plain" else 10 * 2 / 2**16)
        assert np.count_nonzero(mean) == 4


def test_over_the_rounds_random_coordinates_give_the_mean() -> None:
    small, rounds = plain({"name": "random-k", "share": 0.5}), 200
    means = [small.run(number).mean for number in range(1, rounds + 1)]
    exact = weighted(DELTAS)
    # Each round: twice the coordinate, or zero; so the deviation is its size.
    assert (np.abs(np.mean(means, axis=0) - exact) < 4.5 * np.abs(exact) / np.sqrt(rounds)).all()


def test_quantised_updates_are_averaged() -> None:
    mean = plain(QUANTISE).run().mean
    steps = max(np.linalg.norm(delta[i : i + 16]) for delta in DELTAS for i in range(0, D, 16)) / 7
    assert np.abs(mean - weighted(DELTAS)).max() < steps
    assert mean != pytest.approx(weighted(DELTAS), abs=1e-3)
    assert plain(QUANTISE).run(2).mean.tobytes() != mean.tobytes()  # coins are of the round


@pytest.mark.parametrize("compression", [TOP, RANDOM, QUANTISE])
def test_who_drops_out_is_left_out_and_hosts_change_no_bit(compression: dict[str, Any]) -> None:
    one, other = (plain(compression, leaving={"plain/update": {2, 5}}, hosts=hosts).run() for hosts in (1, 4))
    assert one.survivors.tolist() == [0, 1, 3, 4, 6, 7, 8]
    assert one.weight == sum(SAMPLES) - 4 - 9
    assert one.mean.tobytes() == other.mean.tobytes()
    assert one.mean.tobytes() != plain(compression).run().mean.tobytes()


@pytest.mark.parametrize("name", ["secagg", "secagg-plus"])
def test_under_masks_who_drops_out_is_left_out(name: str) -> None:
    parameters = summed(name).parameters
    protocol = SecAgg if name == "secagg" else SecAggPlus
    stage = "secagg/masked-input"
    small = SmallFederation(DELTAS, parameters, protocol=protocol, samples=SAMPLES, leaving={stage: {4}})
    aggregate, stayed = small.run(), [0, 1, 2, 3, 5, 6, 7, 8]
    assert aggregate.survivors.tolist() == stayed
    places = coordinates(EXPERIMENT, 1, D, 4)
    assert aggregate.mean[places] == pytest.approx(10 * weighted(DELTAS, stayed)[places], abs=10 * 2 / 2**16)


@pytest.mark.parametrize(
    ("compression", "sent"),
    [
        (None, 4 * D),
        (TOP, 4 + 3 + 4 * 4),  # how many, four places of six bits, four values
        (RANDOM, 4 * 4),
        (QUANTISE, 5 + 4 * 3 + D // 2),
    ],
)
def test_bytes_are_those_of_the_encoding(compression: dict[str, Any] | None, sent: int) -> None:
    small = plain(compression)
    small.run()
    stage = next(stage for stage in small.network.exchanges if stage.stage == "plain/update")
    header = 2 + 5 + (2 if sent + 5 in (1, 2, 4, 8, 16) else 3)  # of the message; of the vector; of the extension
    assert set(stage.bytes_up.tolist()) == {sent + header}


def test_masked_inputs_are_as_short_as_the_sample() -> None:
    lengths = []
    for compression in (None, RANDOM):
        small = summed("secagg", compression=compression, bits=32)
        small.run()
        stage = next(stage for stage in small.network.exchanges if stage.stage == "secagg/masked-input")
        lengths.append(int(stage.bytes_up.max()))
    assert lengths[0] - lengths[1] == 4 * (D - 4)


class Sends(PlainClient):
    vector = Vector(np.ones(D, np.float32), 0)

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        return Update(1, self.vector)


class SendsMore(Sends):
    vector = Vector(np.ones(5, np.float32), 0)


@pytest.mark.parametrize(
    ("compression", "role"), [(TOP, Sends), (QUANTISE, Sends), (RANDOM, Sends), (RANDOM, SendsMore)]
)
def test_who_compresses_otherwise_is_left_out(compression: dict[str, Any], role: type[Sends]) -> None:
    small = plain(compression, roles=[RoleSpec(role, PlainParameters(compression=compression), only=frozenset({3}))])
    assert small.run().survivors.tolist() == [0, 1, 2, 4, 5, 6, 7, 8]


def test_a_server_that_cannot_know_the_coordinates_ends_the_round() -> None:
    with pytest.raises(RoundAborted, match="no-coordinates"):
        plain(RANDOM, told=False).run()


def test_updates_too_large_to_quantise_end_the_round() -> None:
    deltas = DELTAS.copy()
    deltas[3, 7] = 3e38
    deltas[3, 8] = 3e38
    with pytest.raises(RoundAborted, match="update-too-large"):
        plain(QUANTISE, deltas=deltas).run()


# -- allowed experiments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"name": "top-k"}, "share: is required for top-k, e.g. 0.1"),
        ({"name": "random-k", "bits": 8}, "share: is required for random-k, e.g. 0.1"),
        ({"name": "quantise", "share": 0.5}, "bits: is required for quantise, e.g. 8"),
        ({"name": "quantise", "bits": 8, "share": 0.5}, "share: is not read for quantise; leave it out"),
        ({"name": "top-k", "share": 0.5, "bucket": 3}, "bucket: is not read for top-k; leave it out"),
        ({"name": "random-k", "share": 0.5, "bits": 3}, "bits: is not read for random-k; leave it out"),
    ],
)
def test_a_key_that_is_not_read_is_an_error(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        Compression(**section)
    assert error.value.errors()[0]["msg"] == f"Value error, {message}"


@pytest.mark.parametrize(
    "wrong",
    [{"name": "top"}, {"name": "top-k", "share": 0}, {"name": "top-k", "share": 1.5}, {"name": "quantise", "bits": 1},
     {"name": "quantise", "bits": 17}, {"name": "quantise", "bits": 8, "bucket": 0}, {"name": "top-k", "share": "nan"}],
)  # fmt: skip
def test_values_out_of_range_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Compression(**wrong)


@pytest.mark.parametrize("kind", [SecAggParameters, SecAggPlusParameters])
@pytest.mark.parametrize(
    ("section", "advice"), [(TOP, "set random-k, or protocol: plain"), (QUANTISE, "levels_bits and bits")]
)
def test_what_cannot_be_summed_under_masks_is_refused(kind: type, section: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValidationError, match=advice):
        kind(compression=section)


@pytest.mark.parametrize("kind", [PlainParameters, SecAggParameters])
def test_noise_is_planned_for_whole_updates(kind: type) -> None:
    noise = {"mechanism": "skellam", "clip": 1.0, "noise_multiplier": 1.0}
    with pytest.raises(ValidationError, match="noise excludes compression"):
        kind(weights="equal", noise=noise, compression=RANDOM)


@pytest.mark.parametrize("kind", [PlainParameters, SecAggParameters, SecAggPlusParameters])
def test_an_experiment_without_it_says_nothing_of_it(kind: type) -> None:
    assert "compression" not in kind().model_dump()
    assert kind(compression=RANDOM).model_dump()["compression"]["name"] == "random-k"


def test_a_share_of_one_is_all_of_it() -> None:
    whole = {"name": "random-k", "share": 1}
    assert plain(whole).run().mean.tobytes() == plain(None).run().mean.tobytes()
    assert plain({"name": "top-k", "share": 1}).run().mean.tobytes() == plain(None).run().mean.tobytes()
    assert RandomK(1).length(7) == 7
