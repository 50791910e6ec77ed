"""What stands in the overhead table, as text: costs in scaled units, percentages, counts of rounds."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from analysis.tables import Unit, bytes_unit, seconds_unit

MISSING = "–"
COSTS = {
    "round_s": "Round time",
    "client_s": "Client time",
    "server_bytes": "Server traffic",
    "client_bytes": "Client traffic",
}
COSTS_PER_UPDATE = {"round_s_per_update": "Time/update", "server_bytes_per_update": "Traffic/update"}
TRANSPORT = {"transport_bytes": "Overhead"}
ALL_COSTS = COSTS | COSTS_PER_UPDATE | TRANSPORT
METRICS = {"F": "Fairness gap F", "C": "Cardinality C", "T": "Privacy T"}
"""The heads of Multi-RoundSecAgg's three metrics, where room is short and where it is not."""
CLIENT_ACCURACY = {
    "final_client_accuracy_mean": "Client accuracy, mean",
    "final_client_accuracy_worst_decile": "Client accuracy, worst 10%",
    "final_client_accuracy_std": "Client accuracy, std. dev. [points]",
}
"""Heads of the accuracy over clients, which a table has only where it is asked for."""
QUALITY = {
    "final_accuracy": "Accuracy",
    "final_perplexity": "Perplexity",
    "final_attack_success": "Attack success",
    **CLIENT_ACCURACY,
}
ROUNDS = ["rounds_completed", "rounds_skipped", "rounds_aborted"]
DIFFERENCES = "Differences to the baseline, paired by seed"

_POINTS = Unit("points", 0.01, 1)  # percentage points
_UNITS = {**dict.fromkeys(QUALITY, _POINTS), "final_perplexity": Unit("", 1.0, 1)}
_SHOWN = {
    "final_accuracy": (100.0, "{:.1f}%"),
    "final_perplexity": (1.0, "{:.1f}"),
    "final_attack_success": (100.0, "{:.1f}%"),
    "final_client_accuracy_mean": (100.0, "{:.1f}%"),
    "final_client_accuracy_worst_decile": (100.0, "{:.1f}%"),
    "final_client_accuracy_std": (100.0, "{:.1f}"),
}

Rows = list[tuple[str, str, str]]
"""Mean, half-width, and the ratio with × (or a p-value) of each row; empty where there is none."""


@dataclass(frozen=True)
class Column:
    """A column as people read it, in one unit for all rows.

    Attributes:
        heading: a noun with its unit, e.g. ``"Round time [s]"``.
        rows: see `Rows`.
        name: of `analysis.comparison.columns.COLUMNS`, or empty.
        is_text: whether it is aligned to the left.
    """

    heading: str
    rows: Rows
    name: str = ""
    is_text: bool = False

    @classmethod
    def of(cls, heading: str, cells: Iterable[str], name: str = "", *, is_text: bool = False) -> "Column":
        """A column of cells without half-widths and ratios."""
        return cls(heading, [(cell, "", "") for cell in cells], name, is_text)

    def in_columns(self) -> list[str]:
        """Means, half-widths and ratios one below the other."""
        rows = [(mean, f"±{half}" if half else "", ratio) for mean, half, ratio in self.rows]
        widths = [max(map(len, part)) for part in zip(*rows, strict=True)]
        cells = [" ".join(part.rjust(width) for part, width in zip(row, widths, strict=True) if width) for row in rows]
        return [cell.ljust(len(self.heading)) for cell in cells] if self.is_text else cells

    def in_cells(self) -> list[str]:
        """E.g. ``1.17 ± 0.02 (1.190×)``."""
        return [
            mean + (f" ± {half}" if half else "") + (f" ({ratio})" if ratio else "") for mean, half, ratio in self.rows
        ]


def costs(frame: pd.DataFrame, names: Iterable[str]) -> list[Column]:
    """The columns `names` of the frame: keys of `COSTS`, `COSTS_PER_UPDATE` or `TRANSPORT`."""
    columns = []
    for name in names:
        unit = _unit(frame, name)
        cells = [
            (MISSING if pd.isna(mean) else unit.number(mean), "" if pd.isna(half) else unit.number(half), ratio)
            for mean, half, ratio in zip(frame[name], frame[f"{name}_half_width"], _ratios(frame, name), strict=True)
        ]
        columns.append(Column(f"{ALL_COSTS[name]} [{unit.symbol}]", cells, name))
    return columns


def _unit(frame: pd.DataFrame, name: str) -> Unit:
    return (bytes_unit if "bytes" in name else seconds_unit)(frame[name].dropna().tolist())


def _ratios(frame: pd.DataFrame, name: str) -> list[str]:
    """Ratios to the baseline, with the half-widths of their own intervals where the rounds are paired.

    All are empty where every row is its own baseline.
    """
    if not has_ratios(frame):
        return [""] * len(frame)
    halves = frame.get(f"{name}_ratio_half_width", pd.Series(float("nan"), frame.index))
    cells = []
    for ratio, half, base in zip(frame[f"{name}_ratio"], halves, frame["is_baseline"], strict=True):
        cell = "" if pd.isna(ratio) else f"{ratio:.3f}" if ratio < 100 else f"{ratio:.1f}"
        cell += "" if base or pd.isna(half) else f"±{half:.3f}"
        cells.append(f"{cell}×" if cell else "")
    return cells


def has_ratios(frame: pd.DataFrame) -> bool:
    """Whether a row has another row as its baseline; else every ratio is 1."""
    return not frame["is_baseline"].all()


def differences(frame: pd.DataFrame) -> list[Column]:
    """The differences of a frame of `analysis.comparison.seed_pairs.compare_seeds`; none of others.

    Behind each are its p-value and, where a measure is missing in some, of how many seeds it is.
    """
    if not has_seed_pairs(frame):
        return []
    columns = []
    for name, heading in (COSTS | QUALITY).items():
        values = frame[f"{name}_difference"]
        if values.isna().all():
            continue
        unit = _UNITS.get(name) or _unit(frame, name)
        rows = zip(values, *(frame[f"{name}_difference_{end}"] for end in ("half_width", "p")), strict=True)
        cells = [
            (MISSING, "", "")
            if pd.isna(mean)
            else (
                _signed(unit.number(mean)),
                "" if pd.isna(half) else unit.number(half),
                "" if pd.isna(p) else f"p<{_SMALLEST_P}" if p < _SMALLEST_P else f"p={p:.3f}",
            )
            for mean, half, p in rows
        ]
        columns.append(Column(f"{heading} [{unit.symbol}]" if unit.symbol else heading, cells))
    return columns


_SMALLEST_P = 0.001


def _signed(number: str) -> str:
    return number if number.startswith("-") or not number.strip("0.") else f"+{number}"


def is_paired(frame: pd.DataFrame) -> bool:
    """Whether the frame is one of `analysis.comparison.overhead.compare_paired`."""
    return "pairs" in frame


def has_seed_pairs(frame: pd.DataFrame) -> bool:
    """Whether the frame is one of `analysis.comparison.seed_pairs.compare_seeds`."""
    return "seed_pairs" in frame


def pairs(frame: pd.DataFrame) -> list[Column]:
    """How many rounds (in how many of them the same happened to the same) or seeds were paired; empty without pairs."""
    if has_seed_pairs(frame):
        counts = zip(frame["seed_pairs"], frame["is_baseline"], strict=True)
        return [Column.of("Seed pairs", (MISSING if base else str(count) for count, base in counts))]
    if not is_paired(frame):
        return []
    identical = [f"{same}/{pairs}" for same, pairs in zip(frame["pairs_identical"], frame["pairs"], strict=True)]
    return [Column.of("Pairs", frame["pairs"].astype(str)), Column.of("Identical", identical)]


def result_costs(frame: pd.DataFrame) -> list[str]:
    """Costs that stand with the results: those per update where a round has failed, and transport overhead if any."""
    per_update = COSTS_PER_UPDATE if has_failures(frame) else ()
    return [*per_update, *(TRANSPORT if (frame["transport_bytes"] > 0).any() else ())]


def has_failures(frame: pd.DataFrame) -> bool:
    """Whether a round was skipped or aborted, so that the costs per update say something of their own."""
    return not is_paired(frame) and bool((frame[["rounds_skipped", "rounds_aborted"]] > 0).any(axis=None))


def quality(frame: pd.DataFrame, *, short: bool = True) -> list[Column]:
    """Accuracy, perplexity of language models, attack success of poisoned samples, and F, C and T.

    Args:
        frame: the table.
        short: F, C and T are called by their letters.
    """
    names = [name for name in _SHOWN if name not in CLIENT_ACCURACY]
    names = [name for name in names if name == "final_accuracy" or frame[name].notna().any()]
    metrics = {
        "F": formatted(frame["fairness_gap"], "{:.3f}"),
        "C": formatted(frame["aggregation_cardinality"], "{:.2f}"),
        "T": privacy(frame),
    }
    return [Column(QUALITY[name], quality_rows(frame, name), name) for name in names] + [
        Column.of(letter if short else METRICS[letter], cells) for letter, cells in metrics.items()
    ]


def quality_rows(frame: pd.DataFrame, name: str) -> Rows:
    """Mean and half-width of a key of `QUALITY` in each row, and nothing for the ratio."""
    scale, form = _SHOWN[name]
    halves = [f"{scale * half:.1f}" if pd.notna(half) else "" for half in frame[f"{name}_half_width"]]
    return list(zip(formatted(scale * frame[name], form), halves, [""] * len(frame), strict=True))


def formatted(values: pd.Series, form: str) -> list[str]:
    """The values as text."""
    return [MISSING if pd.isna(value) else form.format(value) for value in values]


def privacy(frame: pd.DataFrame) -> list[str]:
    """T, or what is proved of it."""
    name = "multi_round_privacy_weak"
    known = frame[name].notna() & frame[f"{name}_certified"].fillna(False)
    proved = formatted(frame[f"{name}_lower_bound"], "≥{}")
    return [str(value) if sure else bound for value, sure, bound in zip(frame[name], known, proved, strict=True)]


def unfinished(frame: pd.DataFrame) -> pd.Series:
    """Which rows have had fewer rounds than were planned."""
    few: pd.Series = frame[ROUNDS].sum(axis=1) < frame["rounds_planned"]
    return few


def round_counts(frame: pd.DataFrame) -> list[str]:
    """Rounds completed, skipped and aborted, e.g. ``"9/0/1"``, or ``"4/0/1 of 10"`` when not all have been run."""
    rows = zip(*(frame[name] for name in ROUNDS), unfinished(frame), frame["rounds_planned"], strict=True)
    return ["/".join(map(str, counts)) + (f" of {planned}" if few else "") for *counts, few, planned in rows]


def settings(frame: pd.DataFrame) -> dict[int, str]:
    """The settings in the order of the table, by the row at which each begins."""
    names = frame["setting"].tolist()
    return {row: name for row, name in enumerate(names) if row == 0 or names[row - 1] != name}


def baselines(frame: pd.DataFrame) -> list[str]:
    """The labels of the baselines, each once."""
    return list(dict.fromkeys(frame["baseline"].dropna()))
