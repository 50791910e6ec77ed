"""The choices of servers of `one-shot`, `lightsecagg` and `pine`: which clients each holder is told to sum."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from testbed.adversary.lightsecagg import ContradictSurvivors
from testbed.adversary.misbehaviour import AttackContext, ServerMisbehaviour, malicious_server
from testbed.adversary.one_shot import ContradictCommittee
from testbed.adversary.pine import ContradictHelper
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg, LightSecAggRound
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot, OneShotRound
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.pine.server import Pine, PineRound
from testbed.arrays import Ids
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from tests.aggregation.federations import SmallFederation
from tests.search.least_sums.committees import Committee
from tests.search.least_sums.contract import FAILED, LeastSums, Result, stated_least

LARGE = (20, 100, 500, 2000)
SMALL = 12  # participants of an execution
DELTAS = np.random.default_rng(3).uniform(-0.1, 0.1, (SMALL, 7))
VICTIM = 1


class FewOfOneShot(OneShot):
    """A server that names as few survivors as the committee sums."""

    few: ClassVar[Sequence[int]]

    async def collect_submissions(self, state: OneShotRound) -> None:
        """As the honest server; of those that are there, the few."""
        await super().collect_submissions(state)
        state.survivors = ids(self.few)


class FewOfLightSecAgg(LightSecAgg):
    """A server that names as few survivors as clients sum."""

    few: ClassVar[Sequence[int]]

    async def collect_masked_inputs(self, state: LightSecAggRound) -> None:
        """As the honest server; of those that are there, the few."""
        await super().collect_masked_inputs(state)
        state.survivors = ids(self.few)


class FewOfPine(Pine):
    """A leader that names as few reports as the helper sums."""

    few: ClassVar[Sequence[int]]

    def survivors(self, state: PineRound) -> Ids:
        """The few."""
        return ids(self.few)


def mean_of(small: SmallFederation, clients: Sequence[int]) -> Any:
    """`(d,)` the mean of these clients' updates, without a mask or share."""
    given: Any = small.parameters
    if isinstance(given, PineParameters):
        total = np.sum([given.encode(np.float32(DELTAS[client])) for client in clients], axis=0)
        return total[: DELTAS.shape[1]].astype(np.float64) / (2**given.fraction_bits * len(clients))
    encoded = [update_of(small, client) for client in clients]
    return given.quantisation.decode(np.sum(encoded, axis=0, dtype=np.uint64), len(clients))[0]


def update_of(small: SmallFederation, client: int) -> Any:
    """`(d+1,)` a client's quantised update, with its weight."""
    coins = small.randomness.simulation_key(client, 1, "stochastic rounding")
    return small.parameters.quantisation.encode(np.float32(DELTAS[client]), 1, coins)


def sum_of_few(kind: Any, parameters: Any, size: int, accomplices: int) -> str:
    """Run the round with real parties; the last clients are accomplices, and the server knows their updates.

    Args:
        kind: one of the servers above.
        parameters: of the protocol.
        size: honest clients in the sum.
        accomplices: beside them.
    """
    few = [*range(size), *range(SMALL - accomplices, SMALL)]
    server = type(f"Told{kind.__name__}", (kind,), {"few": few})
    small = SmallFederation(DELTAS, parameters, protocol=server)
    try:
        outcome = small.run()
    except RoundAborted as ended:
        return f"{FAILED}: {ended}, {small.refusals()}"
    if outcome.survivors.tolist() != few or small.refusals() or not np.array_equal(outcome.mean, mean_of(small, few)):
        return f"{FAILED}: not the mean of {few}, or {small.refusals()}"
    return f"{size} of {SMALL - accomplices} honest clients' sum to the bit, no refusal"


def single_update(honest: type, kind: type[ServerMisbehaviour], parameters: Any, dishonest: frozenset[int]) -> str:
    """Run the round with a misbehaviour that is after one update; return the outcome in words."""
    context = AttackContext(dishonest, {kind: VictimOptions(victim=VICTIM)})
    small = SmallFederation(DELTAS, parameters, protocol=malicious_server(honest, [kind], context))
    small.run()
    (detail,) = [event.detail for event in small.network.events if event.kind == "attack"]
    if isinstance(parameters, PineParameters):
        encoded = parameters.encode(np.float32(DELTAS[VICTIM])).astype("<i8").tobytes()
    else:
        encoded = update_of(small, VICTIM).astype("<u4").tobytes()
    match = re.search(r"sha256 (\w+)$", detail)
    if match is None or match[1] != hashlib.sha256(encoded).hexdigest() or small.refusals():
        return f"{FAILED}: {detail}, {small.refusals()}"
    return f"1 of {SMALL - len(dishonest)} honest clients' update bit for bit, no refusal"


class OneShotSums(LeastSums):
    """The committee is told sets of survivors."""

    protocol: ClassVar[str] = "one-shot"

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """With the default committee, and one of 8 with real parties."""
        for participants in LARGE:
            parameters = OneShotParameters(weights="equal")
            code = parameters.code_for(parameters.committee.members_planned)
            for dishonest in (0, min(code.private, parameters.fewest(participants) - 2)):
                yield self.told(parameters, participants, dishonest)
        yield self.told(OneShotParameters(weights="equal"), 500, None)
        section: Any = {"selection": "given", "members": tuple(range(SMALL - 8, SMALL)), "threshold": 6}
        small = OneShotParameters(committee=section, max_colluders=3, weights="equal", bits=27)
        yield self.told(small, SMALL, 3, is_executed=True)
        yield self.told(small, SMALL, None, is_executed=True)

    def told(
        self, parameters: OneShotParameters, participants: int, dishonest: int | None, *, is_executed: bool = False
    ) -> Result:
        """With so many accomplices, all of them on the committee and in the sum; None: as many as break it."""
        members = parameters.committee.members_planned
        code, is_control = parameters.code_for(members), dishonest is None
        accomplices = 2 * code.needed - members if dishonest is None else dishonest
        committee = Committee(members - accomplices, accomplices, code.needed)
        fewest = parameters.fewest(participants)
        least = committee.least_sum(participants - accomplices, accomplices, fewest)
        stated = stated_least(parameters, participants, accomplices) if dishonest is not None else fewest - accomplices
        executed = ""
        if is_executed and is_control:
            helpers = frozenset(range(SMALL - accomplices, SMALL))
            executed = single_update(OneShot, ContradictCommittee, parameters, helpers)
        elif is_executed:
            executed = sum_of_few(FewOfOneShot, parameters, least.size, accomplices)
        words = f"{participants} clients, U = {code.needed} of {members} members, {accomplices} of them accomplices"
        return Result(self.protocol, words, stated, least.size, least.nodes, "exact", executed, is_control)


class LightSecAggSums(LeastSums):
    """Each client is told a set of survivors. A least sum is stated for a server that tells everybody the same."""

    protocol: ClassVar[str] = "lightsecagg"

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """One set with T accomplices; two sets with as many as give two whole sums."""
        for participants in LARGE:
            parameters = LightSecAggParameters(weights="equal")
            yield self.told(parameters, participants, parameters.max_colluders_for(participants), sets=1)
            yield self.told(parameters, participants, None, sets=2)
        small = LightSecAggParameters(threshold=7, max_colluders=3, weights="equal")
        yield self.told(small, SMALL, 3, sets=1, is_executed=True)
        yield self.told(small, SMALL, None, sets=2, is_executed=True)

    def told(
        self, parameters: LightSecAggParameters, participants: int, dishonest: int | None, *, sets: int,
        is_executed: bool = False,
    ) -> Result:  # fmt: skip
        """With so many accomplices; None: as many as give two whole sums."""
        needed = parameters.threshold_for(participants)
        accomplices = max(0, 2 * needed - participants) if dishonest is None else dishonest
        holders = Committee(participants - accomplices, accomplices, needed)
        least = holders.least_sum(participants - accomplices, accomplices, needed, sets)
        executed = ""
        if is_executed and sets == 2:
            helpers = frozenset(range(SMALL - accomplices, SMALL))
            executed = single_update(LightSecAgg, ContradictSurvivors, parameters, helpers)
        elif is_executed:
            executed = sum_of_few(FewOfLightSecAgg, parameters, least.size, accomplices)
        stated = self.while_it_follows(parameters, participants) - accomplices
        words = f"N = {participants}, U = {needed}, {accomplices} accomplices, {('one set', 'two sets')[sets - 1]}"
        return Result(self.protocol, words, stated, least.size, least.nodes, "exact", executed, sets == 2)

    def while_it_follows(self, parameters: LightSecAggParameters, participants: int) -> int:
        """The statement for a server that follows the protocol; nothing is stated for another one."""
        return LightSecAgg(parameters).guarantees(participants).min_sum_size


class PineSums(LeastSums):
    """The helper is told a set of reports, once."""

    protocol: ClassVar[str] = "pine"

    def results(self, budget: int, seed: int) -> Iterator[Result]:
        """With an honest helper, and with one that works for the server."""
        for participants in LARGE:
            yield self.told(PineParameters(), participants, is_honest=True)
        small = PineParameters(helper=0, min_survivors=5)
        yield self.told(small, SMALL, is_honest=True)
        yield self.told(small, SMALL, is_honest=False)

    def told(self, parameters: PineParameters, participants: int, *, is_honest: bool) -> Result:
        """Nobody but the helper can be dishonest: one accomplice is more than is stated."""
        helper = Committee(int(is_honest), int(not is_honest), 1)
        fewest = parameters.fewest(participants)
        least = helper.least_sum(participants, 0, fewest)
        executed = ""
        if participants == SMALL:
            helpers = frozenset({parameters.helper})
            executed = (
                sum_of_few(FewOfPine, parameters, least.size, 0)
                if is_honest
                else single_update(Pine, ContradictHelper, parameters, helpers)
            )
        words = f"{participants} clients, {'an honest' if is_honest else 'a dishonest'} helper"
        stated = stated_least(parameters, participants, 0)
        return Result(self.protocol, words, stated, least.size, least.nodes, "exact", executed, not is_honest)
