"""The privacy ledger: the privacy that each client has spent so far, by the rounds that its data were in.

A client's epsilon depends only on the number of rounds with each share of the noise. So the ledger keeps a history for
each client, as a number of four bytes, and one list of the distinct histories: most clients share theirs with many
others.

`PrivacyCharge` decides which clients a round charges.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.privacy.noise_plan import NoisePlan

Columns = dict[str, npt.NDArray[Any]]


class NoiseShares(NamedTuple):
    """Noise that hides a client's data in one round: shares of the planned noise variance, in [0, 1].

    Attributes:
        noise: in the sum, if all survivors have added theirs, which is the coordinator's view; None: the client's data
            are in no sum, and only `colluding_noise` counts.
        honest_noise: really added to the sum; None as for `noise`.
        colluding_noise: left when a malicious server and its colluding clients have subtracted theirs.
    """

    noise: float | None
    honest_noise: float | None
    colluding_noise: float


History = tuple[tuple[NoiseShares, int], ...]
"""Number of rounds for each combination of shares, sorted: the order of the rounds makes no difference."""


class PrivacyLedger(ABC):
    """The privacy that each client has spent.

    Args:
        plan: the noise of the aggregation.
        delta: at which epsilon is accounted.
        budget: the epsilon that no client may exceed; None: no limit.

    Attributes:
        after_next: the largest epsilon that a client may have after one more round (0 without a budget).
        costliest: the client to which another round would cost most, and the epsilon that it has spent; None before
            any client was charged.
    """

    def __init__(self, plan: NoisePlan, delta: float, budget: float | None) -> None:
        self.plan = plan
        self.delta = delta
        self.budget = budget
        self.after_next = 0.0
        self.costliest: tuple[int, float] | None = None

    @abstractmethod
    def spend(self, charges: Mapping[NoiseShares, Ids], round_number: int) -> Columns:
        """Enter a round.

        Args:
            charges: the clients with data in the round, by the noise that hides them; no client twice.
            round_number: number of the round, from 1.

        Returns:
            The columns of the round's `privacy` rows except the round, sorted by client.
        """

    @abstractmethod
    def replay(self, rounds: Iterable[Mapping[str, npt.NDArray[Any]]]) -> None:
        """Enter recorded rounds.

        Args:
            rounds: the columns of the `privacy` rows of each round, in order. A client may have several rows in a
                round, alike or not: each was spent.
        """

    @property
    def spent(self) -> str:
        """The reason why no further round may begin, in one line; empty while one may begin.

        The participants and dropouts of a round are known only when it is too late. So the client counts to which one
        more round would cost most.
        """
        if self.budget is None or self.after_next <= self.budget:
            return ""
        next_, of = f"another round may take it to {self.after_next:.4g}", f"of {self.budget:g} (delta {self.delta:g})"
        if self.costliest is None:
            return f"privacy budget: a first round may cost epsilon {self.after_next:.4g} {of}"
        client, spent = self.costliest
        return f"privacy budget: client {client} has spent epsilon {spent:.4g} {of}, {next_}"


class Ledger(PrivacyLedger):
    """`PrivacyLedger` of noise that is independent over rounds: only the number of rounds by noise counts.

    A further round is assumed to have the least noise that the plan guarantees.

    Args:
        plan, delta, budget: see `PrivacyLedger`.
        population: number of clients n.
    """

    def __init__(self, plan: NoisePlan, population: int, delta: float, budget: float | None = None) -> None:
        super().__init__(plan, delta, budget)
        self._history = np.zeros(population, np.int32)  # each client's index into `_histories`
        self._histories: list[History] = [()]
        self._places: dict[History, int] = {(): 0}
        self._epsilon = lru_cache(maxsize=1 << 16)(lambda rounds: plan.accountant.epsilon(dict(rounds), delta))
        self._costs = lru_cache(maxsize=1 << 16)(self._costs_of)
        if budget is not None:
            self.after_next = self._after_another_round(())

    def spend(self, charges: Mapping[NoiseShares, Ids], round_number: int = 0) -> Columns:
        """Enter a round (`PrivacyLedger.spend`); its number makes no difference."""
        shares = np.repeat(np.arange(len(charges)), [len(clients) for clients in charges.values()])
        clients = np.concatenate([np.zeros(0, np.int64), *charges.values()])
        for shares_of_charge, members in charges.items():
            self._enter(shares_of_charge, members)
        order = np.argsort(clients)
        clients, hidden = clients[order], np.array(list(charges), np.float64).reshape(-1, 3)[shares[order]]
        places, inverse = np.unique(self._history[clients], return_inverse=True)
        costs = np.array([self._costs(place) for place in places.tolist()], np.float64).reshape(-1, 3)[inverse]
        names = ("epsilon", "planned_epsilon", "colluding_epsilon")
        return (
            {"client": clients, "delta": np.full(len(clients), self.delta)}
            | dict(zip(names, costs.T, strict=True))
            | dict(zip(NoiseShares._fields, hidden.T, strict=True))
        )

    def replay(self, rounds: Iterable[Mapping[str, npt.NDArray[Any]]]) -> None:
        """Enter recorded rounds (`PrivacyLedger.replay`)."""
        for columns in rounds:
            hidden = np.stack([np.asarray(columns[name], np.float64) for name in NoiseShares._fields], axis=1)
            distinct, inverse = np.unique(hidden, axis=0, return_inverse=True)
            for place, (noise, honest, colluding) in enumerate(distinct.tolist()):
                in_sum = noise == noise  # a missing share was recorded as null and reads as NaN
                shares = NoiseShares(noise if in_sum else None, honest if in_sum else None, colluding)
                for clients in each_once(np.asarray(columns["client"], np.int64)[inverse.reshape(-1) == place]):
                    self._enter(shares, clients)

    def of(self, client: int) -> tuple[float, float, float]:
        """Return a client's epsilon so far: achieved, planned, and against the server with its colluding clients."""
        return self._costs(int(self._history[client]))

    def _enter(self, shares: NoiseShares, clients: Ids) -> None:
        """Enter a round of these clients, each of them once."""
        before, inverse = np.unique(self._history[clients], return_inverse=True)
        after = np.array([self._place(_with(self._histories[place], shares)) for place in before.tolist()], np.int32)
        self._history[clients] = after[inverse]
        if self.budget is None:
            return
        # More rounds never cost less: the largest epsilon so far is the largest of all clients.
        for number, place in enumerate(after.tolist()):
            rounds = _of_view(self._histories[place], 0)
            if (cost := self._after_another_round(rounds)) > self.after_next or self.costliest is None:
                self.after_next = max(cost, self.after_next)
                self.costliest = int(clients[inverse == number].min()), self._epsilon(rounds)

    def _place(self, history: History) -> int:
        if history not in self._places:
            self._places[history] = len(self._histories)
            self._histories.append(history)
        return self._places[history]

    def _after_another_round(self, rounds: tuple[tuple[float, int], ...]) -> float:
        counts = Counter(dict(rounds))
        counts[self.plan.min_share] += 1
        return self._epsilon(tuple(sorted(counts.items())))

    def _costs_of(self, place: int) -> tuple[float, float, float]:
        history = self._histories[place]
        planned = sum(count for shares, count in history if shares.noise is not None)
        return (
            self._epsilon(_of_view(history, 1)),
            self._epsilon(((1.0, planned),) if planned else ()),
            self._epsilon(_of_view(history, 2)),
        )


def each_once(clients: Ids) -> Iterator[Ids]:
    """Split client numbers into parts without repetition, as many as the most frequent number occurs.

    Example:
        >>> [part.tolist() for part in each_once(np.array([4, 4, 7]))]
        [[4, 7], [4]]
    """
    while len(clients):
        _, first = np.unique(clients, return_index=True)
        yield clients[first]
        clients = np.delete(clients, first)


def _with(history: History, shares: NoiseShares) -> History:
    counts = Counter(dict(history))
    counts[shares] += 1
    return tuple(sorted(counts.items(), key=lambda item: tuple(-1.0 if share is None else share for share in item[0])))


def _of_view(history: History, view: int) -> tuple[tuple[float, int], ...]:
    """Return the number of rounds by share of the noise, as one of the three observers sees it.

    Args:
        history: rounds of a client.
        view: index of the observer, a field of `NoiseShares`.
    """
    counts: Counter[float] = Counter()
    for shares, count in history:
        if (share := shares[view]) is not None:
            counts[share] += count
    return tuple(sorted(counts.items()))


@dataclass(frozen=True)
class PrivacyCharge:
    """The rule that says which clients a round charges, for which noise.

    Attributes:
        plan: the noise of the aggregation.
        dishonest: the clients that collude with the server.
    """

    plan: NoisePlan
    dishonest: Collection[int]

    def of_round(
        self, participants: Ids, survivors: Ids, noise: float | None, questioned: Ids, skipping: bool
    ) -> dict[NoiseShares, Ids]:
        """Return the clients that a round charges, by the noise that hides their data.

        Args:
            participants: sorted numbers of the participants.
            survivors: sorted numbers of the clients with data in the sum.
            noise: share of the planned noise in the sum; None: the round ended early, without a sum.
            questioned: sorted numbers of the clients that got a question in the last stage of the aggregation.
            skipping: whether the dishonest participants added no noise in this round.
        """
        # Before the last stage, in which clients reveal the secrets that unmask the sum, nothing can be unmasked.
        if noise is None and not len(questioned):
            return {}
        guarantees = self.plan.guarantees(len(participants))
        if noise is None:
            # Only the server knows which sums it obtained, and a malicious server may merely claim that the round
            # failed: charge all participants, for the least noise that a sum can have.
            noise, in_sum = self.plan.min_share, participants
            adding = max(1, guarantees.min_sum_size)
        else:
            # Other participants are in no sum: nobody else knows their self-mask, and clients do not reveal both masks.
            noise, in_sum = min(1.0, noise), survivors
            adding = len(in_sum)
        # An answer with the client's own noise is released when it is sent, whether it ends in a sum or not. A trusted
        # server adds its noise to the sum alone, and nobody else sees an input outside of the sum.
        if self.plan.source != "shares":
            return {NoiseShares(noise, noise, noise): questioned if self.plan.source == "clients" else in_sum}
        among, accomplices = (int(np.isin(some, list(self.dishonest)).sum()) for some in (participants, in_sum))
        honest = noise * max(0, adding - accomplices) / adding
        # Too many colluders break secure aggregation: they and the server see each input by itself, with its own noise
        # only.
        alone = among > guarantees.max_colluders
        colluding = min(honest, 1 / len(participants)) if alone else honest
        charges = {NoiseShares(noise, honest if skipping else noise, colluding): in_sum}
        lost = np.setdiff1d(participants, in_sum)
        if alone and len(lost):
            charges[NoiseShares(None, None, colluding)] = lost
        return charges

    def of_attempt(self, participants: Ids, skipping: bool) -> dict[NoiseShares, Ids]:
        """Return the charges of a round that reached the last stage and then was lost with its process.

        Args:
            participants: sorted numbers of the participants.
            skipping: whether the dishonest participants added no noise in this round.
        """
        return self.of_round(participants, participants[:0], None, participants, skipping)
