"""Noise that the server adds to sums of clipped updates: `aggregation.noise` with ``mechanism: correlated``.

Clients clip and encode as for noise of their own, and add none. The server adds row r - 1 of C^-1 z to the sum of round
r, as it stands in the ring, rotated as updates are (noise that is rotated is as good as before, and what hides a sum
must be there before its elements are read as numbers: at the edge of the ring a small change makes a large one). The
row goes by the number of the round, whatever became of the rounds before. Only so do two rounds of a client that
selection keeps b apart stay b rows apart. A round that ended early counts as one whose sum is 0, and what would have
been released of it is left out: that is the same mechanism with one output not looked at, and privacy is as planned.
Its row of noise is added in the next round that has a sum, so that every model has, as noise, exactly what the
strategy plans for the prefix sum that it is. Where noise is independent, none of it is ever taken back, and the row is
left out.

What is kept for later rounds is in the memory of the run, and so in its checkpoint: a resumed run goes on with it, and
noise is drawn for no row twice. A round that was run again, since it was not recorded, has shown nothing to anybody
before; it begins from the same memory.
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
    """The server's side.

    Attributes:
        noise: the experiment's section, completed.
    """

    noise: CorrelatedNoise

    def noised(
        self, total: npt.NDArray[Any], encoding: Encoding, rotation: bytes, round_: AggregationRound
    ) -> npt.NDArray[Any]:
        """`(D+1,)` the sum of a round with its noise, of the ring, as `total` `(D+1,)` is.

        Raises `RoundAborted` where the server does not know what noise is made of, or has none for this round.
        """
        if round_.randomness is None:
            raise RoundAborted("no-noise", "the server has no randomness")
        return encoding.with_noise(total, self._row(encoding, round_), rotation)

    def _row(self, encoding: Encoding, round_: AggregationRound) -> Floats:
        """`(D,)` this round's noise, and that of the rounds since the last that had a sum, if any is taken back."""
        dimension = encoding.length
        matrix, memory = self.noise.matrix, round_.memory
        state = memory.get(_STATE, matrix.beginning(dimension))
        done = int(memory.get(_STEPS, np.int64(0)))
        coefficients = memory.get(_COEFFICIENTS, matrix.coefficients)
        if state.shape != (matrix.vectors, dimension) or not np.allclose(
            coefficients, matrix.coefficients, rtol=0, atol=1e-9
        ):
            raise RoundAborted("other-noise", "what earlier rounds have left is of another strategy")
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
