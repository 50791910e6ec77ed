"""The privacy ledger of correlated noise: a client's epsilon depends on which rounds it was in.

A client that was in the rounds S has spent the Gaussian mechanism's epsilon for the norm of its change of C x, over all
n rows: the noise of later rounds cancels part of that of its own rounds, and so reveals its data, too. The square of
that norm is at most the sum of |column s . column t| over all pairs of rounds in S, and equals it where no product is
negative (Choquette-Choo et al., arXiv 2211.06530, Theorem 2). So the entry for a round is the cost of the whole run,
and grows only with another round.

The server adds the noise and is trusted to do so: the noise protects against observers of the models, not against the
server.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.privacy.ledger import Columns, NoiseShares, PrivacyLedger, each_once
from testbed.privacy.matrix.accounting import CorrelatedAccountant
from testbed.privacy.matrix.toeplitz import gram_row
from testbed.privacy.noise_plan import NoisePlan

_NOISE = NoiseShares(1.0, 1.0, 0.0)
_ATTEMPT = NoiseShares(None, None, 0.0)


@dataclass(frozen=True)
class ServerCharge:
    """The charging rule of a server that adds the noise: clients in a sum that was released, or may have been."""

    def of_round(
        self, participants: Ids, survivors: Ids, noise: float | None, questioned: Ids, skipping: bool
    ) -> dict[NoiseShares, Ids]:
        """Charge the survivors of a round with a sum (`PrivacyCharge.of_round`)."""
        # A round that ended early has released nothing: the server is trusted.
        return {} if noise is None else {_NOISE: survivors}

    def of_attempt(self, participants: Ids, skipping: bool) -> dict[NoiseShares, Ids]:
        """Charge all participants of a lost round (`PrivacyCharge.of_attempt`)."""
        return {_ATTEMPT: participants}


class CorrelatedLedger(PrivacyLedger):
    """`PrivacyLedger` of correlated noise; a further round is assumed to be as planned.

    Args:
        plan, delta, budget: see `PrivacyLedger`; the plan's accountant is a `CorrelatedAccountant`.
        population: number of clients n.
    """

    def __init__(self, plan: NoisePlan, population: int, delta: float, budget: float | None = None) -> None:
        super().__init__(plan, delta, budget)
        assert isinstance(plan.accountant, CorrelatedAccountant)
        self._accountant = plan.accountant
        self._coefficients = plan.accountant.strategy.coefficients
        self._squared = np.zeros(population)
        self._counts = np.zeros(population, np.int64)
        self._last = np.full(population, -plan.accountant.separation, np.int64)  # last step of each client
        self._steps: list[tuple[int, Ids]] = []
        self._attempts: list[tuple[int, Ids]] = []
        self._look_ahead(0)

    def spend(self, charges: Mapping[NoiseShares, Ids], round_number: int) -> Columns:
        """Enter a round, or an attempt at one.

        Args:
            charges: of a `ServerCharge`.
            round_number: from 1; the noise of round t is row t - 1 of C^-1 z, also where earlier rounds ended early.

        Returns:
            The columns of the round's `privacy` rows except the round, sorted by client.
        """
        hidden, clients = _NOISE, np.sort(np.concatenate([np.zeros(0, np.int64), *charges.values()]))
        # A round that began in a process that died, and is run again with other noise, may have been released. Then
        # C x + z has one more row, with independent noise. It contains the earlier rounds of all clients, so charge
        # every client that has been in any round, as if it had been in this one.
        if _ATTEMPT in charges:
            hidden, clients = _ATTEMPT, np.union1d(clients, self._ever_charged())
            self._enter_attempt(round_number - 1, clients)
        else:
            self._enter(round_number - 1, clients)
        self._look_ahead(round_number)
        squared, inverse = np.unique(self._squared[clients], return_inverse=True)
        counts, of_count = np.unique(self._counts[clients], return_inverse=True)
        planned = [self._accountant.epsilon({1.0: count}, self.delta) for count in counts.tolist()]
        constant = np.ones(len(clients))
        return {
            "client": clients,
            "delta": self.delta * constant,
            "epsilon": self._accountant.epsilon_of(squared, self.delta)[inverse],
            "planned_epsilon": np.array(planned)[of_count],
            # A malicious server, or one that leaves out the noise, sees everything.
            "colluding_epsilon": np.inf * constant,
            **{
                name: (np.nan if share is None else share) * constant
                for name, share in zip(NoiseShares._fields, hidden, strict=True)
            },
        }

    def replay(self, rounds: Iterable[Mapping[str, npt.NDArray[Any]]]) -> None:
        """Enter recorded rounds (`PrivacyLedger.replay`)."""
        entered = 0
        for columns in rounds:
            entered, clients = int(columns["round"][0]), np.asarray(columns["client"], np.int64)
            recorded = ~np.isnan(np.asarray(columns["noise"], np.float64))
            for part in each_once(clients[~recorded]):
                self._enter_attempt(entered - 1, part)
            self._enter(entered - 1, clients[recorded])
        self._look_ahead(entered)

    def of(self, client: int) -> float:
        """Return a client's achieved epsilon so far."""
        return float(self._accountant.epsilon_of(self._squared[[client]], self.delta)[0])

    def _products(self, step: int) -> tuple[Floats, float]:
        """Return the products of column `step` with the columns of each client's rounds, summed, and its own square.

        Returns:
            `(n,)` sums of absolute products, one per client, and the square of column `step`.
        """
        row = np.abs(gram_row(self._coefficients, step))
        products = np.zeros(len(self._squared))
        for earlier, clients in self._steps:
            products[clients] += row[earlier]
        return products, float(row[step])

    def _enter(self, step: int, clients: Ids) -> None:
        if not len(clients):
            return
        products, square = self._products(step)
        # The sum of |column s . column t| over all pairs of rounds (arXiv 2211.06530, Theorem 2).
        self._squared[clients] += 2 * products[clients] + square
        self._counts[clients] += 1
        self._last[clients] = step
        self._steps.append((step, clients))

    def _ever_charged(self) -> Ids:
        """Return the sorted numbers of all clients that have been in any round or attempt."""
        tried = [clients for _, clients in self._attempts]
        return np.unique(np.concatenate([np.flatnonzero(self._counts), *tried])).astype(np.int64)

    def _enter_attempt(self, step: int, clients: Ids) -> None:
        """Charge the rows since the last release once more: all contributions of each client to them, added up."""
        released = self._steps[-1][0] if self._steps else -1
        # If rounds before it ended early, their noise was drawn for that release as well: their rows follow from it.
        for row in range(released + 1, step + 1):
            changed = np.zeros(len(self._squared))
            for earlier, members in (*self._steps, *self._attempts):
                if earlier < row:
                    changed[members] += abs(self._coefficients[row - earlier])
            if row == step:
                changed[clients] += abs(self._coefficients[0])
            self._squared[clients] += changed[clients] ** 2
        self._attempts.append((step, clients))

    def _look_ahead(self, step: int) -> None:
        """Compute the largest cost of the next round, if there is a budget."""
        if self.budget is None:
            return
        accountant, self.after_next, self.costliest = self._accountant, 0.0, None
        may = (step - self._last >= accountant.separation) & (self._counts < accountant.participations)
        if step >= len(self._coefficients) or not may.any():
            return
        products, square = self._products(step)
        after = np.where(may, self._squared + 2 * products + square, -1.0)
        client = int(np.argmax(after))
        now, then = accountant.epsilon_of(np.array([self._squared[client], after[client]]), self.delta).tolist()
        self.after_next, self.costliest = then, (client, now)
