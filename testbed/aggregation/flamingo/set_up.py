"""Rules of a set-up of a committee of `flamingo` that all parties can evaluate: dealers, valid dealings, the key.

The paper takes the distributed key generation of Gennaro, Jarecki, Krawczyk, Rabin (J. Cryptology 2007), with a server
that relays all signed messages and aborts (section 4.3). Here, as in the authors' code, commitments are Feldman's
alone.

The last dealer can then choose among keys, which the full protocol prevents. But it knows its own contribution to the
key, which each dealer has to prove, so a ciphertext under the chosen key is to the dealer a ciphertext under the honest
dealers' uniform key.

A member that signs its service agrees with all other signers on the dealings that count: the digest of the service
follows from these dealings.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from testbed.aggregation.flamingo.messages import Service
from testbed.aggregation.flamingo.set_up_messages import (
    ComplaintsOf,
    DealingOf,
    Former,
    ShareInTheOpen,
    commitments_digest,
    set_up_digest,
)
from testbed.committee.messages import CommitteeList
from testbed.committee.parameters import CommitteeSection
from testbed.crypto import InvalidShares, feldman, memo
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal


@dataclass(frozen=True)
class SetUp:
    """One set-up.

    Attributes:
        round: the round in which it takes place.
        committee: the committee that is to serve.
        former: the committee that hands over; None: there is none, and the members deal themselves.
        section: of the experiment.
    """

    round: int
    committee: CommitteeList
    former: Former | None
    section: CommitteeSection
    _made: dict[Hashable, tuple[bytes, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def digest(self) -> bytes:
        return set_up_digest(self.round, self.committee, self.former)

    @cached_property
    def members(self) -> dict[int, int]:
        """By member, in their order, the evaluation point of its share."""
        return {client: point for point, client in enumerate(self.committee.clients, 1)}

    @cached_property
    def dealers(self) -> dict[int, int]:
        """By dealer, in their order, the point of its share; in the first set-up the dealers are the members."""
        if self.former is None:
            return self.members
        return {client: point for point, client in enumerate(self.former.certificate.service.committee.clients, 1)}

    @property
    def threshold(self) -> int:
        """Members that can decrypt together (t)."""
        return self.section.threshold_for(len(self.members))

    @property
    def needed(self) -> int:
        """Dealings that must count, so that one of them is honest, or the former key is complete."""
        return self.section.threshold_for(len(self.dealers))

    @property
    def most_complaints(self) -> int:
        """Most complaints about one dealer; with 2t - L - 1 dishonest members, t - 1 shares are then known."""
        return len(self.members) - self.threshold

    def check_dealing(self, dealer: int, commitments: Sequence[bytes]) -> None:
        """Raise `Refusal` for commitments that are invalid for everyone, without a complaint."""
        if dealer not in self.dealers:
            raise Refusal("flamingo.unexpected-dealer", f"client {dealer} is not a dealer of this set-up")
        if len(commitments) != self.threshold:
            detail = f"client {dealer}: {len(commitments)} commitments; {self.threshold} needed"
            raise Refusal("flamingo.invalid-dealing", detail)
        if self.former is None:
            return
        former, point = self.former.commitments, self.dealers[dealer]
        meter("edwards25519.multiply", len(former) - 1)
        meter("edwards25519.add", len(former) - 1)
        key = "committed", self.former.certificate.service.commitments, point
        # The committed secret must be the former share: otherwise the handover would change the key.
        if commitments[0] != memo.cached(key, lambda: feldman.committed_at(former, point)):
            raise Refusal("flamingo.invalid-dealing", f"client {dealer} does not deal its share of the former key")

    def qualified(
        self, dealings: Sequence[DealingOf], complaints: Sequence[ComplaintsOf], answered: Sequence[ShareInTheOpen]
    ) -> tuple[list[DealingOf], dict[tuple[int, int], bytes]]:
        """Select the dealings that count, and collect the revealed shares by dealer and member.

        A dealing counts if few enough members complain about the dealer, and it has revealed the right share to each of
        them.

        Args:
            dealings: checked, in the dealers' order.
            complaints: with checked signatures.
            answered: shares that the dealers have revealed.

        Raises:
            Refusal: too few dealings count.
        """
        shown = {(row.dealer, row.member): row.share for row in answered}
        counting = []
        for dealing in dealings:
            about = [row.member for row in complaints if dealing.dealer in row.against]
            meter("edwards25519.multiply", len(about) * self.threshold)
            if len(about) <= self.most_complaints and all(
                # The dealer has to reveal the right share to each member that complains.
                feldman.is_share(shown.get((dealing.dealer, member), b""), dealing.commitments, self.members[member])
                for member in about
            ):
                counting.append(dealing)
        if len(counting) < self.needed:
            raise Refusal("flamingo.too-few-dealers", f"{len(counting)} of {self.needed} needed dealers count")
        return list(self.used(counting)), shown

    def used(self, counting: Sequence[DealingOf]) -> Sequence[DealingOf]:
        """Return the dealings that make the key: all of them, or as many as a handover needs."""
        # A handover interpolates exactly t former shares; a first key is the sum of all dealt secrets.
        return counting if self.former is None else counting[: self.needed]

    def weights(self, counting: Sequence[DealingOf]) -> list[int] | None:
        """Return the factor of each dealing; None: the dealings are summed."""
        if self.former is None:
            return None
        return feldman.lagrange_weights([self.dealers[dealing.dealer] for dealing in counting])

    def commitments(self, counting: Sequence[DealingOf]) -> tuple[bytes, ...]:
        """Return the commitments to the members' final shares.

        Raises:
            InvalidShares: they are commitments to no polynomial.
        """
        dealt = [dealing.commitments for dealing in counting]
        key = "commitments", self.digest, tuple(b"".join(row) for row in dealt)
        if key in self._made:
            return self._made[key]
        weights = self.weights(counting)
        meter("edwards25519.add", self.threshold * (len(dealt) - 1))
        if weights is not None:
            meter("edwards25519.multiply", self.threshold * len(dealt))
        made = memo.cached(key, lambda: feldman.weighted_commitments(dealt, weights))
        self._made[key] = made
        return made

    def service(self, commitments: Sequence[bytes]) -> Service:
        """Return the service that the members sign; raises `InvalidShares` if a handed-over key differs."""
        if self.former is not None and commitments[0] != self.former.certificate.service.public_key:
            raise InvalidShares("the key that was handed over is not the former one")
        return Service(self.committee, self.round, commitments[0], commitments_digest(commitments))
