"""How long it takes to compose 1,000 rounds of DP-SGD with random participation, by every analysis.

The floor is dp_accounting's own Poisson-subsampled Gaussian mechanism, built and composed as often in the same process.
Each time includes building a round's privacy-loss distribution, composing it, and asking it for an epsilon.

    python -m benchmarks.accounting [--rounds T] [--local-samples D] [--repeat N] [--format json]
"""

import time
from statistics import median

from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from analysis.bounds.random_participation import Participation
from analysis.bounds.random_participation_analyses import ANALYSES
from analysis.bounds.random_participation_composed import INTERVAL
from benchmarks.report import arguments, emit

LIMITS = {"wcs": 5.0, "theorem_4_1": 30.0, "theorem_4_1_recentred": 30.0, "orthogonal_pair": 30.0}
"""Seconds that composing 1,000 rounds may take."""

SIGMA, DELTA = 1.065, 1e-6


def measure(rounds: int, local_samples: int, repeat: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The benchmark's result and its table; CPU seconds, the median of `repeat`."""
    who = Participation(local_samples, 0.001, 0.1)
    taken: dict[str, list[float]] = {name: [] for name in ("floor", *(one.name for one in ANALYSES))}
    epsilons: dict[str, float] = {}
    for _ in range(repeat):
        for name in taken:
            loss = next((one.loss for one in ANALYSES if one.name == name), None)
            started = time.process_time()
            if loss is None:
                of_round = from_gaussian_mechanism(
                    SIGMA, sampling_prob=who.sample_rate, value_discretization_interval=INTERVAL
                )
            else:
                of_round = loss(who, SIGMA)
            epsilons[name] = of_round.self_compose(rounds).get_epsilon_for_delta(DELTA)
            taken[name].append(time.process_time() - started)
    seconds = {name: median(values) for name, values in taken.items()}
    result: dict[str, object] = {
        "seconds": seconds["wcs"], "floor_seconds": seconds["floor"], "ratio": seconds["wcs"] / seconds["floor"],
        "rounds": rounds, "local_samples": local_samples,
    }  # fmt: skip
    result |= {f"{name}_seconds": value for name, value in seconds.items() if name != "floor"}
    result |= {f"{name}_epsilon": value for name, value in epsilons.items() if name != "floor"}
    rows: list[dict[str, object]] = [
        {"analysis": name, "CPU seconds": seconds[name], "at most": LIMITS.get(name), "epsilon": epsilons[name]}
        for name in taken
    ]
    return result, rows


def main() -> None:
    """Parse the options, measure, print."""
    parser = arguments("composing rounds of random participation, CPU seconds")
    parser.add_argument("--rounds", type=int, default=1000, metavar="T", help="rounds to compose")
    parser.add_argument("--local-samples", type=int, default=30, metavar="D", help="samples of each client")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="times that everything is measured")
    options = parser.parse_args()
    if min(options.rounds, options.repeat) < 1 or options.local_samples < 0:
        parser.error("--rounds and --repeat must be at least 1, --local-samples 0 or more")
    result, rows = measure(options.rounds, options.local_samples, options.repeat)
    emit(result, rows, options.format == "json")


if __name__ == "__main__":
    main()
