"""Clients that go offline in the middle of a stage, and transfers that are stopped when the stage ends."""

from typing import Any

import numpy as np
import pytest

from testbed.emulation.transport.section import TCP, Transport
from testbed.network.contract import Timing
from tests.network import emulated

MB = 1e6  # bytes per second; links of 1 MB/s and 50 ms unless a test says otherwise


def leaving(at_s: dict[int, float], clients: int = 2, **keys: Any) -> Any:
    comes_back = keys.pop("comes_back", True)
    availability = emulated.Everybody(leaves=at_s, comes_back=comes_back)
    return emulated.World(clients, availability=availability, deadline_s=20.0, **keys)


def test_a_client_that_leaves_while_it_sends_has_sent_that_part_and_is_missed_at_the_deadline() -> None:
    world = leaving({1: 0.551})
    (replies,) = world.round(emulated.question_of_size(1000, answer_size=1_000_000))
    # Down 1 ms and 50 ms on the way; then a second of upload, half of which client 1 is there for.
    assert world.outcomes() == ["answered", "dropped"]
    assert replies.missing.dropped.tolist() == [1]
    stage = world.network.exchanges[0]
    assert stage.bytes_down.tolist() == [1000, 1000]
    assert stage.bytes_up.tolist() == [1_000_000, pytest.approx(500_000, abs=1)]
    assert np.isnan(stage.received_s).tolist() == [False, True]
    assert world.now_s == 20


def test_a_visible_departure_ends_the_wait_when_it_happens() -> None:
    world = leaving({1: 0.551}, disconnects_visible=True)
    world.round(emulated.question_of_size(1000, answer_size=1_000_000))
    assert world.now_s == pytest.approx(1.101)  # client 0's answer
    world = leaving({0: 0.551, 1: 0.251}, disconnects_visible=True)
    world.round(emulated.question_of_size(1000, answer_size=1_000_000))
    assert world.now_s == pytest.approx(0.551)  # the last that left


def test_a_client_that_leaves_gives_its_share_of_the_server_to_the_others() -> None:
    world = leaving({1: 1.0}, latency=0, down=1e12, server_down=MB, disconnects_visible=True)
    world.round(emulated.Question(answer_size=1_000_000))
    # Half a MB each in the first second, then client 0 has the link for itself.
    stage = world.network.exchanges[0]
    assert stage.received_s[0] == pytest.approx(1.5)
    assert stage.bytes_up[1] == pytest.approx(500_000, abs=1)


def test_a_client_that_leaves_before_the_question_is_complete_has_got_a_part_of_it() -> None:
    world = leaving({1: 0.3}, latency=0)
    world.round(emulated.question_of_size(1_000_000, answer_size=1000))
    stage = world.network.exchanges[0]
    assert world.outcomes() == ["answered", "dropped"]
    assert stage.bytes_down.tolist() == [1_000_000, pytest.approx(300_000, abs=1)]
    assert stage.bytes_up.tolist() == [1000, 0]


def test_a_client_that_leaves_while_it_computes_has_sent_nothing() -> None:
    world = leaving({1: 5.0})
    world.round(emulated.Question(seconds=10.0, answer_size=1000))
    assert world.outcomes() == ["answered", "dropped"]
    assert world.network.exchanges[0].bytes_up.tolist() == [1000, 0]


def test_a_client_that_has_sent_its_last_byte_may_leave() -> None:
    world = leaving({0: 0.25, 1: 0.2499}, latency=0, down=np.inf, up=MB, server_up=np.inf)
    world.round(emulated.Question(answer_size=250_000))
    assert world.outcomes() == ["answered", "dropped"]


@pytest.mark.parametrize(("comes_back", "expected"), [(True, [0, 1]), (False, [0])])
def test_a_client_is_back_when_the_model_says_so(comes_back: bool, expected: list[int]) -> None:
    class Once(emulated.Everybody):
        """Client 1 drops out of the first stage only."""

        def presence(self, round_number: int, stage: str, now_s: float, clients: Any) -> Any:
            present = super().presence(round_number, stage, now_s, clients)
            present.leaves_s[(clients == 1) & (now_s < 1)] = 0.01
            return present

    world = emulated.World(2, availability=Once(comes_back=comes_back), deadline_s=20.0)
    first, second = world.round(emulated.Question(), emulated.Question())
    assert first.ids.tolist() == [0]
    assert second.ids.tolist() == expected


def test_a_client_that_drops_out_of_a_stage_stays_away_for_the_round_even_if_the_model_brings_others_back() -> None:
    availability = emulated.Everybody(drops={"greeting": {1}}, comes_back=True)
    world = emulated.World(2, availability=availability, deadline_s=20.0)
    _, second = world.round(emulated.Greeting(), emulated.Question())
    assert second.missing.offline.tolist() == [1]
    (later,) = world.round(emulated.Question(), number=2)
    assert later.ids.tolist() == [0, 1]


def test_at_the_deadline_transfers_stop() -> None:
    world = emulated.World(2, latency=0, down=np.inf, up=[MB, MB / 100], deadline_s=2.0)
    world.round(emulated.Question(answer_size=1_000_000))
    assert world.outcomes() == ["answered", "late"]
    assert world.network.exchanges[0].bytes_up.tolist() == [1_000_000, pytest.approx(20_000, abs=1)]
    assert np.isnan(world.network.exchanges[0].received_s[1])


def test_at_the_quorum_transfers_stop_and_later_departures_do_not_matter() -> None:
    world = leaving({2: 5.0}, clients=3, latency=0, down=np.inf, up=[MB, MB / 2, MB / 10])
    (replies,) = world.round(emulated.Question(answer_size=1_000_000), quorum=2)
    assert world.now_s == pytest.approx(2)
    assert world.outcomes() == ["answered", "answered", "late"]  # client 2 leaves after the server has gone on
    assert replies.missing.late.tolist() == [2]
    assert world.network.exchanges[0].bytes_up[2] == pytest.approx(200_000, abs=1)


@pytest.mark.parametrize(
    ("enough", "expected_s"), [(2, 2.0), (0.5, 2.0), (0.51, 3.0), (0.01, 1.0), (1, 1.0), (1.0, 20.0), (9, 20.0)]
)
def test_a_quorum_of_the_experiment_is_a_number_or_a_share(enough: float, expected_s: float) -> None:
    world = emulated.World(
        4, factors=[1, 2, 3, 30], latency=0, down=np.inf, up=np.inf, deadline_s=20.0, stage_quorums={"question": enough}
    )
    world.round(emulated.Question(seconds=1.0))
    assert world.now_s == pytest.approx(expected_s)


def test_the_protocols_quorum_overrides_the_experiments() -> None:
    world = emulated.World(
        3, factors=[1, 2, 3], latency=0, down=np.inf, up=np.inf, stage_quorums={"question": 1, "greeting": 1}
    )
    world.round(emulated.Question(seconds=1.0), quorum=3)
    assert world.now_s == pytest.approx(3)


def test_transport_overhead_takes_time_and_has_columns_of_its_own() -> None:
    transport = Transport(per_message_bytes=100, per_byte=0.0)
    world = emulated.World(1, latency=0, transport=transport)
    world.round(emulated.question_of_size(1000, answer_size=2000))
    stage = world.network.exchanges[0]
    assert (stage.bytes_down[0], stage.bytes_up[0]) == (1000, 2000)
    assert (stage.transport_down[0], stage.transport_up[0]) == (100, 100)
    assert world.now_s == pytest.approx(0.0032)


def test_clients_in_time_at_the_quorum_stay_in_time_for_any_rounding() -> None:
    for latency in np.random.default_rng(7).uniform(0.001, 0.9, (40, 3)):
        world = emulated.World(
            3, latency=latency, factors=[0.7, 0.3, 9], up=np.inf, server_down=np.inf, down=np.inf, server_up=np.inf
        )
        (replies,) = world.round(emulated.Question(seconds=1.0, answer_size=1000), quorum=2)
        stage = world.network.exchanges[0]
        assert replies.ids.tolist() == [0, 1]
        assert stage.received_s.max(where=[True, True, False], initial=0) == world.now_s
        assert stage.bytes_up.tolist() == [1000, 1000, 0]


def test_an_answer_at_the_very_deadline_is_in_time_for_any_rounding() -> None:
    for latency in np.random.default_rng(7).uniform(0.001, 0.9, 40):
        links = {"latency": latency, "up": MB / 3, "down": np.inf, "server_up": np.inf, "server_down": np.inf}
        lasting = emulated.World(**links)
        lasting.round(emulated.Question(seconds=1.0, answer_size=1000))
        world = emulated.World(deadline_s=lasting.now_s, **links)
        world.round(emulated.Question(seconds=1.0, answer_size=1000))
        assert world.outcomes() == ["answered"]


def test_the_servers_link_is_shared_by_concurrent_transfers() -> None:
    world = emulated.World(2, latency=[0, 10], down=np.inf, server_up=np.inf, server_down=MB)
    world.round(emulated.Question(answer_size=1_000_000))
    # The near client's answer is through long before the first byte of the far one's comes in.
    assert world.network.exchanges[0].received_s == pytest.approx([1, 21])


def test_at_the_quorum_questions_to_dropouts_stop_too() -> None:
    availability = emulated.Everybody(drops={"question": {1}})
    world = emulated.World(2, latency=0, down=[MB, MB / 10], availability=availability)
    world.round(emulated.question_of_size(1_000_000), quorum=1)
    assert world.now_s == pytest.approx(1, abs=1e-4)
    assert world.network.exchanges[0].bytes_down.tolist() == [1_000_000, pytest.approx(100_000, abs=10)]


def test_a_silent_client_that_leaves_is_missed_no_longer_where_that_is_visible() -> None:
    for visible, expected_s in ((True, 3.0), (False, 20.0)):
        world = leaving({1: 3.0}, disconnects_visible=visible)
        world.round(emulated.Question(silent=(1,)))
        assert world.outcomes() == ["answered", "silent"]
        assert world.now_s == expected_s


def test_a_client_that_leaves_before_it_has_chosen_silence_has_dropped_out() -> None:
    world = leaving({1: 3.0})
    world.round(emulated.Question(seconds=4.0, silent=(1,)))
    assert world.outcomes() == ["answered", "dropped"]


@pytest.mark.parametrize(("share", "of", "enough"), [(0.07, 100, 7), (0.55, 100, 55), (0.551, 100, 56), (0.1, 3, 1)])
def test_a_share_is_taken_as_written(share: float, of: int, enough: int) -> None:
    assert Timing(1.0, stage_quorums={"question": share}).quorum("question", None, of) == enough


def test_an_acknowledgement_rides_on_an_answer_that_comes_at_once() -> None:
    for seconds, acknowledged in ((0.0, 0), (1.0, 66)):
        world = emulated.World(1, latency=0, transport=TCP.model_copy(update={"handshake": "none"}))
        world.round(emulated.question_of_size(1000, answer_size=1000, seconds=seconds))
        stage = world.network.exchanges[0]
        assert (stage.transport_down[0], stage.transport_up[0]) == (66 + 66, 66 + acknowledged)
