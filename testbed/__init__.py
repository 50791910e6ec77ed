"""Sortition testbed: emulate secure participant selection in federated learning.

The functions of the ``testbed`` command for notebooks and scripts::

    from testbed import Experiment, run, compare, report

    experiment = Experiment.load("examples/quickstart.yaml")
    directory = run(experiment, out="runs/quickstart")
    table = compare(directory)          # a pandas frame
    report(directory, "report.html")    # a page for the browser

and the base classes, errors and results of user-defined classes. The names of ``__all__`` are stable;
docs/reference/python.md describes them.

This package is the federation (`engine` and its parts), the code that runs it (`running`) and the command (`cli`). It
imports none of the packages above it: hosts on Ray, training, tables and most verbs of the command are entry points
that those packages register (`plugins.entry_points`).
"""

import importlib
from typing import TYPE_CHECKING, Any

from testbed.version import VERSION as __version__

if TYPE_CHECKING:
    from analysis.library import compare as compare  # only for type checkers: at run time these are services
    from analysis.library import compare_targets as compare_targets
    from analysis.library import findings as findings
    from analysis.library import report as report
    from testbed.adversary.misbehaviour import AggregationMisbehaviour as AggregationMisbehaviour
    from testbed.adversary.misbehaviour import ClientMisbehaviour as ClientMisbehaviour
    from testbed.adversary.misbehaviour import MisbehaviourOptions as MisbehaviourOptions
    from testbed.adversary.misbehaviour import SelectionMisbehaviour as SelectionMisbehaviour
    from testbed.adversary.misbehaviour import TrainingMisbehaviour as TrainingMisbehaviour
    from testbed.aggregation.contract import Aggregate as Aggregate
    from testbed.aggregation.contract import AggregationParameters as AggregationParameters
    from testbed.aggregation.contract import AggregationProtocol as AggregationProtocol
    from testbed.aggregation.contract import AggregationRound as AggregationRound
    from testbed.aggregation.contract import clients_with_shape as clients_with_shape
    from testbed.aggregation.kit.ring_elements import NoisyParameters as NoisyParameters
    from testbed.aggregation.kit.ring_elements import NoisyProtocol as NoisyProtocol
    from testbed.aggregation.kit.ring_elements import NoisyRole as NoisyRole
    from testbed.aggregation.quantisation import Quantisation as Quantisation
    from testbed.aggregation.robust_rules import Combined as Combined
    from testbed.aggregation.robust_rules import RobustRule as RobustRule
    from testbed.aggregation.server_optimizers import ServerOptimizer as ServerOptimizer
    from testbed.emulation.availability.models import Presence as Presence
    from testbed.emulation.compute.cost import meter as meter
    from testbed.emulation.links import ClientLinks as ClientLinks
    from testbed.emulation.links import Rates as Rates
    from testbed.errors import ClusterError as ClusterError
    from testbed.errors import CodeCrashed as CodeCrashed
    from testbed.errors import ExperimentError as ExperimentError
    from testbed.errors import InstallationError as InstallationError
    from testbed.errors import ProtocolError as ProtocolError
    from testbed.errors import Refusal as Refusal
    from testbed.errors import RoundAborted as RoundAborted
    from testbed.errors import RoundSkipped as RoundSkipped
    from testbed.errors import RunError as RunError
    from testbed.errors import TestbedError as TestbedError
    from testbed.errors import TraceError as TraceError
    from testbed.experiment import Experiment as Experiment
    from testbed.messages import Count as Count
    from testbed.messages import Message as Message
    from testbed.messages import RoundNumber as RoundNumber
    from testbed.messages import Vector as Vector
    from testbed.parties.client import Role as Role
    from testbed.parties.client import RoleSpec as RoleSpec
    from testbed.parties.client import handles as handles
    from testbed.parties.stage_table import StageTable as StageTable
    from testbed.records import RunRecords as RunRecords
    from testbed.records import find_runs as find_runs
    from testbed.running import Observer as Observer
    from testbed.running import run as run
    from testbed.running.observers import Exporter as Exporter
    from testbed.selection.contract import Selection as Selection
    from testbed.selection.contract import SelectionParameters as SelectionParameters
    from testbed.selection.contract import SelectionProtocol as SelectionProtocol
    from testbed.selection.contract import SelectionRound as SelectionRound
    from testbed.selection.contract import TrainingReports as TrainingReports
    from testbed.training import Broadcast as Broadcast
    from testbed.training import Train as Train
    from testbed.training import Trainer as Trainer
    from testbed.training import trained_update as trained_update
    from testbed.workload.contract import Evaluation as Evaluation
    from testbed.workload.contract import EvaluationWithoutLoss as EvaluationWithoutLoss
    from testbed.workload.contract import LabelledEvaluation as LabelledEvaluation
    from testbed.workload.contract import LocalUpdate as LocalUpdate
    from testbed.workload.contract import Workload as Workload

_NAMES = {
    "testbed.adversary.misbehaviour": (
        "AggregationMisbehaviour ClientMisbehaviour MisbehaviourOptions SelectionMisbehaviour TrainingMisbehaviour"
    ),
    "testbed.aggregation.contract": (
        "Aggregate AggregationParameters AggregationProtocol AggregationRound clients_with_shape"
    ),
    "testbed.aggregation.quantisation": "Quantisation",
    "testbed.aggregation.kit.ring_elements": "NoisyParameters NoisyProtocol NoisyRole",
    "testbed.aggregation.robust_rules": "Combined RobustRule",
    "testbed.aggregation.server_optimizers": "ServerOptimizer",
    "testbed.emulation.availability.models": "Presence",
    "testbed.emulation.compute.cost": "meter",
    "testbed.emulation.links": "ClientLinks Rates",
    "testbed.errors": (
        "ClusterError CodeCrashed ExperimentError InstallationError ProtocolError Refusal RoundAborted RoundSkipped "
        "RunError TestbedError TraceError"
    ),
    "testbed.experiment": "Experiment",
    "testbed.messages": "Count Message RoundNumber Vector",
    "testbed.parties.client": "Role RoleSpec handles",
    "testbed.parties.stage_table": "StageTable",
    "testbed.records": "RunRecords find_runs",
    "testbed.running": "Observer run",
    "testbed.running.observers": "Exporter",
    "testbed.selection.contract": "Selection SelectionParameters SelectionProtocol SelectionRound TrainingReports",
    "testbed.training": "Broadcast Train Trainer trained_update",
    "testbed.workload.contract": "Evaluation EvaluationWithoutLoss LabelledEvaluation LocalUpdate Workload",
}
_FROM = {name: module for module, names in _NAMES.items() for name in names.split()}
_SERVICES = frozenset({"compare", "compare_targets", "findings", "report"})
"""Names that another package registers, as ``library.NAME``; see `testbed.plugins.services`."""
__all__ = ["__version__", *sorted(_SERVICES.union(_FROM))]


def __getattr__(name: str) -> Any:
    """Import public names at their first use, so that importing a part stays fast."""
    if name in _SERVICES:
        return importlib.import_module("testbed.plugins.services").service(f"library.{name}")
    if name not in _FROM:
        raise AttributeError(f"module 'testbed' has no attribute {name!r}")
    return getattr(importlib.import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    """Return the names of the module with the public ones, for completion."""
    return sorted({*globals(), *__all__})
