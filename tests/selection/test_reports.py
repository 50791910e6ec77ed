"""The server's training reports: measurements, claims of clients, and invalid values."""

import math

import numpy as np
import pytest

from testbed.messages import detach
from testbed.network.contract import Missing, Replies
from testbed.selection.contract import TrainingReports, training_reports
from testbed.training import TrainingReport

WAITED_S = 4.0


def replies(answers: dict[int, TrainingReport], latency_s: list[float]) -> Replies:
    """Return the answers to `Train` as a network returns them; they are not summed."""

    async def nothing_to_sum(clients: object, weights: object) -> np.ndarray:
        raise AssertionError

    headers = {client: detach(answer).header for client, answer in answers.items()}
    clients = np.array(sorted(answers), np.int64)
    return Replies(TrainingReport, clients, headers, Missing(), nothing_to_sum, np.array(latency_s), WAITED_S)


def reported(*answers: TrainingReport) -> TrainingReports:
    """Return the reports of clients 0, 1, ... from these answers."""
    got = replies(dict(enumerate(answers)), [1.0] * len(answers))
    return training_reports(got, np.arange(len(answers)))


def test_reports_are_aligned_with_the_clients_that_answered() -> None:
    answers = {2: TrainingReport(10, 0.5, 0.3), 5: TrainingReport(4, 2.0, 5.0), 9: TrainingReport(0, 0.0, 0.0)}
    found = training_reports(replies(answers, [1.5, 2.5, 0.25]), np.array([1, 2, 5, 7, 9]))
    assert found.clients.tolist() == [2, 5, 9]
    assert found.samples.tolist() == [10, 4, 0]
    assert found.loss.tolist() == [0.5, 2.0, 0.0]
    assert found.latency_s.tolist() == [1.5, 2.5, 0.25]
    assert found.unheard.tolist() == [1, 7]
    assert found.waited_s == WAITED_S
    assert found.quality == pytest.approx([10 * math.sqrt(0.3), 4 * math.sqrt(5.0), 0.0])


def test_without_a_squared_loss_the_square_of_the_mean_counts() -> None:
    assert reported(TrainingReport(3, 1.5)).squared_loss.tolist() == [2.25]


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf])
def test_an_invalid_loss_counts_as_zero(nonsense: float) -> None:
    found = reported(
        TrainingReport(3, nonsense, nonsense),
        TrainingReport(3, nonsense),
        TrainingReport(3, 1.0, -1.0),
        TrainingReport(3, 1e200),
    )
    assert found.squared_loss.tolist() == [0, 0, 0, 0]
    assert found.loss.tolist() == [0, 0, 1.0, 1e200]
    assert np.isfinite(found.quality).all()


def test_an_undecodable_answer_is_no_report() -> None:
    got = replies({1: TrainingReport(3, 1.0), 4: TrainingReport(3, 1.0)}, [0.5, 0.75])
    got._headers[1] = b""
    found = training_reports(got, np.array([1, 4]))
    assert found.clients.tolist() == [4]
    assert found.latency_s.tolist() == [0.75]
    assert found.unheard.tolist() == [1]


def test_reports_without_answers_are_empty() -> None:
    found = training_reports(replies({}, []), np.array([3]))
    assert len(found.clients) == len(found.quality) == 0
    assert found.unheard.tolist() == [3]
