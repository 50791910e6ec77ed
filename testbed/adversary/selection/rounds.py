"""A malicious Lotto server that announces other rounds than the next, or ends unfavourable rounds.

For Lotto, arXiv 2401.02880, section 3.4. With `skip-rounds` its accomplices evaluate their functions for all rounds in
advance (with a beacon: for a round just opened), so the server knows the rounds in which enough of its own clients are
candidates. Lotto's Corollary 1 bounds their share among all rounds, not among the rounds that the server lets happen.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from pydantic import Field

from testbed.adversary.misbehaviour import AttackContext, MisbehaviourOptions
from testbed.adversary.selection.lotto import ALL_LISTS, CLIENT_CENTRIC, SERVER_CENTRIC, LottoMisbehaviour
from testbed.arrays import Ids
from testbed.crypto import prf
from testbed.crypto.sortition import under_threshold
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted, RoundSkipped
from testbed.memory import ArrayName
from testbed.messages import Message, RoundNumber, Signature64
from testbed.network.contract import ids
from testbed.network.hosts import ClientRefusal
from testbed.parties.client import Role, handles
from testbed.parties.round_beacon import randomness_of
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.messages import below_threshold, selection_input
from testbed.selection.lotto.variants import ServerCentricServer
from testbed.selection.verifiable_batch_partition import VerifiableBatchServer, candidate_batches

# -- other round numbers than the next ---------------------------------------------------------------------------------


class ReuseOptions(MisbehaviourOptions):
    """Options of `reuse-round`."""

    round: int = Field(1, gt=0, description="The round to announce again, with the same candidates")


class ReuseRound(LottoMisbehaviour):
    """Announces an earlier round again: its candidates are known, and may have been favourable."""

    name: ClassVar[str] = "reuse-round"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = ReuseOptions

    async def select(self, round_: SelectionRound) -> Selection:
        number = self.context.options_of(ReuseRound).round
        if not self.attacking or round_.number <= number:
            return await super().select(round_)
        self.record_attack(ReuseRound, f"announced round {number} in round {round_.number}")
        chosen = await super().select(replace(round_, number=number))
        return replace(chosen, round_number=round_.number)  # training and aggregation use the true number


class GrindOptions(MisbehaviourOptions):
    """Options of `grind-round`."""

    tries: int = Field(200, gt=0, description="Round numbers beyond the last one that the server tries")


class GrindRound(LottoMisbehaviour):
    """Announces a round number beyond the experiment's last, picked to favour its own clients.

    With the public function of the server-centric variant the server can try as many numbers as it likes. In other
    variants, and with a beacon, it cannot compute its clients' numbers, and uses the first number.
    """

    name: ClassVar[str] = "grind-round"
    depends_on_rounds: ClassVar[bool] = True
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = GrindOptions

    async def select(self, round_: SelectionRound) -> Selection:
        if not self.attacking:
            return await super().select(round_)
        number, advantage = self._most_favourable(round_)
        self.record_attack(GrindRound, f"announced round {number} of {self.context.rounds}{advantage}")
        chosen = await super().select(replace(round_, number=number))
        return replace(chosen, round_number=round_.number)  # training and aggregation use the true number

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


# -- only favourable rounds --------------------------------------------------------------------------------------------


_AT_ONCE = 512  # rounds in one question to accomplices
_ANNOUNCED = ArrayName("skip-rounds: announced")  # (1,) int64, the last number announced or skipped


class OutputsAhead(Message, frozen=True):
    """An accomplice's numbers, one for each round in the question."""

    outputs: list[Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]]


class LookAhead(Message, frozen=True):
    """Ask an accomplice for its numbers in the rounds from `first` to `last`."""

    stage: ClassVar[str] = "adversary/look-ahead"
    Answer: ClassVar[type[Message] | None] = OutputsAhead

    first: RoundNumber
    last: RoundNumber
    pulse: Signature64 | None = None


class LooksAhead(Role):
    """An accomplice that reveals its numbers before the rounds are announced."""

    @handles(LookAhead)
    def on_look_ahead(self, message: LookAhead) -> OutputsAhead:
        """Evaluate the VRF for all of the rounds."""
        assert self.client.identity is not None
        assert self.client.identity.vrf is not None
        secret, numbers = self.client.identity.vrf, range(message.first, message.last + 1)
        randomness = b"" if message.pulse is None else randomness_of(message.pulse)
        meter("vrf.output", len(numbers))
        experiment_id = self.environment.experiment_id
        return OutputsAhead([secret.output(selection_input(experiment_id, number, randomness)) for number in numbers])


class SkipOptions(MisbehaviourOptions):
    """Options of `skip-rounds` and `abort-unfavourable-rounds`: the condition of a favourable round."""

    at_least: Annotated[int, Field(gt=0)] | None = Field(
        None,
        description="Dishonest clients that must be candidates; none: the number that breaks the aggregation (2t - s "
        "with signed survivors), or 1 if the aggregation needs none",
    )

    def enough(self, context: AttackContext) -> int:
        """Return the number of dishonest candidates in a favourable round."""
        return context.enough_to_break if self.at_least is None else self.at_least


class SkipRounds(LottoMisbehaviour):
    """Announces the next round number in which enough of its own clients are candidates, instead of the next number.

    If no such number is left up to the experiment's last, all further rounds are skipped.
    """

    added_stages = (LookAhead.stage,)
    accomplice_roles = (LooksAhead,)
    name: ClassVar[str] = "skip-rounds"
    depends_on_rounds: ClassVar[bool] = True
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    Options: ClassVar[type[MisbehaviourOptions]] = SkipOptions

    async def select(self, round_: SelectionRound) -> Selection:
        """Select honestly for the favourable round; training and aggregation then have its number, too."""
        last = int(round_.memory.get(_ANNOUNCED, np.zeros(1, np.int64))[0])
        if self.attacking:
            favourable, looked = await self._next_favourable(last + 1, round_)
            if favourable is None:
                round_.memory[_ANNOUNCED] = np.array([self.context.rounds], np.int64)
                detail = f"none after {last} of {self.context.rounds} has {self._enough} of its clients"
                raise RoundSkipped("no-favourable-round", detail)
            true, round_ = round_.number, replace(round_, number=favourable)
            self.record_attack(
                SkipRounds,
                f"announced round {favourable} in round {true}, with {self._enough} of its clients, after {last}; "
                f"looked at {looked} rounds",
            )
        elif last >= round_.number:
            round_ = replace(round_, number=last + 1)
        round_.memory[_ANNOUNCED] = np.array([round_.number], np.int64)
        return replace(await super().select(round_), round_number=round_.number)

    @property
    def _enough(self) -> int:
        options: SkipOptions = self.context.options_of(SkipRounds)
        return options.enough(self.context)

    async def _next_favourable(self, first: int, round_: SelectionRound) -> tuple[int | None, int]:
        """Return the number of the first favourable round, and the number of checked rounds."""
        opened = self.parameters.round_beacon == "public"
        at_once = 1 if opened else _AT_ONCE
        for begin in range(first, self.context.rounds + 1, at_once):
            numbers = range(begin, min(begin + at_once, self.context.rounds + 1))
            pulse = None
            if opened:
                assert round_.beacon is not None
                pulse = await round_.beacon.open(begin)
            for number, standing in zip(numbers, await self._standing(numbers, pulse, round_), strict=True):
                if standing >= self._enough:
                    return number, number - first + 1
        return None, max(0, self.context.rounds - first + 1)

    async def _standing(self, numbers: range, pulse: bytes | None, round_: SelectionRound) -> Sequence[int]:
        """Return the number of its own candidates in each of these rounds."""
        randomness = b"" if pulse is None else randomness_of(pulse)
        if isinstance(self, ServerCentricServer):
            keys = round_.directory.vrf[ids(list(self.dishonest))]
            meter("hmac", len(keys) * len(numbers))
            inputs = (selection_input(round_.experiment_id, number, randomness) for number in numbers)
            return [
                int(below_threshold(prf.evaluate_many(keys, of), self.parameters, self.population).sum())
                for of in inputs
            ]
        question = LookAhead(numbers[0], numbers[-1], pulse)
        answers: dict[int, Any] = (await round_.network.ask(ids(list(self.dishonest)), question)).valid()
        outputs_of = {
            client: answer.outputs for client, answer in answers.items() if len(answer.outputs) == len(numbers)
        }
        of_rounds = [{client: outputs[row] for client, outputs in outputs_of.items()} for row in range(len(numbers))]
        return [self._count(number, of, round_) for number, of in zip(numbers, of_rounds, strict=True)]

    def _count(self, number: int, outputs: dict[int, bytes], round_: SelectionRound) -> int:
        """Return the number of candidates among its clients.

        Only batches without honest members count, because the numbers of honest members are unknown.
        """
        parameters = self.parameters
        if isinstance(self, VerifiableBatchServer):
            round_inputs = round_.experiment_id, number, self.population
            standing = candidate_batches(self.parameters, self.batches, outputs, *round_inputs)
            return len(self.batches.members(standing))
        return sum(
            under_threshold(output, parameters.factor, parameters.participants, self.population)
            for output in outputs.values()
        )


class AbortUnfavourableRounds(LottoMisbehaviour):
    """Announces every round, and ends rounds with too few of its own candidates, claiming too few candidates overall.

    Clients cannot detect this, because they do not know the number of candidates. The attack needs no look-ahead and no
    skipped number, and a beacon does not help; the number of rounds bounds it.
    """

    name: ClassVar[str] = "abort-unfavourable-rounds"
    applies_to: ClassVar[tuple[str, ...]] = (CLIENT_CENTRIC, SERVER_CENTRIC)
    Options: ClassVar[type[MisbehaviourOptions]] = SkipOptions

    def require_candidates(
        self, candidates: Ids, round_: SelectionRound, refusals: Sequence[ClientRefusal] = ()
    ) -> None:
        """Check the honest condition, then require enough candidates of its own."""
        super().require_candidates(candidates, round_, refusals)
        if not self.attacking:
            return
        options: SkipOptions = self.context.options_of(AbortUnfavourableRounds)
        needed, ours = options.enough(self.context), len(self.ours(candidates))
        outcome = "let the round happen" if ours >= needed else "ended the round"
        self.record_attack(AbortUnfavourableRounds, f"{outcome}: {ours} of its clients stand, {needed} wanted")
        if ours < needed:
            raise RoundAborted("too-few-candidates", "claimed by the server", candidates=len(self.members(candidates)))
