"""The Grafana dashboard shows exactly the metrics that `RunMetrics` exports."""

import itertools
import json
import re
from collections import Counter
from typing import Any

import pytest

from cluster.metrics import COUNTERS, GAUGES, HISTOGRAMS
from tests.repository import ROOT

FILE = ROOT / "cluster" / "launch" / "grafana" / "sortition-testbed.json"
_METRIC = re.compile(r"\b(ray_\w+)\b(\{[^}]*\})?")


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a key is there twice"
        return dict(pairs)

    return json.loads(FILE.read_text(), object_pairs_hook=once)


def exported() -> dict[str, set[str]]:
    """Names as Ray exposes them, and their tags."""
    own = {"run", "protocol"}
    names = {f"ray_{name}": own | set(tags) for name, (tags, _) in (COUNTERS | GAUGES).items()}
    return names | {f"ray_{name}_bucket": own | set(tags) | {"le"} for name, (tags, _, _) in HISTOGRAMS.items()}


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_every_panel_can_be_imported(dashboard: dict[str, Any]) -> None:
    assert dashboard["uid"]
    assert dashboard["title"]
    assert "id" not in dashboard, "Grafana gives the id"
    panels = dashboard["panels"]
    assert [count for count in Counter(panel["id"] for panel in panels).values() if count > 1] == []
    for panel in panels:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("timeseries", "stat")
        assert panel["description"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_fit_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_variables_are_there_and_used(dashboard: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["run"]["query"]["query"] == "label_values(ray_testbed_rounds_total, run)"
    used = set(re.findall(r"\$(\w+)", " ".join(expressions(dashboard))))
    assert used == {"run", "window"}
    assert used <= set(variables)


def test_queries_name_exactly_the_exported_metrics(dashboard: dict[str, Any]) -> None:
    asked = {name for expression in expressions(dashboard) for name, _ in _METRIC.findall(expression)}
    assert asked == set(exported())


def test_queries_filter_by_the_run_and_by_tags_that_the_metric_has(dashboard: dict[str, Any]) -> None:
    for expression in expressions(dashboard):
        tags = set()
        for name, matchers in _METRIC.findall(expression):
            assert 'run=~"$run"' in matchers, expression
            assert set(re.findall(r"(\w+)=~?\"", matchers)) <= exported()[name], expression
            tags |= exported()[name]
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert set(group.split(", ")) <= tags, expression
        for left, right in ("()", "{}", "[]"):
            assert expression.count(left) == expression.count(right)


def test_legends_name_tags_that_the_query_keeps(dashboard: dict[str, Any]) -> None:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            kept = {tag for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for tag in group.split(", ")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, target
