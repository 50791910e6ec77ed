"""The experiments of `benchmarks.scale`: populations, and what else can be asked of a large one."""

from pathlib import Path
from typing import Any

from testbed.emulation.availability import DiurnalWeibull
from testbed.emulation.availability.synthesis import synthesize
from testbed.experiment.schema import Experiment
from testbed.randomness import Randomness

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
                "evaluate_every": rounds + 1,
            },
            "selection": {"protocol": "random", "participants": participants},
            "aggregation": {"protocol": "plain"},
            "time": {"compute": "modelled", "deadline_s": 600.0},
        }
        | sections
    )  # fmt: skip


def variations(participants: int, folder: Path) -> dict[str, dict[str, Any]]:
    """What changes in `experiment_of` for each row of the second table; `folder` takes a trace."""
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
