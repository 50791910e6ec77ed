"""Memoisation of pure functions that several parties of one process call with the same input.

A process holds many clients. A signature that 70 participants verify costs 70 verifications on their phones, but the
process needs to compute only one. Likewise, two clients that agree on a key compute the same key from different
secrets, and a message sealed by one client of the process need not be decrypted for another.

The functions are those of `signatures`, `vrf`, `key_agreement` and `shamir`. Inside `memo_scope`, results are stored by
the whole input, up to a limit; failures are not stored. Callers charge the modelled compute cost on every call. Runs
that measure compute use no memo.
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
"""Limit of stored results; at about 250 bytes each, a process stays below 300 MB."""

Result = TypeVar("Result")


class Memo:
    """Stored results; the oldest results are discarded first. Safe to use from several threads at once."""

    def __init__(self, most: int = MOST_RESULTS) -> None:
        self._most = most
        self._stored: dict[Hashable, object] = {}
        self._turn = threading.Lock()

    def __len__(self) -> int:
        return len(self._stored)

    def of(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return the stored result for the key, or compute and store it; exceptions are not stored.

        Args:
            key: identifies the function and its whole input.
            compute: the function without arguments.
        """
        # The memo itself marks absence: None is a result, too (`signatures.verify`).
        stored: Result = self._stored.get(key, self)  # type: ignore[assignment]
        if stored is not self:
            return stored
        result = compute()  # without the lock: two threads may compute the same result, but never wait for each other
        self.note(key, result)
        return result

    def __contains__(self, key: Hashable) -> bool:
        return key in self._stored

    def get(self, key: Hashable) -> Any:
        """Return the stored result; None if there is none."""
        return self._stored.get(key)

    def note(self, key: Hashable, result: object) -> None:
        """Store a result.

        Args:
            key: identifies the function and its whole input.
            result: any object.
        """
        with self._turn:
            if len(self._stored) >= self._most:
                # Dictionaries keep the order of insertion, so the first key is the oldest.
                del self._stored[next(iter(self._stored))]
            self._stored[key] = result

    def __getstate__(self) -> int:
        """Return the limit alone: results stay in their process."""
        return self._most

    def __setstate__(self, most: int) -> None:
        self.__init__(most)  # type: ignore[misc]


_results: ContextVar[Memo | None] = ContextVar("results", default=None)


@contextmanager
def memo_scope(results: Memo | None) -> Iterator[None]:
    """Store results in `results` inside the block; with None, store nothing."""
    token = _results.set(results)
    try:
        yield
    finally:
        _results.reset(token)


def cached(key: Hashable, compute: Callable[[], Result]) -> Result:
    """Return the result of `compute`, computed once for each key.

    Args:
        key: determines the result; callers never change the result.
        compute: the function without arguments.
    """
    results = _results.get()
    return compute() if results is None else results.of(key, compute)


def cached_latest(purpose: str, key: Hashable, compute: Callable[[], Result]) -> Result:
    """Return the result of `compute`; for each purpose, only the result of the last key is stored.

    For results that take much memory.

    Args:
        purpose: name of the function.
        key: determines the result.
        compute: the function without arguments.
    """
    results = _results.get()
    if results is None:
        return compute()
    stored = results.get(purpose)
    if stored is not None and stored[0] == key:
        result: Result = stored[1]
        return result
    computed = compute()
    results.note(purpose, (key, computed))
    return computed


def verify(public: bytes, domain: bytes, content: bytes, signature: bytes) -> None:
    """Verify a signature, at most once; see `signatures.verify` for arguments and errors.

    Args:
        public: 32 bytes.
        domain: the purpose.
        content: the signed content.
        signature: 64 bytes.
    """
    results = _results.get()
    if results is None:
        signatures.verify(public, domain, content, signature)
        return
    # A digest of the content keeps the stored key short.
    key = "signature", public, domain, hashlib.sha256(content).digest(), signature
    results.of(key, lambda: signatures.verify(public, domain, content, signature))


def verify_output(public: bytes, alpha: bytes, proof: bytes) -> bytes:
    """Verify a VRF proof and return the output, computed at most once; see `vrf.verify` for errors.

    Args:
        public: 32 bytes.
        alpha: the input.
        proof: 80 bytes.
    """
    results = _results.get()
    if results is None:
        return vrf.verify(public, alpha, proof)
    return results.of(("output", public, alpha, proof), lambda: vrf.verify(public, alpha, proof))


def verify_outputs(claims: Sequence[tuple[bytes, bytes, bytes]]) -> None:
    """Verify VRF proofs on all cores, so that `verify_output` finds the results.

    Invalid proofs are not stored; `verify_output` raises for them. Does nothing without a memo.

    Args:
        claims: public key, alpha and proof of each.
    """
    results = _results.get()
    if results is None:
        return
    new = [claim for claim in dict.fromkeys(claims) if ("output", *claim) not in results]

    def verified(claim: tuple[bytes, bytes, bytes]) -> bytes | None:
        try:
            return vrf.verify(*claim)
        # An exception would end the whole map; the receiver of this proof gets the error from `verify_output`.
        except InvalidProof:
            return None

    for claim, output in zip(new, thread_map(verified, new), strict=True):
        if output is not None:
            results.note(("output", *claim), output)


def key_pair(seed: bytes) -> PrivateKey:
    """Return `PrivateKey.from_seed` and store the pair for `agree`."""
    pair = PrivateKey.from_seed(seed)
    results = _results.get()
    if results is not None:
        # By the public key: `agree` knows only that of the peer.
        results.note(("pair", pair.public), pair)
    return pair


def agree(own: PrivateKey, peer_public: bytes, purpose: bytes) -> bytes:
    """Agree on a key; the second party of a pair gets the stored result of the first.

    If both key pairs were made in this process (`key_pair`), the key is computed from both secrets, which is cheaper.
    See `PrivateKey.agree` for errors.

    Args:
        own: the party's key pair.
        peer_public: the peer's public key, 32 bytes.
        purpose: of the key.
    """
    results = _results.get()
    if results is None:
        return own.agree(peer_public, purpose)

    def agreed() -> bytes:
        peer: PrivateKey | None = results.get(("pair", peer_public))
        return own.agree(peer_public, purpose) if peer is None else own.agree_with(peer, purpose)

    # Ordered, so that the second party finds the first party's result.
    first, second = (own.public, peer_public) if own.public < peer_public else (peer_public, own.public)
    return results.of((purpose, first, second), agreed)


Signed = tuple[bytes, bytes, bytes, bytes]
"""Public key, domain, content, signature."""


def verify_all(follows_from: bytes, signed: Callable[[], Iterable[Signed]]) -> bool:
    """Return whether all signatures verify and the result could be stored; False: check them one by one.

    Args:
        follows_from: bytes that determine all signatures, keys and contents.
        signed: returns all of them; called only if the result is not stored.
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
    """Return the index of the first signature that does not verify; None if all verify.

    Args:
        follows_from: as in `verify_all`.
        signed: all signatures.
    """
    if verify_all(follows_from, lambda: signed):
        return None
    for place, signature in enumerate(signed):
        try:
            verify(*signature)
        except InvalidSignature:
            return place
    return None


def share_among_all(secrets: Sequence[tuple[bytes, bytes]], threshold: int, points: Sequence[int]) -> list[list[bytes]]:
    """Share secrets that many parties share among the same holders; see `dealing.share_each`.

    Args:
        secrets: secret and entropy of each, 32 bytes.
        threshold: t.
        points: of the holders.
    """
    return (share_each if _results.get() is None else share_to_many)(secrets, threshold, points)


def store_plaintext(sealed_as: Callable[[], bytes], plaintext: bytes) -> None:
    """Store a plaintext that was sealed in this process, so that `cached_opening` need not decrypt it.

    Args:
        sealed_as: returns 32 bytes that identify the ciphertext and all inputs of opening: a digest.
        plaintext: the sealed content.
    """
    results = _results.get()
    if results is not None:
        results.note(sealed_as(), plaintext)


def cached_opening(sealed_as: Callable[[], bytes], opens: Callable[[], bytes]) -> bytes:
    """Return the plaintext; stored if it was sealed in this process (`store_plaintext`).

    Args:
        sealed_as: as in `store_plaintext`.
        opens: decrypts; may raise.
    """
    results = _results.get()
    return opens() if results is None else results.of(sealed_as(), opens)
