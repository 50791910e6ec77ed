"""The least-squares attack on a run, measured: each client's error, a histogram (Fig. 10), tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.attacks.reconstruction import Estimates, cosines, errors, estimates
from analysis.attacks.victims import Victims
from analysis.attacks.view import View, view
from analysis.markup import figure_text
from analysis.style import COLUMN_INCHES, house_style, save
from analysis.tables import csv, to_json
from testbed.errors import RunError
from testbed.files.atomic import atomic_write
from testbed.records import RunRecords

_COLOURS = ("#000000", "#009E73", "#D55E00", "#0072B2")
_OTHER_TRAINING = 0.05  # of the first sum's norm: training gives something else than in the run


@dataclass(frozen=True)
class Reconstruction:
    """The attack's outcome.

    Attributes:
        view: what the server saw.
        estimates: what it made of it.
        table: one row per client in some sum: client, error (33), cosine, determined, rounds.
        deviation: how far the first sum is from that of the true updates, relative to its norm: 0 but for rounding
            (and quantisation) when the truth is right.
    """

    view: View
    estimates: Estimates
    table: pd.DataFrame
    deviation: float


def reconstruct(run: RunRecords, first: int, last: int, victims: Victims | None = None) -> Reconstruction:
    """Attack rounds `first` to `last` of a run, and hold the estimates against the updates of the first completed one.

    Raises `ExperimentError` as `view` does, and when the run's workload cannot be made again.
    """
    seen = view(run, first, last)
    victims = Victims(run) if victims is None else victims
    return measured(seen, victims.weights, victims.updates(seen.model, int(seen.rounds[0])))


def measured(seen: View, weights: npt.NDArray[np.float64], truth: npt.NDArray[np.float32]) -> Reconstruction:
    """The attack on `seen`, against the true updates, `(n, d)` float32, of its first round."""
    found = estimates(seen, weights)
    true = truth[found.clients]
    first = seen.participation[0, found.clients]
    total = (weights[found.clients] * first) @ true
    norm = float(np.linalg.norm(seen.sums[0]))
    deviation = float(np.linalg.norm(seen.sums[0] - total)) / norm if norm else 0.0
    table = pd.DataFrame(
        {
            "client": found.clients,
            "error": errors(found.updates, true),
            "cosine": cosines(found.updates, true),
            "determined": found.determined,
            "rounds": seen.participation[:, found.clients].sum(axis=0),
        }
    )
    return Reconstruction(seen, found, table, deviation)


def row(made: Reconstruction) -> dict[str, Any]:
    """The outcome as one flat object; NaN is not known."""
    seen, found, error = made.view, made.estimates, made.table["error"].dropna()
    return {
        "first_round": int(seen.rounds[0]),
        "last_round": int(seen.rounds[-1]),
        "completed": len(seen.rounds),
        "skipped": seen.skipped,
        "clients": seen.participation.shape[1],
        "in_some_sum": len(found.clients),
        "dimension": int(seen.sums.shape[1]),
        "rank": found.rank,
        "condition": found.condition,
        "determined": int(found.determined.sum()),
        "mean_error": error.mean(),
        "median_error": error.median(),
        "smallest_error": error.min(),
        "largest_error": error.max(),
        "mean_cosine": made.table["cosine"].mean(),
        "truth_deviation": made.deviation,
        "truth_holds": made.deviation <= _OTHER_TRAINING,
    }


def text(made: Reconstruction) -> str:
    """The outcome for a person, ending in a line feed."""
    told = row(made)
    lines = [
        "rounds {first_round} to {last_round}: {completed} completed, {skipped} not; "
        "{in_some_sum} of {clients} clients in some sum",
        "rank of P                       {rank}, condition {condition:.3g}",
        "updates that the sums determine {determined} of {in_some_sum}",
        "error |d - d^|^2 / |d|^2        mean {mean_error:.4g}, median {median_error:.4g}, "
        "{smallest_error:.4g} to {largest_error:.4g}",
        "cosine of d and d^              mean {mean_cosine:.4g}",
    ]
    if not told["truth_holds"]:
        lines.append(
            "warning: training again gives another first sum ({truth_deviation:.2g} of its norm): clipped or dishonest "
            "updates, other data, or another version"
        )
    return "\n".join([*lines, ""]).format_map(told)


def files(made: Reconstruction, out: Path) -> list[Path]:
    """Write reconstruction.csv, reconstruction.json and the histogram into `out`; raises `RunError`."""
    contents = {"reconstruction.csv": csv(made.table), "reconstruction.json": to_json(row(made), ascii=True)}
    paths = []
    for name, content in contents.items():
        paths.append(written(out / name, content.encode()))
    return paths + histogram({"": made.table["error"].dropna().to_numpy()}, out / "reconstruction")


def written(path: Path, content: bytes) -> Path:
    """Write a file, and its folder if need be; raises `RunError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path.parent}: cannot be made: {error.strerror}") from None
    with atomic_write(path, lambda why: RunError(f"{path}: cannot be written: {why}")) as file:
        file.write(content)
    return path


def histogram(found: Mapping[str, npt.NDArray[np.float64]], path: Path) -> list[Path]:
    """Fig. 10: how many clients' updates were reconstructed with which error, one panel for each name."""
    everything = np.concatenate(list(found.values()))
    positive = everything[everything > 0]
    low = np.floor(np.log10(positive.min(initial=0.1)))
    high = max(np.ceil(np.log10(positive.max(initial=1.0))), low + 1)
    bins = np.logspace(low, high, int(high - low) * 8 + 1)
    with house_style():
        figure, axes = plt.subplots(
            len(found), 1, figsize=(COLUMN_INCHES, 1.1 + 0.9 * len(found)), sharex=True, squeeze=False
        )
        for axis, colour, (name, values) in zip(axes[:, 0], _COLOURS * len(found), found.items(), strict=False):
            axis.hist(np.clip(values, bins[0], None), bins, color=colour)
            axis.axvline(values.mean(), color="#7F7F7F", linewidth=0.8, linestyle="--")
            axis.set(xscale="log", ylabel="clients")
            axis.set_title(f"{figure_text(name)}{': ' if name else ''}mean {values.mean():.3g}")
        axes[-1, 0].set_xlabel("error of the reconstructed update")
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        paths = save(figure, path)
        plt.close(figure)
    return paths
