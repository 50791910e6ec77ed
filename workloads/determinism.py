"""Determinism of workloads across processes: derived random choices, and one thread for arithmetic.

Every random choice is a function of (seed, purpose, client, round). It never depends on earlier draws, and so not on
the process that trains a client, nor on the order: the same experiment gives the same numbers on one host and on a
hundred.

The order of a sum's terms, and so its last bits, depends on the number of threads: torch splits long sums among its
threads, and so does the BLAS under NumPy in matrix products. Hosts share the cores among processes anyway. All
workloads, built in or user-defined, are built after a call of `one_thread`: in the hosts, on the coordinator, and in a
run without Ray.
"""

import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
from threadpoolctl import threadpool_limits


class Purpose(IntEnum):
    """Purpose of a random stream. The numbers are part of every result: never renumber, only append."""

    WEIGHTS = 1
    BATCHES = 2
    DROPOUT = 3
    SPLIT = 4
    PARTITION = 5
    SAMPLE_COUNTS = 6
    CLASS_MIX = 7
    WRITER = 8
    ALPHABET = 9
    TEST_WRITER = 10
    TEST_SUBSET = 11
    OWN_SAMPLES = 12
    HELD_OUT = 13
    SIMULATED = 14
    TEXTURES = 15
    PHOTOS = 16
    TEST_PHOTOS = 17
    LANGUAGE = 18
    TEXT = 19
    TEST_TEXT = 20
    CIFAR_PATTERNS = 21
    CIFAR_IMAGES = 22
    CIFAR_TEST_IMAGES = 23
    OWN_MODEL = 30
    OWN_DATA = 31
    OWN_TRAINING = 32
    OWN_PARTITION = 33
    ADAPTERS = 40


def stream(seed: int, purpose: Purpose, client: int = 0, round_number: int = 0) -> np.random.Generator:
    """Return the generator (Philox) for one purpose of one client in one round, independent of all others.

    Args:
        seed: the experiment's seed, any non-negative integer.
        purpose: purpose of the numbers.
        client: 0 <= client < 2**32; 0 if no client is concerned.
        round_number: 0 <= round_number < 2**32; 0 if no round is concerned.

    Raises:
        ValueError: a negative argument.
    """
    # spawn_key, not a longer entropy list: SeedSequence pads the seed first, so no two different
    # (seed, key) pairs are ever concatenated into the same words.
    sequence = np.random.SeedSequence(seed, spawn_key=(int(purpose), client, round_number))
    return np.random.Generator(np.random.Philox(sequence))


@contextmanager
def seeded_globals(stream_: np.random.Generator) -> Iterator[None]:
    """Within the block, seed the global generators of Python, NumPy and torch; afterwards restore their states.

    For user code that draws from them, so that its results are the same in every process. The testbed's own code does
    not use them.
    """
    first, second, third = (int(number) for number in stream_.integers(2**32, size=3))
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 the user's code may use these
    random.seed(first)
    np.random.seed(second)  # noqa: NPY002
    try:
        with _seeded_torch(third):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def _seeded_torch(seed: int) -> Iterator[None]:
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    on_gpu = torch.cuda.is_available()
    before, before_gpu = torch.get_rng_state(), torch.cuda.get_rng_state() if on_gpu else None
    torch.default_generator.manual_seed(seed)
    if on_gpu:
        torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if before_gpu is not None:
            torch.cuda.set_rng_state(before_gpu)


_READ_WHEN_LOADED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def one_thread() -> None:
    """Limit torch, BLAS and OpenMP to one thread in this process, also if they are loaded later.

    Code that asks for more threads afterwards gets them; it should then do so in every process.
    """
    for name in _READ_WHEN_LOADED:
        os.environ[name] = "1"
    # For libraries that are loaded already; the variables above are read only when a library is loaded.
    threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
