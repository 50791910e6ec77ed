"""Pure functions that several parties of one process call with the same input: computed once.

A process holds many clients. A signature that 70 participants verify is verified 70 times on their phones, and could be
once here; so could the key that two clients agree on, each with its own secret and the other's public key, and get the
same. These functions are those of `signatures`, `vrf` and `key_agreement`, whose results they remember while somebody
`remembers` them: by all of the input, a bounded number of them, and never a failure. What the work costs is charged by
its callers each time. Where compute is measured nobody remembers anything.
"""

import hashlib
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from testbed.crypto import InvalidProof, signatures, vrf
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.threads import each

MOST_RESULTS = 1 << 19
"""At about 300 bytes each, what a process remembers of all parties' work stays below 200 MB."""

Result = TypeVar("Result")


class Results:
    """What is remembered; the oldest results are forgotten first. May be used by several threads at once."""

    def __init__(self, most: int = MOST_RESULTS) -> None:
        self._most = most
        self._found: dict[Hashable, object] = {}
        self._turn = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def of(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """What `compute` returns, or has returned for an equal key; what it raises is not remembered."""
        known: Result = self._found.get(key, self)  # type: ignore[assignment]
        if known is not self:
            return known
        made = compute()
        self.keep(key, made)
        return made

    def __contains__(self, key: Hashable) -> bool:
        return key in self._found

    def keep(self, key: Hashable, made: object) -> None:
        """Remember a result."""
        with self._turn:
            if len(self._found) >= self._most:
                del self._found[next(iter(self._found))]
            self._found[key] = made

    def __getstate__(self) -> int:
        """Results stay in their process."""
        return self._most

    def __setstate__(self, most: int) -> None:
        self.__init__(most)  # type: ignore[misc]


_results: ContextVar[Results | None] = ContextVar("results", default=None)


@contextmanager
def remembers(results: Results | None) -> Iterator[None]:
    """Inside, results are remembered there; None: none are."""
    token = _results.set(results)
    try:
        yield
    finally:
        _results.reset(token)


def verify(public: bytes, domain: bytes, content: bytes, signature: bytes) -> None:
    """See `signatures.verify`."""
    results = _results.get()
    if results is None:
        signatures.verify(public, domain, content, signature)
        return
    key = "signature", public, domain, hashlib.sha256(content).digest(), signature
    results.of(key, lambda: signatures.verify(public, domain, content, signature))


def verify_output(public: bytes, alpha: bytes, proof: bytes) -> bytes:
    """See `vrf.verify`."""
    results = _results.get()
    if results is None:
        return vrf.verify(public, alpha, proof)
    return results.of(("output", public, alpha, proof), lambda: vrf.verify(public, alpha, proof))


def verify_outputs(claims: Sequence[tuple[bytes, bytes, bytes]]) -> None:
    """Verify proofs on all cores, so that `verify_output` of each (key, alpha, proof) then finds its result.

    Of those that do not hold nothing is kept: they are found out when they are asked for. Does nothing where nobody
    remembers anything.
    """
    results = _results.get()
    if results is None:
        return
    new = [claim for claim in dict.fromkeys(claims) if ("output", *claim) not in results]

    def verified(claim: tuple[bytes, bytes, bytes]) -> bytes | None:
        try:
            return vrf.verify(*claim)
        except InvalidProof:
            return None

    for claim, output in zip(new, each(verified, new), strict=True):
        if output is not None:
            results.keep(("output", *claim), output)


def agree(own: PrivateKey, peer_public: bytes, purpose: bytes) -> bytes:
    """See `PrivateKey.agree`; whichever of the two asks first.

    Who asks later has the secret of the one public key, who asked first had that of the other: both compute the same.
    """
    results = _results.get()
    if results is None:
        return own.agree(peer_public, purpose)
    key = "agreement", purpose, frozenset((own.public, peer_public))
    return results.of(key, lambda: own.agree(peer_public, purpose))
