"""Tables and claims of Multi-RoundSecAgg's training experiments, from the accuracies of each scheme and seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.reproduction.contract import DataKind
from analysis.reproduction.multi_round_secagg import published as paper
from analysis.reproduction.multi_round_secagg.published import Accuracies, Setting
from analysis.reproduction.multi_round_secagg.training import Results, TrainedRun
from analysis.reproduction.training_runs import AccuracyCurves
from analysis.reproduction.verdicts import PaperClaim, Reason, above, between, within
from analysis.statistics import Interval, mean_interval
from testbed.arrays import Floats

Late = Mapping[str, Floats]
"""Accuracy by scheme, `(seeds,)` in percent."""


def table(results: Results, published: Mapping[str, Accuracies], by_label: bool = False) -> pd.DataFrame:
    """Return one row per scheme: accuracies beside the paper's, then T, F and C.

    Accuracies are in percent, as mean and half-width of the 95% interval over seeds. T is the smallest among the runs
    of a setting, F and C are means. If dropouts depend on the label, the row also has the recall of the worst label.

    Args:
        results: runs by setting and scheme.
        published: the paper's accuracies by scheme; empty if the paper has none.
        by_label: whether dropouts depend on the label in the non-IID setting.
    """
    rows = []
    for scheme in paper.SCHEMES:
        row: dict[str, Any] = {"scheme": scheme}
        for setting in [setting for setting in paper.SETTINGS if setting in results]:
            late = mean_interval(results[setting][scheme].curves.late)
            row |= {f"{setting} %": late.mean, f"{setting} ±": late.half_width}
            if published:
                row[f"{setting} % (paper)"] = published[scheme].of(setting)
            if by_label and setting == "non-IID":
                worst = mean_interval(results[setting][scheme].worst)
                row |= {"worst label %": worst.mean, "worst label ±": worst.half_width}
        for setting in [setting for setting in paper.SETTINGS if setting in results]:
            row |= _metrics(setting, results[setting][scheme])
        rows.append(row)
    return pd.DataFrame.from_records(rows)


def _metrics(setting: Setting, of_scheme: TrainedRun) -> dict[str, Any]:
    weak = "–" if of_scheme.privacy is None else f"{'' if of_scheme.certified else '≤ '}{of_scheme.privacy}"
    strong = "–" if of_scheme.strong is None else str(of_scheme.strong)
    return {
        f"{setting} T weak": weak,
        f"{setting} T strong": strong,
        f"{setting} F": float(of_scheme.fairness.mean()),
        f"{setting} F completed": float(of_scheme.fairness_completed.mean()),
        f"{setting} C": float(of_scheme.cardinality.mean()),
        f"{setting} skipped %": float(100 * of_scheme.skipped.mean() / of_scheme.curves.total),
    }


def claims(late: Mapping[Setting, Late]) -> list[PaperClaim]:
    """Return the paper's claims about its figures and tables, for each setting that was run."""
    stated: list[PaperClaim] = []
    if "IID" in late:
        stated += [
            _worst("IID", late["IID"]),
            _comparable("IID", late["IID"], paper.WEIGHTED),
            _comparable("IID", late["IID"], paper.RANDOM),
        ]
    if "non-IID" in late:
        stated += [
            _worst("non-IID", late["non-IID"]),
            _comparable("non-IID", late["non-IID"], paper.WEIGHTED),
            _better(late["non-IID"], [paper.T3, paper.T4], "T = 3 and T = 4 are better than random (non-IID)"),
            _better(late["non-IID"], [paper.WEIGHTED], "weighted random is better than random (non-IID)"),
        ]
    return stated


def levels(results: Results, published: Mapping[str, Accuracies], reason: Reason) -> PaperClaim:
    """Return the claim on the accuracies themselves, judged by the last round.

    Args:
        results: runs by setting and scheme.
        published: the paper's accuracies.
        reason: why the accuracies are not compared; empty if data, model and rounds are the paper's.
    """
    last = {
        (setting, scheme): mean_interval(run.curves.last)
        for setting, schemes in results.items()
        for scheme, run in schemes.items()
    }
    texts = {
        setting: ", ".join(
            f"{scheme} {last[setting, scheme].mean:.1f} ({published[scheme].of(setting):.1f})" for scheme in schemes
        )
        for setting, schemes in results.items()
    }
    return PaperClaim(
        "the accuracies of the table, as numbers",
        "after the last round (paper): " + "; ".join(f"{setting}: {text}" for setting, text in texts.items()),
        [
            within(
                "accuracy after the last round less the paper's",
                Interval(None, None) if reason or value.mean is None
                else Interval(value.mean - published[scheme].of(setting), value.half_width),
                0.0, paper.COMPARABLE,
            )
            for (setting, scheme), value in last.items()
        ],
        seeds=max(len(run.skipped) for schemes in results.values() for run in schemes.values()),
        not_run=reason,
    )  # fmt: skip


STARTED = 1 / 3
"""Share of the rounds after which random selection's accuracy is the target of `rate_claim`."""

SAME_RATE = 1.25
"""Factor between two numbers of rounds that counts as none."""


def rounds_to(curves: AccuracyCurves, target: float) -> Floats:
    """Return the rounds to an accuracy, interpolated between evaluations, `(seeds,)`; NaN where it is not reached.

    Args:
        curves: accuracies of one scheme.
        target: accuracy in percent.
    """
    reached = []
    for accuracy in curves.accuracy:
        above_target = np.flatnonzero(accuracy >= target)
        if not len(above_target):
            reached.append(np.nan)
            continue
        first = int(above_target[0])
        before = max(first - 1, 0)
        reached.append(
            float(np.interp(target, accuracy[[before, first]], curves.rounds[[before, first]]))
            if first
            else float(curves.rounds[0])
        )
    return np.array(reached)


def rate_claim(schemes: Mapping[str, TrainedRun], where: str) -> PaperClaim:
    """Return the claim of Remark 8 that C controls the rate: rounds to an accuracy over random's, against K / C.

    Args:
        schemes: runs by scheme.
        where: setting or sizes, for the text.
    """
    random = schemes[paper.RANDOM]
    place = int(np.searchsorted(random.curves.rounds, STARTED * random.curves.total))
    target = float(random.curves.accuracy[:, min(place, len(random.curves.rounds) - 1)].mean())
    baseline = rounds_to(random.curves, target)
    reached = {scheme: rounds_to(schemes[scheme].curves, target) for scheme in (paper.T6, paper.T4, paper.T3)}
    censored = any(np.isnan(rounds).any() for rounds in (baseline, *reached.values())) or not random.cardinality.all()
    judged = {
        scheme: Interval(None, None)
        if censored
        else mean_interval(np.log(rounds / baseline * schemes[scheme].cardinality / random.cardinality))
        for scheme, rounds in reached.items()
    }
    return PaperClaim(
        f"A smaller C needs more rounds to the same accuracy, in proportion to K / C (Remark 8, {where})",
        f"rounds to {target:.1f}% over random's, times C over random's C: "
        + "; ".join(f"{scheme} (C = {schemes[scheme].cardinality.mean():.2f}): {_times(each)}"
                    for scheme, each in judged.items()),
        [within("log of it", each, 0.0, float(np.log(SAME_RATE))) for each in judged.values()],
        seeds=len(baseline),
        not_run="censored" if censored else "",
    )  # fmt: skip


def _times(interval: Interval) -> str:
    if interval.mean is None:
        return "not reached by all seeds"
    if interval.half_width is None:
        return f"{np.exp(interval.mean):.2f}"
    low, high = np.exp([interval.mean - interval.half_width, interval.mean + interval.half_width])
    return f"{np.exp(interval.mean):.2f} ({low:.2f} to {high:.2f})"


def reason_of(kind: DataKind, is_papers: bool) -> Reason:
    """Return why accuracies are not compared with the paper's; empty if they are.

    Args:
        kind: kind of the data.
        is_papers: whether model and rounds are the paper's.
    """
    if kind != "paper":
        return "data"
    return "" if is_papers else "length"


def printed_cells(printed: Mapping[str, Accuracies], stored: Mapping[str, Accuracies]) -> str:
    """Return the cells of a table that differ from the stored runs by more than 0.1 points, as text.

    Args:
        printed: the paper's accuracies.
        stored: means in the public repository.
    """
    cells = [
        f"{scheme} {setting} {printed[scheme].of(setting):.2f} ({stored[scheme].of(setting):.2f})"
        for setting in paper.SETTINGS
        for scheme in printed
        if abs(printed[scheme].of(setting) - stored[scheme].of(setting)) > 0.1
    ]
    return f"{len(cells)} of {2 * len(printed)} printed accuracies differ from them by more than 0.1 points" + (
        f": {', '.join(cells)}" if cells else ""
    )


NEVER = 0.05
"""Largest share of completed rounds at which a scheme counts as failing to train."""


def ablation_claims(population: int, participants: int, schemes: Mapping[str, TrainedRun]) -> list[PaperClaim]:
    """Return the claims of appendix G for one size; "partition fails to train" is stated for K = 24 only.

    A group takes part only if all of its K users are available, which is rarer for larger K, with any data.

    Args:
        population: N.
        participants: K.
        schemes: runs by scheme.
    """
    late = {name: runs.curves.late for name, runs in schemes.items()}
    where = f"N = {population}, K = {participants}"
    stated = [_worst(where, late), _comparable(where, late, paper.RANDOM), _comparable(where, late, paper.WEIGHTED)]
    if participants > paper.PARTICIPANTS:
        curves = schemes[paper.PARTITION].curves
        done = 1 - schemes[paper.PARTITION].skipped / curves.total
        start, end = curves.accuracy[:, 0].mean(), curves.late.mean()
        stated.append(
            PaperClaim(
                f"partition fails to train ({where})",
                f"{100 * done.mean():.1f}% of the rounds; {start:.1f}% at the first evaluation, {end:.1f}% at the end",
                (between("the most of any seed", float(done.max()), most=NEVER),),
                seeds=len(done),
                uses_data=False,
            )
        )
    return stated


def difference(values: Floats, baseline: Floats) -> Interval:
    """Return the mean of values - baseline, seed by seed, in points of accuracy.

    Args:
        values: `(seeds,)` in percent.
        baseline: `(seeds,)` in percent.
    """
    return mean_interval(values - baseline)


def _format_difference(interval: Interval) -> str:
    """Return a difference as text; a single seed has no interval."""
    return f"{interval.mean:+.2f} ± {'–' if interval.half_width is None else f'{interval.half_width:.2f}'}"


def _points(intervals: Mapping[str, Interval]) -> str:
    return "; ".join(f"{scheme}: {_format_difference(interval)} points" for scheme, interval in intervals.items())


def _worst(where: str, late: Late) -> PaperClaim:
    others = {
        scheme: difference(values, late[paper.PARTITION])
        for scheme, values in late.items()
        if scheme != paper.PARTITION
    }
    nearest = min(others, key=lambda scheme: others[scheme].mean or 0.0)
    return PaperClaim(
        f"partition is worst ({where})",
        f"the next, {nearest}, is {_format_difference(others[nearest])} points from it",
        [above("points of every other scheme over partition", interval) for interval in others.values()],
        seeds=_seeds(late),
    )


def _comparable(where: str, late: Late, baseline: str) -> PaperClaim:
    intervals = {scheme: difference(late[scheme], late[baseline]) for scheme in (paper.T4, paper.T3)}
    margin = paper.comparable_margin(float(late[baseline].mean()))
    return PaperClaim(
        f"T = 3 and T = 4 are comparable to {_PLAIN[baseline]} ({where})",
        _points(intervals),
        [between("points of difference", interval, -margin, margin) for interval in intervals.values()],
        seeds=_seeds(late),
    )


def _better(late: Late, schemes: Sequence[str], claim: str) -> PaperClaim:
    intervals = {scheme: difference(late[scheme], late[paper.RANDOM]) for scheme in schemes}
    return PaperClaim(
        claim,
        _points(intervals),
        [above("points over random", interval) for interval in intervals.values()],
        seeds=_seeds(late),
    )


def _seeds(late: Late) -> int:
    return len(late[paper.RANDOM])


_PLAIN = {paper.WEIGHTED: "weighted random", paper.RANDOM: "random"}


def late_of(results: Results) -> dict[Setting, Late]:
    """Return the late accuracies by setting and scheme, `(seeds,)` each."""
    return {setting: {name: runs.curves.late for name, runs in schemes.items()} for setting, schemes in results.items()}
