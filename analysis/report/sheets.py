"""The page's tables: displayed cells, with the values to sort by.

Their content comes from records and is text, never markup: the page's script inserts it as text.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.comparison import losses, target_table
from analysis.comparison.targets import is_unfinished
from analysis.comparison.time_to_target import MEDIAN, RESTRICTED
from analysis.tables import protocol_name, seconds_unit
from testbed.records import RunRecords
from testbed.records.targets import Target

MISSING = "–"
NOT_FINISHED = "not finished"
_LONGEST_NAME, _LONGEST_EXAMPLE = 60, 300

Value = float | int | str | None
Cell = tuple[str, Value]
"""Displayed text, and the value to sort by; None sorts last."""


@dataclass(frozen=True)
class Sheet:
    """A table of the page.

    Attributes:
        caption: title of the table.
        heads: of its columns.
        rows: cells in the order of the heads.
        numeric: indices of columns of numbers, aligned to the right.
        notes: sentences that explain the numbers.
        more: indices of columns shown on demand only.
        legend: explanations of columns: a text, and the columns with which it is shown.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()
    notes: Sequence[str] = field(default=())
    more: Sequence[int] = field(default=())
    legend: Sequence[tuple[str, Sequence[int]]] = field(default=())


def words(value: Any) -> Cell:
    """Return a cell with a text."""
    text = MISSING if value is None or value == "" else str(value)
    return text, None if text == MISSING else text


def number(value: Any, form: str = "{:g}", suffix: str = "") -> Cell:
    """Return a cell with a number.

    Args:
        value: the number; None or NaN: missing.
        form: a format for the number.
        suffix: text after the number.
    """
    if value is None or pd.isna(value):
        return MISSING, None
    return form.format(value) + suffix, float(value) if isinstance(value, float) else int(value)


def state(run: RunRecords) -> str:
    """Return ``finished``, ``not finished``, or why the run was stopped before its last round."""
    if is_unfinished(run):
        return NOT_FINISHED
    few = len(run.rounds) < int(run.experiment.get("rounds", 0))
    return f"stopped: {run.why_stopped}" if few else "finished"


def runs(records: Sequence[RunRecords]) -> Sheet:
    """Return the table of runs, in their order."""
    rows = []
    for run in records:
        rounds, outcomes = run.rounds, run.rounds["outcome"].value_counts()
        accuracy = rounds["accuracy"].dropna()
        planned = int(run.experiment.get("rounds", len(rounds)))
        seconds = float(rounds["ended_s"].iloc[-1]) if len(rounds) else 0.0
        rows.append(
            [
                words(run.label),
                words(protocol_name(run.experiment.get("selection"))),
                words(protocol_name(run.experiment.get("aggregation"))),
                number(int(run.experiment["population"])),
                number(run.experiment.get("seed")),
                words(state(run)),
                (f"{len(rounds)} of {planned}", len(rounds)),
                *(number(int(outcomes.get(name, 0))) for name in ("completed", "skipped", "aborted")),
                number(100 * float(accuracy.iloc[-1]) if len(accuracy) else None, "{:.1f}", " %"),
                (seconds_unit([seconds]).text(seconds), seconds),
                words(run.path),
            ]
        )
    heads = ["Run", "Selection", "Aggregation", "Clients", "Seed", "State", "Rounds"]
    heads += ["Completed", "Skipped", "Aborted", "Accuracy", "Time", "Directory"]
    more = on_demand(heads, rows, {"Run", "State", "Rounds", "Accuracy", "Time"}, {"Directory"})
    return Sheet("Runs", heads, rows, (3, 4, 6, 7, 8, 9, 10, 11), (), more)


def on_demand(
    heads: Sequence[str], rows: Sequence[Sequence[Cell]], usual: Collection[str], rare: Collection[str] = ()
) -> tuple[int, ...]:
    """Return the columns of a table that are shown on demand: those with equal cells in all rows, and rare ones.

    Args:
        heads, rows: of the table.
        usual: heads of columns that are always shown.
        rare: heads of columns that are shown on demand although they vary.
    """
    columns = []
    for place, head in enumerate(heads):
        varies = len(rows) == 1 or len({row[place] for row in rows}) > 1
        if head in rare or not (varies or head in usual):
            columns.append(place)
    return tuple(columns)


def targets(frame: pd.DataFrame) -> Sheet:
    """Return the table of `analysis.comparison.time_to_target.compare_targets`; bounds sort after equal numbers."""
    several, settings = frame["target"].nunique() > 1, frame["setting"].ne("").any()
    numbers = target_table.for_programs(frame)
    columns: dict[str, list[Cell]] = {}
    if several:
        columns["Target"] = [words(Target.parse(target).label) for target in frame["target"]]
    if settings:
        columns["Setting"] = [words(name) for name in frame["setting"]]
    columns["Protocol"] = [words(label) for label in frame["label"]]
    texts = len(columns)
    columns["Reached"] = list(zip(target_table.reached_of(frame), frame["reached"].tolist(), strict=True))
    for measure, head in target_table.HEADS.items():
        unit = target_table.unit_of(frame, measure)
        cells = target_table.cells_of(frame, measure, unit, ratio_intervals=True)
        means, ratios = numbers[measure].tolist(), frame[f"{measure}_ratio"].tolist()
        texts_of = [mean + (f" ± {half}" if half else "") for mean, half, _ in cells]
        columns[f"{head} [{unit.symbol}]" if unit.symbol else head] = [
            (text, None if pd.isna(mean) else mean) for text, mean in zip(texts_of, means, strict=True)
        ]
        columns[f"{head} ×"] = [
            (ratio.removesuffix("×").replace("±", " ± ") or MISSING, None if pd.isna(value) else value)
            for (_, _, ratio), value in zip(cells, ratios, strict=True)
        ]
    if (frame["estimator"] == RESTRICTED).any():
        columns["Median"] = [number(value, "{:.0f}") for value in frame[MEDIAN]]
    rows = list(zip(*columns.values(), strict=True))
    caption = "Time to accuracy" if several else target_table.title(frame.iloc[0])
    heads, numeric = list(columns), tuple(range(texts, len(columns)))
    shown = {"Target", "Setting", "Protocol", "Reached", "Time", "Rounds", "Server traffic", "Median"}
    shown |= {"Time ×"} if len(frame) > 1 else set()
    more = tuple(place for place, head in enumerate(heads) if _without_unit(head) not in shown)
    notes, legend = _of_columns(target_table.notes(frame), heads)
    return Sheet(caption, heads, rows, numeric, notes, more, legend)


def _without_unit(head: str) -> str:
    return head.partition(" [")[0]


def _of_columns(notes: Sequence[str], heads: Sequence[str]) -> tuple[list[str], list[tuple[str, Sequence[int]]]]:
    """Return general notes, and separately the notes that begin with a column's name or ×, with their columns."""
    rest: list[str] = []
    legend: list[tuple[str, Sequence[int]]] = []
    for note in notes:
        name = note.partition(":")[0]
        places = [place for place, head in enumerate(heads) if _without_unit(head).removesuffix(" ×") == name]
        if note.startswith("×"):
            places = [place for place, head in enumerate(heads) if head.endswith("×")]
        if places:
            legend.append((note, places))
        else:
            rest.append(note)
    return rest, legend


def dropouts(records: Sequence[RunRecords]) -> Sheet | None:
    """Return losses by stage, of the participants and of all clients asked; None if there were no losses."""
    frame = losses.dropouts(records)
    lost = [name for name in (*losses.LOST, losses.CRASHED) if (frame[f"asked_{name}"] > 0).any()]
    if not lost:
        return None
    several = frame["setting"].ne("").any()
    heads = [*(["Setting"] if several else []), "Protocol", "Stage"]
    texts = len(heads)
    names = [name for group in losses.GROUPS for name in (group, *(f"{group}_{each}" for each in lost))]
    heads += [
        name.replace("_", ", ").replace("participants", "Participants").replace("asked", "All clients asked")
        for name in names
    ]
    rows = [
        [*([words(row["setting"])] if several else []), words(row["label"]), words(row["stage"])]
        + [number(int(row[name])) for name in names]
        for row in frame.to_dict("records")
    ]
    notes = [
        "Numbers of clients, summed over the rounds with participants. A client that is offline counts once per round, "
        "even if the server asks it again."
    ]
    if (empty := frame.loc[frame["rounds"] == 0, "label"].drop_duplicates()).size:
        notes.append(f"No round of {', '.join(empty)} had participants, so all its rounds are counted.")
    return Sheet("Clients lost, by stage", heads, rows, tuple(range(texts, len(heads))), notes)


def events(records: Sequence[RunRecords]) -> Sheet | None:
    """Return refusals, attacks, crashes and restarts: a row per run, kind, stage and name; None if there are none."""
    rows = []
    for run in records:
        frame = run.events
        groups = frame.assign(name=frame["detail"].map(_check)).groupby(["kind", "stage", "name"], sort=False)
        for (kind, stage, what), part in groups:
            first, last = int(part["round"].min()), int(part["round"].max())
            over = f"{first}" if first == last else f"{first}–{last}"
            parties = ", ".join(list(dict.fromkeys(part["party"].astype(str)))[:5])
            more = "…" if part["party"].nunique() > 5 else ""
            example = str(part["detail"].iloc[0] or "")[:_LONGEST_EXAMPLE]
            cells = [words(run.label), words(kind), words(stage), words(what), number(len(part)), (over, first)]
            rows.append([*cells, words(parties + more), words(example)])
    if not rows:
        return None
    heads = ["Run", "Kind", "Stage", "Check or attack", "Events", "Rounds", "Party", "Example"]
    return Sheet("Refusals, attacks and faults", heads, rows, (4, 5))


def _check(detail: str | None) -> str:
    """Return the name of the failed check at the beginning of a detail; empty if the detail is a sentence."""
    name = (detail or "").partition(":")[0].strip()
    return name if len(name) <= _LONGEST_NAME else ""
