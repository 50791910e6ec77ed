"""A malicious Lotto server that announces another round than the next one (arXiv 2401.02880, section 3.4)."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from testbed.adversary.lotto.misbehaviour import ALL_LISTS, LottoMisbehaviour
from testbed.adversary.misbehaviour import MisbehaviourOptions
from testbed.crypto import prf
from testbed.network.contract import ids
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.candidacy import selection_input, which_under_threshold
from testbed.selection.lotto.server_centric import ServerCentricServer


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
        counts = [
            which_under_threshold(prf.evaluate_many(keys, of), self.parameters, self.population).sum() for of in inputs
        ]
        best = int(np.argmax(counts))
        return tries[best], f", in which {counts[best]} of its clients are candidates, the most of {len(tries)}"
