"""Where every random choice comes from: (seed, party, round, purpose).

Results therefore do not depend on how clients are spread over hosts, and a lost host can be replayed.

Protocol secrets come from the operating system unless the experiment has a seed; then from HMAC-SHA-512 keyed by the
seed. Simulation choices (availability, devices, sampling by an honest server) use numpy's Philox, keyed the same way.

What depends on the seed alone, and what on the whole experiment (`secrets_context`):

- Simulation choices depend on the seed alone: runs with one seed are paired, whatever else they differ in.
- So do the keys that a party registers once and keeps (`identity_secret`): Lotto draws lots with them, and runs that
  are compared shall have the same participants. They hide nothing of an update.
- What masks, shares, or adds noise (`secret`) depends on the experiment, too: two inputs of one client under the same
  mask would show the difference of its updates to anybody, and two releases under the same noise likewise.
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
        context: what tells the experiment from others with the same seed (`testbed.experiment.inputs`).
    """

    def __init__(self, seed: int, *, secrets_from_system: bool = False, context: bytes = b"") -> None:
        self.seed = seed
        self.secrets_from_system = secrets_from_system
        size = max(8, (seed.bit_length() + 7) // 8)
        self._root = hashlib.sha512(_DOMAIN + seed.to_bytes(size, "big")).digest()
        self._own_root = hmac.digest(self._root, b"experiment\x00" + context, "sha512") if context else self._root

    def __repr__(self) -> str:
        return "Randomness(<hidden>)"

    def secret(self, party: str | int, round_number: int, purpose: str) -> bytes:
        """32 secret bytes for `party` (a client's number, "server", "pki") in a round, of this experiment alone."""
        if self.secrets_from_system:
            return os.urandom(32)
        return _derived(self._own_root, "secret", party, round_number, purpose)[:32]

    def identity_secret(self, party: str | int, subject: int, purpose: str) -> bytes:
        """32 secret bytes for a key that `party` makes for client `subject` before the rounds, and that is kept."""
        if self.secrets_from_system:
            return os.urandom(32)
        return _derived(self._root, "secret", party, subject, purpose)[:32]

    def generator(self, party: str | int, round_number: int, purpose: str) -> np.random.Generator:
        """A numpy generator for simulation, or for public choices; never for masks, keys or shares."""
        key = int.from_bytes(self.simulation_key(party, round_number, purpose)[:16], "big")
        return np.random.Generator(np.random.Philox(key=key))

    def simulation_key(self, party: str | int, round_number: int, purpose: str) -> bytes:
        """32 bytes for a key stream where that is faster than a `generator`; for the same uses, and no others."""
        return _derived(self._root, "simulation", party, round_number, purpose)[:32]


def _derived(root: bytes, kind: str, party: str | int, round_number: int, purpose: str) -> bytes:
    name = f"{kind}\x00{party}\x00{round_number}\x00{purpose}".encode()
    return hmac.digest(root, name, "sha512")
