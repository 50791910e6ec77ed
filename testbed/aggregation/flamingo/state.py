"""State that a committee member keeps from round to round: its key share, and the service that it belongs to.

In the paper members keep their state. Here clients keep only their key pairs, so that hosts may be lost and runs
resumed: a member seals the state for itself, and the server returns it with each question. But the secrets of a member
open all its past states: an attacker that takes over a member later learns all its shares.
"""

from testbed.crypto import OpeningFailed, encryption, prf
from testbed.messages import signed_content
from testbed.parties.pki import Identity

STATE_BYTES = 32 + 64 + encryption.TAG_BYTES

_DOMAIN = b"testbed/flamingo/state/v1"
_NONCE = bytes(encryption.NONCE_BYTES)  # each key seals once
_SALT_BYTES = prf.OUTPUT_BYTES


def sealed_state(identity: Identity, experiment_id: bytes, service: bytes, share: bytes) -> bytes:
    """Return `STATE_BYTES` bytes that only this member can open.

    Args:
        identity: the member's.
        experiment_id: 16 bytes.
        service: the digest of its service, 32 bytes.
        share: its share of the committee's key, 32 bytes.
    """
    own, associated = _own_key(identity, experiment_id), signed_content(identity.client)
    # The salt follows from the content, so no key seals two contents.
    salt = prf.evaluate(own, b"salt" + associated + service + share)
    # The state names its service: a server that returns the state of another service gains nothing.
    return salt + encryption.seal(prf.evaluate(own, b"key" + salt), _NONCE, service + share, associated)


def opened_state(identity: Identity, experiment_id: bytes, sealed: bytes) -> tuple[bytes, bytes]:
    """Return the service and the share that the member has sealed.

    Args:
        identity: the member's.
        experiment_id: 16 bytes.
        sealed: result of `sealed_state`.

    Raises:
        OpeningFailed: `sealed` is anything else.
    """
    if len(sealed) != STATE_BYTES:
        raise OpeningFailed(f"a sealed state has {STATE_BYTES} bytes, got {len(sealed)}")
    own, associated = _own_key(identity, experiment_id), signed_content(identity.client)
    key = prf.evaluate(own, b"key" + sealed[:_SALT_BYTES])
    opened = encryption.open_sealed(key, _NONCE, sealed[_SALT_BYTES:], associated)
    return opened[:32], opened[32:]


def _own_key(identity: Identity, experiment_id: bytes) -> bytes:
    return identity.derived_secret(_DOMAIN + experiment_id)
