"""Claims of section 6 of Hasircioglu and Gunduz (arXiv 2205.01556), from the accuracies of Figures 6 and 7.

The schemes are compared seed by seed. The paper's words are judged by numbers that stand here, since its text has none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.reproduction.contract import Measurements, ReproductionResult, Setting
from analysis.reproduction.random_participation.published import (
    DELTA,
    EPSILON,
    FEW_CLIENTS,
    MANY_CLIENTS,
    NONE,
    OLS,
    PROPOSED,
    SCENARIOS,
    SCHEMES,
    WCS,
    PublishedScenario,
)
from analysis.reproduction.training_runs import AccuracyCurves, best_of, best_rate_by
from analysis.reproduction.verdicts import PaperClaim, above, between, plus_minus
from analysis.statistics import Interval, mean_interval
from testbed.arrays import Floats

EPSILON_LEAST, EPSILON_MOST = "at least", "guaranteed"
"""Bounds on the privacy loss: of the worse of two possible pairs of data sets, and the guarantee of WCS."""

MUCH = 10.0
"""Percentage points of accuracy by which a scheme must lead to be much more accurate."""
NON_TRIVIAL = 1.0
"""Percentage points of accuracy that count as an improvement that is not trivial."""


def best_rates(tried: pd.DataFrame, scenario: PublishedScenario) -> dict[str, float]:
    """Return the learning rate of each scheme: the best of the grid, the larger of equals.

    Args:
        tried: columns figure, scheme, learning rate, accuracy [%].
        scenario: the paper's scenario.
    """
    return best_rate_by("scheme", tried[tried["figure"] == scenario.figure])


def accuracies(evaluations: pd.DataFrame, scenario: PublishedScenario, rounds: int) -> dict[str, AccuracyCurves]:
    """Return the accuracy over the rounds by scheme, in the order of `SCHEMES`.

    Args:
        evaluations: columns figure, seed, scheme, round, accuracy [%].
        scenario: the paper's scenario.
        rounds: number of rounds of each run.
    """
    of_figure = evaluations[evaluations["figure"] == scenario.figure]
    curves = {}
    for scheme in SCHEMES:
        rows = of_figure[of_figure["scheme"] == scheme]
        wide = rows.pivot_table(index="seed", columns="round", values="accuracy [%]")
        curves[scheme] = AccuracyCurves(wide.columns.to_numpy(np.int64), wide.to_numpy(np.float64), rounds)
    return curves


def conclude_training(measurements: Measurements) -> ReproductionResult:
    """Compare the order of the curves with the paper's statements, seed by seed."""
    tables, setting = measurements.tables, measurements.setting
    curves = {
        scenario.figure: accuracies(tables["evaluations"], scenario, int(setting.sizes[f"rounds, {scenario.figure}"]))
        for scenario in SCENARIOS
    }
    rates = {scenario.figure: best_rates(tables["learning rates"], scenario) for scenario in SCENARIOS}
    return ReproductionResult(
        table=_table(tables["privacy"], curves, rates),
        claims=[
            *many_clients_claims(curves[MANY_CLIENTS.figure]),
            *few_clients_claims(curves[FEW_CLIENTS.figure]),
            closer_claim(curves[MANY_CLIENTS.figure], curves[FEW_CLIENTS.figure]),
            *(privacy_claim(scenario, tables["privacy"]) for scenario in SCENARIOS),
        ],
        remarks=_remarks(setting, tables["learning rates"], curves),
    )


def _table(
    privacy: pd.DataFrame, curves: Mapping[str, Mapping[str, AccuracyCurves]], rates: Mapping[str, Mapping[str, float]]
) -> pd.DataFrame:
    """Return each scheme's noise, privacy cost of a round and of all rounds, learning rate and accuracy."""
    rows = []
    for scenario in SCENARIOS:
        for scheme in SCHEMES:
            bounds = _losses(privacy, scenario, scheme)
            interval = mean_interval(curves[scenario.figure][scheme].late)
            row: dict[str, Any] = {
                "figure": scenario.figure,
                "scheme": scheme,
                "sigma": bounds["sigma"].iloc[0],
                "sigma (paper)": scenario.sigmas.get(scheme, 0.0),
            }
            for bound, epsilons in bounds.iterrows():
                row[f"epsilon of a round, {bound}"] = epsilons["epsilon of a round"]
                row[f"of all rounds, {bound}"] = epsilons["epsilon of all rounds"]
            row |= {
                "learning rate": rates[scenario.figure][scheme],
                "learning rate (paper)": scenario.rates[scheme],
                "accuracy [%]": interval.mean,
                "±": interval.half_width,
            }
            rows.append(row)
    return pd.DataFrame.from_records(rows)


def _losses(privacy: pd.DataFrame, scenario: PublishedScenario, scheme: str) -> pd.DataFrame:
    """Return the rows of a scheme by their bound."""
    rows = privacy[(privacy["figure"] == scenario.figure) & (privacy["scheme"] == scheme)]
    return rows.set_index("bound")


def _halfway(curves: AccuracyCurves) -> Floats:
    """Return the accuracy in the middle of the runs, `(seeds,)`: the mean over a tenth of the rounds before it."""
    middle = (curves.rounds <= 0.5 * curves.total) & (curves.rounds > 0.4 * curves.total)
    return np.asarray(curves.accuracy[:, middle].mean(axis=1), np.float64)


def _lead(curves: Mapping[str, AccuracyCurves], better: str, worse: str) -> tuple[Interval, str]:
    """Return the difference of two schemes at the end, and its text with the difference in the middle."""
    lead = mean_interval(curves[better].late - curves[worse].late)
    before = float(np.mean(_halfway(curves[better]) - _halfway(curves[worse])))
    return lead, f"{better} {plus_minus(lead, '+.1f')} points above {worse} ({before:+.1f} in the middle of the runs)"


def _order(
    curves: Mapping[str, AccuracyCurves], statement: str, pairs: list[tuple[str, str]], bound: float = 0.0
) -> PaperClaim:
    """Return the claim that the first scheme of each pair is more accurate, by more than `bound` points."""
    leads = [_lead(curves, better, worse) for better, worse in pairs]
    checks = [
        above(f"points of {better} above {worse}", lead, bound)
        for (better, worse), (lead, _) in zip(pairs, leads, strict=True)
    ]
    seeds = len(curves[NONE].late)
    return PaperClaim(statement, "; ".join(text for _, text in leads), checks, seeds=seeds)


def many_clients_claims(curves: Mapping[str, AccuracyCurves]) -> list[PaperClaim]:
    """Return the claims of section 6.1.

    Args:
        curves: accuracy by scheme.
    """
    worst, best = (mean_interval(curves[scheme].late) for scheme in (OLS, NONE))
    figure = MANY_CLIENTS.figure
    return [
        _order(
            curves,
            f"{figure}: the proposed scheme's noise gives much higher accuracy than WCS's and OLS's",
            [(PROPOSED, WCS), (PROPOSED, OLS)],
            MUCH,
        ),
        _order(curves, f"{figure}: WCS brings a non-trivial improvement over OLS", [(WCS, OLS)], NON_TRIVIAL),
        _order(curves, f"{figure}: without privacy the accuracy is the highest", [(NONE, PROPOSED)]),
        PaperClaim(
            f"{figure}: the performance of OLS is quite poor",
            f"OLS {plus_minus(worst, '.1f')}%, no privacy {plus_minus(best, '.1f')}%",
            undetermined="the number of iterations; fewer of them favour the statement",
        ),
    ]


def few_clients_claims(curves: Mapping[str, AccuracyCurves]) -> list[PaperClaim]:
    """Return the claims of section 6.2 on Figure 7.

    Args:
        curves: accuracy by scheme.
    """
    figure = FEW_CLIENTS.figure
    return [
        _order(
            curves,
            f"{figure}: the proposed scheme has the best accuracy of the private ones",
            [(PROPOSED, WCS), (PROPOSED, OLS)],
        ),
        _order(
            curves,
            f"{figure}: accuracy falls as the noise grows",
            [(NONE, PROPOSED), (PROPOSED, WCS), (WCS, OLS)],
        ),
    ]


def closer_claim(many: Mapping[str, AccuracyCurves], few: Mapping[str, AccuracyCurves]) -> PaperClaim:
    """Return the claim that the schemes of Figure 7 are closer to each other than those of Figure 6.

    Args:
        many: accuracy by scheme of Figure 6.
        few: accuracy by scheme of Figure 7.
    """
    spreads = [of[PROPOSED].late - of[OLS].late for of in (many, few)]
    less = mean_interval(spreads[0] - spreads[1])
    shown = [plus_minus(mean_interval(spread), ".1f") for spread in spreads]
    return PaperClaim(
        f"{FEW_CLIENTS.figure}: the schemes are closer to each other than in {MANY_CLIENTS.figure}",
        f"the proposed scheme is {shown[0]} points above OLS in {MANY_CLIENTS.figure}, and {shown[1]} points in "
        f"{FEW_CLIENTS.figure}",
        [above(f"points of {PROPOSED} above {OLS}, {MANY_CLIENTS.figure} less {FEW_CLIENTS.figure}", less)],
        seeds=len(spreads[0]),
    )


def privacy_claim(scenario: PublishedScenario, privacy: pd.DataFrame) -> PaperClaim:
    """Return the claim on the guarantee of the proposed scheme's noise.

    Args:
        scenario: the paper's scenario.
        privacy: columns figure, scheme, sigma, rounds, bound, epsilon of a round, epsilon of all rounds.
    """
    rows = _losses(privacy, scenario, PROPOSED)
    least, most = (float(rows["epsilon of a round"][bound]) for bound in (EPSILON_LEAST, EPSILON_MOST))
    all_least, all_most = (float(rows["epsilon of all rounds"][bound]) for bound in (EPSILON_LEAST, EPSILON_MOST))
    return PaperClaim(
        f"{scenario.figure}: the proposed scheme's sigma = {scenario.sigmas[PROPOSED]} makes every round "
        f"({EPSILON}, {DELTA:g})-DP",
        f"at sigma = {rows['sigma'].iloc[0]:.4g} a round loses epsilon {least:.3g} at least, and {most:.3g} at most "
        f"(WCS); {rows['rounds'].iloc[0]} rounds {all_least:.3g} to {all_most:.3g}",
        [between("epsilon that two data sets lose in a round", least, most=EPSILON)],
        counted_in="random-participation-unsound",
        uses_data=False,
    )


def _remarks(setting: Setting, tried: pd.DataFrame, curves: Mapping[str, Mapping[str, AccuracyCurves]]) -> list[str]:
    """Return the data, the choice of the learning rates, and the comparison."""
    searches = [
        f"{scenario.figure}: " + "; ".join(_searched(str(scheme), rows) for scheme, rows in of_figure)
        for scenario in SCENARIOS
        for of_figure in [tried[tried["figure"] == scenario.figure].groupby("scheme", sort=False)]
    ]
    rises = [
        f"{figure}: "
        + ", ".join(f"{scheme} {np.mean(of.late - _halfway(of)):+.1f}" for scheme, of in by_scheme.items())
        for figure, by_scheme in curves.items()
    ]
    return [
        f"Data: {setting.data}.",
        *setting.differs,
        "Learning rates: every scheme was tried with each rate of its grid on one seed that is not compared, and "
        "compared at the best. In brackets each accuracy. " + ". ".join(searches) + ".",
        f"{len(setting.seeds)} seeds; momentum {setting.choices['momentum']} at the server. An accuracy is the mean "
        "over the evaluations of a run's last tenth; ± and bands: 95% intervals over the seeds. The schemes of a seed "
        "differ only in noise and learning rate.",
        "Points of accuracy from the middle to the end of the runs: " + ". ".join(rises) + ". Schemes that still rise "
        "may come closer to the others in longer runs.",
        f"Judged as: much higher, more than {MUCH:g} points; non-trivial, more than {NON_TRIVIAL:g} point. The paper's "
        "text has no numbers.",
        "All four are the same algorithm. They differ in the sigma that an analysis requires for a round to be "
        f"({EPSILON}, {DELTA:g})-DP. That of Theorem 4.1 (as the paper evaluates it) is no such guarantee: the loss "
        "of a round lies between the worse of two possible pairs of data sets (the client's other gradients "
        "orthogonal to the sample's, or parallel) and WCS.",
    ]


def _searched(scheme: str, rows: pd.DataFrame) -> str:
    """Return the search for a scheme's learning rate as text."""
    rates, reached = rows["learning rate"].tolist(), rows["accuracy [%]"].astype(float).tolist()
    best = best_of(rates, reached)
    shown = ", ".join(f"{rate:g}: {accuracy:.0f}%" for rate, accuracy in zip(rates, reached, strict=True))
    at_end = best in (min(rates), max(rates)) and len(rates) > 1
    return f"{scheme} {best:g} ({shown}{'; at the end of the grid, so there may be a better one' if at_end else ''})"
