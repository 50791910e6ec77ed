"""The figures of who was there and who was lost."""

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.comparison.losses import first_losses
from analysis.comparison.rows import rows_of
from analysis.figures.availability import availability, dropouts_by_stage, presence
from analysis.figures.elements import FigureWithData
from analysis.style import house_style
from testbed.network.exchanges import OUTCOMES
from testbed.records import RunRecords
from tests.analysis import recorded

MakeRun = Callable[..., RunRecords]


def bars(axes: Axes) -> list[Rectangle]:
    """The bars of a plot."""
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


@pytest.fixture
def sparse(tmp_path: Path) -> RunRecords:
    """Four rounds of ten clients: some are away at the check-in, some of the participants are lost, one is skipped."""
    rounds, lost_as = [], {"train": "dropped", "plain/update": "late"}
    for number, (away, participants, lost) in enumerate(
        ((2, 4, {"train": 1}), (0, 4, {"plain/update": 2}), (10, 0, {}), (5, 5, {"train": 1, "plain/update": 1})),
        start=1,
    ):
        gone: set[int] = set()
        exchanges = [
            recorded.asked(
                "check-in", 60.0 * number, range(10), [60.0 * number + 1] * 10, as_participant=False,
                outcome=[OUTCOMES.index("offline" if client >= 10 - away else "answered") for client in range(10)],
            )
        ]  # fmt: skip
        for place, stage in enumerate(("train", "plain/update") if participants else ()):
            dropping = {client for client in range(participants) if client not in gone}
            dropping = set(sorted(dropping)[: lost.get(stage, 0)])
            fates = [
                "offline" if c in gone else lost_as[stage] if c in dropping else "answered" for c in range(participants)
            ]
            exchanges.append(
                recorded.asked(
                    stage, 60.0 * number + 2 + place, range(participants), [None] * participants,
                    outcome=list(map(OUTCOMES.index, fates)),
                )
            )  # fmt: skip
            gone |= dropping
        outcome = "completed" if participants else "skipped"
        rounds.append(
            recorded.RecordedRound(
                60.0 * number, 60.0 * number + 30, exchanges, range(participants), range(participants), outcome
            )
        )
    experiment = {"name": "sparse", "seed": 1, "population": 10, "selection": {"protocol": "random"}}
    return recorded.write_run(tmp_path / "sparse", experiment, rounds)


def test_shares_of_clients_reachable_and_participants_lost(sparse: RunRecords) -> None:
    frame = presence(sparse)
    assert frame["round"].tolist() == [1, 2, 3, 4]
    assert frame["started_s"].tolist() == [60.0, 120.0, 180.0, 240.0]
    assert frame["reachable"].tolist() == pytest.approx([0.8, 1.0, 0.0, 0.5])
    assert frame["lost"].tolist() == pytest.approx([1 / 4, 2 / 4, float("nan"), 2 / 5], nan_ok=True)
    assert frame["lost_so_far"].tolist() == pytest.approx([1 / 4, 3 / 8, 3 / 8, 5 / 13])


def drawn(figure_of: Callable[..., FigureWithData | str], runs: list[RunRecords]) -> Figure:
    with house_style():
        found = figure_of(rows_of(runs))
    assert isinstance(found, FigureWithData)
    return found.figure


def test_the_curves_are_those_shares_against_virtual_time(sparse: RunRecords) -> None:
    above, below = drawn(availability, [sparse]).axes
    assert below.get_xlabel() == "Time [min]"
    for axes, share in ((above, "reachable"), (below, "lost_so_far")):
        (line,) = axes.lines
        assert line.get_xdata().tolist() == pytest.approx([1, 2, 3, 4])
        assert line.get_ydata().tolist() == pytest.approx((100 * presence(sparse)[share]).tolist())


def test_seeds_are_averaged_round_by_round(make_run: MakeRun) -> None:
    runs = [make_run(f"seed-{seed}", seed=seed, rounds=6, failing={seed: "skipped"}) for seed in (3, 5)]
    figure = drawn(availability, runs)
    (axes,) = figure.axes  # everybody could be reached: a panel of that would be empty
    (line,) = axes.lines
    expected = sum(presence(run)["lost_so_far"] for run in runs) / 2
    assert line.get_ydata().tolist() == pytest.approx((100 * expected).tolist())
    assert len(axes.collections) == 1  # the band


def test_bars_show_losses_per_round_by_stage_and_by_what_became_of_them(sparse: RunRecords) -> None:
    figure = drawn(dropouts_by_stage, [sparse])
    by_stage, by_outcome = figure.axes
    assert [bar.get_width() for bar in bars(by_stage)] == pytest.approx([2 / 4, 3 / 4])
    assert [bar.get_width() for bar in bars(by_outcome)] == pytest.approx([2 / 4, 3 / 4])
    assert len(first_losses(sparse)) == 5
    legends = [[text.get_text() for text in part.legends[0].get_texts()] for part in figure.subfigs]
    assert legends == [["train", "plain/update"], ["dropped", "late"]]
    assert by_stage.get_xlim() == by_outcome.get_xlim()
    assert [text.get_text() for text in by_stage.texts] == ["1.25"]


def test_a_single_way_of_being_lost_needs_no_panel(make_run: MakeRun) -> None:
    (axes,) = drawn(dropouts_by_stage, [make_run("run", rounds=6)]).axes
    assert axes.get_xlabel().endswith("(all dropped)")


def test_protocols_in_whose_rounds_nobody_was_lost_keep_their_place(sparse: RunRecords, make_run: MakeRun) -> None:
    fine = make_run("fine", "batch-partition", rounds=2, population=10, participants=2)
    by_stage, _ = drawn(dropouts_by_stage, [fine, sparse]).axes
    assert [label.get_text() for label in by_stage.get_yticklabels()] == ["batch-partition", "sparse"]
    assert [text.get_text() for text in by_stage.texts] == ["0.00", "1.25"]


def test_a_run_without_rounds_is_drawn_too(make_run: MakeRun, sparse: RunRecords) -> None:
    empty = make_run("empty", "batch-partition", rounds=0, population=10)
    assert presence(empty).empty
    by_stage, _ = drawn(dropouts_by_stage, [sparse, empty]).axes
    assert [text.get_text() for text in by_stage.texts] == ["1.25", "no round"]
    assert len(drawn(availability, [sparse, empty]).axes) == 2
