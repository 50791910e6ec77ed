"""Randomness: every random choice is derived from (seed, party, round, purpose).

Results therefore do not depend on the distribution of clients over hosts, and a lost host can be replayed.

Protocol secrets come from the operating system unless the experiment has a seed; then from HMAC-SHA-512 keyed by the
seed. Simulation choices (availability, devices, sampling by an honest server) use numpy's Philox, keyed the same way.
Simulation choices and long-term keys (`identity_secret`) depend on the seed alone, so that runs with one seed are
paired; masks, shares and noise (`secret`) depend on the whole experiment.
"""

import hashlib
import hmac
import os

import numpy as np

_DOMAIN = b"testbed/randomness/v1"


class Randomness:
    """Random material of one experiment.

    Args:
        seed: the experiment's seed; any non-negative integer, not limited to 32 or 64 bits.
        secrets_from_system: whether protocol secrets come from the operating system (not reproducible, and a lost host
            cannot be replayed).
        context: distinguishes the experiment from others with the same seed (`testbed.experiment.inputs`).
    """

    def __init__(self, seed: int, *, secrets_from_system: bool = False, context: bytes = b"") -> None:
        self.seed = seed
        self.secrets_from_system = secrets_from_system
        # Fixed domain, no leading zeros beyond 8 bytes: no two seeds give the same bytes.
        size = max(8, (seed.bit_length() + 7) // 8)
        self._root = hashlib.sha512(_DOMAIN + seed.to_bytes(size, "big")).digest()
        # Masks, shares and noise: two inputs of a client under one mask would reveal the difference of its updates,
        # and two releases under one noise likewise. So experiments with the same seed must not share them.
        self._own_root = hmac.digest(self._root, b"experiment\x00" + context, "sha512") if context else self._root

    def __repr__(self) -> str:
        return "Randomness(<hidden>)"

    def secret(self, party: str | int, round_number: int, purpose: str) -> bytes:
        """Return 32 secret bytes for a party in a round, which depend on the whole experiment.

        Args:
            party: a client's number, "server" or "pki".
            round_number: the round.
            purpose: use of the bytes; different uses have independent bytes.
        """
        if self.secrets_from_system:
            return os.urandom(32)
        return _derived(self._own_root, "secret", party, round_number, purpose)[:32]

    def identity_secret(self, party: str | int, subject: int, purpose: str) -> bytes:
        """Return 32 secret bytes for a long-term key, which depend on the seed alone.

        Args:
            party: the party that makes the key before the rounds.
            subject: the client that the key belongs to.
            purpose: use of the bytes.
        """
        if self.secrets_from_system:
            return os.urandom(32)
        # Without the context: Lotto's lottery uses these keys, and compared runs shall have the same participants.
        # The keys hide no updates.
        return _derived(self._root, "secret", party, subject, purpose)[:32]

    def generator(self, party: str | int, round_number: int, purpose: str) -> np.random.Generator:
        """Return a numpy generator for simulation or public choices; never for masks, keys or shares.

        Args:
            party, round_number, purpose: as in `secret`.
        """
        key = int.from_bytes(self.simulation_key(party, round_number, purpose)[:16], "big")  # Philox's key: 128 bits
        return np.random.Generator(np.random.Philox(key=key))

    def simulation_key(self, party: str | int, round_number: int, purpose: str) -> bytes:
        """Return 32 bytes for a key stream, for the same uses as a `generator` where a stream is faster.

        Args:
            party, round_number, purpose: as in `secret`.
        """
        return _derived(self._root, "simulation", party, round_number, purpose)[:32]


def _derived(root: bytes, kind: str, party: str | int, round_number: int, purpose: str) -> bytes:
    # NUL separates the parts, so that no two (party, round, purpose) give the same name.
    name = f"{kind}\x00{party}\x00{round_number}\x00{purpose}".encode()
    return hmac.digest(root, name, "sha512")
