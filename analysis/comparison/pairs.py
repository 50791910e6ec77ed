"""The overhead table of protocols that met the same drop-outs: round by round against the baseline.

Rounds of two runs are matched by their number, and only those count that both runs completed. A ratio of means over
such pairs says more than one over all rounds: what made a round slow for both, a far-off straggler or a dropout that
the server has to wait for, cancels out. That needs the same drop-outs in both runs, as `testbed trace record` and
`selection.recorded` make them; the table says of how many pairs this holds.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from analysis.comparison.measures import Interval, mean_interval, per_round
from analysis.comparison.overhead import compare
from analysis.comparison.rows import Row, baselines_of, rows_of
from analysis.comparison.summary import PRIVACY_TIME_LIMIT_S
from testbed.emulation.traces.schedule import FATES
from testbed.records import RunRecords
from testbed.records.reader import recorded_schedule

PAIRED = ("round_s", "client_s", "server_bytes", "client_bytes")
COUNTS = ("pairs", "pairs_identical", "pairs_same_stages")
Fates = dict[int, set[tuple[int, str, str]]]


def compare_paired(
    runs: Sequence[RunRecords], baseline: str | None = None, *, privacy_time_limit_s: float = PRIVACY_TIME_LIMIT_S
) -> pd.DataFrame:
    """The overhead table over pairs of rounds: `analysis.comparison.overhead.compare` with other numbers in it.

    For each of round_s, client_s, server_bytes, client_bytes: the mean over the paired rounds, ``_half_width`` of its
    95% interval, ``_baseline`` (the baseline's mean over the same rounds), ``_ratio`` of the two means and
    ``_ratio_half_width`` of the 95% interval of that ratio (see `ratio_interval`). Then pairs (how many rounds were
    paired), pairs_identical (in how many of them the same clients took part, and the same of them were offline or
    dropped out) and pairs_same_stages (the same, in the same stages too). Costs per update are left out: rounds that
    failed have no pair. The other columns are over all rounds, as in `compare`.

    Runs of one seed are paired, whatever else is in their experiments; when both rows have a single run, these two
    are paired whatever their seeds. With several seeds the intervals are over the seeds' means. A baseline is paired
    with itself: all its completed rounds.

    Args:
        runs, baseline, privacy_time_limit_s: see `analysis.comparison.overhead.compare`, which also says what it
        raises.
    """
    frame = compare(runs, baseline, privacy_time_limit_s=privacy_time_limit_s)
    frame = frame[[name for name in frame.columns if "_per_update" not in name]]
    rows = rows_of(runs)
    found = {
        (row.setting, row.label): _paired(row, base)
        for row, base in zip(rows, baselines_of(rows, baseline), strict=True)
    }
    records = [found[key] for key in zip(frame["setting"], frame["label"], strict=True)]
    numbers = pd.DataFrame.from_records(records, columns=[*_columns(), *COUNTS], index=frame.index)
    first = list(frame.columns).index("is_baseline") + 1
    others = [name for name in frame.columns if name not in numbers.columns]
    numbers = numbers.astype(dict.fromkeys(_columns(), "float64") | dict.fromkeys(COUNTS, "int64"))
    return pd.concat([frame[others[:first]], numbers, frame[others[first:]]], axis=1)


def ratio_interval(values: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> Interval:
    """The ratio of two means over pairs, and the half-width of its 95% interval.

    That of the ratio estimator (Cochran, Sampling Techniques, section 2.11): Student t with n - 1 degrees of freedom
    on the residuals ``value - ratio * other``.

    Args:
        values, others: `(n,)`, aligned.
    """
    count, total = len(values), float(others.sum())
    if not count or total == 0:
        return Interval(None, None)
    ratio = float(values.sum()) / total
    if count < 2:
        return Interval(ratio, None)
    variance = float(np.sum((values - ratio * others) ** 2)) / (count - 1)
    standard_error = np.sqrt(variance / count) / (total / count)
    return Interval(ratio, float(stats.t.ppf(0.975, count - 1) * standard_error))


def _columns() -> list[str]:
    ends = ("", "_half_width", "_baseline", "_ratio", "_ratio_half_width")
    return [f"{cost}{end}" for cost in PAIRED for end in ends]


def _paired(row: Row, base: Row | None) -> dict[str, Any]:
    """What the row has of `_columns` and `COUNTS`."""
    together = [] if base is None else list(_runs_paired(row, base))
    rounds = [_rounds_paired(run, other) for run, other in together]
    recorded_schedule: dict[str, Any] = {"pairs": sum(map(len, rounds)), "pairs_identical": 0, "pairs_same_stages": 0}
    for (run, other), frame in zip(together, rounds, strict=True):
        mine, theirs = _fates(run), _fates(other)
        for number in frame["round"]:
            one, two = mine.get(number, set()), theirs.get(number, set())
            recorded_schedule["pairs_same_stages"] += one == two
            recorded_schedule["pairs_identical"] += _without_stages(one) == _without_stages(two)
    for cost in PAIRED:
        sides = [frame[[f"{cost}_x", f"{cost}_y"]].dropna().to_numpy(np.float64) for frame in rounds]
        sides = [side for side in sides if len(side)]
        pairs = sides[0] if len(sides) == 1 else np.array([side.mean(axis=0) for side in sides]).reshape(-1, 2)
        mean, ratio = mean_interval(pairs[:, 0]), ratio_interval(pairs[:, 0], pairs[:, 1])
        recorded_schedule |= {cost: mean.mean, f"{cost}_half_width": mean.half_width}
        recorded_schedule[f"{cost}_baseline"] = mean_interval(pairs[:, 1]).mean
        recorded_schedule |= {f"{cost}_ratio": ratio.mean, f"{cost}_ratio_half_width": ratio.half_width}
    return recorded_schedule


def _runs_paired(row: Row, base: Row) -> Iterator[tuple[RunRecords, RunRecords]]:
    if row is base:
        yield from zip(row.runs, row.runs, strict=True)
    elif len(row.runs) == len(base.runs) == 1:
        yield row.runs[0], base.runs[0]
    else:
        of_seed = {run.experiment.get("seed"): run for run in base.runs}
        for run in row.runs:
            seed = run.experiment.get("seed")
            if seed is not None and seed in of_seed:
                yield run, of_seed[seed]


def _rounds_paired(run: RunRecords, other: RunRecords) -> pd.DataFrame:
    """Rounds that both completed: round, and each cost with ``_x`` (run) and ``_y`` (other)."""
    frames = []
    for one in (run, other):
        frame = per_round(one)
        frames.append(frame.loc[frame["outcome"] == "completed", ["round", *PAIRED]])
    return frames[0].merge(frames[1], on="round")


def _fates(run: RunRecords) -> Fates:
    """By round: (client, stage, fate) of its participants, those to whom nothing happened included."""
    participants: dict[int, set[int]] = defaultdict(set)
    fates: Fates = defaultdict(set)
    for number, client, stage, fate in recorded_schedule(run).rows():
        if fate == FATES[0]:
            participants[number].add(client)
        if client in participants[number]:  # a client's participation comes before what became of it
            fates[number].add((client, stage, fate))
    return fates


def _without_stages(fates: set[tuple[int, str, str]]) -> set[tuple[int, str]]:
    return {(client, fate) for client, _, fate in fates}
