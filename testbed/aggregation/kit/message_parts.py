"""Parts of messages that several protocols have: signatures and shares that the server passes on, and how many."""

from typing import Annotated

import msgspec

from testbed.messages import ClientId, Message, Signature64

MAXIMUM_PARTICIPANTS = 100_000

Many = msgspec.Meta(max_length=MAXIMUM_PARTICIPANTS)
Share33 = Annotated[bytes, msgspec.Meta(min_length=33, max_length=33)]


def point_of(client: int) -> int:
    """Where a client's Shamir share is evaluated (never 0)."""
    return client + 1


class SignatureOf(Message, frozen=True):
    """One client's signature, passed on."""

    client: ClientId
    signature: Signature64


class ShareOf(Message, frozen=True):
    """A share of one client's secret."""

    client: ClientId
    share: Share33
