"""Where every random choice comes from: (seed, party, round, purpose).

Results therefore do not depend on how clients are spread over hosts, and a lost host can be replayed.

Protocol secrets come from the operating system unless the experiment has a seed; then from HMAC-SHA-512 keyed by the
seed. Simulation choices (availability, devices, sampling by an honest server) use numpy's Philox, keyed the same way.
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
        secrets_from_system: take protocol secrets from the operating system (not reproducible, and a lost host
            cannot be replayed).
    """

    def __init__(self, seed: int, *, secrets_from_system: bool = False) -> None:
        self.seed = seed
        self.secrets_from_system = secrets_from_system
        size = max(8, (seed.bit_length() + 7) // 8)
        self._root = hashlib.sha512(_DOMAIN + seed.to_bytes(size, "big")).digest()

    def __repr__(self) -> str:
        return "Randomness(<hidden>)"

    def _derive(self, kind: str, party: str | int, round_number: int, purpose: str) -> bytes:
        name = f"{kind}\x00{party}\x00{round_number}\x00{purpose}".encode()
        return hmac.digest(self._root, name, "sha512")

    def secret(self, party: str | int, round_number: int, purpose: str) -> bytes:
        """32 secret bytes for `party` (a client's number, "server", "pki") in a round (0: before the rounds)."""
        if self.secrets_from_system:
            return os.urandom(32)
        return self._derive("secret", party, round_number, purpose)[:32]

    def generator(self, party: str | int, round_number: int, purpose: str) -> np.random.Generator:
        """A numpy generator for simulation, or for public choices; never for masks, keys or shares."""
        key = int.from_bytes(self._derive("simulation", party, round_number, purpose)[:16], "big")
        return np.random.Generator(np.random.Philox(key=key))
