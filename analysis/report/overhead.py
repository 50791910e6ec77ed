"""The page's overhead table: usual and varying columns at first, the others on demand."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison import notes
from analysis.comparison.cells import COSTS, ROUNDS, has_failures, unfinished
from analysis.comparison.columns import of_interest
from analysis.report.sheets import MISSING, Cell, Sheet, number, words
from analysis.tables import bytes_unit, seconds_unit

_PER_UPDATE = {"round_s_per_update": "Time per update", "server_bytes_per_update": "Traffic per update"}
_TRANSPORT = {"transport_bytes": "Transport overhead"}
_PERCENT = {"final_accuracy": "Accuracy", "final_attack_success": "Attack success"}
_PRIVACY = "multi_round_privacy_weak"

_ALWAYS = ("setting", "label", "rounds_completed")
_WHERE_THEY_VARY = {"seeds", "rounds_skipped", "rounds_aborted", _PRIVACY}

Columns = dict[str, tuple[str, list[Cell]]]
"""Head and cells by the column of the frame; ratios by ``COLUMN_ratio``."""


def overhead(frame: pd.DataFrame, findings: Sequence[Mapping[str, Any]] = ()) -> Sheet:
    """Return the table of `analysis.comparison.overhead.compare`, sorted by its exact numbers.

    Args:
        frame: the table.
        findings: the displayed findings (`analysis.findings.plain`), which the notes do not repeat.
    """
    columns: Columns = {}
    if frame["setting"].ne("").any():
        columns["setting"] = "Setting", [words(name) for name in frame["setting"]]
    columns["label"] = "Protocol", [words(label) for label in frame["label"]]
    texts = len(columns)
    if (frame["seeds"] > 1).any():
        columns["seeds"] = "Seeds", [number(int(seeds)) for seeds in frame["seeds"]]
    transport = _TRANSPORT if (frame["transport_bytes"] > 0).any() else {}
    for name, head in (COSTS | (_PER_UPDATE if has_failures(frame) else {}) | transport).items():
        columns |= _cost(frame, name, head)
    columns["rounds_completed"] = "Completed", _completed(frame)
    for name in ("skipped", "aborted"):
        columns[f"rounds_{name}"] = name.capitalize(), [number(int(count)) for count in frame[f"rounds_{name}"]]
    for name, head in _PERCENT.items():
        if frame[name].notna().any():
            columns[name] = head, _measured(frame, name, 100, " %")
    if frame["final_perplexity"].notna().any():
        columns["final_perplexity"] = "Perplexity", _measured(frame, "final_perplexity", 1, "")
    columns["fairness_gap"] = "F", [number(value, "{:.3f}") for value in frame["fairness_gap"]]
    columns["aggregation_cardinality"] = "C", [number(value, "{:.2f}") for value in frame["aggregation_cardinality"]]
    columns[_PRIVACY] = "T", _privacy(frame)
    rows = list(zip(*(cells for _, cells in columns.values()), strict=True))
    names = list(columns)
    main, ratio = _main(columns, of_interest(frame, None, narrow=True)), notes.ratio_note(frame)
    ratios = [name for name in names if name.endswith("_ratio")]
    explained = [(ratios, f"{ratio}."), *(pair for line in notes.column_notes(frame) for pair in line)]
    legend = [(text, [place for place, name in enumerate(names) if name in of]) for of, text in explained]
    return Sheet(
        "Cost of a round",
        [head for head, _ in columns.values()],
        rows,
        tuple(range(texts, len(columns))),
        notes.row_notes(frame, findings, with_ratios=False),
        [place for place, name in enumerate(names) if name not in main],
        [(text, places) for text, places in legend if places and text != "."],
    )


def _main(columns: Columns, usual: Sequence[str]) -> Collection[str]:
    """Return the columns shown at first: those of a narrow table (`usual`), and those that vary."""
    names: set[str] = set()
    usual = (*_ALWAYS, *usual)
    for name, (_, cells) in columns.items():
        varies = len({value for _, value in cells}) > 1
        is_ratio = name.endswith("_ratio")
        if is_ratio:
            shown = name.removesuffix("_ratio") in usual and len(cells) > 1
        else:
            shown = name in usual or (name in _WHERE_THEY_VARY and (varies or len(cells) == 1))
        if shown:
            names.add(name)
    return names


def _cost(frame: pd.DataFrame, name: str, head: str) -> Columns:
    """Return a cost in one unit, with its interval, and its ratio to the baseline."""
    unit = (bytes_unit if "bytes" in name else seconds_unit)(frame[name].dropna().tolist())
    cells: list[Cell] = []
    for mean, half in zip(frame[name], frame[f"{name}_half_width"], strict=True):
        text = MISSING if pd.isna(mean) else unit.number(mean) + ("" if pd.isna(half) else f" ± {unit.number(half)}")
        cells.append((text, None if pd.isna(mean) else float(mean)))
    ratios = [number(ratio, "{:.3f}") for ratio in frame[f"{name}_ratio"]]
    return {name: (f"{head} [{unit.symbol}]", cells), f"{name}_ratio": (f"{head} ×", ratios)}


def _completed(frame: pd.DataFrame) -> list[Cell]:
    """Return completed rounds of all rounds; of the planned rounds if a run is not finished."""
    ended = frame[ROUNDS].sum(axis=1)
    every = ended.where(~unfinished(frame), frame["rounds_planned"])
    return [(f"{done} of {count}", int(done)) for done, count in zip(frame["rounds_completed"], every, strict=True)]


def _measured(frame: pd.DataFrame, name: str, scale: float, suffix: str) -> list[Cell]:
    """Return a mean over the seeds with its interval."""
    cells = []
    for mean, half in zip(frame[name], frame[f"{name}_half_width"], strict=True):
        if pd.isna(mean):
            cells.append(words(None))
        else:
            interval = "" if pd.isna(half) else f" ± {scale * half:.1f}"
            cells.append((f"{scale * mean:.1f}{interval}{suffix}", scale * float(mean)))
    return cells


def _privacy(frame: pd.DataFrame) -> list[Cell]:
    """Return T, or its proven lower bound."""
    cells = []
    certified, bounds = frame[f"{_PRIVACY}_certified"], frame[f"{_PRIVACY}_lower_bound"]
    for value, sure, bound in zip(frame[_PRIVACY], certified, bounds, strict=True):
        is_certified = not pd.isna(value) and not pd.isna(sure) and bool(sure)
        cells.append(number(value) if is_certified else ("≥ " + number(bound)[0], number(bound)[1]))
    return [cell if cell[1] is not None else words(None) for cell in cells]
