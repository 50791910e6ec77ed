"""The server's correlated noise of one round: drawing a row of z, taking C^-1 of it, rotating and adding it to a sum.

    python -m benchmarks.correlated_noise

CPU seconds of this process, the least of several turns. The floor is what any of it must touch: one Gaussian vector
for each that is kept and one for the round, drawn by `numpy.random.Generator.standard_normal` (not cryptographic). A
ratio below 1 is faster than that. The strategy is optimised once in a run, before; that is a row of its own.
"""

import time

import numpy as np

from benchmarks.distributed_noise import least
from benchmarks.report import arguments, emit
from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.kit.server_noise import ServerNoise
from testbed.privacy.gaussian import gaussian
from testbed.privacy.matrix.section import CorrelatedNoise
from testbed.privacy.participation_pattern import ParticipationPattern
from testbed.randomness import Randomness

SEED = bytes(range(32))


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--dimension", type=int, default=1_000_000, help="parameters of the model")
    parser.add_argument("--buffers", type=int, default=4, help="of the BLT")
    parser.add_argument("--rounds", type=int, default=2000, help="of the training")
    parser.add_argument("--separation", type=int, default=400, help="rounds between two of one client")
    parser.add_argument("--turns", type=int, default=5, help="turns that are measured")
    given = parser.parse_args()

    section = CorrelatedNoise(mechanism="correlated", buffers=given.buffers, noise_multiplier=1.0, rounds=given.rounds)
    noise = section.planned_under(100, ParticipationPattern(given.separation))
    began = time.process_time()
    matrix = noise.matrix
    optimise_s = time.process_time() - began
    encoding = noise.encoding(given.dimension, 32)
    total = np.zeros(encoding.length + 1, np.uint32)
    row, kept = np.zeros(given.dimension), matrix.beginning(given.dimension)
    generator, nobody, anybody = np.random.default_rng(0), np.arange(0), None
    server, randomness = ServerNoise(noise), Randomness(1)
    memory: dict[str, np.ndarray] = {}
    number = iter(range(1, given.rounds))

    def add() -> None:
        now = AggregationRound(next(number), anybody, nobody, nobody, anybody, randomness=randomness, memory=memory)  # type: ignore[arg-type]
        server.noised(total, encoding, SEED, now)

    floor = least(lambda: [generator.standard_normal(given.dimension) for _ in range(matrix.vectors + 1)], given.turns)
    one = least(lambda: generator.standard_normal(given.dimension), given.turns)
    cases = [
        ("draw a row of z", least(lambda: gaussian(SEED, given.dimension), given.turns), one),
        ("take C^-1 of it", least(lambda: matrix.correlate(row, kept, 0), given.turns), matrix.vectors * one),
        ("all of a round", least(add, given.turns), floor),
    ]
    rows: list[dict[str, object]] = [
        {"work": name, "seconds": seconds, "floor_seconds": floor_s, "ratio": seconds / floor_s}
        for name, seconds, floor_s in cases
    ]
    rows.append({"work": "optimise, once", "seconds": optimise_s, "floor_seconds": None, "ratio": None})
    seconds = cases[-1][1]
    emit(
        {"seconds": seconds, "floor_seconds": floor, "ratio": seconds / floor, "dimension": given.dimension,
         "buffers": given.buffers, "rounds": given.rounds, "separation": given.separation},
        rows,
        given.format == "json",
    )  # fmt: skip


if __name__ == "__main__":
    main()
