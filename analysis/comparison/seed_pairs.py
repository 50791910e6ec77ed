"""The overhead table with differences from the baseline, paired by seed.

Runs of one seed share the random choices of the experiment: devices, links, data, online clients. Effects of these
choices on both protocols cancel out in the difference of two runs with the same seed, so that the interval over the
seeds is narrower than the intervals of the two means suggest. The test is the paired t-test
(`analysis.statistics.paired_difference`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison.cells import CLIENT_ACCURACY
from analysis.comparison.overhead import COSTS, Summaries, compared, summaries_of
from analysis.comparison.rows import ComparisonRow, baselines_of, rows_of
from analysis.comparison.summary import PRIVACY_TIME_LIMIT_S
from analysis.statistics import paired_difference
from testbed.errors import ExperimentError
from testbed.records import RunRecords

MEASURES = {
    **{name: COSTS[name] for name in ("round_s", "client_s", "server_bytes", "client_bytes")},
    "final_accuracy": "final_accuracy",
    "final_perplexity": "final_perplexity",
    "final_attack_success": "final_attack_success",
    **{name: name for name in CLIENT_ACCURACY},
}
"""Column of the table: key of `analysis.comparison.summary`."""

FEW_SEEDS = 5
TEST = "paired t"
_ENDS = ("", "_half_width", "_p")


def compare_seeds(
    runs: Sequence[RunRecords],
    baseline: str | None = None,
    *,
    group_by: Sequence[str] = (),
    privacy_time_limit_s: float = PRIVACY_TIME_LIMIT_S,
) -> pd.DataFrame:
    """Return `analysis.comparison.overhead.compare` extended by the differences of `MEASURES` from the baseline.

    Additional columns: seed_pairs (number of seeds that the row and its baseline share), test (its name, empty without
    pairs); for each measure ``_difference`` (row minus baseline, mean over the pairs in which both runs have it),
    ``_difference_half_width`` of its 95% interval and ``_difference_p`` of the paired t-test, two-sided. All are
    missing for the baseline itself, the last two also for fewer than two pairs.

    Args:
        runs, baseline, group_by, privacy_time_limit_s: as for `analysis.comparison.overhead.compare`.

    Raises:
        ExperimentError: as `compare`; or no row shares a seed with its baseline.
    """
    rows = rows_of(runs, group_by)
    baselines = baselines_of(rows, baseline)
    summaries = summaries_of(rows, privacy_time_limit_s)
    records = [_differences(row, base, summaries) for row, base in zip(rows, baselines, strict=True)]
    if not any(record["seed_pairs"] for record in records):
        raise ExperimentError(
            "--paired-seeds: no row shares a seed with its baseline; run both with the same seeds (`sweep: "
            "{seed: [1, 2, 3]}`)"
        )
    frame = compared(rows, baselines, summaries)
    types = {name: "float64" for name in records[0] if "_difference" in name}
    return pd.concat([frame, pd.DataFrame(records, index=frame.index).astype(types)], axis=1)


def _differences(row: ComparisonRow, base: ComparisonRow | None, summaries: Summaries) -> dict[str, Any]:
    """Return the values of a row in the columns that `compare_seeds` adds."""
    pairs = [] if base is None or base is row else _pairs(row, base, summaries)
    record: dict[str, Any] = {"seed_pairs": len(pairs), "test": TEST if pairs else ""}
    for name, key in MEASURES.items():
        paired_values = [(mine[key], theirs[key]) for mine, theirs in pairs if None not in (mine[key], theirs[key])]
        difference = paired_difference([mine for mine, _ in paired_values], [theirs for _, theirs in paired_values])
        values = (difference.mean, difference.half_width, difference.p)
        record |= {f"{name}_difference{end}": value for end, value in zip(_ENDS, values, strict=True)}
    return record


def _pairs(
    row: ComparisonRow, base: ComparisonRow, summaries: Summaries
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the summaries of both rows' runs with the same seed."""
    of_seed = {summary["seed"]: summary for summary in summaries[id(base)] if summary["seed"] is not None}
    return [(mine, of_seed[mine["seed"]]) for mine in summaries[id(row)] if mine["seed"] in of_seed]
