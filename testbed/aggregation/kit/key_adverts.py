"""Public keys that clients advertise for one round: the server passes on those that peers accept."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.kit.server_checks import record_misbehaviour, verify
from testbed.crypto.key_agreement import PrivateKey
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError

_PROBE = PrivateKey.from_seed(bytes(32))  # shows which public keys are of small order


class SignedKeys(Protocol):
    """An answer with public keys and a signature."""

    @property
    def signature(self) -> bytes:
        """The client's signature on its keys."""


Advert = TypeVar("Advert", bound=SignedKeys)


def usable_adverts(
    round_: AggregationRound,
    adverts: Mapping[int, Advert],
    keys_of: Callable[[Advert], tuple[bytes, ...]],
    domain: bytes,
    content_of: Callable[[int, Advert], bytes],
    what: str,
) -> dict[int, Advert]:
    """Leave out the adverts that peers would refuse, so that one client cannot end the round for all.

    Args:
        round_: the round, in which these clients are recorded as misbehaving.
        adverts: by client.
        keys_of: returns the X25519 public keys of an advert.
        domain: of the signatures.
        content_of: returns the content that a client must have signed.
        what: the stage, for the records.
    """
    usable: dict[int, Advert] = {}
    used_keys: set[bytes] = set()
    exchanges = 0
    for client, advert in adverts.items():
        keys = keys_of(advert)
        exchanges += len(keys)
        try:
            # Two clients with one key would have the same mask in common with each peer.
            if len(set(keys)) < len(keys) or used_keys.intersection(keys):
                raise ProtocolError("a public key is used twice")
            for key in keys:
                # Peers refuse a key of small order, under which everybody knows the agreed key.
                _PROBE.exchange(key)
            verify(round_, client, domain, content_of(client, advert), advert.signature)
        except ProtocolError as error:
            record_misbehaviour(round_, client, f"{what}: {error}")
            continue
        used_keys.update(keys)
        usable[client] = advert
    meter("x25519.agree", exchanges)
    return usable
