"""A malicious Lotto server that lies about the round or the population (arXiv 2401.02880, section 3.4).

Each of these decides what is announced; whom it then takes from the candidates is decided in `lotto_lists`.
"""

from collections.abc import Set
from fractions import Fraction
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from pydantic import Field

from testbed.adversary.lotto.accomplices import (
    ClientCentricAccomplice,
    ServerCentricAccomplice,
    VerifiableBatchAccomplice,
)
from testbed.adversary.misbehaviour import MisbehaviourOptions, SelectionMisbehaviour
from testbed.arrays import Ids
from testbed.crypto import prf
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.candidacy import below_threshold, selection_input
from testbed.selection.lotto.client_centric import ClientCentricServer
from testbed.selection.lotto.messages import Announce, Candidacy, ListSignatures, ParticipantList, SignedBy
from testbed.selection.lotto.server import GroupMessages, LottoServer
from testbed.selection.lotto.server_centric import ServerCentricServer
from testbed.selection.verifiable_batch_partition import VerifiableBatchServer

CLIENT_CENTRIC, SERVER_CENTRIC = "lotto-client-centric", "lotto-server-centric"
VERIFIABLE_BATCHES = "verifiable-batch-partition"
ALL_LISTS = (CLIENT_CENTRIC, SERVER_CENTRIC, VERIFIABLE_BATCHES)
_ACCOMPLICES = {
    ClientCentricServer: ClientCentricAccomplice,
    ServerCentricServer: ServerCentricAccomplice,
    VerifiableBatchServer: VerifiableBatchAccomplice,
}
_replaced = msgspec.structs.replace


class LottoMisbehaviour(SelectionMisbehaviour, LottoServer):
    """Any misbehaviour of a Lotto server: its dishonest clients are accomplices, who check nothing."""

    applies_to: ClassVar[tuple[str, ...]] = (CLIENT_CENTRIC, SERVER_CENTRIC)

    @property
    def roles(self) -> list[RoleSpec]:
        """Those of the honest server, and the accomplices."""
        kind = next(accomplice for server, accomplice in _ACCOMPLICES.items() if isinstance(self, server))
        return [*super().roles, RoleSpec(kind, self.parameters, self.dishonest)]

    def ours(self, clients: Ids) -> Ids:
        """The dishonest ones among `clients`, in their order."""
        return clients[np.isin(clients, list(self.dishonest))]

    def others(self, clients: Ids) -> Ids:
        """The honest ones among `clients`, in their order."""
        return clients[~np.isin(clients, list(self.dishonest))]


class PopulationOptions(MisbehaviourOptions):
    """Which population is announced."""

    to: Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="The population n that is announced: a number of clients, or a share of the population with a "
        "decimal point; default: n_min, the smallest that clients take part in",
    )

    def told(self, population: int, server: LottoServer) -> int:
        """n as it is announced, of a true `population`, to the clients of `server`."""
        if self.to is None:
            least = server.parameters.min_population
            return server.parameters.smallest_population(len(server.dropped)) if least is None else least
        return _number_of(self.to, population)


class SmallerPopulationOptions(PopulationOptions):
    """As `PopulationOptions`, for what takes a population below the true one."""

    def check(self, population: int, dishonest: Set[int]) -> None:
        """See `MisbehaviourOptions.check`."""
        if self.to is not None and _number_of(self.to, population) >= population:
            raise ValueError(f"to: {self.to} of a population of {population}; must be fewer clients than that")


def _number_of(to: int | float, population: int) -> int:
    """A number of clients, or a share of the population, rounded down."""
    return to if isinstance(to, int) else max(1, int(Fraction(str(to)) * population))


class UnderstatePopulation(LottoMisbehaviour):
    """Announces a smaller population to all, so that the threshold rises and more of its clients are candidates.

    Down to n_min nobody can tell, and Theorem 2 allows for it; below, every honest client refuses.
    """

    name: ClassVar[str] = "understate-population"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = SmallerPopulationOptions

    def pool(self, round_: SelectionRound) -> Ids:
        """The honest server's, but their number is another."""
        kept = super().pool(round_)
        self.population = len(kept)
        options: PopulationOptions = self.context.options_of(UnderstatePopulation)
        told = options.told(self.population, self)
        if self.attacking and told != self.population:
            self.record_attack(UnderstatePopulation, f"announced n = {told} of {self.population}")
            self.population = told
        return kept


class RefineOutHonest(LottoMisbehaviour):
    """Drops honest clients in population refinement, and none of its own; for that it needs no refinement rule.

    Nobody who is asked can tell, down to n_min: the population is announced as it then is.
    """

    name: ClassVar[str] = "refine-out-honest"
    Options: ClassVar[type[MisbehaviourOptions]] = SmallerPopulationOptions

    def pool(self, round_: SelectionRound) -> Ids:
        """Its own clients, and honest ones up to the population that is to be announced."""
        if not self.attacking:
            self.population, self.dropped[:] = round_.population, False
            return super().pool(round_)
        options: PopulationOptions = self.context.options_of(RefineOutHonest)
        size = min(options.told(round_.population, self), round_.population)
        ours, honest = self.ours(round_.everyone), self.others(round_.everyone)
        wanted = min(max(size - len(ours), 0), len(honest))
        kept = ids(np.append(ours, round_.rng("refinement").choice(honest, wanted, replace=False)))
        self.record_attack(RefineOutHonest, f"dropped {len(honest) - wanted} of {len(honest)} honest clients")
        self.population, self.dropped[:] = len(kept), True
        self.dropped[kept] = False
        return kept


class TellDifferentPopulations(LottoMisbehaviour, ClientCentricServer):
    """Announces a smaller population to its own clients alone, so that more of them claim to be candidates.

    Honest participants see a number over the threshold of the n that they were told, as soon as such a client is
    in the list: `keep-dishonest-candidates` besides makes sure of that.
    """

    name: ClassVar[str] = "tell-different-populations"
    applies_to: ClassVar[tuple[str, ...]] = (CLIENT_CENTRIC,)
    Options: ClassVar[type[MisbehaviourOptions]] = SmallerPopulationOptions

    def _told(self) -> int:
        options: PopulationOptions = self.context.options_of(TellDifferentPopulations)
        return options.told(self.population, self)

    def announcement_for(self, everyone: Ids, message: Announce) -> GroupMessages:
        """Who is told of which population."""
        if not self.attacking:
            return super().announcement_for(everyone, message)
        told = self._told()
        self.record_attack(
            TellDifferentPopulations, f"n = {told} to its own clients, {message.population} to the others"
        )
        return [(self.others(everyone), message), (self.ours(everyone), _replaced(message, population=told))]

    def is_candidate(self, client: int, claim: Candidacy, round_: SelectionRound) -> bool:
        """Its own clients are judged by what they were told."""
        true = self.population
        if self.attacking and client in self.dishonest:
            self.population = self._told()
        try:
            return super().is_candidate(client, claim, round_)
        finally:
            self.population = true


class ShowDifferentPopulations(LottoMisbehaviour, ServerCentricServer):
    """Where the population comes with the list alone: shows another n to every other participant.

    Each accepts what it sees, but they sign different content.
    """

    name: ClassVar[str] = "tell-different-populations"
    applies_to: ClassVar[tuple[str, ...]] = (SERVER_CENTRIC,)
    Options: ClassVar[type[MisbehaviourOptions]] = PopulationOptions

    def list_for(self, participants: Ids, message: ParticipantList) -> GroupMessages:
        """Who is shown which population."""
        if not self.attacking:
            return super().list_for(participants, message)
        options: PopulationOptions = self.context.options_of(ShowDifferentPopulations)
        told = options.told(self.population, self)
        self.record_attack(
            ShowDifferentPopulations, f"n = {told} to every other participant, {message.population} else"
        )
        return [(participants[::2], message), (participants[1::2], _replaced(message, population=told))]

    def valid_signatures(
        self, answers: dict[int, object], message: ParticipantList, round_: SelectionRound
    ) -> list[SignedBy]:
        """Takes every signature: it knows that they are over different content."""
        return all_signatures(answers) if self.attacking else super().valid_signatures(answers, message, round_)

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """Everybody gets all of them."""
        return [(signers, message)]


def all_signatures(answers: dict[int, object]) -> list[SignedBy]:
    """Every participant's signature, whatever it has signed."""
    return [SignedBy(client, answers[client].signature) for client in sorted(answers)]  # type: ignore[attr-defined]


class ReuseOptions(MisbehaviourOptions):
    """Which round is used again."""

    round: int = Field(1, gt=0, description="The round whose number, and so whose candidates, are used again")


class ReuseRound(LottoMisbehaviour):
    """Announces an earlier round once more: its candidates are known, and may have been favourable."""

    name: ClassVar[str] = "reuse-round"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = ReuseOptions

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        number = self.context.options_of(ReuseRound).round
        if not self.attacking or round_.number <= number:
            return await super().select(round_)
        self.record_attack(ReuseRound, f"announced round {number} in round {round_.number}")
        return await self._select_as(number, round_)

    async def _select_as(self, number: int, round_: SelectionRound) -> Selection:
        true = round_.number
        round_.number = number
        try:
            return await super().select(round_)
        finally:
            round_.number = true


class GrindOptions(MisbehaviourOptions):
    """How far the server looks."""

    tries: int = Field(200, gt=0, description="Round numbers beyond the last one that the server tries")


class GrindRound(LottoMisbehaviour):
    """Announces a round number beyond the experiment's last one, which it has picked to favour its own clients.

    With the public function of the server-centric variant it can try as many as it likes; elsewhere it cannot
    compute what its clients' numbers will be, nor where a beacon opens rounds, and takes the first.
    """

    name: ClassVar[str] = "grind-round"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = GrindOptions

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        if not self.attacking:
            return await super().select(round_)
        true = round_.number
        number, found = self._most_favourable(round_)
        self.record_attack(GrindRound, f"announced round {number} of {self.context.rounds}{found}")
        round_.number = number
        try:
            return await super().select(round_)
        finally:
            round_.number = true

    def _most_favourable(self, round_: SelectionRound) -> tuple[int, str]:
        first = self.context.rounds + 1
        if not isinstance(self, ServerCentricServer) or self.parameters.round_beacon == "public":
            return first, ""
        keys = round_.directory.vrf[ids(list(self.dishonest))]
        tries = range(first, first + self.context.options_of(GrindRound).tries)
        inputs = (selection_input(round_.experiment_id, number) for number in tries)
        counts = [below_threshold(prf.evaluate_many(keys, of), self.parameters, self.population).sum() for of in inputs]
        best = int(np.argmax(counts))
        return tries[best], f", in which {counts[best]} of its clients are candidates, the most of {len(tries)}"
