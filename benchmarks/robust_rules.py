"""How long each robust rule takes to combine the updates of a round.

    python -m benchmarks.robust_rules --clients 100 --dimension 1000000

The floor is what no implementation is spared, in the same process: of the rules by coordinate, `np.partition` of values
that lie side by side already; of Krum and Multi-Krum, one product of matrices in float64 for the distances, of values
that are float64 already; of the others their conversion to float64, one norm of each update and one weighted sum.
Both in CPU seconds of one thread, the median of three calls.
"""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import arguments, emit
from testbed.aggregation.robust_rules import RULES, RobustSection, robust_rule
from workloads.determinism import one_thread

_AT_ONCE = 1 << 14  # coordinates


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of one call, the median."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return sorted(found)[times // 2]


def floors(clients: int, dimension: int) -> dict[str, float]:
    """CPU seconds of each rule's floor: of some coordinates, times their number."""
    values = np.random.default_rng(0).normal(size=(_AT_ONCE, clients))
    columns, rows, weights = values.astype(np.float32), np.ascontiguousarray(values.T), np.full(clients, 1 / clients)
    single = rows.astype(np.float32)

    def norms_and_sum() -> None:
        doubled = single.astype(np.float64)
        np.einsum("ij,ij->i", doubled, doubled)
        weights @ doubled

    times = dimension / _AT_ONCE
    partition_s = times * seconds(lambda: np.partition(columns, clients // 2, axis=1))
    product_s = times * seconds(lambda: rows @ rows.T)
    sum_s = times * seconds(norms_and_sum)
    by_rule = {"median": partition_s, "trimmed-mean": partition_s, "krum": product_s, "multi-krum": product_s}
    return {rule: by_rule.get(rule, sum_s) for rule in RULES}


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--dimension", type=int, default=1_000_000)
    parser.add_argument("--rule", choices=tuple(RULES), default="median", help="the one of which the result is")
    options = parser.parse_args()
    one_thread()
    generator = np.random.default_rng(1)
    updates = [generator.normal(size=options.dimension).astype(np.float32) for _ in range(options.clients)]
    floor, rows = floors(options.clients, options.dimension), []
    for rule, kind in RULES.items():
        keys = {"max_dishonest": options.clients // 4, "bound": 1.0}
        made = robust_rule(RobustSection(rule=rule, **{key: keys[key] for key in kind.required}))
        spent = seconds(lambda made=made: made.combine(updates))  # type: ignore[misc]
        rows.append({"rule": rule, "seconds": spent, "floor_seconds": floor[rule], "ratio": spent / floor[rule]})
    of_all = {"clients": options.clients, "dimension": options.dimension, "rule": options.rule}
    timed = next(row for row in rows if row["rule"] == options.rule)
    emit(of_all | timed, rows, options.format == "json")


if __name__ == "__main__":
    main()
