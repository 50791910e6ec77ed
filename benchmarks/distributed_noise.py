"""One client's distributed noise: encoding an update, adding its share of Skellam noise, and decoding the sum.

    python -m benchmarks.distributed_noise

CPU seconds of this process, the least of several turns. The floors are what one would write without further thought,
in the same process: `numpy.random.Generator.poisson` twice for the noise (not cryptographic, and inexact in its
floating-point arithmetic), a Walsh-Hadamard transform of one pass for each bit for encoding and decoding alike. A
ratio below 1 is faster than these. Target: 150 ms for a million parameters, on an idle core.

The table that noise is drawn from is made once in a process, before; how long that takes is a row of its own.
"""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import arguments, emit
from testbed.arrays import Floats
from testbed.privacy.encoding import rotation_seed
from testbed.privacy.noise import Noise
from testbed.privacy.sampling import table_of

SEED = bytes(range(32))


def passes(vector: Floats) -> Floats:
    """The transform, one pass over the vector for each bit."""
    vector, half = vector.copy(), 1
    while half < len(vector):
        pairs = vector.reshape(-1, 2, half)
        total = pairs[:, 0] + pairs[:, 1]
        np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
        pairs[:, 0] = total
        half *= 2
    return vector


def least(call: Callable[[], object], turns: int) -> float:
    """CPU seconds of this process, the least of several turns."""
    spent = []
    for _ in range(turns):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return min(spent)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--dimension", type=int, default=1_000_000, help="parameters of the model")
    parser.add_argument("--participants", type=int, default=100, help="clients that share the noise")
    parser.add_argument("--noise-multiplier", type=float, default=1.0, help="of the sum")
    parser.add_argument("--mechanism", choices=("skellam", "discrete-gaussian"), default="skellam", help="of the noise")
    parser.add_argument("--bits", type=int, default=32, help="ring width")
    parser.add_argument("--turns", type=int, default=7, help="turns that are measured")
    given = parser.parse_args()

    noise = Noise(mechanism=given.mechanism, noise_multiplier=given.noise_multiplier)
    noise.check(given.participants, given.dimension, given.bits)
    encoding, rotation = noise.encoding(given.dimension, given.bits), rotation_seed(b"benchmark", 1)
    share = noise.share(given.participants, given.dimension, SEED)
    generator = np.random.default_rng(0)
    delta = (generator.normal(0, 1, given.dimension) / given.dimension**0.5).astype(np.float32)
    wide = generator.normal(0, 1, encoding.length)
    began = time.process_time()
    table_of(share.mechanism, share.variance)
    table_s = time.process_time() - began
    encoded = encoding.encode(delta, rotation, SEED)
    clean = encoded.copy()

    def poisson() -> object:
        half = share.variance / 2
        return generator.poisson(half, encoding.length) - generator.poisson(half, encoding.length)

    transform_s = least(lambda: passes(wide), given.turns)
    cases = [
        ("encode", lambda: encoding.encode(delta, rotation, SEED), transform_s),
        ("add noise", lambda: share.add_to(encoded), least(poisson, given.turns)),
        ("decode", lambda: encoding.decode(clean, 1, rotation), transform_s),
    ]
    rows: list[dict[str, object]] = []
    for name, call, floor_s in cases:
        seconds = least(call, given.turns)
        rows.append({"work": name, "seconds": seconds, "floor_seconds": floor_s, "ratio": seconds / floor_s})
    rows.append({"work": "make the table, once", "seconds": table_s, "floor_seconds": None, "ratio": None})
    total, floor = (sum(float(str(row[key])) for row in rows[:3]) for key in ("seconds", "floor_seconds"))
    emit(
        {"seconds": total, "floor_seconds": floor, "ratio": total / floor, "dimension": given.dimension,
         "length": encoding.length, "scale": encoding.scale, "deviation_of_a_share": share.variance**0.5,
         "mechanism": given.mechanism},
        rows,
        given.format == "json",
    )  # fmt: skip


if __name__ == "__main__":
    main()
