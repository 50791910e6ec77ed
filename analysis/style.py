"""How the figures look: column width, readable fonts, colours that colour-blind readers tell apart, embedded fonts."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.display import visible

COLUMN_INCHES = 3.5  # a column of a two-column paper: what is drawn here needs no scaling
_DPI = 200

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same figure on every machine
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "axes.titleweight": "bold",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.2,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.5,
    "legend.labelspacing": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.color": "#D9D9D9",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # TrueType, as publishers ask for
    "ps.fonttype": 42,
    "svg.hashsalt": "testbed",
}

# Protocols: the palette of Okabe and Ito (Color Universal Design, 2008).
_PROTOCOLS = {
    "random": "#000000",
    "lotto-server-centric": "#0072B2",
    "lotto-client-centric": "#D55E00",
    "batch-partition": "#009E73",
    "weighted-random": "#CC79A7",
    "partition": "#E69F00",
    "bernoulli": "#56B4E9",
    "verifiable-batch-partition": "#882255",
}
# Stages: a hue per phase, light to dark within it, so that neighbours differ in lightness too.
_STAGES = {
    "check-in": "#BDBDBD",
    "lotto/announce": "#FDD49E",
    "lotto/prove": "#FDBB84",
    "lotto/participants": "#FC9F52",
    "lotto/signatures": "#C44E00",
    "train": "#2B83BA",
    "secagg/advertise-keys": "#D4EEDD",
    "secagg/share-keys": "#9AD3B4",
    "secagg/masked-input": "#4DA982",
    "secagg/consistency": "#1B7F5C",
    "secagg/unmask": "#00452F",
    "plain/update": "#4DA982",
}
_OTHERS = ("#CC79A7", "#F0E442", "#56B4E9", "#AA4499", "#E69F00", "#332288", "#88CCEE")


def protocol_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each protocol; the same one in every figure."""
    return _colours(names, _PROTOCOLS)


def stage_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each stage; the same one in every figure."""
    return _colours(names, _STAGES)


def _colours(names: Sequence[str], known: dict[str, str]) -> dict[str, str]:
    others = [name for name in dict.fromkeys(names) if name not in known]
    spare = [colour for colour in _OTHERS if colour not in {known.get(name) for name in names}]
    return {name: known.get(name) or spare[others.index(name) % len(spare)] for name in names}


def figure_text(text: str) -> str:
    """`text` as Matplotlib shows it: no formulas, and in the legend also where it begins with an underscore."""
    shown = visible(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib settings of the figures, for the block only."""
    with mpl.rc_context({**mpl.rcParamsDefault, **_STYLE, "backend": "agg"}):
        yield


@contextlib.contextmanager
def one_panel(height: float, columns: float = 1.0) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes, in the house style.

    Args:
        height: in inches.
        columns: its width, in columns of a page.
    """
    with house_style():
        figure = Figure(figsize=(columns * COLUMN_INCHES, height), layout="constrained")
        yield figure, figure.add_subplot()


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path` with .png (200 dpi) and .pdf added, and its folder if need be; the same figure, the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    for target in paths:
        metadata = {"CreationDate": None} if target.suffix == ".pdf" else {"Software": None}
        figure.savefig(target, dpi=_DPI, bbox_inches="tight", pad_inches=0.03, metadata=metadata)
    return paths
