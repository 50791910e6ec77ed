"""Facts that stand in pages and in code agree: stages, versions, and the experiment of the README."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from scipy.stats import binom

from cluster.jobs.submission import MINIMUM_RAY
from docs._ext import columns
from testbed.emulation.transport.section import HANDSHAKES, HandshakeCost
from testbed.experiment import Experiment
from testbed.selection.lotto.parameters import AgreedListParameters
from testbed.version import VERSION
from tests.repository import ROOT

PAGES = [*sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts), ROOT / "README.md"]
_STAGE = re.compile(r"`((?:lotto|secagg|secagg-plus|selection|check-in)/[a-z-]+)`")
_OURS = re.compile(r"\btestbed (\d+\.\d+\.\d+)|sortition-testbed:(\d+\.\d+\.\d+)")


def stages_of_the_code() -> set[str]:
    """All that the messages and protocols of `testbed/` write like one."""
    code = "".join(file.read_text() for file in (ROOT / "testbed").rglob("*.py"))
    return set(re.findall(r'"([a-z-]+/[a-z-]+)"', code))


def test_stages_that_pages_name_are_stages() -> None:
    code = stages_of_the_code()
    assert "secagg/masked-input" in code
    named = {(page.name, stage) for page in PAGES for stage in _STAGE.findall(page.read_text())}
    named |= {
        (table, stage)
        for table, of in columns.MEANINGS.items()
        for _, text in of.values()
        for stage in _STAGE.findall(text)
    }
    assert sorted(one for one in named if one[1] not in code) == []


def test_handshakes_cost_what_the_page_says() -> None:
    page = (ROOT / "docs" / "explanation" / "transport-connections.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ([\d.]+) \| ([\d,]+) \| ([\d,]+) \|", page, re.MULTILINE)
    read = {
        name: HandshakeCost(float(round_trips), *(int(size.replace(",", "")) for size in sizes))
        for name, round_trips, *sizes in rows
    }
    assert read == HANDSHAKES


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(r"^## \[(\d.*?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {project["version"], citation["version"], released[0][0]} == {VERSION}
    assert citation["date-released"] == released[0][1]


@pytest.mark.parametrize(
    "file", [*PAGES, *sorted((ROOT / "cluster" / "launch").glob("*.yaml"))], ids=lambda file: file.name
)
def test_a_version_of_ours_that_is_shown_is_the_present_one(file: Path) -> None:
    assert {found for pair in _OURS.findall(file.read_text()) for found in pair if found} <= {VERSION}


def test_the_lowest_ray_is_said_as_it_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"ray[default]>={MINIMUM_RAY}" in project["optional-dependencies"]["ray"]
    said = [found for page in PAGES for found in re.findall(r"(?:needs|Ray) (2\.\d+) or newer", page.read_text())]
    assert len(said) >= 3
    assert set(said) == {MINIMUM_RAY}


def test_the_experiment_of_the_readme_is_valid_and_finds_enough_candidates(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text)
    experiment = Experiment.load(tmp_path / "mine.yaml")
    away = experiment.availability.unavailable
    clients, wanted = experiment.population, experiment.selection.participants
    assert isinstance(experiment.selection, AgreedListParameters)
    candidate = experiment.selection.over_selection * wanted / clients * (1 - sum(away) / len(away))
    too_few = binom.cdf(wanted - 1, clients, candidate)
    assert too_few < 0.01  # at an over-selection of 1.5, one round in five was aborted
