"""No two messages are sealed under one AES-256-GCM key and nonce, in a run or over two points of a seeded sweep.

An adversary with two ciphertexts of one key and nonce has the XOR of the plaintexts, and can forge messages. Messages
are recorded at the primitive, so that every call is included.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from testbed.aggregation.catalogue import PROTOCOLS
from testbed.crypto import encryption
from testbed.experiment.schema import points, validated

COMMITTEE = {"size": 6, "threshold": 5, "serves_rounds": 2}
SECTIONS: dict[str, dict[str, Any]] = {
    "secagg": {"protocol": "secagg"},
    "secagg, enforced noise": {
        "protocol": "secagg",
        "weights": "equal",
        "bits": 32,
        "threshold": 0.6,
        "noise": {"noise_multiplier": 1.0, "scale": 64.0, "enforcement": {"tolerated_dropouts": 1}},
    },
    "secagg-plus": {"protocol": "secagg-plus", "dropouts": 0.3},
    "lightsecagg": {"protocol": "lightsecagg", "threshold": 0.6, "max_colluders": 2},
    "flamingo": {"protocol": "flamingo", "dropouts": 0.5, "committee": COMMITTEE},
    "one-shot": {"protocol": "one-shot", "max_colluders": 2, "committee": COMMITTEE},
    "one-shot, sortition": {
        "protocol": "one-shot",
        "max_colluders": 1,
        "committee": {"size": 8, "threshold": 0.6, "selection": "lotto-client-centric", "over_selection": 1.8},
    },
    "pine": {"protocol": "pine", "helper": 19, "norm_bound": 10},
}
"""Each built-in protocol with client keys, and its options that seal more messages."""
SEAL_NOTHING = {"e-seafl"}

Sealed = dict[tuple[bytes, bytes], list[bytes]]


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> Sealed:
    """By key and nonce, the ciphertexts of everything that is sealed during the test."""
    notes: Sealed = defaultdict(list)
    cipher = AESGCM

    class Noting:
        """The cipher, under one key."""

        def __init__(self, key: bytes) -> None:
            self._key, self._cipher = bytes(key), cipher(key)

        def encrypt(self, nonce: bytes, plaintext: bytes, associated: bytes | None) -> bytes:
            made = self._cipher.encrypt(nonce, plaintext, associated)
            notes[self._key, bytes(nonce)].append(made)
            return made

        def decrypt(self, *given: Any) -> bytes:
            return self._cipher.decrypt(*given)

    monkeypatch.setattr(encryption, "AESGCM", Noting)
    return notes


def test_every_protocol_with_client_keys_is_tested() -> None:
    with_keys = {
        parameters.model_fields["protocol"].default
        for parameters, protocol in PROTOCOLS.items()
        if getattr(protocol, "needs_registration", False)
    }
    assert {section["protocol"] for section in SECTIONS.values()} == with_keys - SEAL_NOTHING


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("compute", ["modelled", "measured"])
def test_no_key_and_nonce_seal_twice(name: str, compute: str, sealed: Sealed, run: Callable[..., Any]) -> None:
    """Three rounds with dropouts, a committee's handing over among them, of two points that differ in a learning rate.

    The messages with which clients register follow from the seed alone: they are the same ones in both points.
    """
    keys = {
        "seed": 3,
        "population": 20,
        "rounds": 3,
        "selection": {"protocol": "random", "participants": 10},
        "aggregation": SECTIONS[name],
        "availability": {"dropout": {"rate": 0.1, "stage": "random"}},
        "time": {"compute": compute, "deadline_s": 1000},
        "sweep": {"workload.learning_rate": [0.1, 0.2]},
    }
    registering: set[tuple[bytes, bytes]] = set()
    states: list[str] = []
    for point in points(validated(keys, "test"), "test"):
        before = {pair: len(messages) for pair, messages in sealed.items()}
        here = run(point.experiment.model_dump(exclude_unset=True))
        registering |= {pair for pair, messages in sealed.items() if len(messages) != before.get(pair)}
        states += [outcome.state for outcome in here.rounds().outcomes]
    assert states.count("completed") >= 2
    assert len(sealed) > len(registering)
    assert [pair for pair, messages in sealed.items() if len(set(messages)) > 1] == []
    assert [pair for pair, messages in sealed.items() if len(messages) > 1 and pair not in registering] == []
