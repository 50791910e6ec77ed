"""Noise that the server adds to sums of clipped updates: `aggregation.noise` with ``mechanism: correlated``.

Clients clip and encode as for noise of their own, and add none. In round r the server adds row r - 1 of C^-1 z to the
sum in the ring, rotated as updates are. (Rotated noise is as good as before. The noise must be added before the
elements are read as numbers: at the edge of the ring a small change becomes a large one.)

The row depends only on the number of the round, not on the outcome of earlier rounds. Only then are two rounds of a
client that are b rounds apart also b rows apart. A round that ended early counts as a round with sum 0 whose output is
not released. That is the same mechanism with one output ignored, so privacy is as planned. Its row of noise is added in
the next round that has a sum, so that every model has exactly the noise that the strategy plans for its prefix sum. If
noise is independent, it is never taken back, and the row is left out.

The state for later rounds is in the memory of the run, and so in its checkpoint: a resumed run continues with it, and
no row of noise is drawn twice. A round that is run again because it was not recorded has released nothing before, and
it begins from the same memory.
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
        if not done < round_.number <= matrix.rounds:
            raise RoundAborted("no-noise", f"round {round_.number} after {done}; there is noise for {matrix.rounds}")
        deviation, total = self.noise.deviation(encoding.dimension), np.zeros(dimension)
        for step in range(done if matrix.takes_back else round_.number - 1, round_.number):
            assert round_.randomness is not None
            row = gaussian(round_.randomness.secret("server", step + 1, "correlated noise"), dimension)
            row *= deviation
            matrix.correlate(row, state, step)
            total += row
            meter("gaussian.element", dimension)
            meter("correlate.element", dimension * (matrix.vectors + 1))
        memory |= {_STATE: state, _STEPS: np.array(round_.number), _COEFFICIENTS: matrix.coefficients}
        return total
