"""A stage in which clients that are alike are computed once is, to the last bit, the one in which each is computed."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.emulation.transport.section import NO_TRANSPORT, QUIC, TCP, Transport
from testbed.network import client_groups as kinds_module
from testbed.network import emulated as emulated_module
from testbed.network.client_groups import ClientGroups, classes, is_among
from testbed.network.contract import Replies
from testbed.network.exchanges import COLUMNS, ExchangesOfKinds
from tests.network import emulated
from tests.thoroughness import examples

CLIENTS = 40
TRANSPORTS = (
    NO_TRANSPORT, TCP, QUIC,
    Transport.model_validate({"preset": "tcp", "connection": "per-stage"}),
    Transport.model_validate({"preset": "tls", "connection": "persistent", "initial_window_segments": 1}),
)  # fmt: skip

few = st.sets(st.integers(0, CLIENTS - 1), max_size=5)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """How a `World` is made, and the questions of two rounds."""
    cycle = st.lists(st.sampled_from([0.02, 1.0, 3.0]), min_size=1, max_size=3)
    settings: dict[str, Any] = {
        name: np.resize(np.array(draw(cycle)) * unit, CLIENTS)
        for name, unit in (("down", emulated.MB), ("up", emulated.MB), ("latency", 0.05), ("factors", 1.0))
    }
    capacity = st.sampled_from([1e12, 2e5, 40e6, 40e6 / 3])
    settings |= {"server_down": draw(capacity), "server_up": draw(capacity)}
    settings |= {"transport": draw(st.sampled_from(TRANSPORTS)), "deadline_s": draw(st.sampled_from([0.08, 0.3, 50.0]))}
    settings |= {"disconnects_visible": draw(st.booleans())}
    if (quorum := draw(st.none() | st.sampled_from([3, CLIENTS - 6]))) is not None:
        settings["stage_quorums"] = {"greeting": quorum, "question": quorum}
    settings["away"] = {
        "offline": {draw(st.integers(1, 2)): draw(few | st.just(set(range(CLIENTS // 2))))},
        "drops": {draw(st.sampled_from(["greeting", "question"])): draw(few)},
        "leaves": dict.fromkeys(draw(few), draw(st.sampled_from([0.1, 0.4, 3.0]))),
        "comes_back": draw(st.booleans()),
    }
    asks = st.one_of(
        st.just(emulated.Greeting()),
        st.builds(
            lambda who, what: emulated.Question(seconds=0.1, answer_size=500, **{what: tuple(sorted(who))}),
            few, st.sampled_from(["silent", "refusing"]),
        ),
    )  # fmt: skip
    return settings, draw(st.lists(asks, min_size=1, max_size=3))


def run(made: tuple[dict[str, Any], list[Any]]) -> tuple[list[Any], bool]:
    """Everything that can be known of two rounds, and whether any clients were computed as one."""
    given, questions = made
    world = emulated.World(
        CLIENTS, availability=emulated.Everybody(**given["away"]), **{k: v for k, v in given.items() if k != "away"}
    )
    known: list[Any] = []
    together = False
    for number in (1, 2):
        for replies in world.round(*questions, number=number):
            known += told(replies)
        for stage in world.network.exchanges:
            together |= isinstance(stage, ExchangesOfKinds)
            known += [stage.stage, stage.sent_s, stage.clients.tolist(), stage.outcomes().tolist()]
            known += [getattr(stage, name).tolist() for name in COLUMNS]
            known += [stage.total("bytes_down"), stage.total("transport_up")]
            known += [getattr(part, name).tolist() for part in stage.blocks(7) for name in COLUMNS]
        known += [world.now_s, world.network._gone.tolist()]
        known += [
            (name, column.tolist() if name != "handshakes" else sorted(map(tuple, column.tolist())))
            for name, column in world.network.connections.to_checkpoint().items()
        ]
        known += [world.network.connections._open_s.tolist(), sorted(world.network.connections._rest.items())]
    return known, together


def told(replies: Replies) -> list[Any]:
    """Return the server's view of a stage."""
    missing = {field.name: getattr(replies.missing, field.name) for field in fields(replies.missing)}
    lists = [list(value) if isinstance(value, tuple) else value.tolist() for value in missing.values()]
    return [replies.ids.tolist(), replies.latency_s.tolist(), replies.waited_s, lists]


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds())
def test_clients_that_are_alike_fare_as_if_each_were_computed(
    monkeypatch: pytest.MonkeyPatch, made: tuple[dict[str, Any], list[Any]]
) -> None:
    monkeypatch.setattr(emulated_module, "FEW_CLIENTS", CLIENTS + 1)
    each, none = run(made)
    monkeypatch.setattr(emulated_module, "FEW_CLIENTS", 1)
    some, _ = run(made)
    assert not none
    assert repr(some) == repr(each)  # NaN equals NaN


def test_clients_with_a_shared_greeting_form_one_group_and_all_others_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_module, "FEW_CLIENTS", 1)
    made: dict[str, Any] = {"away": {"leaves": {3: 1.0}}, "transport": TCP}
    _, together = run((made, [emulated.Greeting()]))
    assert together
    assert not run((made | {"down": np.linspace(1, 2, CLIENTS) * emulated.MB}, [emulated.Greeting()]))[1]
    assert not run((made, [emulated.question_of_size(100_000)]))[1]


def test_losses_are_drawn_for_each() -> None:
    world = emulated.World(CLIENTS, transport=TCP)
    assert not world.network.connections.differ(1000)
    assert world.network.connections.differ(1_000_000)
    world.network.connections._lossy = True
    assert world.network.connections.differ(1000)


@given(st.data())
def test_kinds_are_as_the_codes_say(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 60))
    code = st.none() | st.lists(st.integers(0, 2), min_size=size, max_size=size).map(np.array)
    codes = data.draw(st.lists(code, min_size=1, max_size=3))
    single = np.array(data.draw(st.lists(st.sampled_from([False] * 9 + [True]), min_size=size, max_size=size)))
    clients = np.arange(0, 3 * size, 3)
    client_groups = ClientGroups.of(clients, codes, single)
    rows = [tuple(0 if of is None else int(of[at]) for of in codes) for at in range(size)]
    which = np.arange(size) if client_groups.which is None else client_groups.which
    first = [int(np.flatnonzero(which == kind)[0]) for kind in range(len(client_groups))]
    assert first == client_groups.first.tolist() == sorted(first)
    assert client_groups.count.tolist() == [int((which == kind).sum()) for kind in range(len(client_groups))]
    if client_groups.which is not None:
        for at in range(size):
            for other in range(at):
                alike = rows[at] == rows[other] and not single[at] and not single[other]
                assert (which[at] == which[other]) == alike
    column = np.arange(len(client_groups)) * 10.0
    assert client_groups.spread(column).tolist() == [column[kind] for kind in which]
    chosen = column % 20 == 0
    assert client_groups.members(chosen).tolist() == [3 * at for at in range(size) if chosen[which[at]]]


def test_links_of_more_than_a_few_classes_are_taken_to_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds_module, "MOST_CLASSES", 6)
    two, three = np.resize([1.0, 2.0], 600), np.resize([5.0, 6.0, 7.0], 600)
    found = classes([two, np.broadcast_to(1.0, 600), three])
    assert found is not None
    pairs = {(a, b): int(number) for a, b, number in zip(two, three, found, strict=True)}
    assert len(pairs) == len(set(pairs.values())) == 6
    assert classes([two, three, np.arange(600) % 2 + (np.arange(600) >= 300)]) is None
    assert classes([np.arange(600.0)]) is None


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_membership_of_sorted_clients_in_others(some: set[int], others: set[int]) -> None:
    found = is_among(np.array(sorted(some), np.int64), np.array(sorted(others), np.int64))
    expected = [client in others for client in sorted(some)]
    assert (found is None and all(expected)) or (found is not None and found.tolist() == expected)
