"""Announced rounds in real time: a refusal that is cut off counts as one, too."""

from typing import Any

import pytest

from tests.network import emulated
from tests.network.live.clients import LiveWorld


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A question that announces round 5."""
    monkeypatch.setattr(emulated.Question, "announces", True)
    monkeypatch.setattr(emulated.Question, "round", 5, raising=False)
    return emulated.Question


@pytest.mark.parametrize("deadline_s", [5.0, 0.4])
def test_a_server_that_does_not_wait_for_refusals_gets_no_further(deadline_s: float, announced: Any) -> None:
    """Clients 1 and 2 take a second, client 1 to refuse, and client 3 is away."""
    keys: dict[str, Any] = {"latency": 0.001, "deadline_s": deadline_s, "factors": [0.001, 1, 1, 1]}
    away = {"availability": emulated.Everybody(offline={1: {3}}, comes_back=True)}
    question = announced(refusing=(1,), seconds=1.0)
    reference = emulated.World(4, **keys, **away)
    reference.round(question)
    ours = LiveWorld(emulated.World(4, **keys, **away))
    ours.round(question)
    assert reference.network.announced_rounds.known_to(reference.everybody, 2).tolist() == [5, 1, 5, 1]
    accepted = 5 if deadline_s > 1 else 1  # nobody knows: an honest server announces the next number, which is the same
    assert ours.network.announced_rounds.known_to(ours.everybody, 2).tolist() == [5, 1, accepted, 1]
