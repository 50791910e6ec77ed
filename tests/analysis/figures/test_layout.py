"""Every figure with 2 rows and with 12: no text lies on another or beyond the canvas, bands end where shares do."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.comparison.rows import rows_of
from analysis.comparison.targets import Target
from analysis.figures import availability, by_stage, stragglers
from analysis.figures import swept as swept_figures
from analysis.figures.comparison import FIGURES, FigureRequest
from analysis.figures.elements import FigureWithData
from analysis.figures.swept import swept
from analysis.style import house_style
from testbed.records import RunRecords
from tests.analysis.figures.layout import outside, overlapping, shown_texts, target_labels
from tests.analysis.recorded import synthetic_run

TARGETS = (Target("accuracy", 0.6), Target("accuracy", 0.8))
NAMES = [name for name in FIGURES if "loss" not in name and "perplexity" not in name]
PROTOCOLS = ("random", "batch-partition", "lotto-client-centric", "lotto-server-centric")
CLASSES = {"phone": {"share": 0.5}, "fibre": {"share": 0.5}}
Runs = dict[str, list[RunRecords]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of 2 rows and of 12, of one setting and of several, each with two seeds; runs with noise."""
    folder = tmp_path_factory.mktemp("layout")
    runs: Runs = {"2": [], "12": [], "12 settings": [], "12 long": [], "noise": []}
    for seed, protocol in product((1, 2), PROTOCOLS[:2]):
        sweep = {"selection.protocol": protocol, "seed": seed}
        run = synthetic_run(folder / f"two-{protocol}-{seed}", protocol, seed=seed, rounds=4, sweep=sweep)
        runs["2"].append(run)
    for seed, protocol, population in product((1, 2), PROTOCOLS, (20, 40, 80)):
        sweep = {"selection.protocol": protocol, "population": population, "seed": seed}
        run = synthetic_run(
            folder / f"twelve-{protocol}-{population}-{seed}", protocol, seed=seed, population=population, rounds=3,
            sweep=sweep, failing={2: "aborted"} if population == 40 else None,
        )  # fmt: skip
        runs["12 settings"].append(run)
    for place in range(12):
        rate = {"model": "bernoulli", "unavailable": place / 20, "dropout": {"rate": place / 40}}
        label = f"one of the twelve, with {place} in twenty away"
        for kind, options in (
            ("12", {"sweep": {"aggregation.bits": 12 + place}, "extra": {"aggregation": {"bits": 12 + place}}}),
            ("12 long", {"sweep": {"availability": rate}, "sweep_labels": {"availability": label},
                         "extra": {"availability": rate}}),
        ):  # fmt: skip
            runs[kind].append(synthetic_run(folder / f"{kind}-{place}", rounds=3, population=20, **options))
    for multiplier, bits in product((None, 0.25, 0.5, 1.0, 2.0), (12, 16)):
        section = {"protocol": "secagg", "bits": bits, "noise": {"noise_multiplier": multiplier}}
        for seed in (1, 2):
            path = folder / f"noise-{multiplier}-{bits}-{seed}"
            runs["noise"].append(synthetic_run(path, seed=seed, rounds=2, extra={"aggregation": section}))
    return {kind: [_with_devices(run, 2) for run in of_kind] for kind, of_kind in runs.items()}


Draw = Callable[..., Figure]


@pytest.fixture(scope="module")
def drawn(recorded: Runs) -> Draw:
    """Draws a figure of some of the runs, once for all tests; skips a test of a figure that there is not."""

    @cache
    def made(kind: str, name: str, columns: int | None) -> FigureWithData | str:
        with house_style():
            return FIGURES[name](FigureRequest(rows_of(recorded[kind]), columns, TARGETS))

    def figure(kind: str, name: str, columns: int | None = None) -> Figure:
        found = made(kind, name, columns)
        if not isinstance(found, FigureWithData):
            pytest.skip(found)
        return found.figure

    return figure


def check_texts(figure: Figure) -> None:
    """Draw a figure; no text may lie on another one, or reach beyond the canvas."""
    texts = shown_texts(figure)
    assert overlapping(texts) == []
    assert outside(texts, figure.bbox) == []


def cases() -> Iterator[tuple[str, str, int | None]]:
    """A figure, its runs and its width."""
    for name in NAMES:
        if name == "accuracy-of-noise":
            yield from product([name], ["noise"], (1, 2))
        elif not name.startswith("accuracy"):  # these are below, with their targets
            yield from product([name], ("2", "12", "12 long"), [None])
            yield from product([name], ["12 settings"], (1, 2))


@pytest.mark.parametrize(("name", "kind", "columns"), list(cases()))
def test_texts_are_whole_and_apart(drawn: Draw, name: str, kind: str, columns: int | None) -> None:
    check_texts(drawn(kind, name, columns))


@pytest.fixture(scope="module", autouse=True)
def one_measurement_a_run() -> Iterator[None]:
    """Take the measures of each run once: they are no subject here, and take longer than the drawing."""

    def once(measure: Callable[..., Any]) -> Callable[..., Any]:
        known: dict[int, Any] = {}

        def measured(run: RunRecords, *others: Any) -> Any:
            if id(run) not in known:
                known[id(run)] = measure(run, *others)
            return known[id(run)]

        return measured

    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (swept_figures, "summarise"), (stragglers, "_rounds"), (availability, "first_losses"),
            (availability, "presence"), (by_stage, "by_stage"),
        ):  # fmt: skip
            patch.setattr(module, name, once(getattr(module, name)))
        yield


X_AND_Y = {
    "2": ("selection.protocol", ["time_to_target_s", "rounds_to_target"]),
    "12 settings": ("population", ["round_s", "server_bytes", "final_accuracy", "client_bytes_to_target"]),
    "12": ("aggregation.bits", ["round_s", "round_s_per_update", "final_accuracy"]),
    "12 long": ("availability", ["server_bytes_per_update", "client_s"]),
    "noise": ("aggregation.noise.noise_multiplier", ["final_accuracy", "round_s"]),
}


@pytest.mark.parametrize(("kind", "columns", "log"), [*product(X_AND_Y, (1, 2), [""]), ("12", 1, "xy")])
def test_texts_of_a_swept_figure_are_whole_and_apart(recorded: Runs, kind: str, columns: int, log: str) -> None:
    x, y = X_AND_Y[kind]
    with house_style():
        figure = swept(recorded[kind], x, y, log=log, columns=columns, target=Target("accuracy", 0.2)).figure
    check_texts(figure)


def test_a_single_line_has_no_name(recorded: Runs) -> None:
    x, y = X_AND_Y["2"]
    with house_style():
        figure = swept(recorded["2"], x, y, target=Target("accuracy", 0.2)).figure
    assert figure.legends == []


@pytest.mark.parametrize(("kind", "columns"), [*product(("2", "12"), [1]), ("12 settings", 1), ("12 settings", 2)])
@pytest.mark.parametrize("name", ["accuracy", "accuracy-by-traffic"])
def test_target_labels_stand_on_their_line_and_on_no_curve(drawn: Draw, name: str, kind: str, columns: int) -> None:
    figure = drawn(kind, name, columns)
    check_texts(figure)
    labels = target_labels(figure)
    assert len(labels) == len(TARGETS) * len(figure.axes)
    for axes, label in labels:
        level = next(100 * target.threshold for target in TARGETS if target.column in str(label.get_gid()))
        height = axes.transData.transform((0, level))[1]
        box = super(type(label), label).get_window_extent()
        points = figure.dpi / 72
        assert box.y0 - 3 * points <= height <= box.y1 + 3 * points
        curves = [line for line in axes.lines if line.get_transform() == axes.transData and len(line.get_xdata())]
        for line in curves:
            path = line.get_path().transformed(axes.transData)
            assert not path.intersects_bbox(box, filled=False), label.get_text()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("accuracy", "availability"))])
@pytest.mark.parametrize("kind", ["2", "12 settings", "noise"])
def test_shares_are_drawn_within_0_and_100(drawn: Draw, name: str, kind: str) -> None:
    for axes in drawn(kind, name, 2 if kind == "12 settings" else None if name == "availability" else 1).axes:
        bands = [
            path.vertices for each in axes.collections if isinstance(each, PolyCollection) for path in each.get_paths()
        ]
        segments = [part for each in axes.collections if hasattr(each, "get_segments") for part in each.get_segments()]
        heights = np.concatenate([np.asarray(part)[:, 1] for part in (*bands, *segments)] or [np.zeros(1)])
        assert heights.min() >= 0
        assert heights.max() <= 100
        assert axes.get_ylim()[0] >= 0
        assert axes.get_ylim()[1] <= 103


def test_panels_that_share_an_axis_show_all_their_points(make_run: Callable[..., RunRecords]) -> None:
    """The first panel's limits must not hold for the later ones, which may be far above."""
    runs = [
        make_run(f"{population}-{protocol}", protocol, population=population, participants=5, rounds=3,
                 sweep={"selection.protocol": protocol, "population": population},
                 extra={"links": {"down_mbit_s": 44.0}})
        for population, protocol in product((10, 100), PROTOCOLS[:2])
    ]  # fmt: skip
    runs = [_with_devices(run, factor) for run, factor in zip(runs, (1, 1, 4, 4), strict=True)]
    with house_style():
        found = FIGURES["stragglers"](FigureRequest(rows_of(runs)))
    assert isinstance(found, FigureWithData)
    for axes in found.figure.axes:
        low, high = axes.get_ylim()
        for line in axes.lines:
            values = np.asarray(line.get_ydata(), float)
            assert low <= values.min(initial=low)
            assert values.max(initial=high) <= high


def _with_devices(run: RunRecords, factor: int) -> RunRecords:
    clients = pd.DataFrame({"client": range(int(run.experiment["population"]))})
    clients["class"], clients["device_factor"] = "", 1.0 + factor * clients["client"]
    run.__dict__["clients"] = clients
    return run


def test_a_look_is_used_for_one_stage_alone(drawn: Draw) -> None:
    figure = drawn("12 settings", "round-time-by-stage", 1)
    (legend,) = figure.legends
    looks = [(to_hex(patch.get_facecolor()), patch.get_hatch()) for patch in legend.get_patches()]
    assert len(set(looks)) == len(looks) >= 10
    (axes,) = figure.axes
    bars = {(to_hex(bar.get_facecolor()), bar.get_hatch()) for bar in axes.patches if isinstance(bar, Rectangle)}
    assert bars <= set(looks)


def test_lines_of_twelve_rows_differ(drawn: Draw) -> None:
    figure = drawn("12", "accuracy", 1)
    lines = [line for line in figure.axes[0].lines if line.get_transform() == figure.axes[0].transData]
    assert len(lines) == 12
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 12
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == 12  # in grey
