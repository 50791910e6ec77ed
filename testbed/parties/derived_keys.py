"""Keys derived from the experiment's seed, made on first use.

With a seed, the random values of a registration are derived from it, and an honest registration always succeeds. If
the time of registration is not measured, a million clients therefore need not register: reading a key gives exactly
the key that the bulletin board would have. `PKI` and `Identity.registration` are the full procedure.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from testbed.crypto import key_agreement, vrf
from testbed.crypto.signatures import SigningKey
from testbed.crypto.threads import thread_map
from testbed.randomness import Randomness

KEY_BYTES = 32
_BLOCK = 4096  # clients per task of a thread
_ALL_FROM = 16
"""When more than one key in this many is read, all keys are made and stored as an array, not one by one."""

Purpose = Literal["signing", "agreement", "vrf"]


def signing_seed(randomness: Randomness, client: int) -> bytes:
    """Return the 32 bytes from which a client's Ed25519 key is made.

    Args:
        randomness: the experiment's randomness.
        client: number of the client.
    """
    return randomness.identity_secret(client, 0, "signing key")


def agreement_seed(randomness: Randomness, client: int) -> bytes:
    """Return the 32 bytes from which a client's X25519 key is made.

    Args:
        randomness: the experiment's randomness.
        client: number of the client.
    """
    return randomness.identity_secret(client, 0, "agreement key")


def vrf_seed(randomness: Randomness, client: int) -> bytes:
    """Return the 32 bytes that the PKI draws for a client's VRF key.

    Args:
        randomness: the experiment's randomness.
        client: number of the client.
    """
    return randomness.identity_secret("pki", client, "vrf key")


# Must make the same keys as `Identity` and `PKI.register`: a client's signatures and proofs are verified with them.
_PUBLIC: dict[Purpose, Callable[[Randomness, int], bytes]] = {
    "signing": lambda randomness, client: SigningKey.from_seed(signing_seed(randomness, client)).public,
    "agreement": lambda randomness, client: (
        key_agreement.PrivateKey.from_seed(agreement_seed(randomness, client)).public
    ),
    "vrf": lambda randomness, client: vrf.public_key(vrf_seed(randomness, client)),
}


class DerivedKeys:
    """A column of the bulletin board, `(n, 32)` uint8 public keys, that is read like an array.

    Args:
        population: number of clients n.
        randomness: the experiment's; it has a seed.
        purpose: which keys.
    """

    def __init__(self, population: int, randomness: Randomness, purpose: Purpose) -> None:
        if randomness.secrets_from_system:
            # Without a seed, each process and each read would draw another key.
            raise ValueError("keys that the operating system draws cannot be derived")
        self.shape = (population, KEY_BYTES)
        self._randomness, self._purpose = randomness, purpose
        self._single: dict[int, bytes] = {}
        self._rows: npt.NDArray[np.uint8] | None = None  # once many were asked for
        self._made = np.zeros(0, np.bool_)

    def __len__(self) -> int:
        return self.shape[0]

    def __getstate__(self) -> tuple[int, Randomness, Purpose]:
        """Return the state without keys, which each process makes again."""
        return self.shape[0], self._randomness, self._purpose

    def __setstate__(self, state: tuple[int, Randomness, Purpose]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __getitem__(self, clients: Any) -> npt.NDArray[np.uint8]:
        """Return keys by number, numbers, slice or mask: `(m, 32)`, or `(32,)` for a single client."""
        if isinstance(clients, int | np.integer):
            # A range takes negative numbers and raises IndexError, as an array does.
            key: npt.NDArray[np.uint8] = self._some([range(len(self))[int(clients)]])[0]
            return key
        numbers = np.asarray(clients) if not isinstance(clients, slice) else np.arange(len(self))[clients]
        numbers = np.flatnonzero(numbers) if numbers.dtype == np.bool_ else numbers
        if self._rows is None and _ALL_FROM * len(numbers) < len(self):
            return self._some(numbers.tolist())
        if self._rows is None:
            self._rows, self._made = np.zeros(self.shape, np.uint8), np.zeros(len(self), np.bool_)
        missing = numbers[~self._made[numbers]]
        blocks = [missing[first : first + _BLOCK] for first in range(0, len(missing), _BLOCK)]
        # No lock: if two threads make the same row, both write the same bytes.
        for _ in thread_map(self._make_rows, blocks):
            pass
        rows: npt.NDArray[np.uint8] = self._rows[numbers]
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[:].astype(np.uint8 if dtype is None else dtype)

    def tobytes(self) -> bytes:
        """Return all keys, concatenated."""
        return self[:].tobytes()

    def _some(self, clients: list[int]) -> npt.NDArray[np.uint8]:
        for client in clients:
            if client not in self._single:
                self._single[client] = _PUBLIC[self._purpose](self._randomness, client)
        keys = b"".join(self._single[client] for client in clients)
        return np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)

    def _make_rows(self, clients: npt.NDArray[np.int64]) -> None:
        assert self._rows is not None
        keys = b"".join(_PUBLIC[self._purpose](self._randomness, client) for client in clients.tolist())
        self._rows[clients] = np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)
        self._made[clients] = True
