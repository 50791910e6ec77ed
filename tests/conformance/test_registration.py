"""Every built-in protocol has its colours, its misbehaviours and its place in the documentation."""

import re
import tomllib

import pytest

from analysis.stage_looks import stage_looks
from testbed.adversary.catalogue import CLIENTS, SERVER
from testbed.aggregation import catalogue as aggregations
from testbed.selection import catalogue as selections
from tests.conformance.settings import AGGREGATIONS, SELECTIONS
from tests.repository import ROOT

OTHERS = [f"own-{number}/stage" for number in range(6)]  # more than there are spare colours
NAMES = [name for name in (*AGGREGATIONS, *SELECTIONS) if "," not in name]
WITHOUT_MISBEHAVIOUR = {
    "oort": "the reports that it chooses by are those of training, which `inflate-utility` falsifies",
    "dp-sgd-random-participation": "the server is trusted, or sees noisy gradients alone",
}


@pytest.mark.parametrize("kind", [*aggregations.PROTOCOLS, *selections.PROTOCOLS], ids=lambda kind: kind.__name__)
def test_stages_have_colours_of_their_own(kind: type) -> None:
    for stage in (*kind.stages, *kind.further_stages):  # type: ignore[attr-defined]
        assert stage_looks([*OTHERS, stage])[stage] == stage_looks([stage])[stage]


def test_a_stage_that_is_not_registered_looks_otherwise_beside_others() -> None:
    assert stage_looks([*OTHERS, "own/stage"])["own/stage"] != stage_looks(["own/stage"])["own/stage"]


@pytest.mark.parametrize("name", NAMES)
def test_a_protocol_is_in_the_threat_model_and_misbehaviours_apply_to_it(name: str) -> None:
    applies_to = {protocol for kind in (*SERVER, *CLIENTS) for protocol in kind.applies_to}
    assert (name in applies_to) != (name in WITHOUT_MISBEHAVIOUR)
    assert re.search(rf"\b{name}\b", (ROOT / "docs" / "explanation" / "threat-model.md").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_protocol_is_in_the_reference_and_on_a_page(name: str) -> None:
    section = (AGGREGATIONS | SELECTIONS)[name].section
    assert f"`{name}`" in (ROOT / "docs" / "reference" / "configuration" / f"{section}.md").read_text()
    pages = [*(ROOT / "docs" / "explanation").glob("*.md"), *(ROOT / "docs" / "papers").glob("*.md")]
    assert any(f"`{name}`" in page.read_text() for page in pages)


def test_each_built_in_protocol_is_checked() -> None:
    checked = {type(one.experiment.aggregation) for one in AGGREGATIONS.values()}
    assert checked == set(aggregations.PROTOCOLS)
    assert {type(one.experiment.selection) for one in SELECTIONS.values()} == set(selections.PROTOCOLS)


def test_the_lint_contract_of_the_engine_names_each_protocol() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (forbidden,) = [
        one["forbidden_modules"] for one in contracts if one["name"].startswith("Engine, experiment and run")
    ]
    homes = {".".join(kind.__module__.split(".")[:3]) for kind in (*aggregations.PROTOCOLS, *selections.PROTOCOLS)}
    assert homes == set(forbidden)
