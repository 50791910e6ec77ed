"""A run's metrics: their counts, their harmlessness for a run when they fail, and their view in Prometheus."""

import logging
import shutil
import tempfile
import threading
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families
from ray.util import metrics as rays

from cluster.metrics import COUNTERS, GAUGES, HISTOGRAMS, MAXIMUM_WORDS, RunMetrics
from testbed.experiment.schema import Experiment
from testbed.network.exchanges import ANSWERED, DROPPED, LATE, OUTCOMES, Exchanges
from testbed.network.recorder import Event
from testbed.records import RunDirectory, RunRecords
from tests.repository import ROOT

Seen = dict[tuple[str, frozenset[tuple[str, str]]], float]
POLLS = 150  # of 0.2 s each


def stage(name: str, sent_s: float, outcomes: list[int], **columns: int) -> Exchanges:
    """A stage in which each client has the numbers in `columns`."""
    n = len(outcomes)
    names = ("bytes_down", "bytes_up", "transport_down", "transport_up", "pki_bytes_down", "pki_bytes_up")
    values = {column: np.full(n, columns.get(column, 0), np.int64) for column in names}
    return Exchanges(
        name, True, np.arange(n), sent_s, np.full(n, np.nan), compute_s=np.zeros(n),
        outcome=np.array(outcomes, np.int8), **values,
    )  # fmt: skip


STAGES = [
    stage("train", 12.0, [ANSWERED, ANSWERED, LATE], bytes_down=100, bytes_up=7, transport_up=2),
    stage("check-in", 10.0, [ANSWERED, DROPPED], bytes_down=5, pki_bytes_up=3),
]
EVENTS = [
    Event("train", "client:1", "refusal", "lotto.not-a-member: list of 3: too short"),
    Event("train", "client:2", "refusal", "lotto.not-a-member: list of 2"),
    Event("train", "client:2", "crash", "ValueError: x"),
    Event("train", "host:3", "restart", "host 3 died"),
    Event("check-in", "coordinator", "restart", "killed"),
    Event("train", "client:9", "misbehaviour", "signed something else"),
]
OF_STAGES_AND_EVENTS: dict[tuple[str, tuple[str, ...]], float] = {
    ("testbed_rounds_total", ("aborted",)): 1,
    ("testbed_wall_seconds_total", ()): 0.5,
    ("testbed_round_wall_seconds", ()): 0.5,
    ("testbed_virtual_seconds_total", ()): 9,
    ("testbed_stage_seconds_total", ("check-in",)): 2,
    ("testbed_stage_seconds_total", ("train",)): 7,
    ("testbed_stage_duration_seconds", ("check-in",)): 2,
    ("testbed_stage_duration_seconds", ("train",)): 7,
    ("testbed_bytes_total", ("train", "down")): 300,
    ("testbed_bytes_total", ("train", "up")): 21,
    ("testbed_bytes_total", ("check-in", "down")): 10,
    ("testbed_transport_bytes_total", ("train", "up")): 6,
    ("testbed_pki_bytes_total", ("check-in", "up")): 6,
    ("testbed_asked_clients_total", ("train", "answered")): 2,
    ("testbed_asked_clients_total", ("train", "late")): 1,
    ("testbed_asked_clients_total", ("check-in", "answered")): 1,
    ("testbed_asked_clients_total", ("check-in", "dropped")): 1,
    ("testbed_participants_total", ()): 3,
    ("testbed_survivors_total", ()): 2,
    ("testbed_refusals_total", ("train", "lotto.not-a-member")): 2,
    ("testbed_crashes_total", ("train",)): 1,
    ("testbed_restarts_total", ("host",)): 1,
    ("testbed_restarts_total", ("coordinator",)): 1,
    ("testbed_events_total", ("refusal",)): 2,
    ("testbed_events_total", ("crash",)): 1,
    ("testbed_events_total", ("restart",)): 2,
    ("testbed_events_total", ("misbehaviour",)): 1,
    ("testbed_accuracy_ratio", ()): 0.25,
    ("testbed_loss", ()): 2.5,
}


def end_a_round(metrics: RunMetrics) -> None:
    """The round of `OF_STAGES_AND_EVENTS`."""
    metrics.round_ended("aborted", 0.5, STAGES, EVENTS, 19.0, participants=3, survivors=2, accuracy=0.25, loss=2.5)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the sums passed to Ray, by name and the values of the tags after run and protocol."""
    sums: dict[tuple[str, tuple[str, ...]], float] = defaultdict(float)

    def record(self: rays.Metric, value: float, tags: dict[str, str] | None = None) -> None:
        known = self.info["default_tags"] | (tags or {})
        assert (known["run"], known["protocol"]) == ("a", "lotto")
        sums[self.info["name"], tuple(known[key] for key in self.info["tag_keys"][2:])] += value

    monkeypatch.setattr(rays.Metric, "_record", record)
    return sums


def test_a_round_is_counted_under_its_tags(recorded: dict) -> None:
    end_a_round(RunMetrics("a", "lotto"))
    assert recorded == OF_STAGES_AND_EVENTS


def test_a_round_without_stages_is_counted(recorded: dict) -> None:
    metrics = RunMetrics("a", "lotto")
    metrics.round_ended("skipped", 0.25, [], [], 4.0, accuracy=float("nan"))
    assert metrics.on
    assert recorded == {
        ("testbed_rounds_total", ("skipped",)): 1,
        ("testbed_wall_seconds_total", ()): 0.25,
        ("testbed_round_wall_seconds", ()): 0.25,
    }


def test_a_tag_takes_no_more_values_than_some(recorded: dict) -> None:
    metrics = RunMetrics("a", "lotto")
    for number in range(3 * MAXIMUM_WORDS):
        events = [Event("train", "client:1", "refusal", f"check-{number}: no")]
        metrics.round_ended("completed", 1.0, [], events, 1.0)
    refusals = {tags[1]: count for (name, tags), count in recorded.items() if name == "testbed_refusals_total"}
    assert len(refusals) == MAXIMUM_WORDS + 1
    assert refusals["other"] == 2 * MAXIMUM_WORDS


def test_off_with_rays_switch(monkeypatch: pytest.MonkeyPatch, recorded: dict) -> None:
    monkeypatch.setenv("RAY_enable_metrics_collection", "False")
    metrics = RunMetrics("a", "lotto")
    end_a_round(metrics)
    assert not metrics.on
    assert not recorded


def test_metrics_that_fail_end_no_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def record(self: rays.Metric, value: float, tags: dict[str, str] | None = None) -> None:
        calls.append(value)
        raise ConnectionError("the agent is gone")

    monkeypatch.setattr(rays.Metric, "_record", record)
    metrics = RunMetrics("a", "lotto")
    with caplog.at_level(logging.WARNING, "cluster.metrics"):
        end_a_round(metrics)
        end_a_round(metrics)
    assert [record.getMessage() for record in caplog.records] == [
        "no metrics from here on: ConnectionError: the agent is gone"
    ]
    assert len(calls) == 1


def test_the_docs_list_every_metric_with_its_kind_and_tags() -> None:
    lines = (ROOT / "docs" / "how-to" / "metrics.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines if line.startswith("| `testbed_")]
    made: dict[str, dict[str, Any]] = {"counter": COUNTERS, "histogram": HISTOGRAMS, "gauge": GAUGES}
    assert sorted(rows) == sorted(
        [f"`{name}`", kind, ", ".join(tags)] for kind, metrics in made.items() for name, (tags, *_) in metrics.items()
    )


# -- as Prometheus sees it --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A Ray of its own that reports every second; where it exports its metrics."""
    ray.shutdown()  # end the Ray of other tests
    folder = tempfile.mkdtemp(prefix="tb-", dir="/tmp")  # a short path: Ray puts sockets there
    ray.init(
        num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False, logging_level="error",
        _temp_dir=folder, _system_config={"metrics_report_interval_ms": 1000},
        runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
    )  # fmt: skip
    node = ray.nodes()[0]
    yield f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


class Running:
    """An actor that runs an experiment in its process, with metrics."""

    def run(self, experiment: Experiment, path: Path) -> None:
        import asyncio

        import workloads
        from testbed.engine.in_process import federation_in_process
        from testbed.engine.plan import RunPlan

        metrics = RunMetrics(experiment.name, experiment.selection.protocol)
        assert metrics.on
        workload = workloads.build(experiment.workload, experiment.population, experiment.seed)
        records = RunDirectory.create(path, experiment.plain())
        federation = federation_in_process(RunPlan(experiment, 0), workload, records, lambda progress: None)

        async def run() -> None:
            while not federation.finished:
                outcome = await federation.run_next_round()
                network = federation.network
                metrics.round_ended(
                    outcome.state, 0.5, network.exchanges, network.events, network.now_s,
                    participants=len(outcome.participants), survivors=len(outcome.survivors),
                    accuracy=federation.accuracy,
                )  # fmt: skip

        asyncio.run(run())
        records.finish()
        assert metrics.on

    def count(self, run: str) -> None:
        end_a_round(RunMetrics(run, "lotto"))


def scrape(endpoint: str) -> Seen:
    """The testbed's samples, without the tags that Ray adds."""
    text = urllib.request.urlopen(endpoint, timeout=10).read().decode()
    ours = {"run", "protocol", "stage", "direction", "outcome", "check", "party", "kind", "le"}
    return {
        (sample.name, frozenset((key, value) for key, value in sample.labels.items() if key in ours)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("ray_testbed_")
    }


def scrape_until(endpoint: str, run: str, expected: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> Seen:
    """Scrape until the samples of a run are as expected, or for so long that they will not be."""
    wait, seen = threading.Event(), {}
    for _ in range(POLLS):
        seen = {key: value for key, value in scrape(endpoint).items() if ("run", run) in key[1]}
        if all(seen.get(key) == pytest.approx(value) for key, value in expected.items()):
            break
        wait.wait(0.2)
    assert {key: seen.get(key) for key in expected} == pytest.approx(expected)
    return seen


def key(name: str, run: str, protocol: str, **tags: Any) -> tuple[str, frozenset[tuple[str, str]]]:
    """A sample's name as Ray exports it, and its tags."""
    return f"ray_{name}", frozenset({"run": run, "protocol": protocol, **tags}.items())


@pytest.mark.ray
def test_a_run_is_seen_by_prometheus_as_its_tables_say(endpoint: str, tmp_path: Path) -> None:
    experiment = Experiment.model_validate(
        {
            "name": "watched", "seed": 5, "rounds": 4, "population": 12,
            "workload": {"dataset": "digits", "model": "logistic"},
            "selection": {"protocol": "lotto-client-centric", "participants": 5, "over_selection": 2},
            "aggregation": {"protocol": "secagg", "threshold": 0.6},
            "availability": {"dropout": {"rate": 0.3}},
            "time": {"compute": "modelled", "deadline_s": 5},
        }
    )  # fmt: skip
    actor: Any = ray.remote(Running).remote()
    ray.get(actor.run.remote(experiment, tmp_path / "run"))
    run = RunRecords(tmp_path / "run")
    exchanges, rounds = run.exchanges, run.rounds
    own = ("watched", "lotto-client-centric")
    expected: dict[tuple[str, frozenset[tuple[str, str]]], float] = {
        key("testbed_rounds_total", *own, outcome=str(outcome)): count
        for outcome, count in rounds["outcome"].value_counts().items()
    }
    for direction in ("down", "up"):
        for name, column in (("bytes", "bytes"), ("transport_bytes", "transport"), ("pki_bytes", "pki_bytes")):
            for stage_name, total in exchanges.groupby("stage", observed=True)[f"{column}_{direction}"].sum().items():
                if total:
                    tags = {"stage": str(stage_name), "direction": direction}
                    expected[key(f"testbed_{name}_total", *own, **tags)] = total
    counted: dict[Any, int] = exchanges.groupby(["stage", "outcome"], observed=True).size().to_dict()
    for (stage_name, outcome), count in counted.items():
        tags = {"stage": str(stage_name), "outcome": str(outcome)}
        expected[key("testbed_asked_clients_total", *own, **tags)] = count
    began = exchanges.groupby("round")["sent_s"].min()
    expected[key("testbed_virtual_seconds_total", *own)] = float((rounds.set_index("round")["ended_s"] - began).sum())
    expected[key("testbed_wall_seconds_total", *own)] = 2.0
    expected[key("testbed_round_wall_seconds_count", *own)] = 4
    expected[key("testbed_round_wall_seconds_bucket", *own, le="0.3")] = 0
    expected[key("testbed_round_wall_seconds_bucket", *own, le="1.0")] = 4
    expected[key("testbed_participants_total", *own)] = len(run.participation)
    expected[key("testbed_survivors_total", *own)] = int(run.participation["survived"].sum())
    expected[key("testbed_accuracy_ratio", *own)] = float(rounds["accuracy"].dropna().iloc[-1])
    seen = scrape_until(endpoint, "watched", expected)
    assert {value for _, tags in seen for name, value in tags if name == "outcome"} >= {"completed", "dropped"}
    asked = Counter(dict.fromkeys(OUTCOMES, 0))
    for (name, sample_tags), number in seen.items():
        if name == "ray_testbed_asked_clients_total":
            asked[dict(sample_tags)["outcome"]] += int(number)
    assert sum(asked.values()) == len(exchanges)
    assert asked["dropped"] > 0


@pytest.mark.ray
def test_every_metric_is_exported_under_its_name(endpoint: str) -> None:
    actor: Any = ray.remote(Running).remote()
    ray.get(actor.count.remote("everything"))
    tags = {name: keys for name, (keys, *_) in (COUNTERS | GAUGES | HISTOGRAMS).items()}
    expected = {
        key(name, "everything", "lotto", **dict(zip(tags[name], values, strict=True))): value
        for (name, values), value in OF_STAGES_AND_EVENTS.items()
        if name not in HISTOGRAMS
    }
    seen = scrape_until(endpoint, "everything", expected)
    names = {f"ray_{name}" for name in (COUNTERS | GAUGES)}
    names |= {f"ray_{name}{suffix}" for name in HISTOGRAMS for suffix in ("_bucket", "_count", "_sum")}
    assert {name for name, _ in seen} == names
