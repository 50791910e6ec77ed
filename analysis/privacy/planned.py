"""What an experiment's selection guarantees, as rows: for a file that was never run, and for a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from analysis.bounds.informed_privacy import Guarantee, guarantees
from analysis.tables import Table, render
from testbed.display import visible
from testbed.engine.plan import Plan
from testbed.engine.privacy_recorder import records_of
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.privacy.noise_plan import NoisePlan
from testbed.privacy.section import PrivacySection, caveats


@dataclass(frozen=True)
class Planned:
    """What is known before the first round.

    Attributes:
        label: the experiment's.
        plan: its parts.
        noise: of its aggregation.
        delta: of all epsilons.
        guarantees: of its selection.
        warning: what is wrong with its `privacy` section; empty where nothing is.
    """

    label: str
    plan: Plan
    noise: NoisePlan
    delta: float
    guarantees: list[Guarantee]
    warning: str = ""

    def facts(self) -> dict[str, Any]:
        """Keys and values of the first lines."""
        experiment = self.plan.experiment
        return {
            "mechanism": self.noise.accountant.mechanism,
            "unit": self.noise.accountant.unit,
            "delta": self.delta,
            "selection": experiment.selection.protocol,
            "aggregation": experiment.aggregation.protocol,
            "planned_rounds": experiment.rounds,
            "dishonest": len(self.plan.dishonest),
            "least_noise": self.noise.min_share,
            "caveats": caveats(experiment.plain()),
        }

    def rows(self) -> list[dict[str, Any]]:
        """A row for each guarantee; epsilon is None where nothing is guaranteed."""
        return [
            {
                "server": one.server,
                "epsilon": _finite(one.cost.epsilon),
                "epsilon_fewest": _finite(one.fewest.epsilon),
                "rounds": one.cost.rounds,
                "dishonest": one.cost.dishonest,
                "because": one.because,
            }
            for one in self.guarantees
        ]

    def text(self) -> str:
        """All of it, for a person; ends in a line feed."""
        facts = self.facts()
        said = "".join(f"  {line}\n" for line in facts["caveats"])
        return (
            f"{visible(self.label)}\n  {facts['mechanism']}, protects a {facts['unit']}, delta {facts['delta']:.3g}; "
            f"{facts['selection']} under {facts['aggregation']}, {facts['planned_rounds']} rounds, "
            f"{facts['dishonest']} dishonest clients\n{said}\n{guarantee_table(self.rows())}"
        )


def planned(
    experiment: Experiment, label: str, seed: int, dimension: int | None = None, delta: float | None = None
) -> Planned:
    """What the experiment's selection guarantees.

    Args:
        experiment: one point.
        label: says which.
        seed: stands in for the experiment's seed when it has none.
        dimension: of its model; None: build the workload to know.
        delta: at which it was run; None: the experiment's.

    Raises:
        ExperimentError: its aggregation adds no noise, or it cannot be run as written.
    """
    plan, workload = Plan(experiment, seed), None
    if dimension is None or delta is None:
        import workloads

        workload = workloads.build(experiment.workload, experiment.population, plan.seed)
        dimension = workload.dimension
    noise = plan.noise_plan(dimension)
    if noise is None:
        raise ExperimentError(
            f"{label}: aggregation {experiment.aggregation.protocol} adds no noise in this experiment, so that nothing "
            "is guaranteed; see docs/privacy-ledger.md"
        )
    warning = ""
    if delta is None:
        assert workload is not None
        section = experiment.privacy or PrivacySection()
        unit = noise.accountant.unit
        records = records_of(unit, plan, workload)
        delta, warning = section.delta_for(records), section.warning(unit, records)
    return Planned(label, plan, noise, delta, guarantees(plan, noise.accountant, delta), warning)


def guarantee_table(rows: Sequence[dict[str, Any]]) -> str:
    """The guarantees of selection as text."""
    heads = ("Guaranteed by selection, against a server that is", "epsilon", "fewest survive", "r", "k", "because")
    cells = [
        (
            row["server"],
            number(row["epsilon"]),
            number(row["epsilon_fewest"]),
            number(row["rounds"], "–"),
            number(row["dishonest"], "–"),
            row["because"],
        )
        for row in rows
    ]
    return render(listed(heads, cells), "text")


def listed(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table within a paragraph: indented, without a line."""
    return Table(heads, rows, ruled=False, indent=2)


def number(value: float | None, none: str = "none") -> str:
    """Four digits; no epsilon is "none"."""
    if value is None or not isfinite(value):
        return none
    return f"{value}" if isinstance(value, int) else f"{value:.4g}"


def _finite(epsilon: float) -> float | None:
    return epsilon if isfinite(epsilon) else None
