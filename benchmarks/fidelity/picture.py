"""Computed against measured times, both axes logarithmic, one point a case."""

from collections.abc import Sequence
from pathlib import Path

from analysis.style import one_panel
from benchmarks.fidelity.wan_cases import WanCase

_COLOURS = {"reno": "#0072B2", "cubic": "#D55E00", "bbr": "#009E73"}  # Okabe and Ito
_BAND = 1.15
_LIMITS_S = (0.004, 40.0)


def draw(cases: Sequence[tuple[WanCase, float, float]], rounds: Sequence[tuple[float, float]], path: Path) -> None:
    """Write the picture; the suffix of `path` says in which format.

    Args:
        cases: each with its measured and its computed seconds.
        rounds: measured and computed seconds of whole rounds.
        path: .svg, .png or .pdf.
    """
    with one_panel(3.5) as (figure, axes):
        axes.fill_between(
            _LIMITS_S, [end / _BAND for end in _LIMITS_S], [end * _BAND for end in _LIMITS_S], color="#E5E5E5", lw=0
        )
        axes.plot(_LIMITS_S, _LIMITS_S, color="#999999", linewidth=0.6)
        for algorithm, colour in _COLOURS.items():
            for lossy, marker in ((False, "o"), (True, "x")):
                own = [point[1:] for point in cases if point[0].algorithm == algorithm and bool(point[0].loss) == lossy]
                if own:
                    label = f"{algorithm}{', packets lost' if lossy else ''} ({len(own)})"
                    real, computed = zip(*own, strict=True)
                    axes.scatter(real, computed, s=8, lw=0.7, alpha=0.7, marker=marker, color=colour, label=label)
        if rounds:
            label = f"whole rounds ({len(rounds)})"
            real, computed = zip(*rounds, strict=True)
            axes.scatter(real, computed, s=14, lw=0.8, marker="D", facecolor="none", edgecolor="black", label=label)
        axes.set(
            xscale="log", yscale="log", xlim=_LIMITS_S, ylim=_LIMITS_S, aspect="equal",
            xlabel="measured over kernel TCP, s", ylabel="computed, s",
        )  # fmt: skip
        axes.grid()
        axes.legend(loc="upper left")
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=200, bbox_inches="tight", pad_inches=0.03, metadata=metadata)
