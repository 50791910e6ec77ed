"""Simulation of participation over many rounds: real selection, without training, aggregation and messages.

So et al., Securing Secure Aggregation (Multi-RoundSecAgg), arXiv 2106.03328, section 6 ("Modeling dropouts"): each user
is away in a round with its own probability. Selection is the federation's own code, including its random numbers. With
the same seed, the participants are those of a run with `availability.model: bernoulli` (the tests compare the two).
"""

import asyncio
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.emulation.availability.models import RoundwiseAvailability
from testbed.engine.registry import selection_protocol
from testbed.errors import ExperimentError, ProtocolError, RoundSkipped
from testbed.messages import encode
from testbed.network import Missing, Network, Replies
from testbed.network.contract import Ask
from testbed.network.sums import Sum
from testbed.parties.pki import Directory
from testbed.randomness import Randomness
from testbed.selection.check_in import STAGE, CheckInReply
from testbed.selection.contract import SelectionParameters, SelectionProtocol, SelectionRound

DROPOUT_PROBABILITIES = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Values of the users' dropout probabilities p_i in the paper, which does not state how they are drawn."""


def simulate(parameters: SelectionParameters, unavailable: npt.ArrayLike, rounds: int, seed: int) -> npt.NDArray[Any]:
    """Return `(rounds, n)` uint8: 1 where a client was selected, with rows of zeros for rounds that were skipped.

    Args:
        parameters: parameters of a selection protocol with check-in as its only stage.
        unavailable: `(n,)` probability of each client to be away in a round, independent of all else.
        rounds: number of rounds.
        seed: seed, as in an experiment.

    Raises:
        ExperimentError: the protocol has other stages than check-in, or its parameters are not valid for n.
    """
    away = np.asarray(unavailable, np.float64)
    population = len(away)
    try:
        parameters.check(population)
    except ValueError as error:
        raise ExperimentError(f"selection.{error}") from None
    protocol = selection_protocol(parameters, population)
    if tuple(protocol.stages) != (STAGE,):
        name = parameters.model_dump().get("protocol", type(protocol).__name__)
        raise ExperimentError(
            f"selection: {name} has stages {', '.join(protocol.stages)}; simulation without a federation supports "
            f"only protocols with the single stage {STAGE}"
        )
    return asyncio.run(_rounds(protocol, away, rounds, Randomness(seed)))


def dropout_probabilities(population: int, seed: int) -> npt.NDArray[np.float64]:
    """Return a dropout probability for each user, `(n,)`, drawn uniformly from `DROPOUT_PROBABILITIES`.

    Args:
        population: n.
        seed: seed, as in an experiment.
    """
    return Randomness(seed).generator("availability", 0, "probabilities").choice(DROPOUT_PROBABILITIES, population)


async def _rounds(
    protocol: SelectionProtocol, unavailable: npt.NDArray[np.float64], rounds: int, randomness: Randomness
) -> npt.NDArray[Any]:
    population = len(unavailable)
    network = _PresenceNetwork(RoundwiseAvailability(unavailable, randomness))
    directory, participations = Directory.empty(0), np.zeros(population, np.int64)
    memory: dict[str, npt.NDArray[Any]] = {}
    matrix = np.zeros((rounds, population), np.uint8)
    for number in range(1, rounds + 1):
        network.number = number
        round_ = SelectionRound(
            number, population, network, participations, directory, randomness, bytes(16), memory=memory
        )
        try:
            selection = await protocol.select(round_)
        except RoundSkipped:  # a row of zeros
            continue
        participations[selection.participants] += 1
        matrix[number - 1, selection.participants] = 1
    return matrix


class _PresenceNetwork(Network):
    """Network for check-in alone: every reachable recipient answers at once.

    Attributes:
        number: number of the round.
    """

    def __init__(self, availability: RoundwiseAvailability) -> None:
        self._availability = availability
        self.number = 0

    async def _ask(self, question: Ask) -> Replies:
        reachable = self._availability.presence(self.number, STAGE, 0.0, question.recipients).reachable
        there = question.recipients[reachable]
        return Replies(
            CheckInReply,
            there,
            {},
            Missing(offline=question.recipients[~reachable]),
            _no_vectors,
            latency_s=np.zeros(len(there)),
            waited_s=0.0,
            shared=encode(CheckInReply()),
        )

    async def consult_beacon(self, bytes_up: int, bytes_down: int, round_trip_s: float) -> None:
        """Ignore the beacon's cost."""

    def record_event(self, party: str, kind: str, detail: str, stage: str | None = None) -> None:
        """Ignore an event, since the simulation has no records."""


async def _no_vectors(clients: Ids, weights: Ids | None) -> Sum:
    raise ProtocolError("answers to check-in hold no vectors to sum")
