"""What a member of a committee keeps from round to round: its share, and of which service it is.

In the paper members keep it. Here clients keep nothing but their key pairs, so that hosts may be lost and runs resumed:
a member seals it for itself, and the server hands it back with each question. The key follows from the member's own
secrets and from what is sealed, so that no key seals twice, whatever is sealed. A server that hands back another one
gains nothing: it says of which service it is, and the member serves with the one alone that the round's certificate
says. But a member's secrets open what it has served with in the past: who takes these over later has all its shares.
"""

from testbed.crypto import OpeningFailed, encryption, prf
from testbed.messages import signed_content
from testbed.parties.pki import Identity

STATE_BYTES = 32 + 64 + encryption.TAG_BYTES

_DOMAIN = b"testbed/flamingo/state/v1"
_NONCE = bytes(encryption.NONCE_BYTES)  # each key seals once
_SALT_BYTES = prf.OUTPUT_BYTES


def sealed_state(identity: Identity, experiment_id: bytes, service: bytes, share: bytes) -> bytes:
    """`STATE_BYTES` that only this member can open.

    Args:
        identity: the member's.
        experiment_id: 16 bytes.
        service: the digest of its service, 32 bytes.
        share: its share of the committee's key, 32 bytes.
    """
    own, associated = _own_key(identity, experiment_id), signed_content(identity.client)
    salt = prf.evaluate(own, b"salt" + associated + service + share)
    return salt + encryption.seal(prf.evaluate(own, b"key" + salt), _NONCE, service + share, associated)


def opened_state(identity: Identity, experiment_id: bytes, sealed: bytes) -> tuple[bytes, bytes]:
    """The service and the share that the member has sealed; raises `OpeningFailed` for anything else."""
    if len(sealed) != STATE_BYTES:
        raise OpeningFailed(f"a sealed state has {STATE_BYTES} bytes, got {len(sealed)}")
    own, associated = _own_key(identity, experiment_id), signed_content(identity.client)
    key = prf.evaluate(own, b"key" + sealed[:_SALT_BYTES])
    opened = encryption.open_sealed(key, _NONCE, sealed[_SALT_BYTES:], associated)
    return opened[:32], opened[32:]


def _own_key(identity: Identity, experiment_id: bytes) -> bytes:
    return identity.derived_secret(_DOMAIN + experiment_id)
