"""A malicious Lotto server that lies about the population: how large it is, or who is in it (arXiv 2401.02880)."""

from collections.abc import Set
from fractions import Fraction
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from pydantic import Field

from testbed.adversary.lotto.misbehaviour import (
    ALL_LISTS,
    CLIENT_CENTRIC,
    SERVER_CENTRIC,
    LottoMisbehaviour,
    TakesEverySignature,
)
from testbed.adversary.misbehaviour import MisbehaviourOptions
from testbed.arrays import Ids
from testbed.network.contract import ids
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.client_centric import ClientCentricServer
from testbed.selection.lotto.messages import Announce, Candidacy, ParticipantList
from testbed.selection.lotto.server import GroupMessages, LottoServer
from testbed.selection.lotto.server_centric import ServerCentricServer

_replaced = msgspec.structs.replace


class PopulationOptions(MisbehaviourOptions):
    """Which population is announced."""

    to: Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="The population n that is announced: a number of clients, or a share of the population with a "
        "decimal point; default: n_min, the smallest that clients take part in",
    )

    def announced(self, population: int, server: LottoServer) -> int:
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
        told = options.announced(self.population, self)
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
        size = min(options.announced(round_.population, self), round_.population)
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

    def _announced(self) -> int:
        options: PopulationOptions = self.context.options_of(TellDifferentPopulations)
        return options.announced(self.population, self)

    def announcement_for(self, everyone: Ids, message: Announce) -> GroupMessages:
        """Who is told of which population."""
        if not self.attacking:
            return super().announcement_for(everyone, message)
        told = self._announced()
        self.record_attack(
            TellDifferentPopulations, f"n = {told} to its own clients, {message.population} to the others"
        )
        return [(self.others(everyone), message), (self.ours(everyone), _replaced(message, population=told))]

    def is_candidate(self, client: int, claim: Candidacy, round_: SelectionRound) -> bool:
        """Its own clients are judged by what they were told."""
        true = self.population
        if self.attacking and client in self.dishonest:
            self.population = self._announced()
        try:
            return super().is_candidate(client, claim, round_)
        finally:
            self.population = true


class ShowDifferentPopulations(TakesEverySignature, ServerCentricServer):
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
        told = options.announced(self.population, self)
        self.record_attack(
            ShowDifferentPopulations, f"n = {told} to every other participant, {message.population} else"
        )
        return [(participants[::2], message), (participants[1::2], _replaced(message, population=told))]
