"""The columns of the comparison by name, as `testbed compare --columns` chooses and orders them."""

from collections.abc import Sequence

import pandas as pd

from analysis.comparison import cells, target_table
from analysis.comparison.cells import Column
from testbed.errors import ExperimentError
from testbed.records.targets import Target
from testbed.spelling import did_you_mean

COLUMNS = {
    "aggregation": "the aggregation protocol",
    "population": "clients of the federation",
    "seeds": "runs that are pooled",
    "rounds": "rounds completed, skipped and aborted",
    "round_s": "time of a completed round",
    "client_s": "time of a participant in a completed round",
    "server_bytes": "the server's traffic in a completed round",
    "client_bytes": "a participant's traffic in a completed round",
    "round_s_per_update": "time of all rounds, failed ones included, per completed round",
    "server_bytes_per_update": "the server's traffic of all rounds per completed round",
    "transport_bytes": "headers, acknowledgements and handshakes of a completed round",
    "participants_mean": "participants of a round",
    "final_accuracy": "the accuracy that was measured last",
    "final_perplexity": "the perplexity that was measured last",
    "final_attack_success": "the share of poisoned samples that end at the attacker's target",
    "final_client_accuracy_mean": "mean over clients of the accuracy on a client's own samples",
    "final_client_accuracy_worst_decile": "the same, mean over the 10 % of the clients with the lowest accuracy",
    "final_client_accuracy_std": "the same, standard deviation over clients",
    "fairness_gap": "F of Multi-RoundSecAgg: largest minus smallest share of rounds that a client took part in",
    "aggregation_cardinality": "C of Multi-RoundSecAgg: updates in the sum, mean over all rounds",
    "multi_round_privacy_weak": "T of Multi-RoundSecAgg: fewest users whose sum the server can compute",
    "reached": "runs that reached the target",
    "time_to_target_s": "time to the target",
    "rounds_to_target": "rounds to the target",
    "server_bytes_to_target": "the server's traffic to the target",
    "client_bytes_to_target": "all clients' traffic to the target",
}
"""What each column holds, by its name; CSV and JSON have the same names."""

TARGET_COLUMNS = ("reached", *target_table.HEADS)
_COUNTED = {"aggregation": "Aggregation", "population": "Clients", "seeds": "Seeds"}
_FORMS = {
    "participants_mean": ("Participants", "{:.1f}"),
    "fairness_gap": ("Fairness gap F", "{:.3f}"),
    "aggregation_cardinality": ("Cardinality C", "{:.2f}"),
}


def chosen(names: str) -> list[str]:
    """The names in ``a,b,c``; raises `ExperimentError` for none, for one that is no column, and for one given twice."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    if not found:
        raise ExperimentError(f"--columns {names}: names no column; there are {', '.join(COLUMNS)}")
    for name in found:
        if name not in COLUMNS:
            hint = did_you_mean(name, COLUMNS, quoted=False)
            raise ExperimentError(f"--columns {name}: no such column; {hint}there are {', '.join(COLUMNS)}")
        if found.count(name) > 1:
            raise ExperimentError(f"--columns {names}: {name} is named {found.count(name)} times; name it once")
    return found


def listing() -> str:
    """The names and what they mean, a line each."""
    width = max(map(len, COLUMNS))
    return "".join(f"{name:{width}}  {meaning}\n" for name, meaning in COLUMNS.items())


def of_interest(frame: pd.DataFrame, targets: pd.DataFrame | None, *, narrow: bool = False) -> list[str]:
    """The columns of a table in a paper: costs, and results that vary; of a narrow one the most important of them.

    Args:
        frame: from `analysis.comparison.overhead.compare`.
        targets: of one target or several; the time to each is a column of a narrow table.
        narrow: one column of a page wide.
    """
    costs = ["round_s", "server_bytes"] if narrow else [*cells.COSTS, *cells.result_costs(frame)]
    results = ["final_accuracy", "final_perplexity", "final_attack_success"]
    results = [name for name in results if frame[name].notna().any()]
    failed = cells.has_failures(frame) or cells.unfinished(frame).any()
    metrics = ["fairness_gap", "aggregation_cardinality", "multi_round_privacy_weak"]
    metrics = [name for name in metrics if len(frame) == 1 or len(set(_plain(frame, name).rows)) > 1]
    time = ["time_to_target_s"] if narrow and targets is not None else []
    return [*costs, *(["rounds"] if failed else []), *results, *([] if narrow else metrics), *time]


def shown(frame: pd.DataFrame, targets: pd.DataFrame | None, names: Sequence[str]) -> list[Column]:
    """The columns `names`, those of targets once for each target.

    Raises:
        ExperimentError: a column of targets, and no target was measured.
    """
    found: list[Column] = []
    for name in names:
        if name in TARGET_COLUMNS:
            if targets is None:
                raise ExperimentError(f"--columns {name}: no target was measured in these runs; give --target")
            found += _of_targets(frame, targets, name)
        elif name in cells.ALL_COSTS:
            if name not in frame:
                raise ExperimentError(f"--columns {name}: not measured round by round (--paired)")
            found += cells.costs(frame, [name])
        else:
            found.append(_plain(frame, name))
    return found


def _plain(frame: pd.DataFrame, name: str) -> Column:
    """A column without a ratio."""
    if name in cells.QUALITY:
        return Column(cells.QUALITY[name], cells.quality_rows(frame, name), name)
    if name in _FORMS:
        heading, form = _FORMS[name]
        return Column.of(heading, cells.formatted(frame[name], form), name)
    if name == "rounds":
        counts = cells.round_counts(frame)
        return Column.of("Rounds", counts if cells.has_failures(frame) else _completed(counts), name)
    if name == "multi_round_privacy_weak":
        return Column.of("Privacy T", cells.privacy(frame), name)
    values = [cells.MISSING if pd.isna(value) else str(value) for value in frame[name]]
    return Column.of(_COUNTED[name], values, name, is_text=name == "aggregation")


def _completed(counts: Sequence[str]) -> list[str]:
    """Counts without the skipped and aborted rounds that there are none of."""
    return [count.replace("/0/0", "") for count in counts]


def _of_targets(frame: pd.DataFrame, targets: pd.DataFrame, name: str) -> list[Column]:
    found = []
    for _, part in targets.groupby(["target", "is_default"], sort=False):
        at = {(row["setting"], row["label"]): place for place, row in enumerate(part.to_dict("records"))}
        order = [at[key] for key in zip(frame["setting"], frame["label"], strict=True)]
        part = part.iloc[order]
        label = Target(part["metric"].iloc[0], part["threshold"].iloc[0]).label
        if name == "reached":
            found.append(Column.of(f"Reached {label}", target_table.reached_of(part), name))
            continue
        unit = target_table.unit_of(part, name)
        heading = f"{target_table.HEADS[name]} to {label}" + (f" [{unit.symbol}]" if unit.symbol else "")
        found.append(Column(heading, target_table.cells_of(part, name, unit, ratio_intervals=False), name))
    return found


def for_programs(frame: pd.DataFrame, targets: pd.DataFrame | None, names: Sequence[str]) -> pd.DataFrame:
    """The columns `names` of the frame in base units, each with its half-width and ratio, behind setting and label.

    Columns of targets end in ``.TARGET`` where there are several targets.
    """
    found = frame[["setting", "label"]].copy()
    for name in names:
        if name not in TARGET_COLUMNS:
            wanted = cells.ROUNDS if name == "rounds" else [name]
            for column in frame.columns:
                if any(column == one or column.startswith((f"{one}_half", f"{one}_ratio")) for one in wanted):
                    found[column] = frame[column]
        elif targets is None:
            raise ExperimentError(f"--columns {name}: no target was measured in these runs; give --target")
        else:
            found = _with_targets(found, target_table.for_programs(targets), name)
    return found


def _with_targets(frame: pd.DataFrame, targets: pd.DataFrame, name: str) -> pd.DataFrame:
    several = targets["target"].nunique() > 1
    for target, part in targets.groupby("target", sort=False):
        end = f".{target}" if several else ""
        columns = [column for column in part.columns if column == name or column.startswith(f"{name}_")]
        part = part.drop_duplicates(["setting", "label"]).set_index(["setting", "label"])[columns]
        part.columns = pd.Index([f"{column}{end}" for column in columns])
        frame = frame.join(part, on=["setting", "label"])
    return frame
