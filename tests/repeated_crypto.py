"""Public-key operations that seeded federations repeat from test to test, computed once a process.

Federations with one seed have the same keys, shares and proofs. libsodium's functions take bytes and give bytes and
depend on nothing else, so a result can be kept; the product meters each call as before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest
from nacl import bindings

OPERATIONS = (
    "crypto_scalarmult",
    "crypto_scalarmult_base",
    "crypto_scalarmult_ed25519_base_noclamp",
    "crypto_scalarmult_ed25519_noclamp",
    "crypto_sign_seed_keypair",
)
KEPT = 1 << 17  # results of each, 200 bytes or so


def _memoised(operation: Callable[..., Any]) -> Callable[..., Any]:
    kept = lru_cache(KEPT)(operation)

    def memoised(*values: Any) -> Any:
        return kept(*values) if all(type(value) is bytes for value in values) else operation(*values)

    return memoised


_MEMOISED = {name: _memoised(getattr(bindings, name)) for name in OPERATIONS}


@contextmanager
def kept_results() -> Iterator[None]:
    """Look an operation up before it is computed, until the block ends; calls that raised are repeated."""
    with pytest.MonkeyPatch.context() as patch:
        for name, operation in _MEMOISED.items():
            patch.setattr(bindings, name, operation)
        yield
