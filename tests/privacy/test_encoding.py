"""Encoding against the paper's algorithm step by step, its norm bound, and the smallest sufficient rings."""

import os
import subprocess
import sys
from math import exp, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, stats

from testbed.errors import ExperimentError, RoundAborted
from testbed.privacy.accounting import squared_norm_bound
from testbed.privacy.encoding import Encoding, centred, flip_signs, padded, rotation_seed
from testbed.privacy.noise import Noise
from tests.thoroughness import examples

ROTATION = rotation_seed(b"a test", 1)
ROUNDING = bytes(range(32))


def update(dimension, seed=0, norm=0.5):
    vector = np.random.default_rng(seed).normal(0, 1, dimension)
    return (vector * norm / np.linalg.norm(vector)).astype(np.float32)


def by_the_paper(encoding, delta):
    """The rotated update in steps, before rounding: clip, signs, scipy's matrix, scale; in 64-bit floats."""
    vector = np.zeros(encoding.length)
    vector[: len(delta)] = delta * min(1.0, encoding.clip / max(np.linalg.norm(delta.astype(float)), 1e-300))
    flip_signs(vector, ROTATION)
    rotated = linalg.hadamard(encoding.length) @ vector / sqrt(encoding.length)
    return rotated * encoding.scale / encoding.clip


@pytest.mark.parametrize("dimension", [1, 2, 5, 650, 1024])
@pytest.mark.parametrize("norm", [0.3, 7.0])
@pytest.mark.parametrize("scale", [1.0, 100.5, 2.0**20])
def test_steps_are_the_rotated_update_rounded_up_or_down(dimension, norm, scale):
    encoding = Encoding(dimension, 1.5, scale, 40)
    delta = update(dimension, norm=norm)
    exact = by_the_paper(encoding, delta)
    steps = centred(encoding.encode(delta, ROTATION, ROUNDING)[:-1], 64)
    assert np.abs(steps - exact).max() < 1 + 1e-6
    assert not np.array_equal(steps, np.rint(exact)) or dimension < 5


def test_rounding_is_right_on_average():
    encoding = Encoding(16, 1.0, 4.0, 32, bias=0.0)
    delta = update(16, norm=0.9)
    exact, times = by_the_paper(encoding, delta), 4000
    total = sum(
        centred(encoding.encode(delta, ROTATION, number.to_bytes(32, "big"))[:-1], 32) for number in range(times)
    )
    deviation = np.sqrt((exact - np.floor(exact)) * (np.ceil(exact) - exact) / times)
    assert (np.abs(total / times - exact) < 4.5 * deviation + 1e-9).all()


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(1, 600), st.floats(1, 300), st.floats(0.001, 10), st.sampled_from([0.0, exp(-0.5), 0.01, 0.99]))
def test_no_encoded_update_is_longer_than_the_bound(dimension, scale, norm, bias):
    encoding = Encoding(dimension, 1.0, scale, 32, bias)
    for number in range(3):
        steps = centred(encoding.encode(update(dimension, number, norm), ROTATION, bytes([number]) * 32)[:-1], 32)
        assert steps @ steps <= squared_norm_bound(scale, encoding.length, bias)


def test_roundings_that_are_too_long_are_repeated():
    scale, dimension, bias = 4.0, 64, 0.9
    bound = squared_norm_bound(scale, dimension, bias)
    strict, free = (Encoding(dimension, 1.0, scale, 32, beta) for beta in (bias, 0.0))
    squared: dict[Encoding, list[float]] = {strict: [], free: []}
    for encoding, found in squared.items():
        for number in range(400):
            steps = centred(encoding.encode(update(dimension, 1, 2.0), ROTATION, number.to_bytes(32, "big"))[:-1], 32)
            found.append(float(steps @ steps))
    assert max(squared[free]) > bound >= max(squared[strict])  # unconditional rounding does exceed it


@pytest.mark.parametrize("bits", [12, 16, 24, 32, 48, 64])
@pytest.mark.parametrize("dimension", [1, 3, 650])
def test_a_sum_decodes_to_the_mean(bits, dimension):
    encoding = Encoding(dimension, 2.0, 64.0, bits)
    deltas = [update(dimension, client, 1.0) for client in range(4)]
    lanes = [encoding.encode(delta, ROTATION, bytes([client]) * 32) for client, delta in enumerate(deltas)]
    total = sum(lanes[1:], lanes[0])
    total &= total.dtype.type((1 << bits) - 1) if bits < 64 else total.dtype.type(2**64 - 1)
    mean, updates = encoding.decode(total, 4, ROTATION)
    assert (mean.shape, updates) == ((dimension,), 4)
    # Rounding moves each coordinate by less than a step, on average over clients by less than 2.5 deviations of a half.
    assert np.linalg.norm(mean - np.mean(deltas, axis=0)) < sqrt(encoding.length) * 2 / 64
    assert mean == pytest.approx(np.mean(deltas, axis=0), abs=2.5 * 2 / 64)


def test_an_update_above_the_clip_is_shortened_to_it():
    encoding = Encoding(1000, 0.5, 2.0**16, 32)
    delta = update(1000, norm=20.0)
    mean, _ = encoding.decode(encoding.encode(delta, ROTATION, ROUNDING), 1, ROTATION)
    assert np.linalg.norm(mean) == pytest.approx(0.5, rel=1e-3)
    assert mean == pytest.approx(delta / 40, abs=1e-4)


def test_a_zero_update_is_encoded_as_zeros():
    encoded = Encoding(10, 1.0, 64.0, 16).encode(np.zeros(10, np.float32), ROTATION, ROUNDING)
    assert encoded.tolist() == [0] * 16 + [1]


def test_a_sum_with_the_wrong_count_is_rejected():
    encoding = Encoding(10, 1.0, 64.0, 16)
    total = encoding.encode(update(10), ROTATION, ROUNDING)
    with pytest.raises(RoundAborted, match="implausible-sum"):
        encoding.decode(total, 2, ROTATION)


@given(st.integers(1, 64), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9))
def test_centring(bits, values):
    half = 1 << (bits - 1)
    inside = [(value + half) % (2 * half) - half for value in values]
    lane = np.uint16 if bits <= 16 else np.uint32 if bits <= 32 else np.uint64
    elements = np.array([value % (2 * half) for value in inside], lane)
    assert centred(elements, bits).tolist() == [float(value) for value in inside]


# -- the same bytes everywhere ---------------------------------------------------------------------------------------

EVERYWHERE = """
import hashlib
import numpy as np
from testbed.privacy.noise import Noise
from testbed.privacy.encoding import rotation_seed

for dimension in (5, 1000, 300_000):
    noise, rotation = Noise(noise_multiplier=0.8, scale=3000.7), rotation_seed(b"a test", 3)
    delta = np.random.Generator(np.random.Philox(key=5)).random(dimension, np.float32) - np.float32(0.5)
    encoding = noise.encoding(dimension, 40)
    vector = encoding.encode(delta, rotation, bytes(32))
    noise.share(10, dimension, bytes(range(32))).add_to(vector)
    mean, _ = encoding.decode(vector, 1, rotation)
    print(hashlib.sha256(vector.astype("<u8").tobytes() + mean.astype("<f8").tobytes()).hexdigest()[:32])
"""


@pytest.mark.parametrize("kernels", ["", "Prescott"])
def test_encoding_does_not_depend_on_the_order_of_summation(kernels):
    """Of the rotation, BLAS: on x86 it can be told to work as on another processor; the digests are those of any."""
    done = subprocess.run(
        [sys.executable, "-c", EVERYWHERE],
        env={**os.environ, "OPENBLAS_CORETYPE": kernels},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [
        "4333ad394cbfba35a36562ca084ae63b",
        "2265df394f885e1e880ba951ec0c143c",
        "5106919139cbca87b2b6514af216ee37",
    ]


# -- planning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("participants", [3, 40])
@pytest.mark.parametrize("noise_multiplier", [0.3, 4.0])
def test_the_smallest_ring_holds_the_sum_and_its_noise(participants, noise_multiplier):
    dimension, spec = 700, Noise(noise_multiplier=noise_multiplier)
    bits = spec.encoding(dimension, 64).bits_needed(participants, noise_multiplier)
    spec.check(participants, dimension, bits)
    with pytest.raises(ExperimentError, match=f"need {bits} bits, the ring has {bits - 1}; set .* to {bits}, or lower"):
        spec.check(participants, dimension, bits - 1)
    wide, narrow = (spec.encoding(dimension, ring) for ring in (64, bits))
    deltas = [update(dimension, 1, 1.0)] * participants  # all the same: the worst case
    totals = []
    for encoding in (wide, narrow):
        total = np.zeros(encoding.length + 1, np.uint64)
        for client, delta in enumerate(deltas):
            vector = encoding.encode(delta, ROTATION, bytes([client]) * 32).astype(np.int64)
            spec.share(participants, dimension, bytes([100 + client]) * 32).add_to(vector)
            total += vector.astype(np.uint64)
        totals.append(total & np.uint64((1 << encoding.bits) - 1) if encoding.bits < 64 else total)
    found = [
        encoding.decode(total, participants, ROTATION)[0]
        for encoding, total in zip((wide, narrow), totals, strict=True)
    ]
    assert np.array_equal(*found)


def test_the_bound_on_bits_is_close():
    """Two bits at most are given away for the certainty."""
    spec, dimension, participants = Noise(noise_multiplier=1.0), 4096, 20
    encoding = spec.encoding(dimension, 64)
    total = np.zeros(encoding.length + 1, np.int64)
    for client in range(participants):
        total += encoding.encode(update(dimension, 1, 1.0), ROTATION, bytes([client]) * 32).astype(np.int64)
        spec.share(participants, dimension, bytes([100 + client]) * 32).add_to(total)
    largest = int(np.abs(total[:-1]).max())
    assert largest.bit_length() + 1 <= encoding.bits_needed(participants, 1.0) <= largest.bit_length() + 3


@pytest.mark.parametrize(
    ("dimension", "steps"), [(1, 8.0), (2, 16.0), (4, 16.0), (650, 256.0), (10**6, 8192.0), (15_091_680, 16384.0)]
)
def test_the_default_scale_makes_rounding_matter_little(dimension, steps):
    assert Noise(noise_multiplier=1.0).steps(dimension) == steps
    longest = squared_norm_bound(steps, padded(dimension), exp(-0.5)) / steps**2
    assert longest < (1.02 if dimension > 100 else 1.3)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"noise_multiplier": 1000.0},
            r"noise.scale: at 8192 steps .* adds noise of .* steps, more than 65536, .*; lower",
        ),
        ({"noise_multiplier": 1e-9, "scale": 1.0}, "noise.scale: at 1 steps .* less than .*, .*; raise it"),
    ],
)
def test_noise_that_cannot_be_drawn_is_refused(fields, line):
    with pytest.raises(ExperimentError, match=line):
        Noise(**fields).check(10, 10**6, 64)


def test_the_noise_of_a_sum_is_as_planned():
    spec, dimension, participants = Noise(noise_multiplier=0.8, clip=3.0), 5000, 7
    encoding = spec.encoding(dimension, 32)
    total = np.zeros(encoding.length + 1, np.uint32)
    for client in range(participants):
        vector = encoding.encode(np.zeros(dimension, np.float32), ROTATION, bytes([client]) * 32)
        spec.share(participants, dimension, bytes([100 + client]) * 32).add_to(vector)
        total += vector
    mean, _ = encoding.decode(total, participants, ROTATION)
    planned = 0.8 * 3.0 / participants  # standard deviation of the mean's noise, in the update's units
    assert mean.std() == pytest.approx(planned, rel=0.03)
    assert stats.kstest(mean / planned, "norm").pvalue > 1e-4
