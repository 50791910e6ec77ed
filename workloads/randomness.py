"""Every random choice of a workload, as a function of (seed, purpose, client, round).

A choice never depends on what was drawn before it, so it does not matter which process trains a client, or in
which order: the same experiment gives the same numbers on one host and on a hundred.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of every result: never renumber, only append."""

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


def stream(seed: int, purpose: Purpose, client: int = 0, round_number: int = 0) -> np.random.Generator:
    """The generator (Philox) for one purpose of one client in one round, independent of all the others.

    Args:
        seed: the experiment's seed, any non-negative integer.
        purpose: what the numbers are for.
        client: 0 <= client < 2**32; 0 where no client is concerned.
        round_number: 0 <= round_number < 2**32; 0 where no round is concerned.

    Raises:
        ValueError: a negative argument.
    """
    # spawn_key, not a longer entropy list: SeedSequence pads the seed first, so no two different
    # (seed, key) pairs are ever concatenated into the same words.
    sequence = np.random.SeedSequence(seed, spawn_key=(int(purpose), client, round_number))
    return np.random.Generator(np.random.Philox(sequence))
