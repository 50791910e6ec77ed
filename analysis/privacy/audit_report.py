"""Audited, achieved, planned and guaranteed epsilon of runs, in one table and one figure."""

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
    """Render audits.

    Args:
        audits: one or more.
        format: ``text``, ``markdown`` or ``json``.
        confidence: of each bound.
    """
    require_format(format, "text", "markdown", "json")
    if format == "json":
        return to_json({"rows": [audit.row(confidence) for audit in audits]})
    rows = []
    for audit in audits:
        guessed = audit.guessed
        counts = (str(guessed.canaries), str(guessed.guesses), str(guessed.right))
        ledger_epsilons = (audit.achieved, audit.planned, audit.guaranteed)
        proven = f"≥ {guessed.epsilon:.3g}{' !' if audit.refuted else ''}"
        epsilons = (proven, f"{audit.estimate:.3g}", *(number(value, "inf") for value in ledger_epsilons))
        rows.append((audit.run.label, audit.observer, *counts, *epsilons))
    text = render(Table(_HEADS, rows), format)
    deltas = ", ".join(dict.fromkeys(f"{audit.delta:.3g}" for audit in audits))
    text += f"\nepsilon at delta {deltas}. Audited: lower bound, proven with {confidence:.4g} confidence in each row.\n"
    text += "Estimate: if scores were normal; no bound. Achieved, planned: the largest of a client, by the ledger.\n"
    for audit in audits:
        if audit.server_adds_noise and audit.observer == "server":
            remark = "the server adds the noise, and sees sums without it; the row is for observers of its releases."
            text += f"{audit.run.label}: {remark}\n"
        if audit.refuted:
            text += (
                f"! {audit.run.label}, {audit.observer}: the proven epsilon is larger than the ledger's. That happens "
                f"by chance in {1 - confidence:.2g} of audits; else noise or accounting is wrong.\n"
            )
    return text


def draw(audits: Sequence[Audit], out: Path, name: str = "audit") -> list[Path]:
    """Draw a row for each run: proven epsilon by observer, and achieved, planned and guaranteed epsilon.

    Infinite and unknown values are not drawn.

    Args:
        audits: one or more.
        out: folder of the figure.
        name: of the figure.

    Returns:
        Paths of the written files.
    """
    labels = list(dict.fromkeys(audit.run.label for audit in audits))
    with one_panel(1.0 + 0.32 * len(labels)) as (figure, axes):
        for observer, colour in _OBSERVER_COLOURS.items():
            audits_of_observer = [audit for audit in audits if audit.observer == observer]
            if not audits_of_observer:
                continue
            offset = 0.12 if observer == "outsider" else -0.12
            places = [labels.index(audit.run.label) + offset for audit in audits_of_observer]
            proven = [audit.guessed.epsilon for audit in audits_of_observer]
            axes.barh(places, proven, height=0.22, color=colour, label=figure_text(f"audited: {observer} (≥)"))
            axes.plot(
                [audit.estimate for audit in audits_of_observer if isfinite(audit.estimate)],
                [place for place, audit in zip(places, audits_of_observer, strict=True) if isfinite(audit.estimate)],
                "o",
                color=colour,
                markersize=2.5,
                label=figure_text(f"estimate: {observer}"),
            )
        first = {audit.run.label: audit for audit in reversed(audits)}
        for kind, mark in _LEDGER:
            values = [(getattr(first[label], kind), place) for place, label in enumerate(labels)]
            finite = [(value, place) for value, place in values if value is not None and isfinite(value)]
            if finite:
                size = 9 if mark == "|" else 3.5
                axes.plot(
                    *zip(*finite, strict=True), mark, color="#000000", fillstyle="none", markersize=size, label=kind
                )
        axes.set_yticks(range(len(labels)), [figure_text(label) for label in labels])
        axes.invert_yaxis()
        axes.set_xlabel(r"$\epsilon$")
        axes.set_xlim(left=0)
        axes.grid(axis="x")
        figure.legend(loc="outside lower center", ncols=2)
        return save(figure, out / name, plot_data(figure))
