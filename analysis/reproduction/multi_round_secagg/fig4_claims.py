"""Tables, claims and remarks of Multi-RoundSecAgg's Figures 4 and 5 (a), from the metrics of each scheme and seed."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analysis.reproduction.multi_round_secagg.published import PARTICIPANTS, PARTITION, POPULATION, RANDOM, WEIGHTED
from analysis.reproduction.verdicts import Check, PaperClaim, above, equal, within
from analysis.statistics import mean_interval
from testbed.arrays import Floats

BY_NUMBER = "weighted-random, ties by number"
"""Weighted random selection as in the public code: among equal counts the smaller user number."""

PRIVACY = {RANDOM: 1, WEIGHTED: 1, PARTITION: 12} | {
    f"batch-partition, T = {privacy}": privacy for privacy in (6, 4, 3)
}
"""T that each scheme guarantees."""

EARLY = 80
"""Round at which the stored values of the public code for random and weighted random differ most."""

STORED_EARLY = {RANDOM: 12.0, BY_NUMBER: 10.04}
"""Mean T at round 80 in results/Simul_N120_K12_p03_Privacy of the public code, 200 trials."""

DROP = 0.1
"""Share of N by which "about N rounds" may differ from N."""

ALMOST = 0.02
"""Share of random selection's cardinality by which "almost the same" may differ."""

SAME = 0.5
"""T by which two curves that are drawn as one may differ."""

_PRIVATE_SCHEMES = [name for name, privacy in PRIVACY.items() if privacy > 1]
_ALMOST = tuple(f"batch-partition, T = {privacy}" for privacy in (3, 4))


def over_seeds(values: Floats, digits: int = 3) -> str:
    """Return the mean over the seeds with its 95% interval, as text.

    Args:
        values: `(seeds,)` numbers; NaN values are left out.
        digits: significant figures of the mean.
    """
    interval = mean_interval(values)
    if interval.mean is None:
        return "–"
    half = "" if not interval.half_width else f" ± {interval.half_width:.{max(1, digits - 1)}g}"
    return f"{interval.mean:.{digits}g}{half}"


def by_scheme(frame: pd.DataFrame, column: str) -> dict[str, Floats]:
    """Return a metric by scheme, `(seeds,)` float64 each.

    Args:
        frame: one row per scheme and seed.
        column: name of the metric.
    """
    return {
        str(name): group[column].to_numpy(np.float64, na_value=np.nan)
        for name, group in frame.groupby("scheme", sort=False)
    }


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics after the last round, mean over the seeds ± 95% half-width; the paper states only T."""
    rows = []
    for name, group in frame.groupby("scheme", sort=False):
        of_name = {column: group[column].to_numpy(np.float64, na_value=np.nan) for column in _SHOWN}
        rows.append(
            {
                "scheme": name,
                "T (paper)": PRIVACY.get(str(name), PRIVACY[WEIGHTED]),
                **{heading: over_seeds(of_name[column], digits) for column, (heading, digits) in _SHOWN.items()},
                "rounds certified": f"{100 * (1 - group['not certified'] / group['rounds']).mean():.2f}%",
            }
        )
    return pd.DataFrame.from_records(rows)


_SHOWN = {
    "weak": ("T weak", 3),
    "strong": ("T strong", 3),
    "weak early": (f"T weak at round {EARLY}", 3),
    "T = 1 after round": ("T = 1 after round", 4),
    "F": ("F", 3),
    "F completed": ("F completed", 3),
    "C": ("C", 4),
}


def claims(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims of section 6 on Figure 4, and of Remark 11; none depends on a data set."""
    seeds = frame["seed"].nunique()
    # A T that does not drop counts as dropping after the last round.
    rounds = frame["rounds"].max() + 1
    drops = {
        name: np.nan_to_num(values, nan=rounds)
        for name, values in by_scheme(frame, "T = 1 after round").items()
        if name in (RANDOM, WEIGHTED, BY_NUMBER)
    }
    proved = {name: float(values.min()) for name, values in by_scheme(frame, "least proved").items()}
    strong = {name: float(values.min()) for name, values in by_scheme(frame, "strong").items()}
    cardinality, fairness = by_scheme(frame, "C"), by_scheme(frame, "F")
    batches = [name for name, privacy in PRIVACY.items() if 1 < privacy < PARTICIPANTS]
    return [
        PaperClaim(
            "T of random and weighted random drops to 1 at about N = 120 rounds (Remark 11)",
            "; ".join(f"{name}: round {over_seeds(values, 4)}" for name, values in drops.items()),
            [within("round", mean_interval(values), POPULATION, DROP * POPULATION) for values in drops.values()],
            seeds=seeds,
            uses_data=False,
        ),
        _same_curve(frame),
        PaperClaim(
            "partition and batch partition keep T = 12, 6, 4, 3",
            "least T weak that is proved in any round "
            + ", ".join(f"{proved[name]:g}" for name in _PRIVATE_SCHEMES)
            + ", T strong "
            + ", ".join(f"{strong[name]:g}" for name in _PRIVATE_SCHEMES),
            [equal(f"least T of {name}", proved[name], PRIVACY[name]) for name in _PRIVATE_SCHEMES]
            + [equal(f"T strong of {name}", strong[name], PRIVACY[name]) for name in _PRIVATE_SCHEMES],
            seeds=seeds,
            uses_data=False,
        ),
        PaperClaim(
            "partition has the worst cardinality",
            _each(cardinality, 4),
            [
                above("users more than partition", mean_interval(cardinality[name] - cardinality[PARTITION]))
                for name in PRIVACY
                if name != PARTITION
            ],
            seeds=seeds,
            uses_data=False,
        ),
        PaperClaim(
            "T = 3 and T = 4 have almost the cardinality of random selection",
            ", ".join(f"{name}: {over_seeds(share, 5)} of it" for name, share in _shares(cardinality).items()),
            _almost(cardinality),
            seeds=seeds,
            uses_data=False,
        ),
        PaperClaim(
            "Multi-RoundSecAgg has a smaller fairness gap than random selection (batches by Algorithm 2 as printed)",
            _each(fairness, 2),
            [above("F of random less that of batches", mean_interval(fairness[RANDOM] - fairness[b])) for b in batches],
            seeds=seeds,
            uses_data=False,
        ),
    ]


def _same_curve(frame: pd.DataFrame) -> PaperClaim:
    """Return the claim of Figure 4 (a) that weighted random has random's curve, judged at one round."""
    early = by_scheme(frame, "weak early")
    return PaperClaim(
        "The curve of weighted random is that of random (Fig. 4a)",
        f"T weak at round {EARLY}: random {over_seeds(early[RANDOM])}, weighted random {over_seeds(early[WEIGHTED])}, "
        f"with ties by number, as in the public code, {over_seeds(early[BY_NUMBER])}",
        [
            within(
                f"T more than random's at round {EARLY}, {name}", mean_interval(early[name] - early[RANDOM]), 0, SAME
            )
            for name in (WEIGHTED, BY_NUMBER)
        ],
        seeds=frame["seed"].nunique(),
        uses_data=False,
    )


def trade_off_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return T and C of the schemes of Figure 5 (a)."""
    of_figure = frame[frame["scheme"].isin(PRIVACY)]
    return table(of_figure)[["scheme", "T (paper)", "T weak", "C"]]


def trade_off_claim(frame: pd.DataFrame) -> PaperClaim:
    """Return the claim of Figure 5 (a)."""
    privacy, cardinality = by_scheme(frame, "weak"), by_scheme(frame, "C")
    more = [
        above("T more than that of random and weighted random", mean_interval(privacy[name] - privacy[other]))
        for name in _ALMOST
        for other in (RANDOM, WEIGHTED)
    ]
    texts = [f"{name}: T = {privacy[name].mean():g}, C = {over_seeds(cardinality[name], 4)}" for name in PRIVACY]
    return PaperClaim(
        "T = 3 and T = 4 are more private than random and weighted random, with almost the same cardinality",
        ", ".join(texts),
        [*more, *_almost(cardinality)],
        seeds=frame["seed"].nunique(),
        counted_in="multiround-fig4",
        uses_data=False,
    )


def _shares(cardinality: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the cardinality of T = 3 and of T = 4 over random's, `(seeds,)` each."""
    return {name: cardinality[name] / cardinality[RANDOM] for name in _ALMOST}


def _almost(cardinality: Mapping[str, Floats]) -> list[Check]:
    return [within("share of it", mean_interval(share), 1.0, ALMOST) for share in _shares(cardinality).values()]


def _each(values: Mapping[str, Floats], digits: int) -> str:
    return ", ".join(f"{name}: {over_seeds(values[name], digits)}" for name in PRIVACY)


def remarks(frame: pd.DataFrame) -> list[str]:
    """Return the inputs, facts of the public code, and the rounds in which T is not certified."""
    lines = [
        "The paper draws each user's dropout probability from {0.1, 0.2, 0.3, 0.4, 0.5} and does not say how: here "
        "uniformly, anew for each seed. Selection is the federation's own code, without training.",
        "Batches are chosen by Algorithm 2 as printed. multiround-fairness has the other rules, F = 0 of Theorem 1, "
        "and F by completed rounds, by which the public code divides.",
        "The public notebook Plot_results.ipynb draws the values of random selection under the label weighted random. "
        f"Those that it stores for weighted random are lower before round 120: at round {EARLY} "
        f"{STORED_EARLY[BY_NUMBER]:g} on average, random {STORED_EARLY[RANDOM]:g}.",
    ]
    for name, group in frame.groupby("scheme", sort=False):
        some = group[group["not certified"] > 0]
        if len(some):
            mean = float((some["mean gap"] * some["not certified"]).sum() / some["not certified"].sum())
            lines.append(
                f"{name}: T is not certified in {group['not certified'].mean():.0f} rounds of a seed (between rounds "
                f"{some['first not certified'].min():.0f} and {some['last not certified'].max():.0f}): the smallest "
                f"known value exceeds the lower bound by {some['least gap'].min():.0f} to "
                f"{some['largest gap'].max():.0f}, {mean:.1f} on average."
            )
    return lines
