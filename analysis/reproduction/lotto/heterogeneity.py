"""The heterogeneous clients of Lotto's section 5.3, on generated data: what Figures 8 and 9 share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.reproduction.lotto.published import (
    BATCH_SIZE,
    CLIENT_MBIT_S,
    EPOCHS,
    LEARNING_RATES,
    PARAMETERS,
    SERVER_MBIT_S,
    derived,
)
from testbed.experiment.schema import Experiment

ZIPF = 1.2
"""Exponent a of the response latencies (section 5.3)."""

EXCLUDE = 0.2
"""Threshold of all strategies (section 5.3)."""


@dataclass(frozen=True)
class Setting:
    """Clients with different data and devices.

    Attributes:
        population: n.
        participants: s of a round.
        model: of `workloads`.
        samples_per_client: None: varying as FEMNIST's do.
        test_samples: for the accuracy.
    """

    population: int = 700
    participants: int = 70
    model: str = "femnist-cnn"
    samples_per_client: int | None = None
    test_samples: int = 2000

    @property
    def slowest(self) -> float:
        """Device factor of the slowest client, where the fastest has 1: section 3.5 has i**-a for the i-th slowest."""
        return float(self.population**ZIPF)


def experiment(
    setting: Setting, name: str, rounds: int, selection: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]]
) -> Experiment:
    """FEMNIST's training with Zipf's devices; updates are summed in the clear, which no choice depends on.

    Args:
        setting: the clients.
        name: of the experiment.
        rounds: how many.
        selection: its section, without the participants.
        sweep: keys and their values.
    """
    training = derived("FEMNIST", transfer_bytes=8.0 * PARAMETERS["FEMNIST"]).parameter_example_s
    return Experiment.model_validate(
        {
            "name": name,
            "seed": 1,
            "rounds": rounds,
            "population": setting.population,
            "workload": {
                "dataset": "synthetic-femnist",
                "model": setting.model,
                "samples_per_client": setting.samples_per_client,
                "test_samples": setting.test_samples,
                "epochs": EPOCHS["FEMNIST"],
                "batch_size": BATCH_SIZE,
                "learning_rate": LEARNING_RATES["FEMNIST"],
                "evaluate_every": 1,
            },
            "selection": {"participants": setting.participants, **selection},
            "aggregation": {"protocol": "plain"},
            "links": {
                "down_mbit_s": CLIENT_MBIT_S,
                "up_mbit_s": CLIENT_MBIT_S,
                "server_down_mbit_s": SERVER_MBIT_S,
                "server_up_mbit_s": SERVER_MBIT_S,
            },
            "devices": {"model": "zipf", "exponent": ZIPF, "fastest": 1.0, "slowest": setting.slowest},
            "time": {"compute": "modelled", "costs": {"train.parameter_example": training}, "deadline_s": 86_400.0},
            "sweep": {key: list(values) for key, values in sweep.items()},
        }
    )


def remarks(setting: Setting) -> list[str]:
    """What differs from the paper in both figures."""
    return [
        f"Scale: {setting.population} clients, {setting.participants} participants, model {setting.model}; the paper: "
        "700, 70 and the CNN of 1,018,174 parameters.",
        "Data are generated (synthetic-femnist, one writer per client, as many images as FEMNIST's writers have): "
        "accuracies, and how much clients' data differ, are this task's, not FEMNIST's.",
        "Devices follow Zipf's law with a = 1.2 as section 3.5 writes it, i**-a for the i-th slowest: that one takes "
        f"{setting.slowest:.0f} times as long as the fastest, half of the clients at most {2**ZIPF:.1f} times. A "
        "training step costs what the paper's own Table 2 implies (see lotto-table2).",
        "Updates are summed in the clear: SecAgg would add the same to every strategy's rounds.",
    ]
