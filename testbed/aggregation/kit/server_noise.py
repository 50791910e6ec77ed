"""Noise that the server adds to sums of clipped updates: `aggregation.noise` with ``mechanism: correlated``.

Clients clip and encode as for noise of their own, and add none. In round r the server adds row r - 1 of C^-1 z to the
sum in the ring, rotated as updates are. The steps are in docs/explanation/correlated-noise-mechanism.md.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import AggregationRound
from testbed.arrays import Floats
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.memory import ArrayName
from testbed.privacy.encoding import Encoding
from testbed.privacy.gaussian import gaussian
from testbed.privacy.matrix.section import CorrelatedNoise

_STATE = ArrayName("correlated_noise")  # (vectors, D) float64, the state of the strategy
_STEPS = ArrayName("correlated_noise_steps")  # () int64, the last round that has had its row
_COEFFICIENTS = ArrayName("correlated_noise_coefficients")  # of the strategy


@dataclass(frozen=True)
class ServerNoise:
    """Server's side of the noise.

    Attributes:
        noise: the experiment's section, completed.
    """

    noise: CorrelatedNoise

    def noised(
        self, total: npt.NDArray[Any], encoding: Encoding, rotation: bytes, round_: AggregationRound
    ) -> npt.NDArray[Any]:
        """Add this round's noise to the sum.

        Args:
            total: `(D+1,)` sum of the round's elements.
            encoding: of the updates.
            rotation: seed of the round's rotation.
            round_: the round.

        Returns:
            `(D+1,)` elements of the ring.

        Raises:
            RoundAborted: the server has no randomness, or no noise for this round.
        """
        if round_.randomness is None:
            raise RoundAborted("no-noise", "the server has no randomness")
        # In the ring, before the elements are read as numbers: at its edge a small change becomes a large one.
        return encoding.with_noise(total, self._row(encoding, round_), rotation)

    def _row(self, encoding: Encoding, round_: AggregationRound) -> Floats:
        """Return `(D,)` this round's noise, plus that of earlier rounds without a sum, if it is taken back."""
        dimension = encoding.length
        matrix, memory = self.noise.matrix, round_.memory
        state = memory.get(_STATE, matrix.beginning(dimension))
        done = int(memory.get(_STEPS, np.int64(0)))
        coefficients = memory.get(_COEFFICIENTS, matrix.coefficients)
        if state.shape != (matrix.vectors, dimension) or not np.allclose(
            coefficients, matrix.coefficients, rtol=0, atol=1e-9
        ):
            raise RoundAborted("other-noise", "the state of earlier rounds is of another noise strategy")
        # The row follows from the round's number alone: only then are rounds b apart also rows b apart.
        if not done < round_.number <= matrix.rounds:
            raise RoundAborted("no-noise", f"round {round_.number} after {done}; there is noise for {matrix.rounds}")
        deviation, total = self.noise.deviation(encoding.dimension), np.zeros(dimension)
        # A round that ended early is one with sum 0 and an output that is not released. The next sum gets its row, too,
        # so that each model has the noise of its prefix sum. Independent noise is never taken back, so such a row is
        # left out.
        for step in range(done if matrix.takes_back else round_.number - 1, round_.number):
            assert round_.randomness is not None
            row = gaussian(round_.randomness.secret("server", step + 1, "correlated noise"), dimension)
            row *= deviation
            matrix.correlate(row, state, step)
            total += row
            meter("gaussian.element", dimension)
            meter("correlate.element", dimension * (matrix.vectors + 1))
        # In the run's memory, and so in its checkpoint: a resumed run draws no row twice.
        memory |= {_STATE: state, _STEPS: np.array(round_.number), _COEFFICIENTS: matrix.coefficients}
        return total
