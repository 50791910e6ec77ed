"""A malicious server that influences participation: by its choice among candidates, or by the set of candidates.

For Lotto's candidates (arXiv 2401.02880, section 3.4), and for protocols in which the server chooses freely.
"""

from collections.abc import Set
from fractions import Fraction
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from pydantic import Field

from testbed.adversary.misbehaviour import MisbehaviourOptions, SelectionMisbehaviour
from testbed.adversary.selection.lotto import (
    ALL_LISTS,
    CLIENT_CENTRIC,
    SERVER_CENTRIC,
    LottoMisbehaviour,
    TakesEverySignature,
)
from testbed.arrays import Ids
from testbed.crypto import prf
from testbed.errors import RoundSkipped
from testbed.network.contract import ids
from testbed.selection.check_in import check_in
from testbed.selection.contract import Selection, SelectionParameters, SelectionRound
from testbed.selection.lotto.messages import (
    Announce,
    Candidacy,
    ParticipantList,
    below_threshold,
    selection_input,
)
from testbed.selection.lotto.server import GroupMessages, LottoServer
from testbed.selection.lotto.variants import ClientCentricServer, ServerCentricServer

# -- free choice: the baselines trust the server, and clients cannot verify --------------------------------------------


class PreferenceOptions(MisbehaviourOptions):
    """Options of `prefer-dishonest`."""

    honest: int = Field(0, ge=0, description="Places reserved for honest clients, the possible victims")


class PreferDishonest(SelectionMisbehaviour):
    """Chooses its own clients first, and honest clients only for the remaining places."""

    Options: ClassVar[type[MisbehaviourOptions]] = PreferenceOptions

    name: ClassVar[str] = "prefer-dishonest"
    applies_to: ClassVar[tuple[str, ...]] = ("random", "weighted-random", "bernoulli", "partition", "batch-partition")
    parameters: SelectionParameters

    async def select(self, round_: SelectionRound) -> Selection:
        """Choose K of the available clients; skip the round if there are fewer.

        Ignores batches; clients refuse sums over parts of batches.
        """
        if not self.attacking:
            return await super().select(round_)
        present, needed = await check_in(round_), self.parameters.participants
        if len(present) < needed:
            detail = f"{len(present)} available, {needed} wanted"
            raise RoundSkipped("too-few-available", detail, candidates=len(present))
        rng = round_.rng("participants")
        dishonest = np.isin(present, list(self.dishonest))
        reserved = min(self.context.options_of(PreferDishonest).honest, needed, int((~dishonest).sum()))
        ours = rng.permutation(present[dishonest])[: needed - reserved]
        honest = rng.choice(present[~dishonest], needed - len(ours), replace=False)
        self.record_attack(PreferDishonest, f"{len(ours)} of {needed} participants are dishonest")
        return Selection(np.sort(np.append(ours, honest)), len(present))


# -- residual removal: clients cannot detect, as long as the list has the agreed size ----------------------------------


class KeepDishonestCandidates(LottoMisbehaviour):
    """Removes honest candidates first: the worst case of residual removal, bounded by Theorem 2."""

    name: ClassVar[str] = "keep-dishonest-candidates"

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Return its own candidates, and honest candidates for the remaining places."""
        if not self.attacking:
            return super().choose(candidates, round_)
        rng, s = round_.rng("residual removal"), self.parameters.participants
        ours = rng.permutation(self.ours(candidates))[:s]
        honest = rng.choice(self.others(candidates), s - len(ours), replace=False)
        self.record_attack(
            KeepDishonestCandidates,
            f"{len(ours)} of {s} participants are dishonest; honest ones of {len(candidates)} candidates were removed",
        )
        return np.sort(np.append(ours, honest))


class ReserveMostSelected(LottoMisbehaviour):
    """Reserves a place for the client that should take part most often, on which privacy over many rounds depends.

    In the server-centric variant this client is known in advance: the server evaluates the public function for all
    rounds. In other variants, and with a beacon, the server reserves a place for the candidate with the most
    participations so far.
    """

    name: ClassVar[str] = "reserve-most-selected"
    depends_on_rounds: ClassVar[bool] = True
    candidate: ClassVar[str] = "client"
    _predicted: int | None = None

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Return the target, if it is a candidate, and random candidates for the remaining places."""
        victims = candidates[~self.wholly_dishonest(candidates)]
        if not self.attacking or not len(victims):
            return super().choose(candidates, round_)
        target = self.target(victims, round_)
        if target not in candidates:
            return super().choose(candidates, round_)
        self.record_attack(ReserveMostSelected, f"kept a place for {self.candidate} {target}")
        others = candidates[candidates != target]
        rest = round_.rng("residual removal").choice(others, self.required - 1, replace=False)
        return np.sort(np.append(rest, target))

    def target(self, victims: Ids, round_: SelectionRound) -> int:
        """Return the targeted candidate: one of `victims`, or a predicted client that may be no candidate.

        Args:
            victims: candidates with an honest client.
            round_: the round.
        """
        if isinstance(self, ServerCentricServer) and self.parameters.round_beacon == "none":
            if self._predicted is None:
                self._predicted = self._most_often_candidate(round_)
            return self._predicted
        return int(victims[np.argmax(round_.participations[victims])])

    def _most_often_candidate(self, round_: SelectionRound) -> int:
        """Return the honest client with public numbers below the threshold in the most rounds of the experiment."""
        clients = self.others(np.flatnonzero(round_.directory.registered))
        # Server-centric keys are public, so future rounds can be computed; a beacon's pulse prevents that.
        keys = round_.directory.vrf[clients]
        often = np.zeros(len(clients), np.int64)
        for number in range(1, self.context.rounds + 1):
            outputs = prf.evaluate_many(keys, selection_input(round_.experiment_id, number))
            often += below_threshold(outputs, self.parameters, self.population)
        return int(clients[np.argmax(often)])


class OmitOptions(MisbehaviourOptions):
    """Options of `omit-honest-candidates`."""

    keep: int = Field(1, ge=0, description="Honest candidates that are not omitted: the victims")


class OmitHonestCandidates(LottoMisbehaviour):
    """Leaves out honest candidates except the victims; without enough colluding candidates the list is too short."""

    name: ClassVar[str] = "omit-honest-candidates"
    Options: ClassVar[type[MisbehaviourOptions]] = OmitOptions

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Return its own candidates and the victims, even if these are fewer than a list needs."""
        if not self.attacking:
            return super().choose(candidates, round_)
        own = self.dishonest_members(candidates) > 0
        honest, ours = candidates[~own], candidates[own]
        victims = honest[: min(self.context.options_of(OmitHonestCandidates).keep, self.required)]
        chosen = np.append(victims, ours[: self.required - len(victims)])
        left_out = len(honest) - len(victims)
        self.record_attack(
            OmitHonestCandidates,
            f"left out {left_out} of {len(honest)} honest {self.candidate_noun}, {len(chosen)} of {self.required} "
            "remain",
        )
        return np.sort(chosen)


# -- size and members of the population --------------------------------------------------------------------------------


_replaced = msgspec.structs.replace


class PopulationOptions(MisbehaviourOptions):
    """Options of misbehaviours that announce another population."""

    to: Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="The announced population n: a number of clients, or a share of the population with a decimal "
        "point; default: n_min, the smallest population that clients accept",
    )

    def announced(self, population: int, server: LottoServer) -> int:
        """Return the announced n.

        Args:
            population: the true n.
            server: with its parameters.
        """
        if self.to is None:
            least = server.parameters.min_population
            return server.parameters.smallest_population(len(server.dropped)) if least is None else least
        return _number_of(self.to, population)


class SmallerPopulationOptions(PopulationOptions):
    """Options of misbehaviours that need a population below the true one."""

    def check(self, population: int, dishonest: Set[int]) -> None:
        """Check that the announced population is smaller than the true one."""
        if self.to is not None and _number_of(self.to, population) >= population:
            raise ValueError(f"to: {self.to} of a population of {population}; must be fewer clients than that")


def _number_of(to: int | float, population: int) -> int:
    """Return a number of clients, or a share of the population rounded down."""
    # By its decimal text: the float 0.07 is a little above 7 / 100.
    return to if isinstance(to, int) else max(1, int(Fraction(str(to)) * population))


class UnderstatePopulation(LottoMisbehaviour):
    """Announces a smaller population to all, so that the threshold rises and more of its clients are candidates.

    Down to n_min clients cannot detect this, and Theorem 2 accounts for it; below n_min every honest client refuses.
    """

    name: ClassVar[str] = "understate-population"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = SmallerPopulationOptions

    def pool(self, round_: SelectionRound) -> Ids:
        """Return the honest pool, but announce another size."""
        pool = super().pool(round_)
        self.population = len(pool)
        options: PopulationOptions = self.context.options_of(UnderstatePopulation)
        announced = options.announced(self.population, self)
        if self.attacking and announced != self.population:
            self.record_attack(UnderstatePopulation, f"announced n = {announced} of {self.population}")
            self.population = announced
        return pool


class RefineOutHonest(LottoMisbehaviour):
    """Drops only honest clients in population refinement; needs no refinement rule.

    The clients that are asked cannot detect this, down to n_min: the announced population is the remaining one.
    """

    name: ClassVar[str] = "refine-out-honest"
    Options: ClassVar[type[MisbehaviourOptions]] = SmallerPopulationOptions

    def pool(self, round_: SelectionRound) -> Ids:
        """Return its own clients, and honest clients up to the announced population."""
        if not self.attacking:
            self.population, self.dropped[:] = round_.population, False
            return super().pool(round_)
        options: PopulationOptions = self.context.options_of(RefineOutHonest)
        size = min(options.announced(round_.population, self), round_.population)
        ours, honest = self.ours(round_.everyone), self.others(round_.everyone)
        honest_places = min(max(size - len(ours), 0), len(honest))
        pool = ids(np.append(ours, round_.rng("refinement").choice(honest, honest_places, replace=False)))
        self.record_attack(RefineOutHonest, f"dropped {len(honest) - honest_places} of {len(honest)} honest clients")
        # Announce the remaining population: the threshold then fits, and no client can notice the difference.
        self.population, self.dropped[:] = len(pool), True
        self.dropped[pool] = False
        return pool


class TellDifferentPopulations(LottoMisbehaviour, ClientCentricServer):
    """Announces a smaller population to its own clients only, so that more of them claim to be candidates.

    Honest participants see a number above the threshold of the n that they were told as soon as such a client is in the
    list; combine with `keep-dishonest-candidates` to ensure this.
    """

    name: ClassVar[str] = "tell-different-populations"
    applies_to: ClassVar[tuple[str, ...]] = (CLIENT_CENTRIC,)
    Options: ClassVar[type[MisbehaviourOptions]] = SmallerPopulationOptions

    def _announced(self) -> int:
        options: PopulationOptions = self.context.options_of(TellDifferentPopulations)
        return options.announced(self.population, self)

    def announcement_for(self, everyone: Ids, message: Announce) -> GroupMessages:
        """Announce another population to its own clients."""
        if not self.attacking:
            return super().announcement_for(everyone, message)
        announced = self._announced()
        self.record_attack(
            TellDifferentPopulations, f"n = {announced} to its own clients, {message.population} to the others"
        )
        return [(self.others(everyone), message), (self.ours(everyone), _replaced(message, population=announced))]

    def is_candidate(self, client: int, claim: Candidacy, round_: SelectionRound) -> bool:
        """Judge its own clients by the population that they were told."""
        true = self.population
        if self.attacking and client in self.dishonest:
            self.population = self._announced()
        try:
            return super().is_candidate(client, claim, round_)
        finally:
            self.population = true


class ShowDifferentPopulations(TakesEverySignature, ServerCentricServer):
    """Shows another n to every other participant, where the population is stated only in the list.

    Each participant accepts its list, but they sign different content.
    """

    name: ClassVar[str] = "tell-different-populations"
    applies_to: ClassVar[tuple[str, ...]] = (SERVER_CENTRIC,)
    Options: ClassVar[type[MisbehaviourOptions]] = PopulationOptions

    def list_for(self, participants: Ids, message: ParticipantList) -> GroupMessages:
        """Show another population to every other participant."""
        if not self.attacking:
            return super().list_for(participants, message)
        options: PopulationOptions = self.context.options_of(ShowDifferentPopulations)
        announced = options.announced(self.population, self)
        self.record_attack(
            ShowDifferentPopulations, f"n = {announced} to every other participant, {message.population} else"
        )
        return [(participants[::2], message), (participants[1::2], _replaced(message, population=announced))]
