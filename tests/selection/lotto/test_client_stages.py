"""The questions that a Lotto client answers in each state: sequences of questions against recorded reactions.

`recorded_client.json` is an automaton for each protocol: the answer or refusal to each possible question in each state,
and the next state. Answers are stored as hashes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.selection.lotto.questions import PROTOCOLS, AskedClient, questions_of
from tests.thoroughness import examples

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "recorded_client.json").read_text())


def assert_as_recorded(protocol: str, asked: list[str]) -> None:
    """Ask a new client these questions and compare each reaction."""
    recorded, client, state = RECORDED[protocol], AskedClient(protocol), 0
    for position, name in enumerate(asked, 1):
        answer, state = recorded["states"][state][recorded["questions"].index(name)]
        assert client.ask(name) == recorded["answers"][answer], asked[:position]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_sequences_of_questions_give_the_recorded_reactions(protocol: str, data: st.DataObject) -> None:
    assert set(RECORDED[protocol]["questions"]) == questions_of(protocol).keys()
    names = st.sampled_from(RECORDED[protocol]["questions"])
    assert_as_recorded(protocol, data.draw(st.lists(names, max_size=12)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_question_in_each_state(protocol: str) -> None:
    """Take the shortest way to each state, and from there ask every question."""
    questions, states = RECORDED[protocol]["questions"], RECORDED[protocol]["states"]
    ways: dict[int, list[str]] = {0: []}
    for state in range(len(states)):
        for name, (_, then) in zip(questions, states[state], strict=True):
            ways.setdefault(then, [*ways[state], name])
    for way in ways.values():
        for name in questions:
            assert_as_recorded(protocol, [*way, name])
