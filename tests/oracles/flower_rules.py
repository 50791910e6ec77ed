"""Flower's robust rules, in an environment with flwr: cases as JSON on standard input, results on standard output."""

import json
import sys

import numpy as np
from flwr.server.strategy.aggregate import aggregate_krum, aggregate_median, aggregate_trimmed_avg


def main() -> None:
    """Apply all rules to each case."""
    results = []
    for case in json.load(sys.stdin):
        rows, f = np.array(case["rows"]), case["f"]
        updates = [([row], 1) for row in rows]
        selected = len(rows) - f
        (krum,) = aggregate_krum(updates, f, 0)
        (several,) = aggregate_krum(updates, f, selected)
        (middle,) = aggregate_median(updates)
        # Half an update more: a share of f / s may be rounded down to f - 1 updates.
        (trimmed,) = aggregate_trimmed_avg(updates, (f + 0.5) / len(rows))
        found = {"krum": krum, "multi-krum": several, "median": middle, "trimmed-mean": trimmed}
        results.append({rule: np.asarray(mean).tolist() for rule, mean in found.items()})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
