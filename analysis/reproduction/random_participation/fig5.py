"""Figure 5 of Hasircioglu and Gunduz (arXiv 2205.01556): client sampling against local sampling."""

import numpy as np
import pandas as pd

from analysis.bounds.random_participation import Delta, Participation, epsilon_at, lower_bound, recentred
from analysis.reproduction.contract import Claim, Reproduction, ReproductionContext, ReproductionResult, agreement
from analysis.reproduction.random_participation.curves import BASELINES, SIZE_COLOURS
from analysis.reproduction.random_participation.published import PAPER
from analysis.style import one_panel, save


def run_fig5(context: ReproductionContext) -> ReproductionResult:
    """epsilon over q at p q = 1e-4, sigma = 1."""
    rates = np.geomspace(1e-4, 1.0, 25)
    curves: dict[str, tuple[Delta, int | None, str, str]] = {
        name: (delta, None, colour, style) for name, (delta, colour, style) in BASELINES.items()
    }
    for size, colour in SIZE_COLOURS.items():
        curves[f"d = {size}: 4.1"] = (recentred, size, colour, "--")
        curves[f"d = {size}: lower bound"] = (lower_bound, size, colour, "-")
    rows = []
    for name, (delta, local_samples, _, _) in curves.items():
        for q in rates.tolist():
            who = Participation(local_samples or 1, min(1.0, 1e-4 / q), q)
            rows.append({"analysis": name, "q": q, "epsilon": epsilon_at(delta, who, 1.0, 1e-6)})
    table = pd.DataFrame.from_records(rows)
    with one_panel(3.0) as (figure, axes):
        for name, (_, _, colour, style) in curves.items():
            part = table[table["analysis"] == name]
            axes.plot(part["q"], part["epsilon"], style, color=colour, label=name, linewidth=1.0)
        axes.set(xscale="log", yscale="log", xlabel="q, at p q = 1e-4", ylabel="epsilon at delta = 1e-6")
        axes.grid()
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        figures = save(figure, context.out / "random-participation-fig5")
    wcs = table[table["analysis"] == "WCS (the guarantee)"]["epsilon"].to_numpy()
    at_best = table[(table["q"] == table["q"].min()) & (table["analysis"] != "OLS")]["epsilon"]
    return ReproductionResult(
        table,
        figures=figures,
        claims=[
            Claim(
                "at fixed p q, a larger q costs privacy",
                f"WCS: epsilon {wcs[0]:.3g} at q = 1e-4, {wcs[-1]:.3g} at q = 1",
                agreement((np.diff(wcs) >= -1e-12).all()),
            ),
            Claim(
                "with p = 1 all schemes are the same",
                f"epsilon {at_best.min():.4g} to {at_best.max():.4g}",
                agreement(at_best.max() - at_best.min() < 1e-6),
            ),
        ],
        remarks=["delta = 1e-6 is ours; the paper does not state it. OLS is drawn with q, as in the paper."],
    )


REPRODUCTIONS = (
    Reproduction(
        name="random-participation-fig5",
        title="Client sampling against local sampling",
        source=f"{PAPER}, Figure 5",
        run=run_fig5,
    ),
)
