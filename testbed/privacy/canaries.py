"""Canaries: clients whose updates are known vectors, by which the privacy of one run is measured from what it shows.

A canary is a random direction in place of a client's update (Andrew et al., One-shot Empirical Privacy Estimation for
Federated Learning, arXiv 2302.03098, section 3). A fair coin of its own decides, once for the whole run, whether a
canary is inserted or sends zeros: who guesses more of these coins from the run than its epsilon allows has shown that
the epsilon is larger (Steinke, Nasr, Jagielski, Privacy Auditing with One (1) Training Run, arXiv 2305.08846);
`analysis.privacy.audit` guesses.
"""

from collections.abc import Set

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.arrays import Floats, Ids
from testbed.randomness import Randomness


class CanarySection(BaseModel):
    """How many clients are canaries, and how long their vectors are."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clients: int | float = Field(
        gt=0, description="Honest clients, drawn, that are canaries: their number, or a fraction of all"
    )
    norm: float | None = Field(
        None, gt=0, description="L2 norm of a canary. None: the clip of aggregation.noise; 1 where there is no noise"
    )

    def number_of(self, population: int) -> int:
        """Canaries among so many clients; a fraction is rounded to the nearest."""
        return self.clients if isinstance(self.clients, int) else round(self.clients * population)

    def check(self, population: int, honest: int) -> None:
        """Raise `ValueError` (one line: key, what is allowed) where there are not so many honest clients."""
        number, most = self.number_of(population), honest
        if not 1 <= number <= most:
            raise ValueError(
                f"canaries.clients: {number} canaries among {most} honest clients; allowed 1 to {most} (or a fraction "
                "of all clients)"
            )

    def drawn(self, population: int, dishonest: Set[int], randomness: Randomness) -> Ids:
        """Sorted numbers of the clients that are canaries."""
        honest = np.setdiff1d(np.arange(population), sorted(dishonest))
        rng = randomness.generator("audit", 0, "canaries")
        return np.sort(rng.choice(honest, self.number_of(population), replace=False))


def is_inserted(randomness: Randomness, client: int) -> bool:
    """A canary's coin: whether it sends its vector in this run, or zeros."""
    return bool(randomness.simulation_key(client, 0, "canary coin")[0] & 1)


def canary(randomness: Randomness, client: int, dimension: int, norm: float = 1.0) -> npt.NDArray[np.float32]:
    """`(dimension,)` a client's canary: a uniform direction, the same in every round, of this L2 norm."""
    vector: Floats = randomness.generator(client, 0, "canary").standard_normal(dimension)
    return np.asarray(vector * (norm / np.linalg.norm(vector)), np.float32)
