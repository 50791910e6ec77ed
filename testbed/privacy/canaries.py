"""Canaries: clients that send known vectors, so that an audit can measure the privacy of one run.

A canary is a random direction in place of a client's update (Andrew et al., One-shot Empirical Privacy Estimation for
Federated Learning, arXiv 2302.03098, section 3). A fair coin decides, once for the whole run, whether a canary is
inserted or sends zeros. An attacker that guesses more of these coins from the run than its epsilon allows shows that
the epsilon is larger (Steinke, Nasr, Jagielski, Privacy Auditing with One (1) Training Run, arXiv 2305.08846).
`analysis.privacy.audit` makes the guesses.
"""

from collections.abc import Set

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.arrays import Floats, Ids
from testbed.randomness import Randomness


class CanarySection(BaseModel):
    """Number of clients that are canaries, and the length of their vectors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clients: int | float = Field(
        gt=0, description="Honest clients, chosen at random, that are canaries: their number, or a fraction of all"
    )
    norm: float | None = Field(
        None, gt=0, description="L2 norm of a canary. None: the clip of aggregation.noise; 1 where there is no noise"
    )

    def number_of(self, population: int) -> int:
        """Return the number of canaries among `population` clients; a fraction is rounded to the nearest."""
        return self.clients if isinstance(self.clients, int) else round(self.clients * population)

    def check(self, population: int, honest: int) -> None:
        """Raise `ValueError` (one line: key, allowed range) if there are fewer honest clients than canaries."""
        number, most = self.number_of(population), honest
        if not 1 <= number <= most:
            raise ValueError(
                f"canaries.clients: {number} canaries among {most} honest clients; allowed 1 to {most} (or a fraction "
                "of all clients)"
            )

    def draw(self, population: int, dishonest: Set[int], randomness: Randomness) -> Ids:
        """Choose the canaries among the honest clients.

        Returns:
            Sorted client numbers; the same for the same randomness.
        """
        honest = np.setdiff1d(np.arange(population), sorted(dishonest))
        rng = randomness.generator("audit", 0, "canaries")
        return np.sort(rng.choice(honest, self.number_of(population), replace=False))


def is_inserted(randomness: Randomness, client: int) -> bool:
    """Return the coin of a canary: True if it sends its vector in this run, False if it sends zeros.

    Args:
        randomness: of the experiment.
        client: number of the canary's client.
    """
    return bool(randomness.simulation_key(client, 0, "canary coin")[0] & 1)


def canary(randomness: Randomness, client: int, dimension: int, norm: float = 1.0) -> npt.NDArray[np.float32]:
    """Return a client's canary, a uniform direction that is the same in every round.

    Args:
        randomness: of the experiment; the same seed gives the same vector.
        client: number of the client.
        dimension: d, the number of model parameters.
        norm: L2 norm of the vector.

    Returns:
        `(d,)` float32.

    Example:
        >>> vector = canary(Randomness(7), client=3, dimension=1000, norm=2.0)
        >>> round(float(np.linalg.norm(vector)), 5)
        2.0
    """
    vector: Floats = randomness.generator(client, 0, "canary").standard_normal(dimension)
    return np.asarray(vector * (norm / np.linalg.norm(vector)), np.float32)
