"""Client numbers on their way between processes: nothing is lost, and little is carried."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.network.hosts import Delivery, HostAnswers, SharedAnswer, packed, unpacked
from testbed.parties.host_assignment import owned_by, split
from testbed.selection.check_in import CheckIn


def carried_bytes(sent: object) -> int:
    return len(pickle.dumps(sent, protocol=5))


@given(
    st.integers(0, 2**40),
    st.lists(st.integers(1, 40), max_size=60),
    st.integers(1, 60),
)
def test_any_ascending_numbers_come_back(first: int, gaps: list[int], repeats: int) -> None:
    ids = np.cumsum([first, *(gaps * repeats)], dtype=np.int64)
    back = unpacked(packed(ids))
    assert back.dtype == np.int64
    assert np.array_equal(back, ids)


@pytest.mark.parametrize("ids", [[], [5], list(range(2000, 0, -1)), [3, 3] * 1000, [0, *range(10**9, 10**9 + 2000)]])
def test_few_or_strange_numbers_travel_as_they_are(ids: list[int]) -> None:
    array = np.array(ids, np.int64)
    assert packed(array) is array
    assert unpacked(packed(array)) is array


def test_all_clients_of_a_host_are_three_numbers_and_half_of_them_are_bits() -> None:
    everybody = owned_by(1, 4, 1_000_000)
    assert packed(everybody) == (1, 4, 250_000)
    half = np.flatnonzero(np.random.default_rng(0).random(1_000_000) < 0.5)
    assert carried_bytes(packed(half)) < 126_000


def test_a_question_and_its_answer_travel_small_and_arrive_whole() -> None:
    delivery = Delivery(
        key=(1, 0), kind=CheckIn, header=b"header", vectors=(), recipients=np.arange(100_000, dtype=np.int64)
    )
    for host, part in enumerate(split(delivery, 2)):
        assert carried_bytes(part) < 1000
        arrived = copy.copy(part)  # through the same state as pickling
        assert np.array_equal(arrived.recipients, owned_by(host, 2, 100_000))
        assert (arrived.key, arrived.kind, arrived.header, arrived.private) == ((1, 0), CheckIn, b"header", None)
        answers = HostAnswers.empty()
        answers.shared = SharedAnswer(arrived.recipients, b"answer", 7, 0.5)
        assert carried_bytes(answers) < 2000
        shared = copy.copy(answers.shared)
        assert np.array_equal(shared.clients, arrived.recipients)
        assert (shared.header, shared.size, shared.compute_s) == (b"answer", 7, 0.5)
