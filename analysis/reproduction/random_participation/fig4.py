"""Figure 4 of Hasircioglu and Gunduz (arXiv 2205.01556): random participation beside random check-ins."""

from functools import partial

import numpy as np
import pandas as pd

from analysis.bounds.random_check_ins import fixed_window_approximate, pure_privacy_assumed, steps_to
from analysis.bounds.random_participation import (
    Delta,
    Participation,
    epsilon_at,
    lower_bound,
    recentred,
    weak_client_sampling,
)
from analysis.reproduction.contract import Claim, Reproduction, ReproductionContext, ReproductionResult, agreement
from analysis.reproduction.random_participation.published import PAPER
from analysis.style import one_panel, save
from testbed.arrays import Floats

_SIGMA, _RATE = 3.0, 0.1
_DELTAS = np.geomspace(1e-8, 1e-3, 26)
_SIZE = 10
_STEPS = (1, 100)
_PUBLISHED_STEPS = (1, 10**3, 10**6, 10**12)
_WCS, _PROPOSED, _LOWER = "WCS (the guarantee)", f"Theorem 4.1, d = {_SIZE} (no guarantee)", f"lower bound, d = {_SIZE}"


def run_fig4(context: ReproductionContext) -> ReproductionResult:
    """epsilon over delta at p = q = 0.1, C = 1, sigma = 3."""
    who = Participation(_SIZE, _RATE, _RATE)
    table = pd.DataFrame.from_records(_rows(who))
    with one_panel(3.2) as (figure, axes):
        for name, style, colour in (
            (_granted(1), "--", "#CC79A7"),
            (_granted(100), ":", "#CC79A7"),
            (_WCS, "-", "#000000"),
            (_PROPOSED, "--", "#E69F00"),
            (_LOWER, "-", "#E69F00"),
        ):
            part = table[table["analysis"] == name]
            axes.plot(part["delta"], part["epsilon"], style, color=colour, label=name)
        axes.set(xscale="log", yscale="log", xlabel="delta", ylabel="epsilon")
        axes.set_title("p = q = 0.1, C = 1, sigma = 3")
        axes.grid()
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=1)
        figures = save(figure, context.out / "random-participation-fig4")
    return ReproductionResult(
        table,
        figures=figures,
        claims=_claims(table, who),
        remarks=[
            "The paper does not say which of Balle et al.'s bounds it drew, with how many steps, nor at which delta; "
            "its text has no numbers of Figure 4. What stands here for it is our reading.",
            "Theirs is a bound for one sample per client (rate p q). A Gaussian randomiser has approximate privacy "
            "only; what they publish for that (8 eps0) gives no epsilon here. Drawn is what would follow if "
            "(eps0, delta0) were as good as pure eps0: no guarantee.",
        ],
    )


def _rows(who: Participation) -> list[dict[str, object]]:
    curves: tuple[tuple[str, Delta], ...] = (
        (_WCS, weak_client_sampling),
        (_PROPOSED, recentred),
        (_LOWER, lower_bound),
    )
    rows: list[dict[str, object]] = []
    for delta in _DELTAS.tolist():
        for name, curve in curves:
            rows.append({"analysis": name, "delta": delta, "epsilon": epsilon_at(curve, who, _SIGMA, delta)})
        for steps in _STEPS:
            rows.append({"analysis": _granted(steps), "delta": delta, "epsilon": _granted_at(delta, steps)})
    return rows


def _granted(steps: int) -> str:
    return f"Balle et al., pure privacy granted, m = {steps}"


def _claims(table: pd.DataFrame, who: Participation) -> list[Claim]:
    def of(name: str) -> Floats:
        return table.loc[table["analysis"] == name, "epsilon"].to_numpy()

    theirs = of(_granted(1))
    published = [
        fixed_window_approximate(_SIGMA, _RATE * _RATE, steps, delta)
        for steps in _PUBLISHED_STEPS
        for delta in (1e-3, 1e-6)
    ]
    meaningful = [value for value in published if np.isfinite(value)]
    claims = []
    for claim, name, curve in (
        ("the proposed scheme (Theorem 4.1) is far below Balle et al.", _PROPOSED, recentred),
        ("so is WCS, which is sound, in its place", _WCS, weak_client_sampling),
    ):
        ours = of(name)
        least, most = (theirs / ours).min(), (theirs / ours).max()
        delta = 1e-6
        at = epsilon_at(curve, who, _SIGMA, delta)
        enough = steps_to(partial(_granted_at, delta), at)
        claims.append(
            Claim(
                claim,
                f"as published, theirs gives {'an' if meaningful else 'no'} epsilon in up to "
                f"{_PUBLISHED_STEPS[-1]:.0e} steps; with pure privacy granted, one step costs {least:.3g} to "
                f"{most:.3g} times ours, and it takes {enough:.0f} steps to draw level (delta = {delta:g})",
                agreement(least > 1, most > 1),
            )
        )
    return claims


def _granted_at(delta: float, steps: int) -> float:
    return pure_privacy_assumed(_SIGMA, _RATE * _RATE, steps, delta)


REPRODUCTIONS = (
    Reproduction(
        name="random-participation-fig4",
        title="Random participation beside random check-ins",
        source=f"{PAPER}, Figure 4",
        run=run_fig4,
    ),
)
