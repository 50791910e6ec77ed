"""How long the metrics of 1,500 rounds take: six schemes of Multi-RoundSecAgg's section 6, N = 120, K = 12.

    python -m benchmarks.multi_round_metrics

Timed is processor time (of this thread; the machine may do other work), for simulating participation and for all
metrics of all rounds. Targets: T of all rounds of one scheme at most 60 s, six schemes at most 20 s in all. The floor
is one elimination of each final participation matrix, which any exact method needs.
"""

import time

import numpy as np

from analysis.multi_round import over_rounds
from analysis.multi_round.row_spaces import PRIMES, reduced
from analysis.multi_round.simulation import dropout_probabilities, simulate
from analysis.reproduction.multi_round_secagg.fig4 import SCHEMES
from analysis.reproduction.multi_round_secagg.published import POPULATION
from benchmarks.report import arguments, emit

ONE_SCHEME_TARGET_S, ALL_SCHEMES_TARGET_S = 60.0, 20.0


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for one scheme's searches")
    options = parser.parse_args()
    unavailable = dropout_probabilities(POPULATION, options.seed)
    rows: list[dict[str, object]] = []
    total = floor = simulating = slowest = 0.0
    for name, parameters in SCHEMES.items():
        began = time.thread_time()
        matrix = simulate(parameters, unavailable, options.rounds, options.seed)
        simulated = time.thread_time()
        metrics = over_rounds(matrix, options.time_limit)
        ended = time.thread_time()
        reduced(matrix.astype(np.int64), PRIMES[0])
        floor += time.thread_time() - ended
        gaps = (metrics.weak - metrics.lower_bound)[~metrics.certified]
        rows.append(
            {"scheme": name, "simulation_s": simulated - began, "metrics_s": ended - simulated,
             "certified_rounds": int(metrics.certified.sum()), "open_rounds": len(gaps),
             "widest_gap": int(gaps.max(initial=0)), "mean_gap": float(gaps.mean()) if len(gaps) else 0.0,
             "last_T": int(metrics.weak[-1])}
        )  # fmt: skip
        total, simulating = total + ended - began, simulating + simulated - began
        slowest = max(slowest, ended - simulated)
    emit(
        {"seconds": total, "floor_seconds": floor, "ratio": total / floor, "simulation_s": simulating,
         "slowest_scheme_s": slowest, "one_scheme_target_s": ONE_SCHEME_TARGET_S,
         "all_schemes_target_s": ALL_SCHEMES_TARGET_S, "rounds": options.rounds, "users": POPULATION},
        rows,
        options.format == "json",
    )  # fmt: skip


if __name__ == "__main__":
    main()
