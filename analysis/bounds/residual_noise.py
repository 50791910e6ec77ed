"""Share of the planned noise that hides a client in a round, by the number of its participants s.

The threshold is a fraction of s, so that the number of colluding clients that secure aggregation withstands grows with
s, and the victim's own share of the noise is one s-th. If s varies (`bernoulli`, batches of two sizes), a malicious
server takes the size of its choice, and so may chance. So `ResidualNoise` is the least over all sizes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.engine.plan import RunPlan
from testbed.privacy.noise_plan import Guarantees

MAX_SIZES_EXAMINED = 2**16
"""Most sizes that are examined one by one; beyond, each update counts as seen by itself in the largest size."""


@dataclass(frozen=True)
class ResidualNoise:
    """Guarantees of the aggregation by the size of a round: `(m,)` arrays.

    Attributes:
        sizes: s.
        max_colluders: most dishonest participants with which a malicious server still sees sums alone.
        min_sum_size: least number of participants in a sum, as long as the server follows the protocol.
        noise: share of the planned noise in such a sum.
        min_partition_size: least number of participants in a malicious server's sum.
    """

    sizes: npt.NDArray[np.int64]
    max_colluders: npt.NDArray[np.int64]
    min_sum_size: npt.NDArray[np.int64]
    noise: npt.NDArray[np.float64]
    min_partition_size: npt.NDArray[np.int64]

    @classmethod
    def of(cls, plan: RunPlan) -> "ResidualNoise":
        """Return the guarantees of a plan's aggregation, in rounds of all sizes that its clients accept."""
        fewest, largest = plan.minimum_participants, plan.maximum_participants
        if plan.experiment.selection.protocol.startswith("lotto-"):  # clients refuse a list of any other length
            fewest = largest
        rows = []
        for size in range(fewest, largest + 1) if largest - fewest <= MAX_SIZES_EXAMINED else ():
            try:
                guaranteed: Guarantees = plan.aggregation.guarantees(size)
            except ValueError:  # no sum of this size
                continue
            least, part = guaranteed.min_sum_size, min(guaranteed.min_partition_size, guaranteed.min_sum_size)
            if least <= size:
                # Noise beyond the plan does not count.
                rows.append((size, guaranteed.max_colluders, least, min(1.0, guaranteed.min_noise_share), part))
        if not rows:
            return cls._alone(largest)
        columns: Any = zip(*rows, strict=True)
        return cls(*(np.array(column) for column in columns))

    @classmethod
    def _alone(cls, size: int) -> "ResidualNoise":
        single = np.array([1])
        # -1 colluders: the server needs nobody's help to see an update, which has 1/s of the noise.
        return cls(np.array([size]), -single, single, np.array([1 / size]), single)

    @property
    def withstood(self) -> int:
        """Most dishonest participants with which only sums are seen in rounds of every size; -1: updates are seen."""
        return int(self.max_colluders.min())

    def from_curious(self, skipping: int, few: bool) -> float:
        """Return the share of the planned noise against a server that follows the protocol and sees no more than sums.

        Args:
            skipping: k, number of participants without the victim that add no noise.
            few: whether only the least number of participants of a sum survive, all of the k among them.
        """
        k = np.minimum(skipping, self.sizes - 1)
        if few:
            return float((self.noise * (1 - np.minimum(k, self.min_sum_size - 1) / self.min_sum_size)).min())
        updates_seen = (self.max_colluders < 0) & (self.min_sum_size == 1)
        return float(np.where(updates_seen, 1 / self.sizes, 1 - k / self.sizes).min())

    def from_malicious(self, accomplices: int, few: bool) -> float:
        """Return the share of the planned noise that a malicious server and colluding participants cannot subtract.

        Args:
            accomplices: k, number of colluding participants, without the victim.
            few: whether the server claims dropouts, or splits the sum, as far as clients accept it.
        """
        k = np.minimum(accomplices, self.sizes - 1)
        left = 1 - k / self.sizes
        if few:
            left = (
                self.noise
                * self.min_partition_size
                / self.min_sum_size
                * (1 - np.minimum(k, self.min_partition_size - 1) / self.min_partition_size)
            )
        # With more colluders than aggregation withstands, the victim's update is seen with its own share of the noise
        # alone.
        return float(np.where(k > self.max_colluders, 1 / self.sizes, left).min())

    def described(self, malicious: bool) -> str:
        """Return a description of the least noise, to be appended to a guarantee's reason; empty if there is none."""
        parts = []
        if len(self.sizes) > 1:
            parts.append(f"in rounds of {self.sizes.min()} to {self.sizes.max()}")
        if malicious and self.withstood < 0:
            parts.append("each update counts as seen with its own noise alone")
        elif malicious and (self.min_partition_size < self.min_sum_size).any():
            parts.append(f"a sum may be split into parts of {self.min_partition_size.min()}, accomplices in them")
        return "".join(f"; {part}" for part in parts)
