"""The overhead table, in the layout of Lotto's Table 2: what a protocol costs the server and a client per round.

One row per protocol, with time and traffic of the server and of the average participant, each as mean, 95% half-width
and ratio to the baseline; then what the rounds gave: how many were completed, accuracy, and F, C and T of
Multi-RoundSecAgg. `report` prints it.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.comparison.measures import mean_interval
from analysis.comparison.rows import Row, baselines_of, rows_of
from analysis.comparison.summary import PRIVACY_TIME_LIMIT_S, summarise
from testbed.records import RunRecords
from testbed.records.reader import summed_up

# Column of the table: key of `analysis.comparison.summary`.
COSTS = {
    "round_s": "mean_round_s",
    "client_s": "mean_client_s",
    "server_bytes": "server_bytes_per_round",
    "client_bytes": "client_bytes_per_round",
    "round_s_per_update": "round_s_per_update",
    "server_bytes_per_update": "server_bytes_per_update",
}
TRANSPORT = {"transport_bytes": "transport_bytes_per_round"}
_MEASURED = COSTS | TRANSPORT
_OUTCOMES = ("rounds_completed", "rounds_skipped", "rounds_aborted")
_COUNTS = (*_OUTCOMES, "rounds_planned", "stopped", "crashes", "behind_rounds")
_MEANS = ("participants_mean", "final_accuracy", "final_perplexity", "fairness_gap", "aggregation_cardinality")
_PRIVACY = "multi_round_privacy_weak"
_CAVEATS = "privacy_caveats"


def compare(
    runs: Sequence[RunRecords], baseline: str | None = None, *, privacy_time_limit_s: float = PRIVACY_TIME_LIMIT_S
) -> pd.DataFrame:
    """The overhead table: one row per protocol and setting, the baseline of a setting first.

    Columns: setting, label, protocol, aggregation, population, seeds (how many runs were pooled), baseline (label),
    is_baseline; for each of round_s, client_s (s), server_bytes, client_bytes (means over *completed* rounds),
    round_s_per_update, server_bytes_per_update (failed rounds included) and transport_bytes (headers and
    acknowledgements on top of server_bytes, mean over completed rounds; 0 where the experiment models none): itself,
    ``_half_width`` of its 95% interval, ``_ratio`` to the baseline; then the rounds by outcome,
    rounds_planned (of which an unfinished run has not had all), stopped (how many of the runs have ended before their
    last round, at their privacy budget), crashes (of clients' code, see `analysis.comparison.summary`), behind_rounds
    (live: the machine could not keep up), behind_factor (of the worst run), reasons (why rounds did not complete, in
    words), unexpected_refusals (of clients, though nobody was to be dishonest; in words), participants_mean,
    final_accuracy, final_perplexity (of language models), fairness_gap, aggregation_cardinality and
    multi_round_privacy_weak with ``_certified`` and ``_lower_bound``, privacy_caveats (what the epsilon of runs with
    noise does not cover). Unknown values are missing.

    Repetitions with other seeds are one row. Its values are means over the seeds, its intervals are taken over the
    seeds too (rounds of one seed share devices and links, so they do not tell how much these matter), rounds are
    added up, and T is the smallest that any seed has shown.

    Args:
        runs: e.g. from `testbed.records.find_runs`.
        baseline: see `analysis.comparison.rows.baselines_of`, which also says what it raises.
        privacy_time_limit_s: wall-clock seconds for each run's T, see `analysis.comparison.summary.summarise`.
    """
    rows = rows_of(runs)
    baselines = baselines_of(rows, baseline)
    found = {id(row): _measured(row, privacy_time_limit_s) for row in rows}
    records = []
    for row, base in zip(rows, baselines, strict=True):
        record = found[id(row)]
        reference = found[id(base)] if base is not None else {}
        record["baseline"] = None if base is None else base.label if base.setting == row.setting else base.full_label
        record["is_baseline"] = base is row
        for cost in _MEASURED:
            mean, other = record[cost], reference.get(cost)
            record[f"{cost}_ratio"] = mean / other if mean is not None and other else None
        records.append(record)
    position = {setting: place for place, setting in enumerate(dict.fromkeys(row.setting for row in rows))}
    records.sort(key=lambda record: (position[record["setting"]], not record["is_baseline"]))
    frame = pd.DataFrame.from_records(records, columns=_columns())
    whole = {"seeds": "int64", "population": "int64", **dict.fromkeys(_COUNTS, "int64")}
    missing = {_PRIVACY: "Int64", f"{_PRIVACY}_lower_bound": "Int64", f"{_PRIVACY}_certified": "boolean"}
    numbers = dict.fromkeys(filter(_is_number, _columns()), "float64")
    return frame.astype({**numbers, **whole, **missing})


def _columns() -> list[str]:
    costs = [name for cost in _MEASURED for name in (cost, f"{cost}_half_width", f"{cost}_ratio")]
    who = ["setting", "label", "protocol", "aggregation", "population", "seeds", "baseline", "is_baseline"]
    return [
        *who,
        *costs,
        *_COUNTS,
        "behind_factor",
        "reasons",
        "unexpected_refusals",
        *_MEANS,
        _PRIVACY,
        f"{_PRIVACY}_certified",
        f"{_PRIVACY}_lower_bound",
        _CAVEATS,
    ]


def _is_number(column: str) -> bool:
    return column in (*_MEANS, "behind_factor") or any(column.startswith(cost) for cost in _MEASURED)


def _measured(row: Row, privacy_time_limit_s: float) -> dict[str, Any]:
    """The row without what depends on the baseline."""
    summaries = [summarise(run, privacy_time_limit_s=privacy_time_limit_s) for run in row.runs]
    record: dict[str, Any] = {
        "setting": row.setting,
        "label": row.label,
        "protocol": row.protocol,
        "aggregation": summaries[0]["aggregation"],
        "population": summaries[0]["population"],
        "seeds": len(summaries),
    }
    for cost, key in _MEASURED.items():
        if len(summaries) == 1:
            record[cost], record[f"{cost}_half_width"] = summaries[0][key], summaries[0][f"{key}_half_width"]
        else:
            interval = mean_interval(_values(summaries, key))
            record[cost], record[f"{cost}_half_width"] = interval.mean, interval.half_width
    record.update({key: sum(summary[key] for summary in summaries) for key in _OUTCOMES})
    record["rounds_planned"] = sum(int(run.experiment.get("rounds", len(run.rounds))) for run in row.runs)
    record["crashes"] = sum(summary["crashes"] for summary in summaries)
    record["behind_rounds"] = sum(summary["behind_rounds"] for summary in summaries)
    record["behind_factor"] = max(_values(summaries, "behind_factor"), default=None)
    record["reasons"] = summed_up(
        end for run in row.runs for end in zip(run.rounds["outcome"], run.rounds["reason"], strict=True)
    )
    said = [summary.get(_CAVEATS) for summary in summaries]
    said_refused = [summary["unexpected_refusals"] for summary in summaries]
    record["unexpected_refusals"] = "; ".join(one for one in said_refused if one)
    record[_CAVEATS] = "; ".join(dict.fromkeys(one for one in said if one))
    record["stopped"] = sum(bool(summary.get("stopped")) for summary in summaries)
    record.update({key: mean_interval(_values(summaries, key)).mean for key in _MEANS})
    record.update(_privacy(summaries))
    return record


def _values(summaries: list[dict[str, Any]], key: str) -> list[float]:
    return [summary[key] for summary in summaries if summary[key] is not None]


def _privacy(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """T over the seeds: the smallest group found, the smallest bound, and whether they meet."""
    found = _values(summaries, _PRIVACY)
    bounds = _values(summaries, f"{_PRIVACY}_lower_bound")
    value, bound = min(found, default=None), min(bounds, default=None)
    known = [summary[f"{_PRIVACY}_certified"] for summary in summaries if summary[_PRIVACY] is not None]
    certified = (all(known) or value == bound) if known else None
    return {_PRIVACY: value, f"{_PRIVACY}_certified": certified, f"{_PRIVACY}_lower_bound": bound}
