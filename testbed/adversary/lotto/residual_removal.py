"""A malicious Lotto server that takes whom it likes from the candidates (arXiv 2401.02880, section 3.4).

Nobody can tell, as long as it takes as many as were agreed on.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field

from testbed.adversary.lotto.misbehaviour import LottoMisbehaviour
from testbed.adversary.misbehaviour import MisbehaviourOptions
from testbed.arrays import Ids
from testbed.crypto import prf
from testbed.selection.contract import SelectionRound
from testbed.selection.lotto.candidacy import selection_input, which_under_threshold
from testbed.selection.lotto.server_centric import ServerCentricServer


class KeepDishonestCandidates(LottoMisbehaviour):
    """Removes honest candidates first: the worst that residual removal allows, and what Theorem 2 bounds."""

    name: ClassVar[str] = "keep-dishonest-candidates"

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Its own candidates, and honest ones for the places that are left."""
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
    """Keeps a place for whom it wants to take part most often: the client that privacy over many rounds depends on.

    In the server-centric variant that client is known beforehand: the server evaluates the public function for all
    rounds. Elsewhere, and where a beacon opens the rounds, the best it can do is to keep the candidate that has taken
    part most often so far.
    """

    name: ClassVar[str] = "reserve-most-selected"
    candidate: ClassVar[str] = "client"
    _predicted: int | None = None

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """The candidate that is to take part most often, if it stands, and others for the places that are left."""
        victims = candidates[~self.wholly_dishonest(candidates)]
        if not self.attacking or not len(victims):
            return super().choose(candidates, round_)
        target = self.target(victims, round_)
        if target not in candidates:
            return super().choose(candidates, round_)
        self.record_attack(ReserveMostSelected, f"kept a place for {self.candidate} {target}")
        others = candidates[candidates != target]
        rest = round_.rng("residual removal").choice(others, self.wanted - 1, replace=False)
        return np.sort(np.append(rest, target))

    def target(self, victims: Ids, round_: SelectionRound) -> int:
        """Which candidate it wants, one of `victims` or one that may not stand."""
        if isinstance(self, ServerCentricServer) and self.parameters.round_beacon == "none":
            if self._predicted is None:
                self._predicted = self._most_often_candidate(round_)
            return self._predicted
        return int(victims[np.argmax(round_.participations[victims])])

    def _most_often_candidate(self, round_: SelectionRound) -> int:
        """The honest client whose public numbers are below the threshold most often in the experiment's rounds."""
        clients = self.others(np.flatnonzero(round_.directory.registered))
        keys = round_.directory.vrf[clients]
        often = np.zeros(len(clients), np.int64)
        for number in range(1, self.context.rounds + 1):
            outputs = prf.evaluate_many(keys, selection_input(round_.experiment_id, number))
            often += which_under_threshold(outputs, self.parameters, self.population)
        return int(clients[np.argmax(often)])


class OmitOptions(MisbehaviourOptions):
    """How many honest clients are left."""

    keep: int = Field(1, ge=0, description="Honest candidates that are not omitted: the victims")


class OmitHonestCandidates(LottoMisbehaviour):
    """Leaves out the honest candidates, all but the victims; unless enough of its own stand, the list is too short."""

    name: ClassVar[str] = "omit-honest-candidates"
    Options: ClassVar[type[MisbehaviourOptions]] = OmitOptions

    def choose(self, candidates: Ids, round_: SelectionRound) -> Ids:
        """Its own candidates and the victims, even if these are fewer than a list takes."""
        if not self.attacking:
            return super().choose(candidates, round_)
        own = self.dishonest_members(candidates) > 0
        honest, ours = candidates[~own], candidates[own]
        kept = honest[: min(self.context.options_of(OmitHonestCandidates).keep, self.wanted)]
        chosen = np.append(kept, ours[: self.wanted - len(kept)])
        left_out = len(honest) - len(kept)
        self.record_attack(
            OmitHonestCandidates,
            f"left out {left_out} of {len(honest)} honest {self.candidate_noun}, {len(chosen)} of {self.wanted} remain",
        )
        return np.sort(chosen)
