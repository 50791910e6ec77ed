"""Conditions and sizes at which the protocols are compared, and an experiment for each pair of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.reproduction.aggregation_comparison.completion import Tolerance, tolerated
from analysis.reproduction.aggregation_comparison.losses import Losses
from analysis.reproduction.aggregation_comparison.protocols import PROTOCOLS, ComparedProtocol, ProtocolSetting
from analysis.reproduction.experiments import declared
from testbed.aggregation.kit.parameters import CommitteeParameters
from testbed.engine.registry import aggregation_protocol
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment

CORRUPTION = 0.1
CHANCE = 0.999
"""Probability with which a round shall complete: protocols are set up for the losses that this takes."""
USUAL_RATE = 0.1
"""Dropout rate for which protocols are set up where nobody drops out."""
PHONES_LOST = 0.3
"""Share of the participants that protocols are set up to lose on phones, which go offline at any time."""

EPOCHS = 150
"""Local epochs: training of the largest model takes about one second on the reference machine."""

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

ALL_SEEDS_LINKS = "4G"
"""Links of the phones with all seeds."""

PHONES_A_PARTICIPANT = 8  # a quarter is online: twice as many as a round needs

QUICK = frozenset(
    compared.name for compared in PROTOCOLS if not compared.one_seed and "lost" in (compared.only or {"lost"})
)
"""Rows with numbers of losses that are not needed for the chance of a sum: rounds that are quick to emulate."""

COUNTED = frozenset({"secagg", "secagg-plus", "lightsecagg", "flamingo", "one-shot", "e-seafl"})
"""Rows with counted rounds: one for each protocol that can run many rounds."""

_BITS = range(8, 65)
_LOSSES = f"{Losses.__module__}:{Losses.__name__}"


@dataclass(frozen=True)
class Condition:
    """One condition, with a row of the table for each protocol.

    Attributes:
        varied: difference from the first condition.
        value: value of the difference.
        setting: setting for which the protocols are set up.
        model: model of the workload, which determines the vector's length.
        number: exact number of participants that drop out when they are asked for their masked update; None: by `rate`.
        rate: probability that a participant drops out then, independently of the others.
        completes: draw losses with which the round can complete (True), or losses that end it (False); None: any.
        phones: links of the phones; empty for clients that are always available.
        rounds: rounds of each run, without the first round of a protocol with a set-up for later rounds.
    one_seed: whether one seed is run, where dropouts and links are not random.
        free_points: whether products and sums of points cost no time, to tell their share of the time.
        small: whether the run uses the size's small workload, where rounds are only counted.
        only: names of the rows that have the condition; empty: all.
    """

    varied: str
    value: str
    setting: ProtocolSetting
    model: str
    number: int | None = None
    rate: float = 0.0
    completes: bool | None = None
    phones: str = ""
    rounds: int = 1
    one_seed: bool = False
    free_points: bool = False
    small: bool = False
    only: frozenset[str] = frozenset()

    @property
    def directory(self) -> str:
        """Name of the directory of its runs."""
        ending = {None: "", True: " completed", False: " ended"}[self.completes]
        return f"{self.varied} {self.value}{ending}".strip().replace(" ", "-").replace("%", "").replace(",", "").lower()

    def concerns(self, compared: ComparedProtocol) -> bool:
        """Return whether the table has this condition for a protocol."""
        here = not compared.only or self.varied in compared.only or bool(self.only)
        return here and (not self.only or compared.name in self.only)


@dataclass(frozen=True)
class Size:
    """Part of the comparison that is run.

    Attributes:
        participants: n, if the condition does not vary n.
        model: model of the workload, if the condition does not vary it.
        rates: shares of the participants that drop out.
        numbers: numbers of participants.
        models: names of models.
        corruptions: corrupted shares of the participants.
        seeds: seeds of the runs.
        independent: probabilities of independent dropouts at which rounds are timed.
        counted: rounds, over all seeds, in which completed rounds are counted at the last of these probabilities.
        workload: further keys of the workload.
        small_workload: keys of the workload for counted rounds.
    """

    participants: int
    model: str
    rates: Sequence[float]
    numbers: Sequence[int]
    models: Sequence[str]
    corruptions: Sequence[float]
    seeds: Sequence[int]
    independent: Sequence[float]
    counted: int
    workload: Mapping[str, Any] = field(default_factory=dict)
    small_workload: Mapping[str, Any] = field(default_factory=dict)

    def conditions(self) -> Iterator[Condition]:
        """Yield all conditions but the counted ones, in the table's order."""
        n, model = self.participants, self.model
        usual = ProtocolSetting(n, tolerated(n, USUAL_RATE, CHANCE), CORRUPTION)
        yield Condition("always on", "", usual, model)
        yield from self.lossy()
        phones = ProtocolSetting(n, round(PHONES_LOST * n), CORRUPTION, PHONES_ONLINE)
        for links in PHONE_LINKS:
            yield Condition("phones", links, phones, model, phones=links, one_seed=links != ALL_SEEDS_LINKS)
        for number in self.numbers:
            setting = ProtocolSetting(number, tolerated(number, USUAL_RATE, CHANCE), CORRUPTION)
            yield Condition("participants", f"{number}", setting, model, one_seed=True)
        for other in self.models:
            yield Condition("model", other, usual, other, one_seed=True)
        for share in self.corruptions:
            setting = replace(usual, corruption=share)
            yield Condition("corruption", f"{share:.0%}", setting, model, one_seed=True)

    def lossy(self) -> Iterator[Condition]:
        """Yield the conditions in which clients drop out: exact numbers, then by chance."""
        n, model = self.participants, self.model
        for rate in self.rates:
            setting, number = self.set_up_for(rate), round(rate * n)
            only = frozenset() if rate in self.independent else QUICK
            yield Condition(
                "lost", f"{number} of {n}", setting, model, number=number, rate=rate, completes=True, only=only
            )
            yield Condition(
                "lost, points free", f"{number} of {n}", setting, model, number=number, rate=rate, completes=True,
                free_points=True, one_seed=True, only=frozenset({"flamingo", "flamingo, the paper's graph"}),
            )  # fmt: skip
        for rate in self.independent:
            for completes in (True, False):
                yield Condition(
                    "each leaves", f"{rate:.0%}", self.set_up_for(rate), model, rate=rate, completes=completes
                )

    def counting(self) -> Iterator[Condition]:
        """Yield the conditions in which rounds are counted, with a small workload."""
        rounds, model = -(-self.counted // len(self.seeds)), str(self.small_workload["model"])
        for rate in self.independent[-1:]:
            yield Condition(
                "counted", f"{rate:.0%}", self.set_up_for(rate), model, rate=rate, rounds=rounds, small=True,
                only=COUNTED,
            )  # fmt: skip

    def set_up_for(self, rate: float) -> ProtocolSetting:
        """Return the setting for independent dropouts: rounds complete with probability `CHANCE`, if they can."""
        return ProtocolSetting(self.participants, tolerated(self.participants, rate, CHANCE), CORRUPTION)


_DIGITS = {"dataset": "digits", "batch_size": 20, "training": "simulated"}

SIZES: dict[str, Size] = {
    "small": Size(
        20, "mlp", (0.1, 0.5), (10, 40), ("logistic",), (0.3,), (1, 2, 3), (0.1, 0.5), 30,
        workload={**_DIGITS, "samples_per_client": 20},
        small_workload={**_DIGITS, "samples_per_client": 20, "model": "logistic"},
    ),
    "real": Size(
        100, "femnist-cnn", (0.1, 0.3, 0.5), (50, 200), ("logistic", "emnist-cnn"), (0.3,), (1, 2, 3), (0.1, 0.5), 45,
        workload={"dataset": "synthetic-femnist", "samples_per_client": 20, "training": "simulated",
                  "test_samples": 200},
        small_workload={**_DIGITS, "samples_per_client": 14, "model": "logistic"},
    ),
}  # fmt: skip

_HEAVIEST = 20
"""Most samples of a client, and thereby its largest weight in a sum."""


@dataclass(frozen=True)
class PlannedRuns:
    """An experiment of the comparison.

    Attributes:
        experiment: a sweep over the seeds.
        tolerance: losses with which its rounds complete.
        bits: bits of a sum's coordinate; 0 where the protocol does not choose them.
    """

    experiment: Experiment
    tolerance: Tolerance
    bits: int


def planned(size: Size, condition: Condition, compared: ComparedProtocol) -> PlannedRuns | None:
    """Return a protocol under a condition, set up for the condition's losses, or for as many as the protocol takes.

    Args:
        size: size of the runs.
        condition: condition of the run.
        compared: the protocol.

    Returns:
        The experiment, with the fewest bits that it accepts; None if no losses meet the condition.

    Raises:
        ExperimentError: the protocol cannot be set up for any number of losses.
    """
    setting = condition.setting
    for lost in range(setting.lost, -1, -1):
        section = compared.section(replace(setting, lost=lost))
        try:
            first = _declared(size, condition, compared, section)
            first.aggregation.check(setting.participants)  # of each point: the seeds do not matter
            break
        except (ExperimentError, ValueError) as error:
            refused = f"{compared.name}, {condition.varied} {condition.value}: {error}"
    else:
        raise ExperimentError(refused)
    bits = _fewest_bits(first, setting.participants) if compared.chooses_bits else 0
    section = {**section, "bits": bits} if bits else section
    tolerance = tolerance_of(first, setting.participants)
    if not _possible(condition, tolerance):
        return None
    return PlannedRuns(_declared(size, condition, compared, section, tolerance), tolerance, bits)


def tolerance_of(experiment: Experiment, participants: int) -> Tolerance:
    """Return the losses with which rounds complete, from the guarantees of the protocol.

    Args:
        experiment: one point.
        participants: number of participants.
    """
    protocol = aggregation_protocol(experiment.aggregation)
    lost = participants - protocol.guarantees(participants).min_sum_size
    if not isinstance(protocol.parameters, CommitteeParameters):
        return Tolerance(participants, lost)
    committee = protocol.parameters.committee
    members = committee.members_planned
    return Tolerance(participants, lost, members, members - committee.threshold_for(members))


def _possible(condition: Condition, tolerance: Tolerance) -> bool:
    """Return whether losses that meet the condition are probable enough to draw."""
    if condition.completes is None:
        return True
    if condition.number is not None:
        return tolerance.completes_with_number(condition.number) > 0
    # Where nearly all rounds complete, they cost as much as rounds with an exact number of losses.
    return 1 - CHANCE < tolerance.completes_with_rate(condition.rate) < CHANCE


def _fewest_bits(experiment: Experiment, participants: int) -> int:
    """Return the fewest bits of a sum's coordinate that the protocol accepts for these weights."""
    section = experiment.aggregation
    for bits in _BITS:
        try:
            parameters = type(section).model_validate({**section.model_dump(exclude_unset=True), "bits": bits})
            parameters.check(participants)
            parameters.check_weights(participants, _HEAVIEST)
        except (ExperimentError, ValueError):
            continue
        return bits
    raise ExperimentError(f"aggregation.bits: {section.protocol} accepts none of {_BITS.start} to {_BITS.stop - 1}")


def _declared(
    size: Size,
    condition: Condition,
    compared: ComparedProtocol,
    aggregation: Mapping[str, Any],
    tolerance: Tolerance | None = None,
) -> Experiment:
    n = condition.setting.participants
    # The set-up of a session is in its first round; on phones, an hour later, the committee may be gone.
    further = 2 if condition.phones else int(not condition.small)
    rounds = condition.rounds + (further if compared.session else 0)
    workload = size.small_workload if condition.small else size.workload
    values: dict[str, Any] = {
        "rounds": rounds,
        "population": n + compared.helpers,
        "sweep": {"seed": list(size.seeds[:1] if condition.one_seed or compared.one_seed else size.seeds)},
        "workload": {**workload, "model": condition.model, "epochs": EPOCHS, "evaluate_every": rounds},
        "selection.participants": n,
        "aggregation": aggregation,
        "links": WIRED,
        "availability": _availability(condition, compared, tolerance),
        "devices": {"model": "constant", "factor": 1.0},
    }
    if condition.free_points:
        values["time.costs"] = {"edwards25519.multiply": 0.0, "edwards25519.add": 0.0}
    if condition.phones:
        down, up, latency = PHONE_LINKS[condition.phones]
        values["population"] = PHONES_A_PARTICIPANT * n
        values["devices"] = {"model": "log-normal", "median": 20, "sigma": 0.5}
        values["links"] = {
            "down_mbit_s": {"distribution": "log-normal", "median": down, "sigma": 0.5},
            "up_mbit_s": {"distribution": "log-normal", "median": up, "sigma": 0.5},
            "latency_ms": {"distribution": "log-normal", "median": latency, "sigma": 0.4},
            "transport": "tls",
        }
        values["time.between_rounds_s"] = 3600.0
    return declared(
        f"{compared.name}, {condition.varied} {condition.value}".strip(),
        """
        selection: {protocol: random}
        time: {deadline_s: 600.0, disconnects: visible}
        cluster: {network: in-process}
        """,
        values,
    )


def _availability(condition: Condition, compared: ComparedProtocol, tolerance: Tolerance | None) -> Mapping[str, Any]:
    if condition.phones:
        return PHONES
    options: dict[str, Any] = {"stage": compared.upload, "helpers": compared.helpers}
    if condition.number is None:
        options["rate"] = condition.rate
    else:
        options["number"] = condition.number
    if condition.completes is not None and tolerance is not None:
        options |= {
            "most": tolerance.lost,
            "members": tolerance.members,
            "most_members": tolerance.members_lost,
            "completes": condition.completes,
        }
    return {"model": _LOSSES, "options": options}
