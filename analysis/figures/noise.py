"""What noise costs in accuracy: by how much there is, and by the width of the ring in which sums are taken."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.comparison.measures import per_round
from analysis.figures.elements import Drawn, interval_note
from analysis.statistics import mean_interval
from analysis.style import width
from testbed.records import RunRecords


def accuracy_by_noise(runs: Sequence[RunRecords]) -> pd.DataFrame:
    """One row for each noise and ring: noise_multiplier (NaN: no noise), bits, runs, accuracy and its half_width.

    Runs that have measured no accuracy are left out, and runs whose noise is planned from an epsilon, or correlated.
    Rows are in the order of the noise, then of the ring; the 95% interval is over runs that differ in something else
    (seeds).
    """
    rows = []
    for run in runs:
        section: dict[str, Any] = run.experiment["aggregation"]
        noise = section.get("noise") or {}
        measured = per_round(run)["accuracy"].dropna()
        comparable = noise.get("epsilon") is None and noise.get("mechanism") != "correlated"
        if len(measured) and "bits" in section and comparable:
            rows.append((noise.get("noise_multiplier"), section["bits"], float(measured.iloc[-1])))
    frame = pd.DataFrame(rows, columns=["noise_multiplier", "bits", "accuracy"]).astype({"noise_multiplier": float})
    found = []
    for (multiplier, bits), part in frame.groupby(["noise_multiplier", "bits"], dropna=False):
        interval = mean_interval(part["accuracy"])
        found.append((multiplier, bits, len(part), interval.mean, interval.half_width))
    return pd.DataFrame(found, columns=["noise_multiplier", "bits", "runs", "accuracy", "half_width"])


def says_something(frame: pd.DataFrame) -> bool:
    """Whether there is noise, and more than one noise or ring to compare."""
    return len(frame) > 1 and bool(frame["noise_multiplier"].notna().any())


def noise_figure(runs: Sequence[RunRecords], columns: int = 1) -> Drawn | str:
    """What noise costs in accuracy, of runs that differ in it; or why there is no such figure."""
    frame = accuracy_by_noise(runs)
    if not says_something(frame):
        return "no two noises or rings to compare"
    data = frame.rename(columns={"runs": "seeds", "half_width": "accuracy_half_width"})
    return Drawn("accuracy-of-noise", accuracy_of_noise(frame, columns), data)


def accuracy_of_noise(frame: pd.DataFrame, columns: int = 1) -> Figure:
    """Accuracy by noise multiplier and by ring width, the runs without noise as a line; `frame` as of above."""
    noisy, without = frame[frame["noise_multiplier"].notna()], frame[frame["noise_multiplier"].isna()]
    panels = {"noise_multiplier": "Noise multiplier", "bits": "Ring width [bits]"}
    drawn = [key for key in panels if noisy[key].nunique() > 1] or ["noise_multiplier"]
    shape = (1, len(drawn)) if columns == 2 else (len(drawn), 1)
    figure = Figure(figsize=(width(columns), 1.9 * shape[0] + 0.1), layout="constrained")
    for axes, key in zip(figure.subplots(*shape, squeeze=False).flat, drawn, strict=True):
        _points(axes, noisy, without, key)
        axes.set_xlabel(panels[key])
        axes.set_ylabel("Accuracy [%]")
        axes.grid()
    if note := interval_note(frame["runs"].tolist()) if frame["half_width"].notna().any() else "":
        figure.supxlabel(f"error bars: {note.replace('seeds', 'runs')}", fontsize=7)
    return figure


def _points(axes: Axes, noisy: pd.DataFrame, without: pd.DataFrame, key: str) -> None:
    """One line for each value of the other key."""
    other, told = ("bits", "{:g} bits") if key == "noise_multiplier" else ("noise_multiplier", "multiplier {:g}")
    compared = noisy.groupby(other).filter(lambda part: len(part) > 1)  # a single point is in the other panel
    shown = compared if len(compared) else noisy
    values = sorted(shown[key].unique())
    for (value, part), marker in zip(shown.groupby(other), "osD^v+x*" * len(shown), strict=False):
        axes.errorbar(
            [values.index(one) for one in part[key]],
            100 * part["accuracy"],
            yerr=100 * part["half_width"].fillna(0),
            marker=marker,
            markersize=3.5,
            capsize=2,
            linewidth=1.0,
            label=told.format(value),
        )
    for accuracy in without["accuracy"]:
        axes.axhline(100 * accuracy, color="black", linewidth=0.8, linestyle=":", label="no noise")
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.legend(loc="best")
