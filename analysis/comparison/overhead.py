"""The overhead table, in the layout of Lotto's Table 2: costs of a protocol for the server and a client per round.

One row per protocol, with time and traffic of the server and of the average participant, each as mean, 95% half-width
and ratio to the baseline; then the results: completed rounds, accuracy, and F, C and T of Multi-RoundSecAgg.
`analysis.comparison.report` prints the table.

If protocols met the same dropouts, the comparison can be made round by round against the baseline (`compare_paired`).
Rounds of two runs are matched by number, and only rounds that both runs completed count. A ratio of means over such
pairs is more precise than over all rounds: causes that slowed a round of both runs, e.g. a distant straggler or a
dropout that the server has to wait for, cancel out. Both runs need the same dropouts, as recorded by `testbed trace
record` and replayed by `selection.recorded`; the table reports the number of pairs for which this holds.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.cells import CLIENT_ACCURACY
from analysis.comparison.measures import per_round
from analysis.comparison.rows import ComparisonRow, baseline_names, baselines_of, rows_of
from analysis.comparison.summary import PRIVACY_TIME_LIMIT_S, summarise
from analysis.statistics import Interval, mean_interval, ratio_interval
from testbed.records import RunRecords
from testbed.records.reader import format_end_reasons, recorded_schedule
from testbed.records.vocabulary import FATES

# Column of the table: key of `analysis.comparison.summary`.
COSTS = {
    "round_s": "mean_round_s",
    "client_s": "mean_client_s",
    "server_bytes": "server_bytes_per_round",
    "client_bytes": "client_bytes_per_round",
    "round_s_per_update": "round_s_per_update",
    "server_bytes_per_update": "server_bytes_per_update",
}
_COSTS = COSTS | {"transport_bytes": "transport_bytes_per_round"}
_OUTCOMES = ("rounds_completed", "rounds_skipped", "rounds_aborted")
_RESULTS = ("final_accuracy", "final_perplexity", "final_attack_success", *CLIENT_ACCURACY)
_MEANS = ("participants_mean", "fairness_gap", "aggregation_cardinality")
_PRIVACY = "multi_round_privacy_weak"
_CAVEATS = "privacy_caveats"
_COUNTS = ("population", "seeds", *_OUTCOMES, "rounds_planned", "stopped", "crashes", "behind_rounds")
_TYPES = {
    **dict.fromkeys(_COUNTS, "int64"),
    **dict.fromkeys(("behind_factor", *_MEANS), "float64"),
    **{f"{result}{end}": "float64" for result in _RESULTS for end in ("", "_half_width")},
    **{f"{cost}{end}": "float64" for cost in _COSTS for end in ("", "_half_width", "_ratio")},
    _PRIVACY: "Int64",
    f"{_PRIVACY}_certified": "boolean",
    f"{_PRIVACY}_lower_bound": "Int64",
}


def compare(
    runs: Sequence[RunRecords],
    baseline: str | None = None,
    *,
    group_by: Sequence[str] = (),
    privacy_time_limit_s: float = PRIVACY_TIME_LIMIT_S,
    summaries: Mapping[Path, Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """Return the overhead table: one row per protocol and setting, in the order of the runs.

    Columns:

    - setting, label, protocol, aggregation, population, seeds (number of runs), baseline (its label, with its setting
      if the label alone is ambiguous), is_baseline;
    - round_s, client_s (s), server_bytes, client_bytes (means over *completed* rounds), round_s_per_update,
      server_bytes_per_update (including failed rounds) and transport_bytes (headers and acknowledgements on top of
      server_bytes, mean over completed rounds; 0 if the experiment models none), each with ``_half_width`` of its 95%
      interval and ``_ratio`` to the baseline;
    - rounds_completed, rounds_skipped, rounds_aborted, rounds_planned (more than recorded if a run is unfinished),
      stopped (number of runs that ended before their last round), stopped_at (why: the privacy budget, a target),
      crashes (of clients' code, see `analysis.comparison.summary`), behind_rounds (live: the machine could not keep
      up), behind_factor (of the worst run), reasons (why rounds did not complete, as text), unexpected_refusals (of
      clients in a run without an adversary; as text), diverged (clients with an update that was not finite; as text);
    - participants_mean, final_accuracy, final_perplexity (of language models), final_attack_success (if clients poison
      samples for a target), final_client_accuracy_mean, final_client_accuracy_worst_decile and
      final_client_accuracy_std (if the accuracy of single clients is measured), each with ``_half_width`` (over the
      seeds; missing for one run), fairness_gap, aggregation_cardinality and multi_round_privacy_weak with
      ``_certified`` and ``_lower_bound``;
    - privacy_caveats (limits of the epsilon of runs with noise).

    Unknown values are missing.

    Repetitions with other seeds are one row. Its values are means over the seeds, and its intervals are over the seeds
    too, because rounds of one seed share devices and links and do not show how much these matter. Rounds are added up,
    F and C are means, and T is the smallest value of any seed.

    Args:
        runs: e.g. from `testbed.records.find_runs`.
        baseline: as for `analysis.comparison.rows.baselines_of`.
        group_by: keys that define the settings, as for `analysis.comparison.rows.rows_of`.
        privacy_time_limit_s: seconds for each run's T, as for `analysis.comparison.summary.summarise`.
        summaries: by directory, summaries that already exist.

    Raises:
        ExperimentError: as `rows_of` and `baselines_of`.
    """
    rows = rows_of(runs, group_by)
    return compared(rows, baselines_of(rows, baseline), summaries_of(rows, privacy_time_limit_s, summaries))


Summaries = dict[int, list[Mapping[str, Any]]]
"""By the `id` of a row, the summary of each of its runs."""


def summaries_of(
    rows: Sequence[ComparisonRow],
    privacy_time_limit_s: float = PRIVACY_TIME_LIMIT_S,
    existing_summaries: Mapping[Path, Mapping[str, Any]] | None = None,
) -> Summaries:
    """Summarise all runs of some rows, except those with an existing summary.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        privacy_time_limit_s: seconds for each run's T.
        existing_summaries: by directory.
    """
    existing_summaries = existing_summaries or {}
    # Records cache the exchanges that they read: summarise copies, so that memory holds one run at a time.
    return {
        id(row): [
            existing_summaries.get(run.path) or summarise(copy(run), privacy_time_limit_s=privacy_time_limit_s)
            for run in row.runs
        ]
        for row in rows
    }


def compared(
    rows: Sequence[ComparisonRow], baselines: Sequence[ComparisonRow | None], summaries: Summaries
) -> pd.DataFrame:
    """Return the table of `compare`.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        baselines: of each row.
        summaries: of the rows' runs.
    """
    measured = {id(row): _measured(row, summaries[id(row)]) for row in rows}
    records = []
    for row, base, name in zip(rows, baselines, baseline_names(rows, baselines), strict=True):
        record = measured[id(row)]
        reference = measured[id(base)] if base is not None else {}
        record["baseline"] = name
        record["is_baseline"] = base is row
        for cost in _COSTS:
            mean, other = record[cost], reference.get(cost)
            record[f"{cost}_ratio"] = mean / other if mean is not None and other else None
        records.append(record)
    return pd.DataFrame(records).astype(_TYPES)


def _measured(row: ComparisonRow, summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a row that do not depend on its baseline."""

    def texts(key: str) -> list[str]:
        return [summary[key] for summary in summaries if summary.get(key)]

    costs: dict[str, float | None] = {}
    for cost, key in _COSTS.items():
        # Rounds of one seed share devices and links, so several seeds have an interval over the seeds alone.
        if len(summaries) == 1:
            interval = Interval(summaries[0][key], summaries[0][f"{key}_half_width"])
        else:
            interval = mean_interval(_values(summaries, key))
        costs |= {**interval.named(cost), f"{cost}_ratio": None}
    ends = (end for run in row.runs for end in zip(run.rounds["outcome"], run.rounds["reason"], strict=True))
    return {
        "setting": row.setting,
        "label": row.label,
        "protocol": row.protocol,
        "aggregation": summaries[0]["aggregation"],
        "population": summaries[0]["population"],
        "seeds": len(summaries),
        "baseline": None,
        "is_baseline": False,
        **costs,
        **{key: sum(summary[key] for summary in summaries) for key in _OUTCOMES},
        "rounds_planned": sum(int(run.experiment.get("rounds", len(run.rounds))) for run in row.runs),
        "stopped": len(texts("stopped")),
        "stopped_at": "; ".join(dict.fromkeys(why.partition(":")[0] for why in texts("stopped"))),
        "crashes": sum(summary["crashes"] for summary in summaries),
        "behind_rounds": sum(summary["behind_rounds"] for summary in summaries),
        "behind_factor": max(_values(summaries, "behind_factor"), default=None),
        "reasons": format_end_reasons(ends),
        "unexpected_refusals": "; ".join(texts("unexpected_refusals")),
        "diverged": "; ".join(dict.fromkeys(texts("diverged"))),
        "participants_mean": mean_interval(_values(summaries, "participants_mean")).mean,
        **{
            key: value
            for name in _RESULTS
            for key, value in mean_interval(_values(summaries, name)).named(name).items()
        },
        **{name: mean_interval(_values(summaries, name)).mean for name in ("fairness_gap", "aggregation_cardinality")},
        **_privacy(summaries),
        _CAVEATS: "; ".join(dict.fromkeys(texts(_CAVEATS))),
    }


def _values(summaries: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [summary[key] for summary in summaries if summary[key] is not None]


def _privacy(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return T over the seeds: the smallest group, the smallest bound, and whether they are equal."""
    groups = _values(summaries, _PRIVACY)
    bounds = _values(summaries, f"{_PRIVACY}_lower_bound")
    value, bound = min(groups, default=None), min(bounds, default=None)
    certified_flags = [summary[f"{_PRIVACY}_certified"] for summary in summaries if summary[_PRIVACY] is not None]
    certified = (all(certified_flags) or value == bound) if certified_flags else None
    return {_PRIVACY: value, f"{_PRIVACY}_certified": certified, f"{_PRIVACY}_lower_bound": bound}


# -- round by round ---------------------------------------------------------------------------------------------------


PAIRED = ("round_s", "client_s", "server_bytes", "client_bytes")
Fates = dict[int, set[tuple[int, str, str]]]


def compare_paired(
    runs: Sequence[RunRecords],
    baseline: str | None = None,
    *,
    group_by: Sequence[str] = (),
    privacy_time_limit_s: float = PRIVACY_TIME_LIMIT_S,
) -> pd.DataFrame:
    """Return the overhead table over pairs of rounds: the columns of `compare`, with costs over paired rounds.

    For each of round_s, client_s, server_bytes, client_bytes: the mean over the paired rounds, ``_half_width`` of its
    95% interval, ``_baseline`` (the baseline's mean over the same rounds), ``_ratio`` of the two means and
    ``_ratio_half_width`` of the 95% interval of that ratio (see `analysis.statistics.ratio_interval`). Then pairs
    (number of paired rounds), pairs_identical (pairs in which the same clients took part and the same of them were
    offline or dropped out), pairs_same_stages (the same, also in the same stages) and pairs_same_seed (pairs of runs
    with the same seed, thus the same data and initial model). Costs per update are left out, because failed rounds have
    no pair. The other columns are over all rounds, as in `compare`.

    Runs with the same seed are paired, even if their experiments differ otherwise. If both rows have a single run,
    these two are paired with any seeds. With several seeds the intervals are over the seeds' means. A baseline is
    paired with itself, in all its completed rounds.

    Args:
        runs, baseline, group_by, privacy_time_limit_s: as for `compare`.

    Raises:
        ExperimentError: as `compare`.
    """
    frame = compare(runs, baseline, group_by=group_by, privacy_time_limit_s=privacy_time_limit_s)
    frame = frame[[name for name in frame.columns if "_per_update" not in name]]
    rows = rows_of(runs, group_by)
    costs_over_pairs = {
        (row.setting, row.label): _paired(row, base)
        for row, base in zip(rows, baselines_of(rows, baseline), strict=True)
    }
    records = [costs_over_pairs[key] for key in zip(frame["setting"], frame["label"], strict=True)]
    numbers = pd.DataFrame(records, index=frame.index)
    numbers = numbers.astype({name: "int64" if str(name).startswith("pairs") else "float64" for name in numbers})
    first = list(frame.columns).index("is_baseline") + 1
    others = [name for name in frame.columns if name not in numbers.columns]
    return pd.concat([frame[others[:first]], numbers, frame[others[first:]]], axis=1)


def _paired(row: ComparisonRow, base: ComparisonRow | None) -> dict[str, Any]:
    """Return the row's columns over pairs, in their order."""
    together = [] if base is None else list(_runs_paired(row, base))
    rounds = [_rounds_paired(run, other) for run, other in together]
    record: dict[str, Any] = {}
    for cost in PAIRED:
        sides = [frame[[f"{cost}_x", f"{cost}_y"]].dropna().to_numpy(np.float64) for frame in rounds]
        sides = [side for side in sides if len(side)]
        # With several seeds, each pair of runs is one observation: its rounds are not independent.
        pairs = sides[0] if len(sides) == 1 else np.array([side.mean(axis=0) for side in sides]).reshape(-1, 2)
        record |= mean_interval(pairs[:, 0]).named(cost)
        record[f"{cost}_baseline"] = mean_interval(pairs[:, 1]).mean
        record |= ratio_interval(pairs[:, 0], pairs[:, 1]).named(f"{cost}_ratio")
    record |= {"pairs": sum(map(len, rounds)), "pairs_identical": 0, "pairs_same_stages": 0, "pairs_same_seed": 0}
    for (run, other), frame in zip(together, rounds, strict=True):
        mine, theirs = _fates(run), _fates(other)
        record["pairs_same_seed"] += len(frame) * (_seed_of(run) == _seed_of(other))
        for number in frame["round"]:
            mine_fates, their_fates = mine.get(number, set()), theirs.get(number, set())
            record["pairs_same_stages"] += mine_fates == their_fates
            record["pairs_identical"] += _without_stages(mine_fates) == _without_stages(their_fates)
    return record


def _runs_paired(row: ComparisonRow, base: ComparisonRow) -> Iterator[tuple[RunRecords, RunRecords]]:
    if row is base:
        yield from zip(row.runs, row.runs, strict=True)
    elif len(row.runs) == len(base.runs) == 1:
        yield row.runs[0], base.runs[0]
    else:
        of_seed = {run.experiment.get("seed"): run for run in base.runs}
        for run in row.runs:
            seed = run.experiment.get("seed")
            if seed is not None and seed in of_seed:  # without a seed nothing says that data are the same
                yield run, of_seed[seed]


def _seed_of(run: RunRecords) -> tuple[str, Any]:
    """Return the seed of the experiment or the random seed used in its place.

    A run without either is identified by its path, so that no other run has the same seed.
    """
    seed = run.experiment.get("seed")
    if seed is None:
        seed = run.value("provenance.simulation_seed")
    return ("seed", seed) if seed is not None else ("path", run.path)


def _rounds_paired(run: RunRecords, other: RunRecords) -> pd.DataFrame:
    """Return rounds that both completed: round, and each cost with ``_x`` (run) and ``_y`` (other)."""
    frames = []
    for side in (run, other):
        frame = per_round(side)
        frames.append(frame.loc[frame["outcome"] == "completed", ["round", *PAIRED]])
    return frames[0].merge(frames[1], on="round")


def _fates(run: RunRecords) -> Fates:
    """Return (client, stage, fate) of the participants by round, including those that survived."""
    participants: dict[int, set[int]] = defaultdict(set)
    fates: Fates = defaultdict(set)
    for number, client, stage, fate in recorded_schedule(run).rows():
        if fate == FATES[0]:
            participants[number].add(client)
        if client in participants[number]:  # a client's participation precedes its fate
            fates[number].add((client, stage, fate))
    return fates


def _without_stages(fates: set[tuple[int, str, str]]) -> set[tuple[int, str]]:
    return {(client, fate) for client, _, fate in fates}
