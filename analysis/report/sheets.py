"""The page's tables: cells as they are read, with the values by which they sort.

What is in them comes from records and is text, never markup: the page's script sets it as text.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.comparison import losses, target_table
from analysis.comparison.report import notes
from analysis.comparison.targets import is_unfinished
from analysis.tables import bytes_unit, protocol_name, seconds_unit
from testbed.records import RunRecords
from testbed.workload.target import Target

MISSING = "–"
NOT_FINISHED = "not finished"
COLUMNS = 24
"""Keys that differ, of a table, at most."""
_LONGEST_NAME, _LONGEST_EXAMPLE = 60, 300
_COSTS = {
    "round_s": "Round time",
    "client_s": "Client time",
    "server_bytes": "Server traffic",
    "client_bytes": "Client traffic",
}
_PER_UPDATE = {"round_s_per_update": "Time per update", "server_bytes_per_update": "Traffic per update"}
_ASIDE = ("provenance", "output", "cluster", "sweep", "name", "seed", "rounds")

Value = float | int | str | None
Cell = tuple[str, Value]
"""What is read, and by what it sorts; None sorts last."""


@dataclass(frozen=True)
class Sheet:
    """A table of the page.

    Attributes:
        caption: says what it is.
        heads: of its columns.
        rows: cells in the order of the heads.
        numeric: which columns are numbers, aligned to the right.
        notes: what a reader needs to know, a sentence or two each.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()
    notes: Sequence[str] = field(default=())


def words(value: Any) -> Cell:
    """A text."""
    text = MISSING if value is None or value == "" else str(value)
    return text, None if text == MISSING else text


def number(value: Any, form: str = "{:g}", suffix: str = "") -> Cell:
    """A number laid out by `form`, with something after it."""
    if value is None or pd.isna(value):
        return MISSING, None
    return form.format(value) + suffix, float(value) if isinstance(value, float) else int(value)


def state(run: RunRecords) -> str:
    """``finished``, ``not finished``, or why it was stopped before its last round."""
    if is_unfinished(run):
        return NOT_FINISHED
    few = len(run.rounds) < int(run.experiment.get("rounds", 0))
    return f"stopped: {run.why_stopped}" if few else "finished"


def runs(found: Sequence[RunRecords]) -> Sheet:
    """What was run: a row per run, in their order."""
    rows = []
    for run in found:
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
    return Sheet("What was run", heads, rows, (3, 4, 6, 7, 8, 9, 10, 11))


def flattened(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping by dotted keys; lists stay."""
    found: dict[str, Any] = {}
    for key, part in value.items():
        name = f"{prefix}{key}"
        found |= flattened(part, f"{name}.") if isinstance(part, Mapping) and part else {name: part}
    return found


def _found_for_the_run(run: RunRecords) -> dict[str, Any]:
    """Settings that the run has solved for: the noise multiplier for an epsilon."""
    multiplier = (run.experiment.get("provenance") or {}).get("noise_multiplier")
    return {} if multiplier is None else {"noise multiplier": multiplier}


def settings(found: Sequence[RunRecords]) -> tuple[Sheet, Sheet]:
    """How the runs' experiments differ, a row per run; and what they have in common, a row per key."""
    flat = [
        flattened({key: part for key, part in run.experiment.items() if key not in _ASIDE or key in ("seed", "rounds")})
        | _found_for_the_run(run)
        for run in found
    ]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    values = {key: [_told(one[key]) if key in one else None for one in flat] for key in keys}
    differing = [key for key in keys if len(set(values[key])) > 1]
    swept = {key for run in found for key in ((run.experiment.get("provenance") or {}).get("sweep") or {})}
    differing.sort(key=lambda key: not any(key == name or key.startswith(f"{name}.") for name in swept))
    shown = differing[:COLUMNS]
    rows = [
        [words(run.label), *(_sorted_by(one.get(key)) for key in shown)] for run, one in zip(found, flat, strict=True)
    ]
    left_out = f"{len(differing) - len(shown)} more keys differ." if len(differing) > len(shown) else ""
    differences = Sheet("How the runs differ", ["Run", *shown], rows, (), [left_out] if left_out else [])
    common = [[words(key), words(values[key][0])] for key in keys if key not in differing]
    return differences, Sheet("What all runs have in common", ["Key", "Value"], common)


def _told(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _sorted_by(value: Any) -> Cell:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (_told(value), value) if is_number else words(None if value is None else _told(value))


def overhead(frame: pd.DataFrame) -> Sheet:
    """The overhead table of `analysis.comparison.overhead.compare`: it sorts by these very numbers."""
    several = frame["setting"].ne("").any()
    columns: dict[str, list[Cell]] = {"Protocol": [words(label) for label in frame["label"]]}
    if several:
        columns = {"Setting": [words(name) for name in frame["setting"]], **columns}
    failed = bool((frame[["rounds_skipped", "rounds_aborted"]] > 0).any(axis=None))
    texts = len(columns)
    if (frame["seeds"] > 1).any():
        columns["Seeds"] = [number(int(seeds)) for seeds in frame["seeds"]]
    transport = {"transport_bytes": "Transport overhead"} if (frame["transport_bytes"] > 0).any() else {}
    for name, head in (_COSTS | (_PER_UPDATE if failed else {}) | transport).items():
        columns |= _cost(frame, name, head)
    for name in ("completed", "skipped", "aborted"):
        columns[name.capitalize()] = [number(int(count)) for count in frame[f"rounds_{name}"]]
    columns["Accuracy"] = [number(100 * value, "{:.1f}", " %") for value in frame["final_accuracy"]]
    if frame["final_perplexity"].notna().any():
        columns["Perplexity"] = [number(value, "{:.1f}") for value in frame["final_perplexity"]]
    columns["F"] = [number(value, "{:.3f}") for value in frame["fairness_gap"]]
    columns["C"] = [number(value, "{:.2f}") for value in frame["aggregation_cardinality"]]
    columns["T"] = _privacy(frame)
    rows = list(zip(*columns.values(), strict=True))
    return Sheet("What a round costs", list(columns), rows, tuple(range(texts, len(columns))), notes(frame))


def _cost(frame: pd.DataFrame, name: str, head: str) -> dict[str, list[Cell]]:
    """A cost in one unit, with its interval, and its ratio to the baseline."""
    unit = (bytes_unit if "bytes" in name else seconds_unit)(frame[name].dropna().tolist())
    cells: list[Cell] = []
    for mean, half in zip(frame[name], frame[f"{name}_half_width"], strict=True):
        text = MISSING if pd.isna(mean) else unit.number(mean) + ("" if pd.isna(half) else f" ± {unit.number(half)}")
        cells.append((text, None if pd.isna(mean) else float(mean)))
    return {f"{head} [{unit.symbol}]": cells, f"{head} ×": [number(one, "{:.3f}") for one in frame[f"{name}_ratio"]]}


def _privacy(frame: pd.DataFrame) -> list[Cell]:
    """T, or what is proved of it."""
    name = "multi_round_privacy_weak"
    cells = []
    for value, sure, bound in zip(frame[name], frame[f"{name}_certified"], frame[f"{name}_lower_bound"], strict=True):
        known = not pd.isna(value) and not pd.isna(sure) and bool(sure)
        cells.append(number(value) if known else ("≥ " + number(bound)[0], number(bound)[1]))
    return [cell if cell[1] is not None else words(None) for cell in cells]


def targets(frame: pd.DataFrame) -> Sheet:
    """The table of `analysis.comparison.time_to_target.compare_targets`; bounds sort behind these numbers."""
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
        told = target_table.cells_of(frame, measure, unit, ratio_intervals=True)
        means, ratios = numbers[measure].tolist(), frame[f"{measure}_ratio"].tolist()
        texts_of = [mean + (f" ± {half}" if half else "") for mean, half, _ in told]
        columns[f"{head} [{unit.symbol}]" if unit.symbol else head] = [
            (text, None if pd.isna(mean) else mean) for text, mean in zip(texts_of, means, strict=True)
        ]
        columns[f"{head} ×"] = [
            (ratio.removesuffix("×") or MISSING, None if pd.isna(value) else value)
            for (_, _, ratio), value in zip(told, ratios, strict=True)
        ]
    rows = list(zip(*columns.values(), strict=True))
    caption = "Time to accuracy" if several else target_table.title(frame.iloc[0])
    numeric = tuple(range(texts, len(columns)))
    return Sheet(caption, list(columns), rows, numeric, target_table.notes(frame))


def dropouts(found: Sequence[RunRecords]) -> Sheet | None:
    """Who was lost at which stage, of the participants and of all that were asked; None: nobody was."""
    frame = losses.dropouts(found)
    lost = [name for name in (*losses.LOST, losses.CRASHED) if (frame[f"asked_{name}"] > 0).any()]
    if not lost:
        return None
    several = frame["setting"].ne("").any()
    heads = [*(["Setting"] if several else []), "Protocol", "Stage"]
    texts = len(heads)
    names = [name for group in losses.GROUPS for name in (group, *(f"{group}_{each}" for each in lost))]
    heads += [
        name.replace("_", ", ").replace("participants", "Participants").replace("asked", "All asked") for name in names
    ]
    rows = [
        [*([words(row["setting"])] if several else []), words(row["label"]), words(row["stage"])]
        + [number(int(row[name])) for name in names]
        for row in frame.to_dict("records")
    ]
    notes = [
        "A client that has gone and is asked again in the same round counts once. Only rounds with participants count."
    ]
    if (empty := frame.loc[frame["rounds"] == 0, "label"].drop_duplicates()).size:
        notes.append(f"Nobody took part in any round of {', '.join(empty)}: all its rounds are counted.")
    return Sheet("Who was lost, and where", heads, rows, tuple(range(texts, len(heads))), notes)


def events(found: Sequence[RunRecords]) -> Sheet | None:
    """Refusals, attacks, crashes, restarts: a row per run, kind, stage and name of what happened; None: nothing."""
    rows = []
    for run in found:
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
    heads = ["Run", "Kind", "Stage", "What", "Times", "Rounds", "Who", "For example"]
    return Sheet("Refusals, attacks and faults", heads, rows, (4, 5))


def _check(detail: str | None) -> str:
    """The name of what failed, at the beginning of a detail; empty where that is a sentence."""
    name = (detail or "").partition(":")[0].strip()
    return name if len(name) <= _LONGEST_NAME else ""


def provenance(found: Sequence[RunRecords]) -> list[dict[str, Any]]:
    """Of each run where its numbers come from, ``facts`` by key, and the ``command`` that repeats it."""
    origins = []
    for run in found:
        origin = dict(run.experiment.get("provenance") or {})
        facts = {"directory": run.path, "seed": run.experiment.get("seed"), **flattened(origin)}
        again = ["testbed", "run", str(run.path / "experiment.yaml"), "--out", f"{run.path}-again"]
        told = [[key.replace("_", " "), _told(value)] for key, value in facts.items()]
        origins.append({"label": run.label, "command": shlex.join(again), "facts": told})
    return origins
