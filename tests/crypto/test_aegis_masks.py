"""Masks expanded by AEGIS-256X4: the cipher against the draft's vectors, the masks against the cipher."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import masks
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated

aegis256x4 = pytest.importorskip("aeg.aegis256x4", reason="the extra aegis is not installed")

VECTORS = Path(__file__).parents[1] / "vectors" / "aegis" / "draft_irtf_cfrg_aegis_aead.json"
CHUNK = 1 << 18
SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text())["aegis-256x4"])
def test_the_cipher_gives_the_drafts_vectors(vector: dict[str, str]) -> None:
    key, nonce, ad, message, encrypted = (bytes.fromhex(vector[name]) for name in ("key", "nonce", "ad", "msg", "ct"))
    for length, tag in ((16, "tag128"), (32, "tag256")):
        found = aegis256x4.encrypt_detached(key, nonce, message, ad, maclen=length)
        assert tuple(map(bytes, found)) == (encrypted, bytes.fromhex(vector[tag]))


def stream(seed: bytes, length: int) -> bytes:
    """Return the encryption of zeros, under consecutive nonces."""
    chunks = []
    for number in range(-(-length // CHUNK)):
        count = min(CHUNK, length - number * CHUNK)
        chunks.append(bytes(aegis256x4.encrypt_detached(seed, number.to_bytes(32, "little"), bytes(count))[0]))
    return b"".join(chunks)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 100), st.integers(1, 64))
def test_a_mask_is_the_key_stream(seed: bytes, length: int, bits: int) -> None:
    mask = masks.mask(seed, length, bits, "aegis-256x4")
    lane = mask.itemsize
    raw = stream(seed, length * lane)
    expected = [int.from_bytes(raw[at : at + lane], "little") % 2**bits for at in range(0, len(raw), lane)]
    assert mask.tolist() == expected


@settings(max_examples=4)
@given(st.sampled_from([16, 20, 32, 64]), st.integers(0, 40))
def test_each_chunk_of_a_long_vector_has_its_own_nonce(bits: int, more: int) -> None:
    lane = np.dtype(masks.word_dtype(bits))
    length = 2 * CHUNK // lane.itemsize + more
    accumulator = np.arange(length).astype(lane) & lane.type(2**bits - 1)
    expected = accumulator.copy()
    masks.add_masks(accumulator, SEEDS, [1, -1, 1], bits, "aegis-256x4")
    for seed, sign in zip(SEEDS, (1, -1, 1), strict=True):
        one = np.frombuffer(stream(seed, length * lane.itemsize), lane)
        expected = expected + one if sign == 1 else expected - one
    np.testing.assert_array_equal(accumulator, expected & lane.type(2**bits - 1))


def test_threads_do_not_share_their_streams() -> None:
    length = 3 * CHUNK // 4 + 5
    alone = [masks.mask(seed, length, 32, "aegis-256x4") for seed in SEEDS]
    together = [np.zeros(length, np.uint32) for _ in SEEDS]
    workers = [
        threading.Thread(target=masks.add_masks, args=(vector, [seed], [1], 32, "aegis-256x4"))
        for vector, seed in zip(together, SEEDS, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    np.testing.assert_array_equal(alone, together)


def test_a_package_without_access_to_its_library_gives_the_same_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = masks.mask(SEEDS[0], CHUNK, 32, "aegis-256x4")
    public = []
    stream_of = aegis256x4.stream
    monkeypatch.setattr(aegis256x4, "stream", lambda *given, **more: public.append(0) or stream_of(*given, **more))
    monkeypatch.setitem(sys.modules, "aeg._loader", None)
    masks.aegis_256x4_writer.cache_clear()
    found = masks.mask(SEEDS[0], CHUNK, 32, "aegis-256x4")
    masks.aegis_256x4_writer.cache_clear()
    np.testing.assert_array_equal(found, expected)
    assert len(public) == 4


def test_the_generators_differ() -> None:
    assert (masks.mask(SEEDS[0], 50, 32) != masks.mask(SEEDS[0], 50, 32, "aegis-256x4")).any()


def test_a_generator_that_is_not_installed_is_refused_when_the_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    keys: dict[str, Any] = {"aggregation": {"protocol": "secagg", "prg": "aegis-256x4"}}
    with pytest.raises(ExperimentError, match=r"aggregation\.prg: .*needs aeg: .*aegis"):
        validated(keys, "test")
