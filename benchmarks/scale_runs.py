"""The runs of `benchmarks.scale`: their experiments, and wall time by part of a round, bytes, and memory by process.

Populations of several sizes, and variations of a large one, run on Ray. The coordinator is replaced by one that notes
the time when stages begin; everything else is done as in `testbed run`, through `RaySession.run` into
a run directory.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray

from cluster.hosts.actors import Coordinator
from cluster.hosts.session import RaySession
from testbed.emulation.availability import DiurnalWeibull
from testbed.emulation.availability.synthesis import synthesize
from testbed.engine.federation import Progress
from testbed.experiment.schema import Experiment
from testbed.randomness import Randomness
from testbed.records import RunDirectory

MODEL = "logistic"  # 48,670 parameters on 28x28 images of 62 classes
SAMPLES = 20
PHONES = 1000
DAY_S = 86_400.0

_COMES_AND_GOES = {"mean_online_s": 1800.0, "mean_offline_s": 5400.0}
_PHONES: dict[str, Any] = {
    "model": "diurnal-weibull", **_COMES_AND_GOES, "online_shape": 0.8, "offline_shape": 0.7, "amplitude": 0.6,
    "peak_hour": 3.0, "spread_hours": 6.0,
}  # fmt: skip


def experiment_of(population: int, participants: int, rounds: int, **sections: Any) -> Experiment:
    """A small model that `participants` of `population` clients train: random selection, plain sums, equal links."""
    return Experiment.model_validate(
        {
            "name": "benchmark-scale", "seed": 1, "rounds": rounds, "population": population,
            "workload": {
                "dataset": "synthetic-femnist", "model": MODEL, "samples_per_client": SAMPLES, "test_samples": 200,
                "batch_size": 20, "learning_rate": 0.05, "momentum": 0.9,
                "evaluate_every": rounds + 1,
            },
            "selection": {"protocol": "random", "participants": participants},
            "aggregation": {"protocol": "plain"},
            "time": {"compute": "modelled", "deadline_s": 600.0, "disconnects": "invisible"},
        }
        | sections
    )  # fmt: skip


def variations(participants: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the changes of `experiment_of` for each row of the second table; `folder` takes a trace."""
    return {
        "batch-partition": {"selection": {"protocol": "batch-partition", "participants": participants, "privacy": 5}},
        "tls, zipf devices, log-normal links": {
            "links": {
                "transport": "tls",
                **{way: {"distribution": "log-normal", "median": 20.0, "sigma": 1.0}
                   for way in ("down_mbit_s", "up_mbit_s")},
                "latency_ms": {"distribution": "log-normal", "median": 50.0, "sigma": 0.5},
            },
            "devices": {"model": "zipf"},
        },
        "markov": {"availability": {"model": "markov", **_COMES_AND_GOES}},
        "diurnal-weibull": {"availability": _PHONES},
        f"trace of {PHONES} phones": {
            "availability": {"model": "trace", "path": str(_trace(folder)), "shift": True},
        },
    }  # fmt: skip


def lotto(population: int, participants: int, rounds: int) -> Experiment:
    """Server-centric Lotto: every client is registered with real keys."""
    return experiment_of(
        population, participants, rounds, selection={"protocol": "lotto-server-centric", "participants": participants}
    )


def _trace(folder: Path) -> Path:
    path = folder / "phones.parquet"
    synthesize(DiurnalWeibull.model_validate(_PHONES), PHONES, 2 * DAY_S, Randomness(1)).write(path)
    return path


PARTS = ("announce_s", "train_s", "aggregate_s", "record_s")
TRAINING, ROUND = "train", "round_s"
_KINDS = {"ray::ClientHost": "hosts", "ray::TimedCoordinator": "coordinator", "ray::PKIActor": "pki"}


class TimedCoordinator(Coordinator):
    """Notes when the parts of each round began (wall seconds), and the bytes that the emulated network carried."""

    async def run_next_round(self) -> bool:
        """See `Coordinator.run_next_round`."""
        self._marks: list[tuple[str, float]] = []
        federation = self._federation
        assert federation is not None
        network, end_round = federation.network, federation.network.end_round

        def noted_end() -> None:
            end_round()
            self._marks.append(("record", time.time()))

        network.end_round = noted_end  # type: ignore[method-assign]
        began = time.time()
        try:
            finished = await super().run_next_round()
        finally:
            del network.end_round  # the class's own again
        ended = time.time()
        times = {ROUND: ended - began, "began": began, "ended": ended, **parts_of(began, self._marks, ended)}
        times["emulated_bytes"] = float(sum(s.total("bytes_down") + s.total("bytes_up") for s in network.exchanges))
        self.__dict__.setdefault("_timed", []).append(times)
        return finished

    def _note(self, progress: Progress) -> None:
        super()._note(progress)
        if progress.stage and hasattr(self, "_marks"):
            self._marks.append((progress.stage, time.time()))

    async def timed(self) -> list[dict[str, float]]:
        """Return the measurements of every round since the last call: seconds, bytes."""
        found: list[dict[str, float]] = self.__dict__.pop("_timed", [])
        return found


def parts_of(began: float, marks: list[tuple[str, float]], ended: float) -> dict[str, float]:
    """The marks of one round as seconds of its parts: until training, training, until the model is new, recording."""
    at = dict(reversed(marks))  # the first of each name
    record = at.get("record", ended)
    train = at.get(TRAINING, record)
    later = [moment for name, moment in marks if train < moment and name != "record"]
    aggregate = min(later, default=record)
    return dict(zip(PARTS, (train - began, aggregate - train, record - aggregate, ended - record), strict=True))


def timed_session(hosts: int) -> RaySession:
    """Return a session on Ray with a `TimedCoordinator`; Ray is started here if it does not run yet."""
    return RaySession(None, hosts, coordinator_class=TimedCoordinator)


def memory_bytes() -> dict[str, int]:
    """Proportional memory (PSS: a shared page counts once, divided among its users) by kind of process.

    Keys: driver, hosts, coordinator, pki, ray (raylet, GCS, agents, idle workers).
    """
    found = dict.fromkeys(("driver", *_KINDS.values(), "ray"), 0)
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            title = (process.cmdline() or [""])[0]
            kind = next((kind for begin, kind in _KINDS.items() if title.startswith(begin)), "ray")
            found["driver" if process.pid == here.pid else kind] += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def object_store_bytes() -> int:
    """Bytes that have been put into the object store of this node since Ray began (objects of 100 kB and more)."""
    from ray._private import internal_api

    state = internal_api.get_state_from_address(ray.get_runtime_context().gcs_address)
    return int(internal_api.get_memory_info_reply(state).store_stats.cumulative_created_bytes)


@dataclass
class Measured:
    """Time and memory of one run.

    Attributes:
        start_s: from the call to the first round: clients, links, availability, registration.
        finish_s: merging the records after the last round.
        rounds: of each timed round, seconds of `ROUND` and of `PARTS`.
        emulated_bytes: server's bytes of a round, as the emulated network counts them.
        store_bytes: bytes that go through the object store in a round.
        record_bytes: size of the records of a round on disk.
        settled: proportional memory after a round, by kind of process.
        peak_bytes: the most that all processes together had while a round ran.
    """

    start_s: float
    finish_s: float
    rounds: list[dict[str, float]]
    emulated_bytes: float
    store_bytes: float
    record_bytes: float
    settled: dict[str, int] = field(default_factory=dict)
    peak_bytes: int = 0

    def best(self, part: str) -> float:
        """The least seconds of a part over the timed rounds after the first, in which caches are cold."""
        return min(times[part] for times in self.rounds[1:])


def measure(session: RaySession, experiment: Experiment, directory: Path, timed_rounds: int) -> Measured:
    """Run `experiment` (of `timed_rounds` + 1 rounds; in the last one the memory is watched) into `directory`."""
    RunDirectory.create(directory, experiment.plain())
    samples: list[dict[str, int]] = []
    store: dict[int, int] = {}

    def watch(progress: Progress) -> None:
        store.setdefault(progress.round_number, object_store_bytes())
        if progress.round_number > timed_rounds:
            samples.append(memory_bytes())

    began = time.time()
    session.run(experiment, 0, directory, watch)
    ended = time.time()
    settled = memory_bytes()
    rounds = ray.get(session.coordinator.timed.remote())
    spent = store[max(store)] - store[min(store)]
    size = sum(file.stat().st_size for file in directory.glob("*.parquet"))
    return Measured(
        rounds[0]["began"] - began,
        ended - rounds[-1]["ended"],
        rounds[:timed_rounds],
        rounds[0]["emulated_bytes"],
        spent / max(1, max(store) - min(store)),
        size / len(rounds),
        settled,
        max(sum(sample.values()) for sample in [*samples, settled]),
    )
