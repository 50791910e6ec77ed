"""What everybody can tell of a set-up of `flamingo`'s committee: who deals to whom, which dealings count, which key.

The paper takes the distributed key generation of Gennaro, Jarecki, Krawczyk, Rabin (J. Cryptology 2007), with a server
that relays all messages, signed, and aborts (section 4.3). Here, as in the authors' code, commitments are Feldman's
alone. The last dealer can then choose among keys, which the full protocol prevents; but what it adds to the key it
knows, so that a ciphertext under the chosen key is one under the honest dealers' uniform key to it. It proves that it
knows (as in FROST: Komlo, Goldberg, SAC 2020). Its shares do not: the server may show them to t - x honest members
alone, which with x accomplices are t, and commitments through so few shares and any point for a secret can be had. That
point could cancel the honest dealers' keys, and leave one of the server's own. A member that signs its service has
agreed with all others that do on which dealings count: its digest follows from these.
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
        round: in which it takes place.
        committee: that is to serve.
        former: that hands over; None: nobody does, the members deal themselves.
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
        """By member, in their order, the point of its share."""
        return {client: point for point, client in enumerate(self.committee.clients, 1)}

    @cached_property
    def dealers(self) -> dict[int, int]:
        """By dealer, in their order, the point of the share that it deals; in the first set-up nobody has one."""
        if self.former is None:
            return self.members
        return {client: point for point, client in enumerate(self.former.certificate.service.committee.clients, 1)}

    @property
    def threshold(self) -> int:
        """Members that can decrypt."""
        return self.section.threshold_for(len(self.members))

    @property
    def needed(self) -> int:
        """Dealers whose dealings must count, so that one of them is honest, or the former key is complete."""
        return self.section.threshold_for(len(self.dealers))

    @property
    def most_complaints(self) -> int:
        """About one dealer: with these shares and those of 2t - L - 1 dishonest members, t - 1 are known."""
        return len(self.members) - self.threshold

    def check_dealing(self, dealer: int, commitments: Sequence[bytes]) -> None:
        """Raise `Refusal` for commitments that nobody has to complain about to leave them out."""
        if dealer not in self.dealers:
            raise Refusal("flamingo.foreign-dealer", f"client {dealer} has nothing to deal in this set-up")
        if len(commitments) != self.threshold:
            raise Refusal("flamingo.bad-dealing", f"client {dealer}: {len(commitments)} commitments")
        if self.former is None:
            return
        former, point = self.former.commitments, self.dealers[dealer]
        meter("edwards25519.multiply", len(former) - 1)
        meter("edwards25519.add", len(former) - 1)
        key = "committed", self.former.certificate.service.commitments, point
        if commitments[0] != memo.cached(key, lambda: feldman.committed_at(former, point)):
            raise Refusal("flamingo.bad-dealing", f"client {dealer} does not deal its share of the former key")

    def qualified(
        self, dealings: Sequence[DealingOf], complaints: Sequence[ComplaintsOf], answered: Sequence[ShareInTheOpen]
    ) -> tuple[list[DealingOf], dict[tuple[int, int], bytes]]:
        """The dealings that count, and by dealer and member the shares that were shown.

        A dealer counts that nobody complains about, or too few, and it has shown each of these the right share.

        Args:
            dealings: checked, in the dealers' order.
            complaints: whose signatures have been checked.
            answered: what the dealers have shown.
        """
        shown = {(row.dealer, row.member): row.share for row in answered}
        counting = []
        for dealing in dealings:
            about = [row.member for row in complaints if dealing.dealer in row.against]
            meter("edwards25519.multiply", len(about) * self.threshold)
            if len(about) <= self.most_complaints and all(
                feldman.is_share(shown.get((dealing.dealer, member), b""), dealing.commitments, self.members[member])
                for member in about
            ):
                counting.append(dealing)
        if len(counting) < self.needed:
            raise Refusal("flamingo.too-few-dealers", f"{len(counting)} of {self.needed} needed dealers count")
        return list(self.used(counting)), shown

    def used(self, counting: Sequence[DealingOf]) -> Sequence[DealingOf]:
        """Those that make the key: all of them, or as many as it takes to hand over."""
        return counting if self.former is None else counting[: self.needed]

    def weights(self, counting: Sequence[DealingOf]) -> list[int] | None:
        """What each of the dealings is multiplied with; None: they are summed."""
        if self.former is None:
            return None
        return feldman.lagrange_weights([self.dealers[dealing.dealer] for dealing in counting])

    def commitments(self, counting: Sequence[DealingOf]) -> tuple[bytes, ...]:
        """The commitments to the shares that the members end with.

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
        """What the members then sign; raises `InvalidShares` where a handed-over key is not the former one."""
        if self.former is not None and commitments[0] != self.former.certificate.service.public_key:
            raise InvalidShares("the key that was handed over is not the former one")
        return Service(self.committee, self.round, commitments[0], commitments_digest(commitments))
