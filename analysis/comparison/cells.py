"""Cells of the overhead table as text: costs in scaled units, percentages, counts of rounds."""

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
"""Column heads of Multi-RoundSecAgg's three metrics: letters for narrow tables, names for wide ones."""
CLIENT_ACCURACY = {
    "final_client_accuracy_mean": "Client accuracy, mean",
    "final_client_accuracy_worst_decile": "Client accuracy, worst 10%",
    "final_client_accuracy_std": "Client accuracy, std. dev. [points]",
}
"""Column heads of the accuracy over clients, which appear only in tables that request them."""
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
"""Mean, half-width, and the ratio with × (or a p-value) of each row; empty strings where there is no value."""


@dataclass(frozen=True)
class Column:
    """A column as displayed, in one unit for all rows.

    Attributes:
        heading: a noun with its unit, e.g. ``"Round time [s]"``.
        rows: see `Rows`.
        name: a key of `analysis.comparison.columns.COLUMNS`, or empty.
        is_text: whether the column is aligned to the left.
    """

    heading: str
    rows: Rows
    name: str = ""
    is_text: bool = False

    @classmethod
    def of(cls, heading: str, cells: Iterable[str], name: str = "", *, is_text: bool = False) -> "Column":
        """Return a column of cells without half-widths and ratios."""
        return cls(heading, [(cell, "", "") for cell in cells], name, is_text)

    def in_columns(self) -> list[str]:
        """Return one text per row, with means, half-widths and ratios aligned below each other."""
        rows = [(mean, f"±{half}" if half else "", ratio) for mean, half, ratio in self.rows]
        widths = [max(map(len, part)) for part in zip(*rows, strict=True)]
        cells = [" ".join(part.rjust(width) for part, width in zip(row, widths, strict=True) if width) for row in rows]
        return [cell.ljust(len(self.heading)) for cell in cells] if self.is_text else cells

    def in_cells(self) -> list[str]:
        """Return one text per row, e.g. ``1.17 ± 0.02 (1.190×)``."""
        return [
            mean + (f" ± {half}" if half else "") + (f" ({ratio})" if ratio else "") for mean, half, ratio in self.rows
        ]


def costs(frame: pd.DataFrame, names: Iterable[str]) -> list[Column]:
    """Return columns of costs.

    Args:
        frame: the overhead table.
        names: keys of `COSTS`, `COSTS_PER_UPDATE` or `TRANSPORT`.
    """
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
    """Return ratios to the baseline, with the half-widths of their intervals if rounds are paired.

    All texts are empty if every row is its own baseline.
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
    """Return whether a row has another row as its baseline; otherwise every ratio is 1."""
    return not frame["is_baseline"].all()


def differences(frame: pd.DataFrame) -> list[Column]:
    """Return the difference columns of a frame of `analysis.comparison.seed_pairs.compare_seeds`; otherwise none.

    Each difference is followed by its half-width and p-value.
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
    # No sign before a difference that rounds to 0.
    return number if number.startswith("-") or not number.strip("0.") else f"+{number}"


def is_paired(frame: pd.DataFrame) -> bool:
    """Return whether the frame is from `analysis.comparison.overhead.compare_paired`."""
    return "pairs" in frame


def has_seed_pairs(frame: pd.DataFrame) -> bool:
    """Return whether the frame is from `analysis.comparison.seed_pairs.compare_seeds`."""
    return "seed_pairs" in frame


def pairs(frame: pd.DataFrame) -> list[Column]:
    """Return columns with the number of paired rounds or seeds; no columns if nothing is paired.

    Of paired rounds, a second column counts the pairs with the same participants and the same dropouts.
    """
    if has_seed_pairs(frame):
        counts = zip(frame["seed_pairs"], frame["is_baseline"], strict=True)
        return [Column.of("Seed pairs", (MISSING if base else str(count) for count, base in counts))]
    if not is_paired(frame):
        return []
    identical = [f"{same}/{pairs}" for same, pairs in zip(frame["pairs_identical"], frame["pairs"], strict=True)]
    return [Column.of("Pairs", frame["pairs"].astype(str)), Column.of("Identical", identical)]


def result_costs(frame: pd.DataFrame) -> list[str]:
    """Return the costs listed beside the results: per update if a round failed, and any transport overhead."""
    per_update = COSTS_PER_UPDATE if has_failures(frame) else ()
    return [*per_update, *(TRANSPORT if (frame["transport_bytes"] > 0).any() else ())]


def has_failures(frame: pd.DataFrame) -> bool:
    """Return whether a round was skipped or aborted, so that costs per update differ from costs per round."""
    return not is_paired(frame) and bool((frame[["rounds_skipped", "rounds_aborted"]] > 0).any(axis=None))


def quality(frame: pd.DataFrame, *, short: bool = True) -> list[Column]:
    """Return columns of the accuracy, perplexity of language models, success of attacks on samples, and F, C and T.

    Args:
        frame: the overhead table.
        short: whether the heads of F, C and T are letters.
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
    """Return mean and half-width of a measure in each row, with an empty ratio.

    Args:
        frame: the overhead table.
        name: a key of `QUALITY`.
    """
    scale, form = _SHOWN[name]
    halves = [f"{scale * half:.1f}" if pd.notna(half) else "" for half in frame[f"{name}_half_width"]]
    return list(zip(formatted(scale * frame[name], form), halves, [""] * len(frame), strict=True))


def formatted(values: pd.Series, form: str) -> list[str]:
    """Return the values as text, `MISSING` where there is no value.

    Args:
        values: numbers or missing values.
        form: a format for one number, e.g. ``"{:.1f}"``.
    """
    return [MISSING if pd.isna(value) else form.format(value) for value in values]


def privacy(frame: pd.DataFrame) -> list[str]:
    """Return T of each row, or its proven lower bound (``≥3``) if T is not known."""
    name = "multi_round_privacy_weak"
    is_certified = frame[name].notna() & frame[f"{name}_certified"].fillna(False)
    proved = formatted(frame[f"{name}_lower_bound"], "≥{}")
    return [str(value) if sure else bound for value, sure, bound in zip(frame[name], is_certified, proved, strict=True)]


def unfinished(frame: pd.DataFrame) -> pd.Series:
    """Return a mask of the rows with fewer rounds than planned."""
    few: pd.Series = frame[ROUNDS].sum(axis=1) < frame["rounds_planned"]
    return few


def round_counts(frame: pd.DataFrame) -> list[str]:
    """Return rounds completed, skipped and aborted: ``"9/0/1"``, or ``"4/0/1 of 10"`` if planned rounds are missing."""
    rows = zip(*(frame[name] for name in ROUNDS), unfinished(frame), frame["rounds_planned"], strict=True)
    return ["/".join(map(str, counts)) + (f" of {planned}" if few else "") for *counts, few, planned in rows]


def settings(frame: pd.DataFrame) -> dict[int, str]:
    """Return the settings by the row at which each begins, in the order of the table."""
    names = frame["setting"].tolist()
    return {row: name for row, name in enumerate(names) if row == 0 or names[row - 1] != name}


def baselines(frame: pd.DataFrame) -> list[str]:
    """Return the distinct labels of the baselines."""
    return list(dict.fromkeys(frame["baseline"].dropna()))
