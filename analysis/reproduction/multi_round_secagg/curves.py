"""Accuracy over rounds of the six schemes, a panel for each setting (Multi-RoundSecAgg, Figures 5, 7, 8 and 9)."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from analysis.reproduction.multi_round_secagg.published import PARTITION, RANDOM, T3, T4, T6, WEIGHTED
from analysis.reproduction.multi_round_secagg.training import Trained
from analysis.style import COLUMN_INCHES, house_style, save

_LOOKS = {
    RANDOM: ("#000000", "-"),
    WEIGHTED: ("#CC79A7", "--"),
    PARTITION: ("#E69F00", "-"),
    T6: ("#56B4E9", "-"),
    T4: ("#009E73", "--"),
    T3: ("#0072B2", "-"),
}
"""Colour (that of the protocol in other figures; T by shade) and line."""

_START = 0.1
"""Of the rounds: what the curves do before need not be seen."""

_ROOM = 3.0
"""Points of accuracy below and above the curves."""


def draw(panels: Mapping[str, Mapping[str, Trained]], path: Path) -> list[Path]:
    """Means over the seeds, and bands of their 95% intervals; the curves' first tenth may begin below the panel.

    Args:
        panels: by title, the schemes' runs.
        path: without ending; returns what was written.
    """
    with house_style():
        figure = Figure(figsize=(2 * COLUMN_INCHES, 2.4), layout="constrained")
        every = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, schemes) in zip(every, panels.items(), strict=True):
            lowest, highest = 100.0, 0.0
            for scheme, of_scheme in schemes.items():
                colour, line = _LOOKS[scheme]
                mean = of_scheme.curves.plot(axes, color=colour, linestyle=line, label=scheme)
                shown = mean[of_scheme.curves.rounds > _START * of_scheme.curves.total]
                lowest, highest = min(lowest, shown.min()), max(highest, shown.max())
            axes.set_ylim(max(0, lowest - _ROOM), min(100, highest + _ROOM))
            axes.set_title(title)
            axes.set_xlabel("round")
            axes.grid(visible=True)
        every[0].set_ylabel("accuracy [%]")
        handles, labels = every[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return save(figure, path)
