"""Every figure of runs in which nobody took part, or no round was completed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.comparison.rows import rows_of
from analysis.figures.comparison import FIGURES, FigureRequest, plot
from analysis.figures.elements import FigureWithData
from analysis.style import house_style
from testbed.network.exchanges import OUTCOMES
from testbed.records import RunRecords
from tests.analysis import recorded

MakeRun = Callable[..., RunRecords]


@pytest.fixture(params=["offline", "late", "answered"])
def without_participants(request: pytest.FixtureRequest, tmp_path: Path) -> RunRecords:
    """Three rounds that ended after the check-in, in which half of the clients or nobody answered."""
    outcome = str(request.param)
    rounds = []
    for number in range(1, 4):
        away = range(10) if outcome == "late" else range(5)
        fates = [OUTCOMES.index(outcome if client in away else "answered") for client in range(10)]
        answers = [None if OUTCOMES[fate] != "answered" else 10.0 * number + 1 for fate in fates]
        check_in = recorded.asked(
            "check-in", 10.0 * number, range(10), answers, outcome=fates, as_participant=False, down=14
        )
        rounds.append(recorded.RecordedRound(10.0 * number, 10.0 * number + 1, [check_in], (), (), "aborted", "x"))
    experiment = {"name": "nobody", "seed": 1, "population": 10, "rounds": 3, "selection": {"protocol": "random"}}
    experiment["aggregation"] = {"protocol": "secagg"}
    return recorded.write_run(tmp_path / "nobody", experiment, rounds)


@pytest.mark.parametrize("name", FIGURES)
def test_without_participants_a_figure_is_drawn_or_says_why_not(without_participants: RunRecords, name: str) -> None:
    with house_style():
        figure = FIGURES[name](FigureRequest(rows_of([without_participants])))
    assert isinstance(figure, FigureWithData) or figure


def test_losses_of_others_are_not_drawn_as_lost_participants(without_participants: RunRecords, tmp_path: Path) -> None:
    notes: list[str] = []
    paths = plot([without_participants], tmp_path / "figures", notes.append)
    assert "dropouts-by-stage.pdf" not in [path.name for path in paths]
    assert any(note.startswith("no dropouts-by-stage figure: ") for note in notes)


@pytest.mark.parametrize("outcome", ["skipped", "aborted"])
@pytest.mark.parametrize("name", FIGURES)
def test_without_a_completed_round_a_figure_is_drawn_or_says_why_not(
    make_run: MakeRun, outcome: str, name: str
) -> None:
    run = make_run(outcome, rounds=3, failing=dict.fromkeys((1, 2, 3), outcome))
    with house_style():
        figure = FIGURES[name](FigureRequest(rows_of([run])))
    assert isinstance(figure, FigureWithData) or figure
