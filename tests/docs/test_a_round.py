"""docs/explanation/a-round.md: it leads through files that are there, few enough to be read, and its round is run."""

import re

import testbed.aggregation.secagg.messages
import testbed.selection.lotto.messages
import testbed.training
from tests.docs import a_round
from tests.repository import ROOT


def test_the_page_leads_through_at_most_sixty_files() -> None:
    files = a_round.linked()
    assert [path for path in files if not path.is_file()] == []
    assert 30 < len(files) <= 60
    assert f"This page links {len(files)} files" in a_round.PAGE.read_text()


def test_the_messages_of_its_diagram_exist() -> None:
    modules = (testbed.selection.lotto.messages, testbed.training, testbed.aggregation.secagg.messages)
    names = re.findall(r"-->?>[CS]: (\w+)|->>[CS]: (\w+)", a_round.PAGE.read_text())
    shown = [question or answer for question, answer in names]
    assert len(shown) > 10
    assert [name for name in shown if not any(hasattr(module, name) for module in modules)] == []


def test_its_round_is_completed_and_passes_the_files_that_the_page_names() -> None:
    found = a_round.run()
    passed = set().union(*found.values())
    named = {str(path.relative_to(ROOT)) for path in a_round.linked()}
    elsewhere = {name for name in named if name.startswith(("analysis/", "cluster/"))} | {"testbed/records/reader.py"}
    # A contract has no function that is called; nothing adds noise here.
    declared = {"testbed/workload/contract.py"}
    unused = declared | {"testbed/engine/privacy_recorder.py"}
    assert named - passed - elsewhere - unused == set()
