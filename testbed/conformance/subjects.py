"""The class that is checked, and its small experiment."""

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationProtocol
from testbed.crashes import locating_crashes
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.reading import apply_override
from testbed.experiment.schema import Experiment, validated
from testbed.plugins import installed
from testbed.plugins.classes import PLUGIN_NAME, plugin_class
from testbed.selection import catalogue as selections
from testbed.selection.contract import SelectionProtocol
from testbed.spelling import did_you_mean

SectionName = Literal["selection", "aggregation", "workload"]
MOST_ROUNDS = 100
_SEED = 1

# With the default number of participants, 10: all clients, or a third of them.
_EXPERIMENTS: dict[SectionName, dict[str, Any]] = {
    "aggregation": {"population": 10, "selection": {"protocol": "random"}},
    "selection": {"population": 30, "aggregation": {"protocol": "plain", "batches": "ignored"}},
    "workload": {"population": 10},
}
_NAME_KEYS: dict[SectionName, str] = {"selection": "protocol", "aggregation": "protocol", "workload": "dataset"}
"""Key of each section that names the class."""
_COMMITTEE = "aggregation.committee={size: 6, threshold: 4, serves_rounds: 3}"
_LOTTO = ("selection={participants: 6, over_selection: 2.0, signatures: 4}",)
_KEYS: dict[str, tuple[str, ...]] = {
    "secagg-plus": ("aggregation.dropouts=0.3",),
    "flamingo": (_COMMITTEE, "aggregation.dropouts=0.5"),
    "one-shot": (_COMMITTEE, "aggregation.max_colluders=1"),
    "dp-sgd-random-participation": (
        "selection={protocol: bernoulli, client_rate: 0.6}",
        "aggregation={sample_rate: 0.3, sigma: 0}",
    ),
    "bernoulli": ("selection.client_rate=0.3",),
    "batch-partition": ("selection.privacy=2",),
    "lotto-client-centric": _LOTTO,
    "lotto-server-centric": _LOTTO,
    "verifiable-batch-partition": ("selection={participants: 4, privacy: 2, over_selection: 4.0, signatures: 3}",),
    "min-separation": ("selection={participants: 4, separation: 2}",),
    "balls-in-bins": ("selection.bins=3",),
}
"""Overrides for keys of built-in protocols without a default, or with a default for larger federations."""


@dataclass(frozen=True)
class Subject:
    """A protocol or workload, and the experiment for its checks.

    Attributes:
        section: section of the experiment that names the class.
        name: its name in that section.
        experiment: the experiment.
        seed: seed of the experiment.
    """

    section: SectionName
    name: str
    experiment: Experiment
    seed: int = _SEED

    @cached_property
    def plan(self) -> RunPlan:
        """The plan of the experiment.

        Raises:
            ExperimentError: the class does not follow its contract.
            CodeCrashed: its ``__init__`` raises.
        """
        with locating_crashes(f"the construction of {self.name}", then=""):
            return RunPlan(self.experiment, 0)


def subject(name: str, overrides: Sequence[str] = ()) -> Subject:
    """Return the protocol or workload of a name, with an experiment for it.

    Args:
        name: a built-in protocol, a plug-in of an installed package, or ``package.module:Name``.
        overrides: overrides of the experiment's keys, as `--set` takes them.

    Raises:
        ExperimentError: no such protocol, or it does not take the keys.
    """
    section = _section(name)
    key = _NAME_KEYS[section]
    data = {"name": "check", "seed": _SEED, "rounds": MOST_ROUNDS, **deepcopy(_EXPERIMENTS[section])}
    data[section] = {**data.get(section, {}), key: name}
    for override in (*_KEYS.get(name, ()), *overrides):
        apply_override(data, override)
    experiment = validated(data, f"testbed check {name}")
    # An override could replace the checked class, and its result would stand for another one.
    if data[section].get(key) != name:
        raise ExperimentError(f"--set {section}.{key}: the checked {key} must stay {name}; leave the key out")
    if experiment.seed != _SEED:
        raise ExperimentError(f"--set seed: checks have the seed {_SEED}; leave the key out")
    if experiment.rounds != MOST_ROUNDS:
        raise ExperimentError("--set rounds: the properties determine the number of rounds; leave the key out")
    if experiment.sweep:
        raise ExperimentError("--set sweep: one protocol with one set of keys is checked; leave the sweep out")
    if not experiment.time.work_is_modelled or experiment.asynchronous is not None:
        raise ExperimentError(
            "--set: checks need synchronous rounds on the virtual clock with modelled compute; leave time and "
            "asynchronous out"
        )
    return Subject(section, name, experiment)


def _section(name: str) -> SectionName:
    if ":" in name and not re.match(PLUGIN_NAME, name):
        raise ExperimentError(f"testbed check: {name!r} is not the name of a class; give package.module:Name")
    if ":" in name:
        kind = plugin_class(name, "testbed check")
        if isinstance(kind, type) and issubclass(kind, SelectionProtocol):
            return "selection"
        if isinstance(kind, type) and issubclass(kind, AggregationProtocol):
            return "aggregation"
        if callable(getattr(kind, "train", None)) and callable(getattr(kind, "initial_model", None)):
            return "workload"
        raise ExperimentError(
            f"testbed check: {name}: inherits neither from testbed.SelectionProtocol nor from "
            "testbed.AggregationProtocol, and lacks the methods initial_model and train of a workload"
        )
    names: dict[str, SectionName] = {
        **{str(kind.model_fields["protocol"].default): "selection" for kind in selections.PROTOCOLS},
        **{str(kind.model_fields["protocol"].default): "aggregation" for kind in aggregations.PROTOCOLS},
    }
    if name in names:
        return names[name]
    sections: tuple[Literal["selection", "aggregation"], ...] = ("selection", "aggregation")
    for section in sections:
        if installed.named(section, name, "testbed check") is not None:
            return section
    raise ExperimentError(
        f"testbed check: no protocol {name!r}; {did_you_mean(name, names)}give package.module:Name, or a name that "
        "selection.protocol or aggregation.protocol takes"
    )
