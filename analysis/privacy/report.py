"""Guarantees of an experiment's selection, also of a file that was never run, and privacy spent by runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from analysis.bounds.informed_privacy import Guarantee, guarantees
from analysis.privacy.spent import EPSILONS, Spending
from analysis.tables import Table, markdown, require_format, rows_of_every, to_json
from analysis.tables import render as render_table
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.display import visible
from testbed.engine.plan import RunPlan
from testbed.engine.privacy_recorder import records_of
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from testbed.plugins.classes import NotImportedError
from testbed.privacy.noise_plan import NoisePlan
from testbed.privacy.section import PrivacySection
from testbed.records import RunRecords
from testbed.records.vocabulary import privacy_caveats


@dataclass(frozen=True)
class Planned:
    """The guarantees of an experiment before the first round.

    Attributes:
        label: the experiment's.
        plan: its parts.
        noise: of its aggregation.
        delta: of all epsilons.
        guarantees: of its selection.
        warning: warning on its `privacy` section; empty if there is none.
    """

    label: str
    plan: RunPlan
    noise: NoisePlan
    delta: float
    guarantees: list[Guarantee]
    warning: str = ""

    def facts(self) -> dict[str, Any]:
        """Return keys and values of the first lines."""
        experiment = self.plan.experiment
        return {
            "mechanism": self.noise.accountant.mechanism,
            "noise_multiplier": self.noise.noise_multiplier,
            "unit": self.noise.accountant.unit,
            "delta": self.delta,
            "selection": experiment.selection.protocol,
            "aggregation": experiment.aggregation.protocol,
            "planned_rounds": experiment.rounds,
            "dishonest": len(self.plan.dishonest),
            "least_noise": self.noise.min_share,
            "caveats": privacy_caveats(experiment.plain()),
        }

    def noise_line(self) -> str:
        """Return a line with the noise multiplier, and the epsilon that it was computed for; empty if unknown."""
        multiplier = self.noise.noise_multiplier
        if multiplier is None:
            return ""
        epsilon = getattr(noise_of(self.plan.experiment.aggregation), "epsilon", None)
        return (
            f"  noise multiplier {multiplier:.4g}{'' if epsilon is None else f', computed for epsilon {epsilon:g}'}\n"
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each guarantee; epsilon is infinite if nothing is guaranteed."""
        return [
            {
                "server": guarantee.server,
                "epsilon": guarantee.cost.epsilon,
                "epsilon_fewest": guarantee.fewest.epsilon,
                "rounds": guarantee.cost.rounds,
                "dishonest": guarantee.cost.dishonest,
                "because": guarantee.because,
            }
            for guarantee in self.guarantees
        ]

    def text(self) -> str:
        """Return the guarantees as text, ending in a line feed."""
        facts = self.facts()
        lines = self.noise_line() + "".join(f"  {line}\n" for line in facts["caveats"])
        return (
            f"{visible(self.label)}\n  {facts['mechanism']}, protects a {facts['unit']}, delta {facts['delta']:.3g}; "
            f"{facts['selection']} under {facts['aggregation']}, {facts['planned_rounds']} rounds, "
            f"{facts['dishonest']} dishonest clients\n{lines}\n{guarantee_table(self.rows())}"
        )


def planned(
    experiment: Experiment, label: str, seed: int, dimension: int | None = None, delta: float | None = None
) -> Planned:
    """Compute the guarantees of an experiment's selection.

    Args:
        experiment: one point.
        label: name of the point, for messages.
        seed: seed of the experiment if it has none.
        dimension: number of model parameters; None: determined by building the workload.
        delta: of the run; None: the experiment's.

    Raises:
        ExperimentError: if its aggregation adds no noise, or it cannot be run as written.
    """
    plan, workload = RunPlan(experiment, seed), None
    if dimension is None or delta is None:  # building the workload loads its data, which may take long
        import workloads

        workload = workloads.build(experiment.workload, experiment.population, plan.seed)
        dimension = workload.dimension
    noise = plan.noise_plan(dimension)
    if noise is None:
        raise ExperimentError(
            f"{label}: aggregation {experiment.aggregation.protocol} adds no noise in this experiment, so nothing is "
            "guaranteed; see docs/explanation/privacy-ledger.md"
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
    """Render the guarantees of a selection as text."""
    heads = ("Guarantee of the selection, by server", "epsilon", "epsilon, fewest survivors", "r", "k", "reason")
    none = {"epsilon": "none", "epsilon_fewest": "none", "rounds": "–", "dishonest": "–"}
    cells = [[row["server"], *(number(row[key], none[key]) for key in none), row["because"]] for row in rows]
    return render_table(listed(heads, cells), "text")


def listed(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table within a paragraph: indented, without a rule.

    Args:
        heads: heads of the columns.
        rows: cells, row by row.
    """
    return Table(heads, rows, ruled=False, indent=2)


def number(value: float | None, none: str) -> str:
    """Format a number with four digits; `none` replaces None and infinite numbers.

    Args:
        value: the number.
        none: text without a number.

    Example:
        >>> number(0.123456, "none"), number(None, "none")
        ('0.1235', 'none')
    """
    if value is None or not isfinite(value):
        return none
    return f"{value}" if isinstance(value, int) else f"{value:.4g}"


# -- of runs ----------------------------------------------------------------------------------------------------------


_KINDS = {"epsilon": "achieved", "planned_epsilon": "planned", "colluding_epsilon": "with dishonest clients"}
_QUANTILES = {"least": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "largest": 1.0}
_WHAT = ("Run", "Mechanism", "Unit", "delta", "Rounds", "Clients")
_HEADERS = (*_WHAT, "Planned", "Achieved", "With dishonest clients", "Budget", "Noise multiplier")


def adds_noise(run: RunRecords) -> bool:
    """Return whether a run keeps a ledger; raise `ExperimentError` if its user-defined classes are not available."""
    if run.model is None:
        return True
    try:
        return RunPlan(_experiment(run), _seed(run)).noise_plan(len(run.model)) is not None
    except NotImportedError:
        return not run.frame("privacy").empty
    except ExperimentError as error:
        raise ExperimentError(f"{run.path}: {error}") from None


def _experiment(run: RunRecords) -> Experiment:
    return validated(run.experiment, str(run.path / "experiment.yaml"))


def _seed(run: RunRecords) -> int:
    return int(run.value("provenance.simulation_seed") or 0)


def of_run(run: RunRecords, spent: Spending) -> Planned | None:
    """Compute the guarantees of a run's selection.

    Args:
        run: its records.
        spent: its ledger.

    Returns:
        The guarantees; None if they need classes that may not be imported.

    Raises:
        ExperimentError: if classes are not available.
    """
    experiment, seed = _experiment(run), _seed(run)
    assert run.model is not None
    try:
        return planned(experiment, run.label, seed, len(run.model), spent.delta)
    except NotImportedError:
        return None
    except ExperimentError as error:
        raise ExperimentError(f"{run.path}: {error}") from None


def render(
    runs: Sequence[tuple[Spending, Planned | None]], format: str, every: int | None, without_noise: Sequence[str] = ()
) -> str:
    """Render the privacy spent by runs, with the guarantees of their selections.

    Args:
        runs: ledgers and guarantees of the runs that keep a ledger.
        format: ``text``, ``markdown`` or ``json``.
        every: also print every `every`-th round; None: none, in json all.
        without_noise: labels of the runs that add no noise.
    """
    require_format(format, "text", "markdown", "json")
    if format == "json":
        rows = [_json(spent, plan, every or 1) for spent, plan in runs]
        rows += [{"run": label, "mechanism": None} for label in without_noise]
        return to_json(rows, indent=1, ascii=True)
    if format == "markdown":
        cells = [_row(spent, plan) for spent, plan in runs]
        cells += [(label, "no noise", *["–"] * (len(_HEADERS) - 2)) for label in without_noise]
        caveats = "".join(
            f"\n{markdown(spent.label)}: {line}.\n"
            for spent, _ in runs
            for line in privacy_caveats(spent.run.experiment)
        )
        return render_table(Table(_HEADERS, cells), format) + "".join(caveats)
    texts = [_text(spent, plan, every) for spent, plan in runs]
    return "\n".join(texts + [f"{visible(label)}: adds no noise, so nothing is private\n" for label in without_noise])


def quantiles(spent: Spending, kind: str) -> dict[str, float]:
    """Return the distribution of an epsilon over the charged clients, by name of the quantile.

    Args:
        spent: the ledger of a run.
        kind: column of the ledger: `epsilon`, `planned_epsilon` or `colluding_epsilon`.
    """
    values = spent.clients[kind].to_numpy(np.float64)
    # A value that some client has: interpolation between infinite ones would give NaN.
    return {name: float(np.quantile(values, at, method="inverted_cdf")) for name, at in _QUANTILES.items()}


def _row(spent: Spending, plan: Planned | None) -> tuple[str, ...]:
    largest = [
        number(quantiles(spent, kind)["largest"], "inf") for kind in ("planned_epsilon", "epsilon", "colluding_epsilon")
    ]
    counts = (str(spent.rounds), str(len(spent.clients)))
    last = number(spent.budget, "–"), _multiplier(plan)
    return (spent.label, *_mechanism(plan), f"{spent.delta:.3g}", *counts, *largest, *last)


def _mechanism(plan: Planned | None) -> tuple[str, str]:
    """Return the mechanism and the unit that it protects."""
    return ("unknown", "unknown") if plan is None else (plan.noise.accountant.mechanism, plan.noise.accountant.unit)


def _multiplier(plan: Planned | None) -> str:
    """Return the noise multiplier as text."""
    return "unknown" if plan is None else number(plan.noise.noise_multiplier, "–")


def _recorded_noise(experiment: Mapping[str, Any]) -> str:
    """Return the line on the noise by the records alone, for protocols that are not known here."""
    recorded = (experiment.get("provenance") or {}).get("noise_multiplier")
    is_known = isinstance(recorded, int | float) and not isinstance(recorded, bool)
    return f"  noise multiplier {recorded:.4g}\n" if is_known else ""


def _text(spent: Spending, plan: Planned | None, every: int | None) -> str:
    mechanism, unit = _mechanism(plan)
    rounds, population = (spent.run.experiment[key] for key in ("rounds", "population"))
    text = (
        f"{visible(spent.label)}: {mechanism}, protects a {unit}, delta {spent.delta:.3g}\n"
        f"  {spent.rounds} of {rounds} rounds, {len(spent.clients)} of {population} clients charged\n"
    )
    text += _recorded_noise(spent.run.experiment) if plan is None else plan.noise_line()
    text += "".join(f"  {line}\n" for line in privacy_caveats(spent.run.experiment))
    if spent.budget is not None:
        is_spent = spent.stopped.startswith("privacy budget")  # and no target has ended the run
        text += f"  budget {spent.budget:g}{', not spent' if not is_spent else ': ' + visible(spent.stopped)}\n"
    spread = [[_KINDS[kind], *[number(value, "inf") for value in quantiles(spent, kind).values()]] for kind in EPSILONS]
    text += "\n" + render_table(listed(["epsilon of clients", *_QUANTILES], spread), "text")
    if every is not None:
        rows = [
            [str(row["round"]), str(row["charged"]), *[number(row[f"{kind}_max"], "inf") for kind in EPSILONS]]
            for row in rows_of_every(spent.by_round, every).to_dict("records")
        ]
        by_round = listed(["round", "charged", *[_KINDS[kind] for kind in EPSILONS]], rows)
        text += "\n  Largest epsilon of a client, by round\n" + render_table(by_round, "text")
    return text if plan is None else text + "\n" + guarantee_table(plan.rows())


def _json(spent: Spending, plan: Planned | None, every: int) -> dict[str, Any]:
    return {
        "run": spent.label,
        **({} if plan is None else plan.facts()),
        "budget": spent.budget,
        "stopped": spent.stopped or None,
        "rounds": spent.rounds,
        "population": spent.run.experiment["population"],
        "clients": len(spent.clients),
        **{f"{kind}_{name}": value for kind in EPSILONS for name, value in quantiles(spent, kind).items()},
        "guarantees": None if plan is None else plan.rows(),
        "by_round": rows_of_every(spent.by_round, every),
    }
