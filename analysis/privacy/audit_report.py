"""Audited, achieved, planned and guaranteed epsilon of runs, in one table and one picture."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from analysis.plot_data import plot_data
from analysis.privacy.audit import Audit
from analysis.privacy.report import number
from analysis.style import SERIES_COLOURS, figure_text, one_panel, save
from analysis.tables import Table, render, require_format, to_json

_HEADS = (
    "Run",
    "Seen by",
    "Canaries",
    "Guessed",
    "Right",
    "Audited",
    "Estimate",
    "Achieved",
    "Planned",
    "Guaranteed",
)
_OBSERVER_COLOURS = {"server": SERIES_COLOURS[1], "outsider": SERIES_COLOURS[0]}
_LEDGER = (("achieved", "D"), ("planned", "s"), ("guaranteed", "|"))


def rendered(audits: Sequence[Audit], format: str, confidence: float) -> str:
    """As text, markdown or json."""
    require_format(format, "text", "markdown", "json")
    if format == "json":
        return to_json({"rows": [one.row(confidence) for one in audits]})
    rows = []
    for one in audits:
        there = one.guessed
        counts = (str(there.canaries), str(there.guesses), str(there.right))
        said = (one.achieved, one.planned, one.guaranteed)
        proven = f"≥ {there.epsilon:.3g}{' !' if one.refuted else ''}"
        epsilons = (proven, f"{one.estimate:.3g}", *(number(value, "inf") for value in said))
        rows.append((one.run.label, one.observer, *counts, *epsilons))
    text = render(Table(_HEADS, rows), format)
    deltas = ", ".join(dict.fromkeys(f"{one.delta:.3g}" for one in audits))
    text += (
        f"\nepsilon at delta {deltas}. Audited: proven with {confidence:.4g} confidence of each row; a lower bound.\n"
    )
    text += "Estimate: were scores normal; no bound. Achieved, planned: the largest of a client, by the ledger.\n"
    for one in audits:
        if one.server_adds_noise and one.observer == "server":
            seen = "the server adds the noise, and sees sums without it; the row is of what it releases."
            text += f"{one.run.label}: {seen}\n"
        if one.refuted:
            text += (
                f"! {one.run.label}, {one.observer}: more is proven than the ledger says was spent. That happens by "
                f"chance in {1 - confidence:.2g} of audits; else noise or accounting is wrong.\n"
            )
    return text


def draw(audits: Sequence[Audit], out: Path, name: str = "audit") -> list[Path]:
    """A row for each run: from left what observers have proven, what was achieved, planned and guaranteed.

    What is infinite, or not known, is not drawn.
    """
    labels = list(dict.fromkeys(one.run.label for one in audits))
    with one_panel(1.0 + 0.32 * len(labels)) as (figure, axes):
        for observer, colour in _OBSERVER_COLOURS.items():
            seen = [one for one in audits if one.observer == observer]
            if not seen:
                continue
            offset = 0.12 if observer == "outsider" else -0.12
            places = [labels.index(one.run.label) + offset for one in seen]
            proven = [one.guessed.epsilon for one in seen]
            axes.barh(places, proven, height=0.22, color=colour, label=figure_text(f"audited: {observer} (≥)"))
            axes.plot(
                [one.estimate for one in seen if isfinite(one.estimate)],
                [place for place, one in zip(places, seen, strict=True) if isfinite(one.estimate)],
                "o",
                color=colour,
                markersize=2.5,
                label=figure_text(f"estimate: {observer}"),
            )
        first = {one.run.label: one for one in reversed(audits)}
        for kind, mark in _LEDGER:
            values = [(getattr(first[label], kind), place) for place, label in enumerate(labels)]
            there = [(value, place) for value, place in values if value is not None and isfinite(value)]
            if there:
                size = 9 if mark == "|" else 3.5
                axes.plot(
                    *zip(*there, strict=True), mark, color="#000000", fillstyle="none", markersize=size, label=kind
                )
        axes.set_yticks(range(len(labels)), [figure_text(label) for label in labels])
        axes.invert_yaxis()
        axes.set_xlabel(r"$\epsilon$")
        axes.set_xlim(left=0)
        axes.grid(axis="x")
        figure.legend(loc="outside lower center", ncols=2)
        return save(figure, out / name, plot_data(figure))
