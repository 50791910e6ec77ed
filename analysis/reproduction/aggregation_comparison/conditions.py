"""Conditions and sizes at which the protocols are compared, and an experiment for each pair of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.reproduction.aggregation_comparison.protocols import ComparedProtocol, ProtocolSetting
from analysis.reproduction.experiments import declared
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment

CORRUPTION = 0.1
DROPOUT_MARGIN = 0.1
"""Share of the participants that protocols tolerate beyond the mean dropout rate, since dropouts are random."""

_LEAST_STEP = 0.05
_SEED = 1

WIRED: dict[str, Any] = {"down_mbit_s": 100.0, "up_mbit_s": 100.0, "latency_ms": 10.0}
"""Links of all conditions but phones."""

PHONE_LINKS: dict[str, tuple[float, float, float]] = {"3G": (2.0, 1.0, 100.0), "4G": (20.0, 10.0, 40.0),
                                                      "5G": (150.0, 50.0, 15.0)}  # fmt: skip
"""Medians of down and up link rate [Mbit/s] and one-way latency [ms]; each client's values are log-normal about them.
"""

PHONES: dict[str, Any] = {
    "model": "diurnal-weibull",
    "mean_online_s": 1800,
    "mean_offline_s": 5400,
    "online_shape": 0.6,
    "offline_shape": 0.6,
    "amplitude": 0.5,
    "peak_hour": 2,
}
PHONES_ONLINE = PHONES["mean_online_s"] / (PHONES["mean_online_s"] + PHONES["mean_offline_s"])
"""Share of the phones that is online at a time: a quarter."""

PHONES_A_PARTICIPANT = 8  # a quarter is online: twice as many as a round needs


@dataclass(frozen=True)
class Condition:
    """One condition, with a row of the table for each protocol.

    Attributes:
        varied: difference from the first condition.
        value: value of the difference.
        setting: setting for which the protocols are set up.
        model: keys of the workload that determine the vector's length.
        dropout: probability that a participant drops out when it is asked for its masked update, as in the papers.
        phones: links of the phones; empty for clients that are always available.
    """

    varied: str
    value: str
    setting: ProtocolSetting
    model: Mapping[str, Any]
    dropout: float = 0.0
    phones: str = ""

    @property
    def directory(self) -> str:
        """Name of the directory of its runs."""
        return f"{self.varied} {self.value}".strip().replace(" ", "-").replace("%", "").lower()


@dataclass(frozen=True)
class Size:
    """Part of the comparison that is run.

    Attributes:
        participants: n, if the condition does not vary n.
        model: model of the workload, if the condition does not vary it.
        dropouts: dropout rates.
        numbers: numbers of participants.
        models: names of models.
        corruptions: corrupted shares of the participants.
        rounds: number of rounds of each run.
        workload: further keys of the workload.
    """

    participants: int
    model: str
    dropouts: Sequence[float]
    numbers: Sequence[int]
    models: Sequence[str]
    corruptions: Sequence[float]
    rounds: int
    workload: Mapping[str, Any] = field(default_factory=dict)

    def conditions(self) -> Iterator[Condition]:
        """Yield all conditions, in the table's order."""
        n, base = self.participants, {"model": self.model}
        usual = ProtocolSetting(n, DROPOUT_MARGIN, CORRUPTION)
        yield Condition("always on", "", usual, base)
        for links in PHONE_LINKS:
            yield Condition("phones", links, ProtocolSetting(n, 0.3, CORRUPTION, PHONES_ONLINE), base, phones=links)
        for rate in self.dropouts:
            yield Condition(
                "dropout", f"{rate:.0%}", ProtocolSetting(n, rate + DROPOUT_MARGIN, CORRUPTION), base, dropout=rate
            )
        for number in self.numbers:
            yield Condition("participants", f"{number}", ProtocolSetting(number, DROPOUT_MARGIN, CORRUPTION), base)
        for model in self.models:
            yield Condition("model", model, usual, {"model": model})
        for share in self.corruptions:
            yield Condition("corruption", f"{share:.0%}", ProtocolSetting(n, DROPOUT_MARGIN, share), base)


SIZES: dict[str, Size] = {
    "small": Size(
        20, "mlp", (0.1, 0.3, 0.5), (10, 40), ("logistic", "cnn"), (0.3,), 4,
        workload={"dataset": "digits", "batch_size": 20, "training": "simulated"},
    ),
    "real": Size(
        100, "femnist-cnn", (0.1, 0.3, 0.5), (50, 200), ("logistic", "emnist-cnn"), (0.3,), 3,
        workload={"dataset": "synthetic-femnist", "samples_per_client": 20, "training": "simulated",
                  "test_samples": 200},
    ),
}  # fmt: skip


def experiment(size: Size, condition: Condition, compared: ComparedProtocol) -> Experiment:
    """Return a protocol under a condition, set up for the condition's dropouts, or for as many as the protocol takes.

    Args:
        size: size of the runs.
        condition: condition of the run.
        compared: the protocol.

    Raises:
        ExperimentError: the protocol cannot be set up for any number of dropouts.
    """
    setting = condition.setting
    for step in range(round(setting.dropouts / _LEAST_STEP) + 1):
        # Multiples of 0.05, without rounding errors.
        fewer = replace(setting, dropouts=round(setting.dropouts - step * _LEAST_STEP, 2))
        try:
            return _declared(size, condition, compared, compared.section(fewer))
        except ExperimentError as error:
            refused = error
    raise refused


def _declared(
    size: Size, condition: Condition, compared: ComparedProtocol, aggregation: Mapping[str, Any]
) -> Experiment:
    n = condition.setting.participants
    values: dict[str, Any] = {
        "seed": _SEED,
        "rounds": size.rounds,
        "population": n,
        "workload": {**size.workload, **condition.model, "evaluate_every": size.rounds},
        "selection.participants": n,
        "aggregation": aggregation,
        "links": WIRED,
        "availability": {"dropout": {"rate": condition.dropout, "stage": compared.upload}},
        "devices": {"model": "constant", "factor": 1.0},
    }
    if condition.phones:
        down, up, latency = PHONE_LINKS[condition.phones]
        values["population"] = PHONES_A_PARTICIPANT * n
        values["availability"] = PHONES
        values["devices"] = {"model": "log-normal", "median": 20, "sigma": 0.5}
        values["links"] = {
            "down_mbit_s": {"distribution": "log-normal", "median": down, "sigma": 0.5},
            "up_mbit_s": {"distribution": "log-normal", "median": up, "sigma": 0.5},
            "latency_ms": {"distribution": "log-normal", "median": latency, "sigma": 0.4},
            "transport": "tls",
        }
        values["time.between_rounds_s"] = 3600.0
    return declared(
        f"{compared.protocol}, {condition.varied} {condition.value}".strip(),
        """
        selection: {protocol: random}
        time: {deadline_s: 600.0, disconnects: visible}
        cluster: {network: in-process}
        """,
        values,
    )
