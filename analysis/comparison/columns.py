"""Columns of the comparison by name; `testbed compare --columns` selects and orders them."""

from collections.abc import Sequence

import pandas as pd

from analysis.comparison import cells, target_table
from analysis.comparison.cells import Column
from testbed.errors import ExperimentError
from testbed.records.targets import Target
from testbed.spelling import did_you_mean

COLUMNS = {
    "aggregation": "the aggregation protocol",
    "population": "number of clients in the federation",
    "seeds": "number of runs pooled in the row, one per seed",
    "rounds": "numbers of rounds completed, skipped and aborted",
    "round_s": "time of a completed round",
    "client_s": "time of a participant in a completed round",
    "server_bytes": "the server's traffic in a completed round",
    "client_bytes": "a participant's traffic in a completed round",
    "round_s_per_update": "time of all rounds, failed ones included, per completed round",
    "server_bytes_per_update": "the server's traffic of all rounds per completed round",
    "transport_bytes": "headers, acknowledgements and handshakes of a completed round",
    "participants_mean": "number of participants, mean over rounds",
    "final_accuracy": "accuracy of the last evaluation",
    "final_perplexity": "perplexity of the last evaluation",
    "final_attack_success": "share of poisoned samples classified as the attacker's target",
    "final_client_accuracy_mean": "mean over clients of the accuracy on a client's own samples",
    "final_client_accuracy_worst_decile": "client accuracy, mean over the 10 % of clients with the lowest accuracy",
    "final_client_accuracy_std": "client accuracy, standard deviation over clients",
    "fairness_gap": "F of Multi-RoundSecAgg: largest minus smallest share of rounds that a client took part in",
    "aggregation_cardinality": "C of Multi-RoundSecAgg: updates in the sum, mean over all rounds",
    "multi_round_privacy_weak": "T of Multi-RoundSecAgg: fewest clients with a sum that the server can compute",
    "reached": "number of runs that reached the target",
    "time_to_target_s": "time to the target",
    "rounds_to_target": "rounds to the target",
    "server_bytes_to_target": "the server's traffic to the target",
    "client_bytes_to_target": "all clients' traffic to the target",
}
"""The content of each column by its name; CSV and JSON use the same names."""

TARGET_COLUMNS = ("reached", *target_table.HEADS)
_COUNTED = {"aggregation": "Aggregation", "population": "Clients", "seeds": "Seeds"}
_FORMS = {
    "participants_mean": ("Participants", "{:.1f}"),
    "fairness_gap": ("Fairness gap F", "{:.3f}"),
    "aggregation_cardinality": ("Cardinality C", "{:.2f}"),
}


def parse_column_names(names: str) -> list[str]:
    """Return the column names in ``a,b,c``.

    Raises:
        ExperimentError: there is no name, a name is unknown, or a name occurs twice.

    Example:
        >>> parse_column_names("round_s, final_accuracy")
        ['round_s', 'final_accuracy']
    """
    names_given = [name.strip() for name in names.split(",") if name.strip()]
    if not names_given:
        raise ExperimentError(f"--columns {names}: contains no column name; choose among {', '.join(COLUMNS)}")
    for name in names_given:
        if name not in COLUMNS:
            hint = did_you_mean(name, COLUMNS, quoted=False)
            raise ExperimentError(f"--columns {name}: no such column; {hint}choose among {', '.join(COLUMNS)}")
        if names_given.count(name) > 1:
            raise ExperimentError(
                f"--columns {names}: {name} occurs {names_given.count(name)} times; give each column once"
            )
    return names_given


def listing() -> str:
    """Return one line per column: its name and content."""
    width = max(map(len, COLUMNS))
    return "".join(f"{name:{width}}  {meaning}\n" for name, meaning in COLUMNS.items())


def of_interest(frame: pd.DataFrame, targets: pd.DataFrame | None, *, narrow: bool = False) -> list[str]:
    """Return the names of the columns for a table in a paper: costs, and results that vary.

    Args:
        frame: from `analysis.comparison.overhead.compare`.
        targets: the target table or None; a narrow table then has a column with the time to each target.
        narrow: whether the table is one column of a page wide, so that only the most important columns fit.
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
    """Return the selected columns; each column of targets occurs once per target.

    Args:
        frame: the overhead table.
        targets: the target table; None: no target was measured.
        names: keys of `COLUMNS`.

    Raises:
        ExperimentError: a column of targets is selected and no target was measured, or the table lacks a column.
    """
    columns: list[Column] = []
    for name in names:
        if name in TARGET_COLUMNS:
            if targets is None:
                raise ExperimentError(f"--columns {name}: no target was measured in these runs; add one with --target")
            columns += _of_targets(frame, targets, name)
        elif name in cells.ALL_COSTS:
            if name not in frame:
                raise ExperimentError(
                    f"--columns {name}: not available with --paired, which compares completed rounds only"
                )
            columns += cells.costs(frame, [name])
        else:
            columns.append(_plain(frame, name))
    return columns


def _plain(frame: pd.DataFrame, name: str) -> Column:
    """Return a column without ratios."""
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
    """Return the counts without skipped and aborted rounds if both are zero."""
    return [count.replace("/0/0", "") for count in counts]


def _of_targets(frame: pd.DataFrame, targets: pd.DataFrame, name: str) -> list[Column]:
    columns = []
    for _, part in targets.groupby(["target", "is_default"], sort=False):
        at = {(row["setting"], row["label"]): place for place, row in enumerate(part.to_dict("records"))}
        order = [at[key] for key in zip(frame["setting"], frame["label"], strict=True)]
        part = part.iloc[order]
        label = Target(part["metric"].iloc[0], part["threshold"].iloc[0]).label
        if name == "reached":
            columns.append(Column.of(f"Reached {label}", target_table.reached_of(part), name))
            continue
        unit = target_table.unit_of(part, name)
        heading = f"{target_table.HEADS[name]} to {label}" + (f" [{unit.symbol}]" if unit.symbol else "")
        columns.append(Column(heading, target_table.cells_of(part, name, unit, ratio_intervals=False), name))
    return columns


def for_programs(frame: pd.DataFrame, targets: pd.DataFrame | None, names: Sequence[str]) -> pd.DataFrame:
    """Return the selected columns in base units, with half-widths and ratios, after the columns setting and label.

    Names of target columns end in ``.TARGET`` if there are several targets.

    Args:
        frame: the overhead table.
        targets: the target table; None: no target was measured.
        names: keys of `COLUMNS`.

    Raises:
        ExperimentError: a column of targets is selected and no target was measured.
    """
    selected = frame[["setting", "label"]].copy()
    for name in names:
        if name not in TARGET_COLUMNS:
            prefixes = cells.ROUNDS if name == "rounds" else [name]
            for column in frame.columns:
                if any(
                    column == prefix or column.startswith((f"{prefix}_half", f"{prefix}_ratio")) for prefix in prefixes
                ):
                    selected[column] = frame[column]
        elif targets is None:
            raise ExperimentError(f"--columns {name}: no target was measured in these runs; add one with --target")
        else:
            selected = _with_targets(selected, target_table.for_programs(targets), name)
    return selected


def _with_targets(frame: pd.DataFrame, targets: pd.DataFrame, name: str) -> pd.DataFrame:
    several = targets["target"].nunique() > 1
    for target, part in targets.groupby("target", sort=False):
        end = f".{target}" if several else ""
        columns = [column for column in part.columns if column == name or column.startswith(f"{name}_")]
        # The default target may equal a named one.
        part = part.drop_duplicates(["setting", "label"]).set_index(["setting", "label"])[columns]
        part.columns = pd.Index([f"{column}{end}" for column in columns])
        frame = frame.join(part, on=["setting", "label"])
    return frame
