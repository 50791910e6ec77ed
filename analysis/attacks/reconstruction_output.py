"""Text, files and histogram of reconstructed updates (`analysis.attacks.reconstruction`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

from analysis.attacks.reconstruction import Reconstruction, other_training
from analysis.style import COLUMN_INCHES, figure_text, house_style, save
from analysis.tables import csv, to_json
from testbed.errors import RunError
from testbed.files.atomic import atomic_write

_COLOURS = ("#000000", "#009E73", "#D55E00", "#0072B2")


def row(made: Reconstruction) -> dict[str, Any]:
    """Return the outcome as one flat object, for JSON; unknown values are NaN."""
    observed, solution, error = made.view, made.estimates, made.table["error"].dropna()
    return {
        "first_round": int(observed.rounds[0]),
        "last_round": int(observed.rounds[-1]),
        "completed": len(observed.rounds),
        "skipped": observed.skipped,
        "clients": observed.participation.shape[1],
        "in_some_sum": len(solution.clients),
        "dimension": int(observed.sums.shape[1]),
        "rank": solution.rank,
        "condition": solution.condition,
        "determined": int(solution.determined.sum()),
        "mean_error": error.mean(),
        "median_error": error.median(),
        "smallest_error": error.min(),
        "largest_error": error.max(),
        "mean_cosine": made.table["cosine"].mean(),
        "truth_deviation": made.deviation,
        "truth_holds": not other_training(made.deviation),
    }


def text(made: Reconstruction) -> str:
    """Return the outcome as text, ending in a line feed."""
    outcome = row(made)
    lines = [
        "rounds {first_round} to {last_round}: {completed} completed, {skipped} not completed; "
        "{in_some_sum} of {clients} clients in at least one sum",
        "rank of P                       {rank}, condition number {condition:.3g}",
        "updates determined by the sums  {determined} of {in_some_sum}",
        "error |d - d^|^2 / |d|^2        mean {mean_error:.4g}, median {median_error:.4g}, "
        "{smallest_error:.4g} to {largest_error:.4g}",
        "cosine of d and d^              mean {mean_cosine:.4g}",
    ]
    if warning := other_training(made.deviation):
        lines.append(f"warning: {warning}")
    return "\n".join([*lines, ""]).format_map(outcome)


def files(made: Reconstruction, out: Path) -> list[Path]:
    """Write reconstruction.csv, reconstruction.json and the histogram.

    Args:
        made: the outcome.
        out: folder of the files.

    Returns:
        Paths of the written files.

    Raises:
        RunError: if a file cannot be written.
    """
    contents = {"reconstruction.csv": csv(made.table), "reconstruction.json": to_json(row(made), ascii=True)}
    paths = [written(out / name, content.encode()) for name, content in contents.items()]
    return paths + histogram({"": made.table["error"].dropna().to_numpy()}, out / "reconstruction")


def written(path: Path, content: bytes) -> Path:
    """Write a file, and create its folder if necessary.

    Args:
        path: of the file.
        content: bytes of the file.

    Raises:
        RunError: if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path.parent}: cannot be made: {error.strerror}") from None
    with atomic_write(path, lambda why: RunError(f"{path}: cannot be written: {why}")) as file:
        file.write(content)
    return path


def histogram(samples: Mapping[str, npt.NDArray[np.float64]], path: Path) -> list[Path]:
    """Draw the numbers of clients by error of their reconstructed updates, one panel for each name (Fig. 10).

    Args:
        samples: errors by name.
        path: of the figure, without suffix.

    Returns:
        Paths of the written files.
    """
    everything = np.concatenate(list(samples.values()))
    positive = everything[everything > 0]
    low = np.floor(np.log10(positive.min(initial=0.1)))
    high = max(np.ceil(np.log10(positive.max(initial=1.0))), low + 1)
    bins = np.logspace(low, high, int(high - low) * 8 + 1)
    with house_style():
        figure, axes = plt.subplots(
            len(samples), 1, figsize=(COLUMN_INCHES, 1.1 + 0.9 * len(samples)), sharex=True, squeeze=False
        )
        for axis, colour, (name, values) in zip(axes[:, 0], _COLOURS * len(samples), samples.items(), strict=False):
            axis.hist(np.clip(values, bins[0], None), bins, color=colour)
            axis.axvline(values.mean(), color="#7F7F7F", linewidth=0.8, linestyle="--")
            axis.set(xscale="log", ylabel="clients")
            axis.set_title(f"{figure_text(name)}{': ' if name else ''}mean {values.mean():.3g}")
        axes[-1, 0].set_xlabel("error of the reconstructed update")
        figure.tight_layout()
        paths = save(figure, path)
        plt.close(figure)
    return paths
