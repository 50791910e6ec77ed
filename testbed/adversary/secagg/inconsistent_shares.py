"""A dishonest client that deals shares of no secret: nobody can take its masks from the sum, and the round is lost."""

import hashlib
from collections.abc import Sequence
from typing import ClassVar

from testbed.adversary.misbehaviour import ClientMisbehaviour
from testbed.aggregation.secagg.client import SecAggClient
from testbed.crypto.shamir import SHARE_BYTES
from testbed.parties.client import Role


class DealInconsistentShares(ClientMisbehaviour, SecAggClient):
    """Gives each holder another number instead of a share; it is left out after the first round that it ends so."""

    name: ClassVar[str] = "deal-inconsistent-shares"
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")
    extends: ClassVar[type[Role]] = SecAggClient

    def deal(self, name: str, secret: bytes, points: Sequence[int]) -> list[bytes]:
        """Shares that look like shares."""
        if not self.attacks(self.round):
            return super().deal(name, secret, points)
        if name == "the mask key":  # once in a round
            self.record_attack(DealInconsistentShares, f"{len(points)} shares that belong to no secret")
        numbers = (hashlib.sha256(secret + point.to_bytes(8, "big")).digest() for point in points)
        return [number.rjust(SHARE_BYTES, b"\0") for number in numbers]
