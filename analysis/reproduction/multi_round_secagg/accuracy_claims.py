"""Accuracies of six schemes beside the paper's, and whether its orderings hold: differences by seed, 95% intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.reproduction.contract import Agreement, Claim, agreement
from analysis.reproduction.multi_round_secagg.published import (
    COMPARABLE,
    PARTICIPANTS,
    PARTITION,
    RANDOM,
    SCHEMES,
    SETTINGS,
    T3,
    T4,
    WEIGHTED,
    Accuracies,
    Setting,
)
from analysis.reproduction.multi_round_secagg.training import Results, Trained
from analysis.statistics import Interval, mean_interval
from testbed.arrays import Floats

Late = Mapping[str, Floats]
"""`(seeds,)` accuracy in percent, by scheme."""


def table(results: Results, published: Mapping[str, Accuracies]) -> pd.DataFrame:
    """One row per scheme: accuracies (percent, mean and half-width of 95% over seeds) beside the paper's, then T, F, C.

    T is the smallest among the runs of a setting, F and C are means.
    """
    rows = []
    for scheme in SCHEMES:
        row: dict[str, Any] = {"scheme": scheme}
        for setting in [setting for setting in SETTINGS if setting in results]:
            late = mean_interval(results[setting][scheme].curves.late)
            row |= {f"{setting} %": late.mean, f"{setting} ±": late.half_width}
            if published:
                row[f"{setting} % (paper)"] = published[scheme].of(setting)
        for setting in [setting for setting in SETTINGS if setting in results]:
            row |= _metrics(setting, results[setting][scheme])
        rows.append(row)
    return pd.DataFrame.from_records(rows)


def _metrics(setting: Setting, of_scheme: Trained) -> dict[str, Any]:
    weak = "–" if of_scheme.privacy is None else f"{'' if of_scheme.certified else '≤ '}{of_scheme.privacy}"
    strong = "–" if of_scheme.strong is None else str(of_scheme.strong)
    return {
        f"{setting} T weak": weak,
        f"{setting} T strong": strong,
        f"{setting} F": float(of_scheme.fairness.mean()),
        f"{setting} C": float(of_scheme.cardinality.mean()),
        f"{setting} skipped %": float(100 * of_scheme.skipped.mean() / of_scheme.curves.total),
    }


def claims(late: Mapping[Setting, Late]) -> list[Claim]:
    """What the paper says of its figures and tables, of each setting that was run."""
    found = []
    if "IID" in late:
        found += [
            _worst("IID", late["IID"]),
            _comparable("IID", late["IID"], WEIGHTED),
            _comparable("IID", late["IID"], RANDOM),
        ]
    if "non-IID" in late:
        found += [
            _worst("non-IID", late["non-IID"]),
            _comparable("non-IID", late["non-IID"], WEIGHTED),
            _better(late["non-IID"], [T3, T4], "T = 3 and T = 4 are better than random (non-IID)"),
            _better(late["non-IID"], [WEIGHTED], "weighted random is better than random (non-IID)"),
        ]
    return found


NEVER = 0.05
"""Of the rounds: with at most so many of them completed, a scheme fails to train."""


def ablation_claims(population: int, participants: int, schemes: Mapping[str, Trained]) -> list[Claim]:
    """Appendix G, for one size; that partition fails to train is said of K = 24 only.

    A group is there when all of its K users are: that is rarer the larger K is, whatever the data.
    """
    late = {name: one.curves.late for name, one in schemes.items()}
    where = f"N = {population}, K = {participants}"
    found = [_worst(where, late), _comparable(where, late, RANDOM), _comparable(where, late, WEIGHTED)]
    if participants > PARTICIPANTS:
        curves = schemes[PARTITION].curves
        done = 1 - schemes[PARTITION].skipped / curves.total
        start, end = curves.accuracy[:, 0].mean(), curves.late.mean()
        found.append(
            Claim(
                f"partition fails to train ({where}); judged: at most {100 * NEVER:g}% of its rounds have a sum",
                f"{100 * done.mean():.1f}% of the rounds; {start:.1f}% at the first evaluation, {end:.1f}% at the end",
                agreement((done <= NEVER).all(), done.mean() <= NEVER),
            )
        )
    return found


def difference(one: Floats, other: Floats) -> Interval:
    """Mean of one - other, seed by seed, in points of accuracy."""
    return mean_interval(one - other)


def _ends(interval: Interval) -> tuple[float, float, float]:
    """Mean, low and high end; an interval of a single pair has no ends, and reaches everywhere."""
    assert interval.mean is not None
    half = float("inf") if interval.half_width is None else interval.half_width
    return interval.mean, interval.mean - half, interval.mean + half


def _said(interval: Interval) -> str:
    mean, low, _ = _ends(interval)
    return f"{mean:+.2f} ± {mean - low:.2f}"


def _all_of(agreements: Sequence[Agreement]) -> Agreement:
    if all(one == "yes" for one in agreements):
        return "yes"
    return "no" if all(one == "no" for one in agreements) else "partly"


def _greater(interval: Interval) -> Agreement:
    """Yes: the interval is above 0; no: the mean is not; partly: it is, but it may be chance."""
    mean, low, _ = _ends(interval)
    return agreement(low > 0, mean > 0)


def _worst(where: str, late: Late) -> Claim:
    others = {scheme: difference(values, late[PARTITION]) for scheme, values in late.items() if scheme != PARTITION}
    nearest = min(others, key=lambda scheme: _ends(others[scheme])[0])
    return Claim(
        f"partition is worst ({where})",
        f"the next, {nearest}, is {_said(others[nearest])} points from it",
        _all_of([_greater(interval) for interval in others.values()]),
    )


def _comparable(where: str, late: Late, baseline: str) -> Claim:
    """Within the paper's own margin, or no farther from it than chance may be."""
    found = {scheme: difference(late[scheme], late[baseline]) for scheme in (T4, T3)}
    agreements: list[Agreement] = []
    for interval in found.values():
        mean, low, high = _ends(interval)
        apart = low > 0 or high < 0
        within = low >= -COMPARABLE and high <= COMPARABLE
        if within or (not apart and abs(mean) <= COMPARABLE):
            agreements.append("yes")
        else:
            agreements.append("no" if low > COMPARABLE or high < -COMPARABLE else "partly")
    return Claim(
        f"T = 3 and T = 4 are comparable to {_PLAIN[baseline]} ({where}; judged: within {COMPARABLE} points)",
        "; ".join(f"{scheme}: {_said(interval)} points" for scheme, interval in found.items()),
        _all_of(agreements),
    )


def _better(late: Late, schemes: Sequence[str], claim: str) -> Claim:
    found = {scheme: difference(late[scheme], late[RANDOM]) for scheme in schemes}
    return Claim(
        claim,
        "; ".join(f"{scheme}: {_said(interval)} points" for scheme, interval in found.items()),
        _all_of([_greater(interval) for interval in found.values()]),
    )


_PLAIN = {WEIGHTED: "weighted random", RANDOM: "random"}
