"""Oort: guided participant selection by response times and reported losses.

Lai, Zhu, Madhyastha, Chowdhury, Oort: Efficient Federated Learning via Guided Participant Selection, OSDI 2021, arXiv
2010.06081, Algorithm 1. The insecure baseline of Lotto's informed selection: the server chooses freely, by response
times that it measures and losses that clients report.

A round takes about epsilon K clients that have never trained (exploration). The other participants come from the
clients with the highest utility (exploitation): clipped data quality, plus a bonus for clients that were not selected
for long, times (T/t_i)^alpha for clients slower than the preferred duration T. A pacer moves T.

Where the paper is silent, this module follows the authors' code (FedScale, thirdparty/oort): data quality is scaled to
[0, 1] before the bonus is added; T is a percentile of the response times, and the pacer moves the percentile; the pool
for exploitation has at least ten times as many clients as are drawn; epsilon decays from round 1 on; a client that was
asked and did not answer gets the round's mean utility. Comments at the lines state the deviations from that code.
"""

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.arrays import Floats, Ids
from testbed.memory import ArrayName, Memory
from testbed.network.contract import Replies, no_ids
from testbed.selection.check_in import STAGE, check_in_replies
from testbed.selection.contract import (
    Selection,
    SelectionParameters,
    SelectionRound,
    TrainingReports,
    attach_selection_state,
)
from testbed.selection.random_selection import ServerChoice

PENALTY = 2.0  # alpha, as published
ROUND_THRESHOLD = 30.0  # T is this percentile of the response times, as in FedScale
_SHORTEST_S = 1e-4  # lower bound of response times [s], as in FedScale
_BONUS = 0.1  # factor in the staleness term sqrt(0.1 log R / L_i)
_AUGMENTATION = 10  # the pool for exploitation has more than ten times the clients that are drawn
_FLAT, _SHARP = 0.1, 5.0  # relative changes of utility at which the pacer relaxes and tightens T
_SMALLEST_RANGE = 1e-4
_SMALLEST_WEIGHT = 1e-12  # positive, so that clients with score 0 can be drawn after all others

QUALITY = ArrayName("quality")
"""`(n,)` float64, last data quality; NaN (counts as the mean) before the first report or timeout of the client."""
DURATION_S = ArrayName("duration_s")
"""`(n,)` float64, last response time [s]; NaN before the first training."""
LAST = ArrayName("last")
"""`(n,)` int64, the last round in which each client was asked to train; 0: none."""
COUNT = ArrayName("count")
"""`(n,)` int64, the number of rounds in which each client was asked to train."""
EXPLOITED = ArrayName("exploited")
"""`(k,)` int64, the clients exploited in the current round."""
HISTORY = ArrayName("history")
"""`(h,)` float64, mean data quality of the exploited clients in each of the last 2 W rounds."""
PACED_ROUNDS = ArrayName("learned")
"""`()` int64, the number of rounds that have entered the history."""
THRESHOLD = ArrayName("threshold")
"""`()` float64, the percentile that defines T; moved by the pacer."""


class OortParameters(SelectionParameters):
    """K of the available clients, by their utility for training."""

    stages: ClassVar[tuple[str, ...]] = (STAGE,)
    needs_rounds: ClassVar[str] = "it uses the reports of a whole round to choose the next participants"
    protocol: Literal["oort"] = "oort"
    exploration: float = Field(0.9, ge=0, le=1, description="Initial epsilon: the share of unexplored clients")
    exploration_decay: float = Field(0.98, gt=0, le=1, description="Factor by which epsilon falls each round")
    exploration_minimum: float = Field(0.3, ge=0, le=1, description="Lower bound of epsilon")
    penalty: float = Field(PENALTY, ge=0, description="alpha: utility is multiplied with (T/t)^alpha where t > T")
    pacer_step: int = Field(20, gt=0, description="W: rounds between two decisions of the pacer")
    pacer_delta: float = Field(5.0, ge=0, le=100, description="Delta: percentile points by which it moves T")
    round_threshold: float = Field(
        ROUND_THRESHOLD,
        gt=0,
        le=100,
        description="Initial percentile of the response times that defines T; 100: no limit",
    )
    cut_off: float = Field(
        0.05,
        ge=0,
        le=1,
        description="c: the pool for exploitation holds clients with more than c times the utility of the K-th best",
    )
    clip: float = Field(0.9, ge=0, le=1, description="Data quality is clipped at this quantile")
    sample_window: float = Field(
        5.0,
        ge=1,
        description="With unexplored: check-in, clients are drawn from this many times as many of the fastest clients",
    )
    unexplored: Literal["random", "check-in"] = Field(
        "random",
        description="How unexplored clients are drawn: uniformly, or by their response time at check-in",
    )
    blacklist_rounds: int | None = Field(
        None, gt=0, description="Clients with more participations are left out (default: no client is left out)"
    )
    blacklist_share: float = Field(0.3, ge=0, le=1, description="At most this share of the population is left out")

    @property
    def uses_reported_losses(self) -> str:
        """The key `protocol`: Oort always uses losses."""
        return "protocol: oort"


class OortSelection(ServerChoice):
    """Server side; its statistics about the clients are in the round's memory."""

    parameters: OortParameters

    async def select(self, round_: SelectionRound) -> Selection:
        """Check in, then choose by the stored statistics."""
        replies = await check_in_replies(round_)
        with attach_selection_state(len(replies)):
            return Selection(self.choose(replies, round_), len(replies))

    def choose(self, replies: Replies, round_: SelectionRound) -> Ids:
        """Choose the K participants among the clients that checked in (Algorithm 1, SelectParticipant).

        Args:
            replies: replies to the check-in.
            round_: the round.

        Returns:
            `(K,)` sorted client numbers.
        """
        needed, present = self.parameters.participants, replies.ids
        self.enough(present)
        memory = self._memory(round_)
        allowed = ~self.blacklisted(present, memory[COUNT][present])
        present, answered_s = present[allowed], replies.latency_s[allowed]
        new = memory[COUNT][present] == 0
        old = present[~new]
        to_explore = min(int(needed * self.exploration(round_.number)), int(new.sum()))
        to_exploit = min(needed - to_explore, len(old))
        # Deviation: a round has K participants whenever K clients are available, so each group fills up the other.
        to_explore = needed - to_exploit
        exploited = self.exploit(old, to_exploit, round_)
        memory[EXPLOITED] = exploited
        explored = self.explore(present[new], answered_s[new], to_explore, round_)
        return np.sort(np.concatenate((exploited, explored)))

    def exploration(self, number: int) -> float:
        """Return epsilon in this round."""
        parameters = self.parameters
        return max(parameters.exploration * parameters.exploration_decay**number, parameters.exploration_minimum)

    # -- exploitation ---------------------------------------------------------------------------------------------

    def scores(self, clients: Ids, round_: SelectionRound) -> Floats:
        """Return utilities of clients that have trained: scaled quality plus bonus, times the penalty.

        Args:
            clients: `(m,)` clients that have trained.
            round_: the round.

        Returns:
            `(m,)` float64, none negative.
        """
        memory = self._memory(round_)
        quality, last = fill_with_mean(memory[QUALITY])[clients], memory[LAST][clients]
        if not len(quality):
            return np.empty(0)
        # As in FedScale: the factor keeps the lowest quality above 0 after scaling.
        lowest = 0.999 * float(quality.min())
        range_ = max(float(quality.max()) - lowest, _SMALLEST_RANGE)
        scaled = (np.minimum(quality, _ranked(quality, self.parameters.clip)) - lowest) / range_
        bonus = np.sqrt(_BONUS * np.log(round_.number) / last)
        duration_s = memory[DURATION_S]
        # Deviation: T is taken over the clients that have trained, since the server knows no speeds before.
        preferred_s = preferred_duration_s(duration_s[~np.isnan(duration_s)], float(memory[THRESHOLD]))
        return np.asarray((scaled + bonus) * system_utility(duration_s[clients], preferred_s, self.parameters.penalty))

    def exploit(self, clients: Ids, count: int, round_: SelectionRound) -> Ids:
        """Draw clients by utility from the pool that the cut-off leaves.

        Args:
            clients: `(m,)` clients that have trained.
            count: number of clients to draw.
            round_: the round.
        """
        if count == 0:
            return no_ids()
        scores = self.scores(clients, round_)
        last_of_them = _highest(scores, min(count + 1, len(scores)))
        # As in FedScale: the cut-off gives way where it would leave less than ten times as many clients as are drawn.
        cut_off = min(self.parameters.cut_off * last_of_them, _highest(scores, _AUGMENTATION * count + 1))
        pool = scores >= cut_off
        return draw_by_weight(clients[pool], scores[pool], count, round_.rng("exploitation"))

    # -- exploration ----------------------------------------------------------------------------------------------

    def explore(self, clients: Ids, answered_s: Floats, count: int, round_: SelectionRound) -> Ids:
        """Draw clients that have never trained.

        Args:
            clients: `(m,)` unexplored clients.
            answered_s: `(m,)` response times at check-in [s].
            count: number of clients to draw.
            round_: the round.
        """
        if count == 0:
            return no_ids()
        rng = round_.rng("exploration")
        # Deviation: FedScale knows sizes and speeds of clients before they train, the server here does not.
        if self.parameters.unexplored == "random":
            return rng.choice(clients, count, replace=False)
        speed = 1 / np.maximum(answered_s, _SHORTEST_S)
        window = speed >= _highest(speed, int(self.parameters.sample_window * count))
        return draw_by_weight(clients[window], speed[window], count, rng)

    def blacklisted(self, present: Ids, count: Ids) -> npt.NDArray[np.bool_]:
        """Return the clients with too many participations; at least K clients remain.

        Args:
            present: `(m,)` available clients.
            count: `(m,)` number of rounds in which each was asked to train.

        Returns:
            `(m,)` bool.
        """
        out = np.zeros(len(present), np.bool_)
        if self.parameters.blacklist_rounds is not None:
            most = min(
                int(self.parameters.blacklist_share * self.population), len(present) - self.parameters.participants
            )
            often = np.flatnonzero(count > self.parameters.blacklist_rounds)
            out[often[np.argsort(-count[often], kind="stable")][:most]] = True
        return out

    # -- feedback -------------------------------------------------------------------------------------------------

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        """Update the statistics of the participants, then run the pacer (Algorithm 1, UpdateWithFeedback)."""
        memory = self._memory(round_)
        duration_s = memory[DURATION_S]
        quality, clients, unheard = reports.quality, reports.clients, reports.unheard
        trained = np.concatenate((clients, unheard))
        memory[LAST][trained] = round_.number
        memory[COUNT][trained] += 1
        duration_s[clients] = reports.latency_s
        # Deviation: the code knows the true time. `fmax` ignores the NaN of a client that was never measured.
        duration_s[unheard] = np.fmax(duration_s[unheard], reports.waited_s)
        if not len(clients):  # no mean quality, so neither qualities nor the pacer change
            return
        memory[QUALITY][clients], memory[QUALITY][unheard] = quality, quality.mean()
        exploited = np.isin(clients, memory[EXPLOITED])
        self._pace(memory, float(quality[exploited].mean()) if exploited.any() else 0.0)

    def _pace(self, memory: Memory, exploited_quality: float) -> None:
        step, delta = self.parameters.pacer_step, self.parameters.pacer_delta
        history = np.append(memory[HISTORY], exploited_quality)[-2 * step :]
        rounds = int(memory[PACED_ROUNDS]) + 1
        memory[HISTORY], memory[PACED_ROUNDS] = history, np.array(rounds)
        if rounds < 2 * step or rounds % step:
            return
        before, now = float(history[:step].sum()), float(history[step:].sum())
        threshold = float(memory[THRESHOLD])
        # As in the paper, a fall relaxes T, too; the code does not react to a fall by more than a tenth.
        if now <= before * (1 + _FLAT):
            threshold = min(100.0, threshold + delta)
        elif now - before >= before * _SHARP:
            threshold = max(delta, threshold - delta)
        memory[THRESHOLD] = np.array(threshold)

    def _memory(self, round_: SelectionRound) -> Memory:
        """Return the round's memory; initialise it if it is empty."""
        memory, n = round_.memory, self.population
        if THRESHOLD not in memory:
            memory |= {
                QUALITY: np.full(n, np.nan),
                DURATION_S: np.full(n, np.nan),
                LAST: np.zeros(n, np.int64),
                COUNT: np.zeros(n, np.int64),
                EXPLOITED: no_ids(),
                HISTORY: np.empty(0),
                PACED_ROUNDS: np.array(0),
                THRESHOLD: np.array(self.parameters.round_threshold),
            }
        return memory


# -- utility of a client (section 4) -----------------------------------------------------------------------------------
# The utility is the data quality |B_i| sqrt(mean Loss(k)^2) (`TrainingReports.quality`), times (T/t_i)^alpha if the
# response time t_i exceeds the preferred duration T (equation 2; Lotto's equation 3). All functions are O(n).


def preferred_duration_s(latency_s: Floats, percentile: float) -> float:
    """Return the preferred duration T: a percentile of the response times.

    Args:
        latency_s: `(m,)` response times [s].
        percentile: from 0 to 100.

    Returns:
        Seconds; infinity if there are no response times or the percentile is 100 or more.

    Example:
        >>> preferred_duration_s(np.array([3.0, 1.0, 2.0, 4.0]), 50)
        3.0
    """
    if not len(latency_s) or percentile >= 100:
        return float("inf")
    rank = min(int(len(latency_s) * percentile / 100), len(latency_s) - 1)
    return float(np.partition(latency_s, rank)[rank])


def system_utility(latency_s: Floats, preferred_s: float, penalty: float) -> Floats:
    """Return the penalty of slow clients: (T/t_i)^alpha if t_i > T, else 1.

    Args:
        latency_s: `(m,)` response times t_i [s].
        preferred_s: preferred duration T [s].
        penalty: alpha.

    Returns:
        `(m,)` float64.

    Source:
        Equation 2.

    Example:
        >>> system_utility(np.array([1.0, 4.0]), 2.0, 2.0).tolist()
        [1.0, 0.25]
    """
    if preferred_s == np.inf:
        return np.ones_like(latency_s)
    return np.asarray((preferred_s / np.maximum(np.maximum(latency_s, _SHORTEST_S), preferred_s)) ** penalty)


def fill_with_mean(quality: Floats) -> Floats:
    """Return `(m,)` data qualities with the mean of the finite ones in place of NaN; 1 everywhere if all are NaN."""
    unknown = np.isnan(quality)
    return np.where(unknown, 1.0 if unknown.all() else quality[~unknown].mean(), quality)


def utility(quality: Floats, latency_s: Floats) -> Floats:
    """Return the utilities U_i with the published alpha and percentile.

    Args:
        quality: `(m,)` data qualities.
        latency_s: `(m,)` response times [s].

    Returns:
        `(m,)` float64.
    """
    return quality * system_utility(latency_s, preferred_duration_s(latency_s, ROUND_THRESHOLD), PENALTY)


def draw_by_weight(clients: Ids, weights: Floats, count: int, rng: np.random.Generator) -> Ids:
    """Draw clients one after the other without replacement, with probability proportional to their weights.

    Implemented as the first of exponential clocks with these rates (Efraimidis and Spirakis 2006), in O(m).

    Args:
        clients: `(m,)` clients.
        weights: `(m,)` weights, none negative.
        count: number of clients to draw, at most m.
        rng: the generator.

    Returns:
        `(count,)` clients, unsorted.
    """
    # The first `count` of exponential clocks ring in the order of successive draws; a partition is enough, without a
    # sort.
    rings = rng.standard_exponential(len(clients)) / np.maximum(weights, _SMALLEST_WEIGHT)
    return clients[np.argpartition(rings, count - 1)[:count]]


def _highest(values: Floats, rank: int) -> float:
    """Return the `rank`-th highest (from 1) of `(m,)` values; the smallest if there are fewer."""
    place = max(len(values) - rank, 0)
    return float(np.partition(values, place)[place])


def _ranked(values: Floats, quantile: float) -> float:
    """Return the value at this quantile of `(m,)` values; ranks as in FedScale."""
    place = min(int(len(values) * quantile), len(values) - 1)
    return float(np.partition(values, place)[place])
