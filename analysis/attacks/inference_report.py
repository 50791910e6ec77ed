"""Membership and property inference on runs as tables and figures, with T and the ledger's epsilon beside them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.attacks.membership_in_sums import Membership
from analysis.attacks.property_of_sums import PropertyInference
from analysis.plot_data import plot_data
from analysis.privacy.report import number
from analysis.style import SERIES_COLOURS, one_panel, save
from analysis.tables import Table, csv, require_format, to_json
from analysis.tables import render as render_table
from testbed.display import visible

_OBSERVATIONS = {
    "update": "each update",
    "sums": "all sums",
    "group": "all sums: group",
    "round": "one sum",
    "model": "last model",
}
_RUN_HEADS = ("Run", "T", "ε", "Observation")
_MEMBERSHIP_HEADS = (*_RUN_HEADS, "Members", "AUC", "interval", "TPR", "interval", "TPR bound", "Source")
_PROPERTY_HEADS = (*_RUN_HEADS, "Top label", "interval", "guess", "Share error", "guess", "Holding AUC")


def membership_table(results: Sequence[Membership], format: str, confidence: float) -> str:
    """Render membership inference on runs.

    Args:
        results: one or more.
        format: ``text``, ``markdown``, ``csv`` or ``json``.
        confidence: of the intervals, for the notes.

    Raises:
        ExperimentError: for another format.
    """

    def cells(row: dict[str, Any]) -> list[str]:
        most = "–" if row["true_positive_rate_at_most"] is None else f"{row['true_positive_rate_at_most']:.3g}"
        return [
            str(row["members"]),
            f"{row['auc']:.3f}",
            _interval(row["auc_low"], row["auc_high"]),
            f"{row['true_positive_rate']:.3f}",
            _interval(row["true_positive_rate_low"], row["true_positive_rate_high"]),
            most,
            "–" if row["source"] is None else f"{row['source']:.3f}",
        ]

    level = results[0].by_observation["model"].level
    notes = [
        f"TPR: share of members detected at a false positive rate of {level:.2%}; non-members have the same labels.",
        "TPR bound: for any attack, by the ledger's epsilon; –: no noise, or the observation has none.",
        "Source: share of members with a correctly named client, among all clients in a sum.",
        "Each update: as trained, before clipping and noise; ε and the TPR bound do not apply.",
        f"Intervals: {confidence:.4g}, for other samples of the same run: AUC by DeLong, TPR by Clopper and Pearson's,",
        "joined with the bootstrap's, since other samples have another threshold.",
    ]
    return _rendered(results, format, _MEMBERSHIP_HEADS, cells, notes)


def property_table(results: Sequence[PropertyInference], format: str, confidence: float) -> str:
    """Render property inference on runs; see `membership_table`.

    Args:
        results: one or more.
        format: ``text``, ``markdown``, ``csv`` or ``json``.
        confidence: of the intervals, for the notes.
    """

    def cells(row: dict[str, Any]) -> list[str]:
        holds = "–" if row["holds_auc"] is None else f"{row['holds_auc']:.3f}"
        return [
            f"{row['top_label']:.3f}",
            _interval(row["top_label_low"], row["top_label_high"]),
            f"{row['top_label_guessed']:.3f}",
            f"{row['shares_off']:.3f}",
            f"{row['shares_off_guessed']:.3f}",
            holds,
        ]

    notes = [
        "Top label: share of clients with a correctly named most frequent label; guess: the same label for all.",
        "Share error: half the sum of absolute errors of a client's label shares; guess: the mean of all clients.",
        "Holding AUC: for whether a client holds a label. Group: clients that are always summed together, as one.",
        "Each update: as trained, before clipping and noise; ε does not apply.",
        f"Interval: {confidence:.4g}, Clopper and Pearson's, as if clients' answers were independent: clients that",
        "are summed together have equal answers.",
    ]
    return _rendered(results, format, _PROPERTY_HEADS, cells, notes)


def _rendered(
    results: Sequence[Membership] | Sequence[PropertyInference],
    format: str,
    heads: Sequence[str],
    cells: Callable[[dict[str, Any]], list[str]],
    notes: Sequence[str],
) -> str:
    require_format(format, "text", "markdown", "csv", "json")
    rows = [row for result in results for row in result.rows()]
    if format == "json":
        return to_json({"rows": rows})
    if format == "csv":
        return csv(pd.DataFrame(rows))
    lines = []
    for result in results:
        for row in result.rows():
            run_cells = (
                row["run"],
                result.facts.shown_privacy,
                number(row["epsilon"], "–"),
                _OBSERVATIONS[row["seen"]],
            )
            lines.append([*run_cells, *cells(row)])
    table = render_table(Table(heads, lines, left=(0, 3) if format == "text" else None), format)
    notes_below = [
        "T: fewest clients in any combination of these rounds' sums (weak multi-round privacy).",
        "ε: the largest of a client, by the ledger; –: no noise.",
        *(
            f"{visible(result.run.label)}: the sums determine the updates of {result.facts.isolated} of "
            f"{result.facts.clients} clients (or of their groups), were updates constant"
            for result in results
            if result.facts.isolated < result.facts.clients
        ),
        *notes,
        *(f"warning: {visible(result.run.label)}: {warning}" for result in results for warning in result.warnings),
    ]
    return f"{table}\n" + "".join(f"{line}\n" for line in notes_below)


def _interval(low: float, high: float) -> str:
    return f"{low:.3f} to {high:.3f}"


# -- figures ----------------------------------------------------------------------------------------------------------


_COLOURS = dict(zip(_OBSERVATIONS, SERIES_COLOURS, strict=False))


def draw_membership(results: Sequence[Membership], out: Path) -> list[Path]:
    """Draw the AUC against T: one series per observation; of runs with noise all sums alone.

    Args:
        results: one or more.
        out: folder of the figure.

    Returns:
        Paths of the written files.
    """
    return _draw_series(results, ("auc", "auc_low", "auc_high"), "AUC of membership", 0.5, out / "membership")


def draw_property(results: Sequence[PropertyInference], out: Path) -> list[Path]:
    """Draw the rate of clients (groups) with a correctly named most frequent label; see `draw_membership`.

    Args:
        results: one or more.
        out: folder of the figure.
    """
    guessed = max(result.by_observation["update"].top_guessed for result in results)
    keys = ("top_label", "top_label_low", "top_label_high")
    return _draw_series(results, keys, "most frequent label named", guessed, out / "property")


def _draw_series(
    results: Sequence[Membership] | Sequence[PropertyInference],
    keys: tuple[str, str, str],
    label: str,
    chance: float,
    path: Path,
) -> list[Path]:
    """Draw intervals as error bars, points of one T side by side, and the rate of guessing as a dashed line."""
    series: dict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = {}
    for result in results:
        noise = result.facts.shown_noise
        for row in result.rows():
            # Updates are trained again without noise, so their points would not show the noisy run.
            if not noise or row["seen"] == "sums":
                series.setdefault((row["seen"], noise), []).append((result.facts.privacy.value, row))
    with one_panel(2.9) as (figure, axes):
        noises = list(dict.fromkeys(noise for _, noise in series))
        for place, ((observation, noise), points) in enumerate(series.items()):
            points.sort(key=lambda point: point[0])
            beside = 2 ** (0.3 * (place / len(series) - 0.5))  # points of one T side by side, on a logarithmic axis
            middle, low, high = ([row[key] for _, row in points] for key in keys)
            axes.errorbar(
                [privacy * beside for privacy, _ in points],
                middle,
                yerr=[
                    [a - b for a, b in zip(middle, low, strict=True)],
                    [b - a for a, b in zip(middle, high, strict=True)],
                ],
                color=_COLOURS[observation],
                marker="osD^v"[noises.index(noise) % 5],
                markersize=3,
                fillstyle="none" if noise else "full",
                linestyle=("-", "--", ":", "-.")[noises.index(noise) % 4],
                linewidth=0.9,
                elinewidth=0.6,
                label=f"{_OBSERVATIONS[observation]}, {noise}" if noise else _OBSERVATIONS[observation],
            )
        axes.axhline(chance, color="#7F7F7F", linewidth=0.8, linestyle="--")
        ticks = sorted({result.facts.privacy.value for result in results})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("T, multi-round privacy")
        axes.set_ylabel(label)
        axes.grid(axis="y")
        figure.legend(loc="outside lower center", ncols=2)
        return save(figure, path, plot_data(figure))
