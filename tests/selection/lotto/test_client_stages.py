"""Which question a client of Lotto answers when: any sequence of them, as clients answered before there was a table.

`recorded_client.json` is an automaton for each protocol, made from all that can be asked of a client: the answer or
refusal to each question in each of its states, and the state after it. Answers stand there as hashes.
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
    """A new client is asked one after the other."""
    recorded, client, state = RECORDED[protocol], AskedClient(protocol), 0
    for position, name in enumerate(asked, 1):
        answer, state = recorded["states"][state][recorded["questions"].index(name)]
        assert client.ask(name) == recorded["answers"][answer], asked[:position]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_any_sequence_of_questions_is_answered_as_ever(protocol: str, data: st.DataObject) -> None:
    assert set(RECORDED[protocol]["questions"]) == questions_of(protocol).keys()
    names = st.sampled_from(RECORDED[protocol]["questions"])
    assert_as_recorded(protocol, data.draw(st.lists(names, max_size=12)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_question_in_each_state(protocol: str) -> None:
    """The shortest way to each state, and from there every question."""
    questions, states = RECORDED[protocol]["questions"], RECORDED[protocol]["states"]
    ways: dict[int, list[str]] = {0: []}
    for state in range(len(states)):
        for name, (_, then) in zip(questions, states[state], strict=True):
            ways.setdefault(then, [*ways[state], name])
    for way in ways.values():
        for name in questions:
            assert_as_recorded(protocol, [*way, name])
