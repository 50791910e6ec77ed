"""Pure functions that several parties of one process call with the same input: computed once.

A process holds many clients. A signature that 70 participants verify is verified 70 times on their phones, and could be
once here; so could the key that two clients agree on, each with its own secret and the other's public key, and get the
same; and what one of them seals for the other need not be deciphered. These functions are those of `signatures`, `vrf`,
`key_agreement` and `shamir`, whose results they remember while somebody `memo_scope` them: by all of the input, a
bounded number of them, and never a failure. What the work costs is charged by its callers each time. Where compute is
measured nobody remembers anything.
"""

import hashlib
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from testbed.crypto import InvalidProof, InvalidSignature, signatures, vrf
from testbed.crypto.dealing import share_each, share_to_many
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.threads import thread_map

MOST_RESULTS = 1 << 20
"""At about 250 bytes each, what a process remembers of all parties' work stays below 300 MB."""

Result = TypeVar("Result")


class Memo:
    """What is remembered; the oldest results are forgotten first. May be used by several threads at once."""

    def __init__(self, most: int = MOST_RESULTS) -> None:
        self._most = most
        self._found: dict[Hashable, object] = {}
        self._turn = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def of(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """What `compute` returns, or has returned for an equal key; what it raises is not memo."""
        known: Result = self._found.get(key, self)  # type: ignore[assignment]
        if known is not self:
            return known
        made = compute()
        self.note(key, made)
        return made

    def __contains__(self, key: Hashable) -> bool:
        return key in self._found

    def get(self, key: Hashable) -> Any:
        """What is remembered; None: nothing is."""
        return self._found.get(key)

    def note(self, key: Hashable, result: object) -> None:
        """Remember a result."""
        with self._turn:
            if len(self._found) >= self._most:
                del self._found[next(iter(self._found))]
            self._found[key] = result

    def __getstate__(self) -> int:
        """Results stay in their process."""
        return self._most

    def __setstate__(self, most: int) -> None:
        self.__init__(most)  # type: ignore[misc]


_results: ContextVar[Memo | None] = ContextVar("results", default=None)


@contextmanager
def memo_scope(results: Memo | None) -> Iterator[None]:
    """Inside, results are remembered there; None: none are."""
    token = _results.set(results)
    try:
        yield
    finally:
        _results.reset(token)


def cached(key: Hashable, compute: Callable[[], Result]) -> Result:
    """What `compute` returns, which follows from `key` and which nobody changes; it is computed once, as all here."""
    results = _results.get()
    return compute() if results is None else results.of(key, compute)


def cached_latest(purpose: str, key: Hashable, compute: Callable[[], Result]) -> Result:
    """As `cached`, for results that take much memory: of each purpose that of the last key alone is memo."""
    results = _results.get()
    if results is None:
        return compute()
    known = results.get(purpose)
    if known is not None and known[0] == key:
        found: Result = known[1]
        return found
    made = compute()
    results.note(purpose, (key, made))
    return made


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

    for claim, output in zip(new, thread_map(verified, new), strict=True):
        if output is not None:
            results.note(("output", *claim), output)


def key_pair(seed: bytes) -> PrivateKey:
    """See `PrivateKey.from_seed`; `agree` knows the pair from now on."""
    pair = PrivateKey.from_seed(seed)
    results = _results.get()
    if results is not None:
        results.note(("pair", pair.public), pair)
    return pair


def agree(own: PrivateKey, peer_public: bytes, purpose: bytes) -> bytes:
    """See `PrivateKey.agree`; whichever of the two asks first.

    Who asks later has the secret of the one public key, who asked first had that of the other: both compute the same.
    Where the other's pair was made here, too (`key_pair`), it is computed from both secrets, which takes less.
    """
    results = _results.get()
    if results is None:
        return own.agree(peer_public, purpose)

    def agreed() -> bytes:
        peer: PrivateKey | None = results.get(("pair", peer_public))
        return own.agree(peer_public, purpose) if peer is None else own.agree_with(peer, purpose)

    first, second = (own.public, peer_public) if own.public < peer_public else (peer_public, own.public)
    return results.of((purpose, first, second), agreed)


Signed = tuple[bytes, bytes, bytes, bytes]
"""Public key, domain, content, signature."""


def verify_all(follows_from: bytes, signed: Callable[[], Iterable[Signed]]) -> bool:
    """Whether all these signatures verify, where that is remembered; False says nothing: look at each.

    Args:
        follows_from: what the signatures, all keys and contents follow from.
        signed: all of them.
    """
    results = _results.get()
    if results is None:
        return False

    def verified() -> bool:
        try:
            for public, domain, content, signature in signed():
                verify(public, domain, content, signature)
        except InvalidSignature:
            return False
        return True

    return results.of(("signatures", hashlib.sha256(follows_from).digest()), verified)


def first_unverified(follows_from: bytes, signed: Sequence[Signed]) -> int | None:
    """Return the place of the first of these signatures that does not verify; None: all do.

    Args:
        follows_from: as in `verify_all`.
        signed: all of them.
    """
    if verify_all(follows_from, lambda: signed):
        return None
    for place, one in enumerate(signed):
        try:
            verify(*one)
        except InvalidSignature:
            return place
    return None


def share_among_all(secrets: Sequence[tuple[bytes, bytes]], threshold: int, points: Sequence[int]) -> list[list[bytes]]:
    """See `dealing.share_each`; for secrets that many share among the same holders."""
    return (share_each if _results.get() is None else share_to_many)(secrets, threshold, points)


def note_sealed(sealed_as: Callable[[], bytes], plaintext: bytes) -> None:
    """Somebody has sealed this here: `opened` need not decipher it.

    Args:
        sealed_as: 32 bytes that nothing else has that is opened: a digest of the ciphertext and of all that opens it.
        plaintext: what is in it.
    """
    results = _results.get()
    if results is not None:
        results.note(sealed_as(), plaintext)


def opened(sealed_as: Callable[[], bytes], opens: Callable[[], bytes]) -> bytes:
    """What `opens` returns, or raises; known where it was sealed here (`note_sealed`)."""
    results = _results.get()
    return opens() if results is None else results.of(sealed_as(), opens)
