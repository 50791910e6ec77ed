"""Theorem 2 of Lotto (arXiv 2401.02880, section 3.4) compared with a server that really attacks.

The paper proves a bound on the probability that dishonest participants exceed eta times their expected share, and
measures nothing. Here the server runs the protocol, with real verifiable random functions and proofs, and removes
honest candidates first (`keep-dishonest-candidates`), which is the worst attack under the theorem. The parameters make
the bound neither 0 nor 1, so that some hundred rounds are enough.
"""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import binom

from analysis.attacks.outcomes import AttackOutcome, attack_outcome
from analysis.bounds.lotto import allowed, expected_share, selection_probability, share_factor
from analysis.bounds.tails import survival
from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import Check, PaperClaim, equal, within_factor
from analysis.statistics import Interval, Proportion, mean_interval
from analysis.style import PAGE_INCHES, house_style, protocol_colours, save
from testbed.experiment.schema import Experiment

POPULATION, DISHONEST, PARTICIPANTS, FACTOR, ETA = 100, 10, 10, 1.3, 2.0
ROUNDS = {"small": 300, "paper": 3000}
_LOTTO = ("lotto-client-centric", "lotto-server-centric")
_KEEP = "keep-dishonest-candidates"


@dataclass(frozen=True)
class TheoremCondition:
    """One selection protocol under one server.

    Attributes:
        selection: the protocol.
        server: misbehaviours of the server; empty for an honest server.
        minimum: n_min, down to which the server may understate the population; None for protocols without it.
    """

    selection: str
    server: tuple[str, ...] = ()
    minimum: int | None = None

    @property
    def label(self) -> str:
        """Name of the run and of its directory."""
        parts = (self.selection, *self.server, *(() if self.minimum is None else (f"n_min={self.minimum}",)))
        return ",".join(parts)

    @property
    def probability(self) -> Fraction | None:
        """Probability p of a client to be a candidate; None for protocols without sortition."""
        return None if self.minimum is None else selection_probability(PARTICIPANTS, FACTOR, self.minimum)

    def bound(self, most: int) -> float | None:
        """Return the bound of Theorem 2 on Pr[x > most]; None without such a guarantee."""
        return None if self.probability is None else survival(most, DISHONEST, self.probability)

    def exact(self, most: int) -> float | None:
        """Return Pr[x > most] for a server that keeps all dishonest candidates; a round also needs |C| >= s."""
        if self.probability is None:
            return None
        p = float(self.probability)
        honest = POPULATION - DISHONEST
        return float(
            sum(
                binom.pmf(ours, DISHONEST, p) * binom.sf(PARTICIPANTS - ours - 1, honest, p)
                for ours in range(most + 1, DISHONEST + 1)
            )
        )


CONDITIONS = (
    TheoremCondition("random"),
    TheoremCondition("random", ("prefer-dishonest",)),
    *(TheoremCondition(protocol, (_KEEP,), POPULATION) for protocol in _LOTTO),
    *(TheoremCondition(protocol, (_KEEP, "understate-population"), POPULATION // 2) for protocol in _LOTTO),
)


def experiment_of(condition: TheoremCondition, rounds: int) -> Experiment:
    """Return rounds with a small model, no masks and no dropouts, in which only selection matters.

    Args:
        condition: protocol and server.
        rounds: number of rounds.
    """
    selection: dict[str, Any] = {"protocol": condition.selection, "participants": PARTICIPANTS}
    if condition.minimum is not None:
        selection |= {"over_selection": FACTOR, "min_population": condition.minimum}
    return declared(
        condition.label,
        """
        seed: 1
        workload: {dataset: digits, model: logistic, batch_size: 100}
        aggregation: {protocol: plain}
        cluster: {network: in-process}
        """,
        {
            "rounds": rounds,
            "population": POPULATION,
            "workload.evaluate_every": rounds,
            "selection": selection,
            "adversary": {"dishonest": DISHONEST, "server": list(condition.server)},
        },
    )


def run_theorem2(context: ReproductionContext) -> ReproductionResult:
    """Run every condition, and compare the frequencies of x with the theorem."""
    rounds = ROUNDS[context.scale]
    outcomes, shares = {}, {}
    for condition in CONDITIONS:
        context.progress(f"{condition.label}: {rounds} rounds")
        (run,) = context.run_experiment(experiment_of(condition, rounds), context.out / condition.label)
        outcomes[condition] = attack_outcome(run)
        done = run.rounds.loc[run.rounds["outcome"] == "completed", "round"]
        dishonest = run.participation.groupby("round")["dishonest"].sum().reindex(done)
        # Of completed rounds, that is given |C| >= s, as in `expected_share`.
        shares[condition] = mean_interval(dishonest.to_numpy(np.float64) / PARTICIPANTS)
    rows = [_row(condition, attacked) for condition, attacked in outcomes.items()]
    remarks = (
        f"{rounds} rounds each, n = {POPULATION}, c = {DISHONEST}, s = {PARTICIPANTS}, a = {FACTOR}; the paper's "
        "example (n = 2e5, c = 1e3, s = 200, eta = 10) has a bound of 1.3e-7, which no number of rounds tells from 0.",
        "x counts as 0 in rounds with fewer than s candidates: they end without participants, also in `worst case`, "
        "the exact probability for a server that keeps all its candidates.",
        "Intervals are Clopper and Pearson's, of 95% each where nothing else is said.",
    )
    table = pd.DataFrame(rows)
    return ReproductionResult(table, draw(outcomes, context.out), claims(table, outcomes, shares), remarks)


def _row(condition: TheoremCondition, attacked: AttackOutcome) -> dict[str, Any]:
    most = allowed(POPULATION, DISHONEST, PARTICIPANTS, ETA)
    share, done = attacked.exceeding(most), max(len(attacked.dishonest), 1)
    return {
        "selection": condition.selection,
        "server": " + ".join(condition.server) or "honest",
        "n_min": "–" if condition.minimum is None else str(condition.minimum),
        "rounds": attacked.planned,
        "completed": attacked.completed,
        "refused": attacked.refused,
        "mean x": sum(attacked.dishonest) / done,
        "max x": max(attacked.dishonest, default=0),
        _RATE: share.rate,
        "low": share.low,
        "high": share.high,
        "worst case": condition.exact(most),
        "Theorem 2": condition.bound(most),
    }


APPROXIMATELY = 0.1
"""Share of lambda that "approximately" allows: here one round in seven has too few candidates, and is not run."""

_TOGETHER = 1.28
"""Factor that widens four intervals of 95% so that they hold together with 95% (Bonferroni, normal)."""


def growth(shares: dict[TheoremCondition, Interval]) -> PaperClaim:
    """Return the claim of section 3.4 on the expected share of dishonest participants, by its sum and as measured."""
    checks, texts, apart = [], [], 0
    for condition, share in shares.items():
        if condition.minimum is None:
            continue
        factor = share_factor(POPULATION, FACTOR, condition.minimum)
        exact = expected_share(POPULATION, DISHONEST, PARTICIPANTS, FACTOR, condition.minimum)
        grown = exact * POPULATION / DISHONEST
        checks.append(within_factor("expectation over lambda", grown / factor, 1, 1 + APPROXIMATELY))
        mean, half = share.mean or 0.0, share.half_width or 0.0
        apart += abs(mean - exact) > _TOGETHER * half
        measured = mean * POPULATION / DISHONEST
        where = f"{condition.selection}, n = {condition.minimum}"
        texts.append(f"{where}: {measured:.2f} measured, {grown:.2f} by the sum, lambda {factor:.2g}")
    checks.append(equal("measured shares with an interval that excludes the sum", apart, 0))
    return PaperClaim(
        "a server grows the share of dishonest participants about lambda = a n_true / n times, in expectation",
        "; ".join(texts),
        checks,
    )


def claims(
    table: pd.DataFrame, outcomes: dict[TheoremCondition, AttackOutcome], shares: dict[TheoremCondition, Interval]
) -> list[PaperClaim]:
    """Return the claims on the theorem, its tightness, the expectation, and a server without the theorem's protection.

    Args:
        table: one row per condition.
        outcomes: outcome of the attack by condition.
        shares: dishonest participants over s, mean of completed rounds, by condition.
    """
    under_lotto = {condition: outcome for condition, outcome in outcomes.items() if condition.minimum is not None}
    compared = len(under_lotto) * DISHONEST  # number of intervals that hold together with 95% (Bonferroni)
    above = [
        (condition, most)
        for condition, outcome in under_lotto.items()
        for most in range(DISHONEST)
        if outcome.exceeding(most, 1 - 0.05 / compared).low > (condition.bound(most) or 0.0)
    ]
    trusted = outcomes[CONDITIONS[1]].dishonest
    return [
        PaperClaim(
            "Theorem 2: Pr[x/s > eta c/n] <= 1 - BinCDF(floor(eta c s/n); c, p), for each announced round",
            f"of {compared} rates (each variant and n_min, each x), {len(above)} lie above the bound "
            "(with intervals that hold together with 95%)",
            [equal("rates above the bound", float(len(above)), 0)],
            seeds=int(table["rounds"].min()),
        ),
        _attained(table),
        growth(shares),
        _chosen_freely(table, min(trusted), max(trusted)),
    ]


def claims_of(table: pd.DataFrame) -> list[PaperClaim | None]:
    """Return the claims that the table determines; the last only if the mean of x is its maximum."""
    free = table[table["server"] == "prefer-dishonest"].iloc[0]
    most = int(free["max x"])
    return [None, _attained(table), None, _chosen_freely(table, most, most) if free["mean x"] == most else None]


_RATE = f"Pr[x/s > {ETA:g} c/n]"


def _attained(table: pd.DataFrame) -> PaperClaim:
    """Claim that a server that understates n reaches the bound."""
    tightest = [
        (str(row["selection"]), Proportion.of(round(row[_RATE] * row["rounds"]), int(row["rounds"])), row["Theorem 2"])
        for _, row in table[table["n_min"] == str(POPULATION // 2)].iterrows()
    ]
    return PaperClaim(
        "the bound is for a server that keeps all dishonest candidates and understates n down to n_min",
        "; ".join(f"{name}: {_percent(share)}, bound {100 * bound:.1f}%" for name, share, bound in tightest),
        [_attains(name, share, bound) for name, share, bound in tightest],
        seeds=int(table["rounds"].min()),
    )


def _chosen_freely(table: pd.DataFrame, fewest: int, most: int) -> PaperClaim:
    return PaperClaim(
        "where the server chooses freely, it can fill the round with its own clients",
        f"random, prefer-dishonest: x = {fewest} to {most} of {PARTICIPANTS}",
        [equal("fewest dishonest participants of a round", fewest, min(PARTICIPANTS, DISHONEST))],
        seeds=int(table["rounds"].min()),
    )


TIGHT = 0.25
"""Distance of a rate's whole interval from the bound, as a share of the bound, that counts as attained: twice the
chance variation of 300 rounds."""


def _attains(selection: str, share: Proportion, bound: float) -> Check:
    ends = share.rate / bound, share.low / bound, share.high / bound
    return Check(f"{selection}: rate over bound", *ends, 1 - TIGHT, 1 + TIGHT)


def _percent(share: Proportion) -> str:
    return f"{100 * share.rate:.1f}% [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def draw(outcomes: dict[TheoremCondition, AttackOutcome], out: Path) -> list[Path]:
    """Draw Pr[x > k] for each k with its interval, beside the theorem, for both n_min, and return the files.

    Args:
        outcomes: outcome of the attack by condition.
        out: existing directory.
    """
    with house_style():
        figure = Figure(figsize=(PAGE_INCHES, 2.5), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        colours = protocol_colours(["random", *_LOTTO])
        everywhere = [condition for condition in outcomes if condition.minimum is None]
        for panel, minimum in zip(panels, (POPULATION, POPULATION // 2), strict=True):
            shown = [*everywhere, *(condition for condition in outcomes if condition.minimum == minimum)]
            bound = [shown[-1].bound(most) or 0.0 for most in range(PARTICIPANTS)]
            panel.step(range(PARTICIPANTS), bound, where="mid", color="#888888", label="Theorem 2")
            for place, condition in enumerate(shown):
                shares = [outcomes[condition].exceeding(most) for most in range(PARTICIPANTS)]
                counts = [most for most, share in enumerate(shares) if share.count]
                rates = [shares[most].rate for most in counts]
                ends = [
                    [shares[most].rate - shares[most].low for most in counts],
                    [shares[most].high - shares[most].rate for most in counts],
                ]
                honest = not condition.server
                panel.errorbar(
                    [most + 0.12 * (place - 1.5) for most in counts],
                    rates,
                    ends,
                    linestyle="none",
                    capsize=1.5,
                    marker="x" if honest else "o",
                    markersize=3.5,
                    elinewidth=0.8,
                    color=colours[condition.selection],
                    label=f"{condition.selection}, {'honest' if honest else 'malicious'} server",
                )
            panel.set_yscale("log")
            panel.set_ylim(0.5 / max(outcome.planned for outcome in outcomes.values()), 1.6)
            panel.set_xticks(range(PARTICIPANTS))
            panel.set_xlabel(f"k, of s = {PARTICIPANTS} participants")
            announced = "the true n" if minimum == POPULATION else f"n = {minimum} of {POPULATION}, as n_min allows"
            panel.set_title(f"Lotto is told {announced}")
            panel.grid(axis="y")
        panels[0].set_ylabel("Pr[more than k are dishonest]")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return save(figure, out / "lotto-theorem2", plot_data(figure))


REPRODUCTIONS = (
    Reproduction(
        "lotto-theorem2",
        "The dishonest fraction that a malicious server attains, against Theorem 2's bound",
        "Lotto (arXiv 2401.02880), Theorem 2 in section 3.4; the paper gives no measurement",
        run_theorem2,
        claims_of=lambda table, seeds: claims_of(table),
    ),
)
