"""Protocols that each lack one property, for `test_broken`."""

import os
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from examples.own_selection import TakingTurns
from testbed.aggregation.batch_policy import BatchPolicy
from testbed.aggregation.contract import Aggregate, AggregationRound
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg
from testbed.aggregation.plain import Plain, PlainClient, SendUpdate, Update
from testbed.aggregation.secagg.server import SecAgg
from testbed.batches import Batches
from testbed.errors import Refusal, RoundAborted
from testbed.parties.client import RoleSpec, handles
from testbed.selection.batch_partition import BatchPartitionSelection
from testbed.selection.contract import Selection, SelectionRound

# -- aggregation -------------------------------------------------------------------------------------------------------


class CountsDroppedClients(SecAgg):
    """Divides by the number of participants, dropped ones among them."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        right = await super().aggregate(round_)
        return replace(right, mean=right.mean * len(right.survivors) / len(round_.participants))


class CountsOneTooMany(Plain):
    """Returns a weight that is off by one."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        right = await super().aggregate(round_)
        return replace(right, weight=right.weight + 1)


class Twice(Plain):
    """Doubles the mean."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        right = await super().aggregate(round_)
        return replace(right, mean=2 * right.mean)


class RaisesAtOnce(Plain):
    """Cannot be constructed."""

    def __init__(self, parameters: Any) -> None:
        raise ValueError("no such thing")


class CrashingServer(Plain):
    """Has a bug."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        raise ZeroDivisionError(round_.number)


class EndsItsProcess(Plain):
    """Ends the process that it runs in, as if all were well."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        os._exit(0)


class RaisesKeyboardInterrupt(Plain):
    """Raises what Ctrl-C raises."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        raise KeyboardInterrupt


class NoAggregate(Plain):
    """Returns a mean alone."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        return (await super().aggregate(round_)).mean  # type: ignore[return-value]  # the mistake


class NoMean(Plain):
    """Returns a result without a mean."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        return replace(await super().aggregate(round_), mean=None)


class NeverEnds(Plain):
    """Runs for ever."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        print("runs", flush=True)
        while True:
            pass


class HidesSurvivor(Plain):
    """Leaves a client out of the list of survivors whose update is in the sum."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        right = await super().aggregate(round_)
        return replace(right, survivors=right.survivors[1:]) if len(right.survivors) < 9 else right


class ListsEverybody(Plain):
    """Calls all participants survivors."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        return replace(await super().aggregate(round_), survivors=round_.participants)


class MomentumOfItsOwn(Plain):
    """Keeps its momentum outside of `memory`."""

    velocity: Any = 0.0

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        right = await super().aggregate(round_)
        self.velocity = 0.5 * self.velocity + right.mean
        return replace(right, mean=self.velocity)


class CountsRoundsOfAllRuns(Plain):
    """Counts in its class, where other runs count, too."""

    rounds: ClassVar[int] = 0

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        right = await super().aggregate(round_)
        type(self).rounds += 1
        return replace(right, mean=right.mean + type(self).rounds)


class DeclaresTooMuch(Plain):
    """Declares a stage that it never asks."""

    stages = (*Plain.stages, "mine/confirm")


class NamelessAbort(Plain):
    """Aborts with a sentence as the reason."""

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        right = await super().aggregate(round_)
        if len(right.survivors) < 9:
            raise RoundAborted("Too few clients are left!")
        return right


class CrashingClient(PlainClient):
    """Crashes where nothing was trained."""

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        try:
            return super().on_send_update(message)
        except Refusal as error:
            raise KeyError(message.round) from error


class CrashesOnOldQuestions(Plain):
    """Has clients that crash on a question of an earlier round."""

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(CrashingClient, self.parameters)]


class NamelessClient(PlainClient):
    """Refuses by a sentence."""

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        try:
            return super().on_send_update(message)
        except Refusal as error:
            raise Refusal("I have trained nothing") from error


class NamelessRefusals(Plain):
    """Has clients that refuse by a sentence."""

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(NamelessClient, self.parameters)]


class BusyClient(PlainClient):
    """Refuses although nobody has done anything wrong."""

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        if self.client.number == 3:
            raise Refusal("mine.busy")
        return super().on_send_update(message)


class RefusesHonestServer(Plain):
    """Has a client that refuses an honest server."""

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(BusyClient, self.parameters)]


class BreaksBatchesParameters(LightSecAggParameters):
    """Lets anybody be summed with anybody."""

    def batch_policy(self, batches: Batches | None) -> BatchPolicy:
        return BatchPolicy()


class BreaksBatches(LightSecAgg):
    """Sums members of incomplete batches."""

    Parameters = BreaksBatchesParameters


# -- selection ---------------------------------------------------------------------------------------------------------


class Unsorted(TakingTurns):
    """Returns participants in descending order."""

    async def select(self, round_: SelectionRound) -> Selection:
        right = await super().select(round_)
        return replace(right, participants=right.participants[::-1].copy())


class AnybodyAtAll(TakingTurns):
    """Takes clients that are away."""

    async def select(self, round_: SelectionRound) -> Selection:
        right = await super().select(round_)
        return replace(right, participants=round_.everyone[-len(right.participants) :])


class TooMany(TakingTurns):
    """Takes one more than it says."""

    @property
    def maximum_participants(self) -> int:
        return int(self.parameters.participants) - 1


class TooFew(TakingTurns):
    """Takes fewer than it promises."""

    @property
    def minimum_participants(self) -> int:
        return int(self.parameters.participants) + 1


class TurnsOfItsOwn(TakingTurns):
    """Counts its rounds outside of `memory`."""

    turns = 0

    async def select(self, round_: SelectionRound) -> Selection:
        self.turns += 1
        return await super().select(replace(round_, number=2 * self.turns))


class LateTurns(TakingTurns):
    """Counts its rounds outside of `memory`, and needs the count in later rounds alone, as protocols that explore."""

    turns = 0

    async def select(self, round_: SelectionRound) -> Selection:
        self.turns += 1
        return await super().select(replace(round_, number=2 * self.turns) if round_.number > 7 else round_)


class NoSelection(TakingTurns):
    """Returns nothing."""

    async def select(self, round_: SelectionRound) -> Selection:
        return None  # type: ignore[return-value]  # the mistake


class ListOfClients(TakingTurns):
    """Returns a list where an array is wanted."""

    async def select(self, round_: SelectionRound) -> Selection:
        chosen = await super().select(round_)
        return replace(chosen, participants=chosen.participants.tolist())


class TellsCandidatesAsBefore(TakingTurns):
    """Writes into the state of the round, as up to version 0.2."""

    async def select(self, round_: SelectionRound) -> Selection:
        round_.candidates = 3  # type: ignore[attr-defined]  # the mistake
        return await super().select(round_)


class ReplacesMemory(TakingTurns):
    """Replaces the memory in place of its arrays."""

    async def select(self, round_: SelectionRound) -> Selection:
        round_.memory = {}  # type: ignore[misc]  # the mistake
        return await super().select(round_)


class AsksUndeclared(TakingTurns):
    """Declares no stage, and asks one."""

    stages = ()  # type: ignore[assignment]  # the mistake


class CountsTwice(TakingTurns):
    """Changes the participation counts."""

    async def select(self, round_: SelectionRound) -> Selection:
        right = await super().select(round_)
        round_.participations[right.participants] += 1
        return right


class HalfBatches(BatchPartitionSelection):
    """Leaves the first member of a batch out."""

    async def select(self, round_: SelectionRound) -> Selection:
        right = await super().select(round_)
        return replace(right, participants=right.participants[1:])


class Coin(TakingTurns):
    """Tosses coins of the operating system."""

    async def select(self, round_: SelectionRound) -> Selection:
        right = await super().select(round_)
        away = np.random.default_rng().integers(0, len(right.participants))
        return replace(right, participants=np.delete(right.participants, away))
