"""Epsilon over the rounds, planned against achieved."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis.marks import marks
from analysis.privacy.spent import Spending
from analysis.style import figure_text, one_panel, save

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_KINDS = {
    "planned_epsilon": ("planned", ":"),
    "epsilon": ("achieved", "-"),
    "colluding_epsilon": ("against the server and its accomplices", "--"),
}


def draw(runs: Sequence[Spending], out: Path, name: str = "privacy") -> list[Path]:
    """The largest epsilon of a client after each round; a colour for each run, budgets as grey lines.

    Epsilons that are infinite, or the same as the one achieved throughout, are not drawn.
    """
    with one_panel(2.5) as (figure, axes):
        shown = set()
        for place, run in enumerate(runs):
            colour = _COLOURS[place % len(_COLOURS)]
            rounds, achieved = run.by_round["round"], run.by_round["epsilon_max"]
            axes.plot([], [], color=colour, label=figure_text(run.label))
            for kind, (_, line) in _KINDS.items():
                values = run.by_round[f"{kind}_max"].to_numpy(np.float64)
                if np.isfinite(values).all() and (kind == "epsilon" or not np.array_equal(values, achieved)):
                    axes.plot(rounds, values, line, color=colour, drawstyle="steps-post")
                    shown.add(kind)
        for budget in sorted({run.budget for run in runs if run.budget is not None}):
            axes.axhline(budget, color="#888888", linewidth=0.7)
            axes.annotate(
                "budget",
                (1, budget),
                xycoords=("axes fraction", "data"),
                xytext=(2, 0),
                textcoords="offset points",
                color="#666666",
                va="center",
            )
        for kind, (said, line) in _KINDS.items():
            if kind in shown:
                axes.plot([], [], line, color="#444444", label=said)
        axes.set_xlabel("Round")
        axes.set_ylabel(r"Largest $\epsilon$ of a client")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid()
        figure.legend(loc="outside lower center", ncols=2)
        return save(figure, out / name, marks(figure))
