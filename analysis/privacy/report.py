"""What runs have spent as text, tables and JSON."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.markup import markdown, markdown_table
from analysis.privacy.planned import Planned, lines, number, planned
from analysis.privacy.spent import EPSILONS, Spending
from testbed.display import visible
from testbed.engine.federation import Plan
from testbed.errors import ExperimentError
from testbed.experiment.loader import validated
from testbed.experiment.schema import Experiment
from testbed.plugins.classes import NotImportedError
from testbed.privacy.caveats import caveats
from testbed.privacy.recorder import accountant_of
from testbed.records import RunRecords

_SAID = {
    "epsilon": "achieved",
    "planned_epsilon": "planned",
    "colluding_epsilon": "with accomplices",
}
_QUANTILES = {"least": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "largest": 1.0}
_HEADERS = (
    "Run",
    "Mechanism",
    "Unit",
    "delta",
    "Rounds",
    "Clients",
    "Planned",
    "Achieved",
    "With accomplices",
    "Budget",
)


def adds_noise(run: RunRecords) -> bool:
    """Whether a run keeps a ledger; raises `ExperimentError` where its own classes are not at hand."""
    if run.model is None:
        return True
    try:
        return accountant_of(Plan(_experiment(run), _seed(run)), len(run.model)) is not None
    except NotImportedError:
        return not run.frame("privacy").empty
    except ExperimentError as error:
        raise ExperimentError(f"{run.path}: {error}") from None


def _experiment(run: RunRecords) -> Experiment:
    return validated(run.experiment, str(run.path / "experiment.yaml"))


def _seed(run: RunRecords) -> int:
    return int((run.experiment.get("provenance") or {}).get("simulation_seed") or 0)


def of_run(run: RunRecords, spent: Spending) -> Planned | None:
    """What the run's selection guarantees; None where that takes classes that may not be imported.

    Raises `ExperimentError` where they are not at hand.
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
    """What runs have spent, in one of the formats text, markdown and json; json holds every `every`-th round.

    Args:
        runs: those that keep a ledger.
        format: one of the three.
        every: see above; None: the last, json all.
        without_noise: labels of the runs that add none.
    """
    if format == "json":
        rows = [_json(spent, plan, every or 1) for spent, plan in runs]
        rows += [{"run": label, "mechanism": None} for label in without_noise]
        return json.dumps(rows, indent=1, allow_nan=False) + "\n"
    if format == "markdown":
        cells = [_row(spent, plan) for spent, plan in runs]
        cells += [(label, "no noise", *["–"] * (len(_HEADERS) - 2)) for label in without_noise]
        said = "".join(
            f"\n{markdown(spent.label)}: {line}.\n" for spent, _ in runs for line in caveats(spent.run.experiment)
        )
        return markdown_table(_HEADERS, cells, left=len(_HEADERS)) + "".join(said)
    texts = [_text(spent, plan, every) for spent, plan in runs]
    return "\n".join(texts + [f"{visible(label)}: adds no noise, so nothing is private\n" for label in without_noise])


def quantiles(spent: Spending, kind: str) -> dict[str, float]:
    """The distribution of an epsilon over the clients that were charged."""
    values = spent.clients[kind].to_numpy(np.float64)
    return {said: float(np.quantile(values, at, method="inverted_cdf")) for said, at in _QUANTILES.items()}


def _row(spent: Spending, plan: Planned | None) -> tuple[str, ...]:
    largest = [
        number(quantiles(spent, kind)["largest"], "inf") for kind in ("planned_epsilon", "epsilon", "colluding_epsilon")
    ]
    return (
        spent.label, *_mechanism(plan), f"{spent.delta:.3g}", str(spent.rounds),
        str(len(spent.clients)), *largest, number(spent.budget, "–"),
    )  # fmt: skip


def _mechanism(plan: Planned | None) -> tuple[str, str]:
    """The mechanism and the unit that it protects."""
    return ("unknown", "unknown") if plan is None else (plan.noise.accountant.mechanism, plan.noise.accountant.unit)


def _text(spent: Spending, plan: Planned | None, every: int | None) -> str:
    mechanism, unit = _mechanism(plan)
    rounds, population = (spent.run.experiment[key] for key in ("rounds", "population"))
    text = (
        f"{visible(spent.label)}: {mechanism}, protects a {unit}, delta {spent.delta:.3g}\n"
        f"  {spent.rounds} of {rounds} rounds, {len(spent.clients)} of {population} clients charged\n"
    )
    text += "".join(f"  {line}\n" for line in caveats(spent.run.experiment))
    if spent.budget is not None:
        text += f"  budget {spent.budget:g}{': ' + visible(spent.stopped) if spent.stopped else ', not spent'}\n"
    heads = ["epsilon so far", *_QUANTILES]
    cells = [heads]
    cells += [[_SAID[kind], *[number(value, "inf") for value in quantiles(spent, kind).values()]] for kind in EPSILONS]
    text += "\n" + _table(cells)
    if every is not None:
        frame = spent.by_round
        last = len(frame)
        kept = frame[[(place % every == 0) or place == last for place in range(1, last + 1)]]
        cells = [["round", "charged", *[_SAID[kind] for kind in EPSILONS]]]
        cells += [
            [str(row["round"]), str(row["charged"]), *[number(row[f"{kind}_max"], "inf") for kind in EPSILONS]]
            for row in kept.to_dict("records")
        ]
        text += "\n  The largest of a client, by round\n" + _table(cells)
    return text if plan is None else text + "\n" + lines(plan.rows())


def _table(cells: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"
        for row in cells
    )


def _json(spent: Spending, plan: Planned | None, every: int) -> dict[str, Any]:
    frame = spent.by_round
    kept = frame[[(place % every == 0) or place == len(frame) for place in range(1, len(frame) + 1)]]
    rows = [{key: _plain(value) for key, value in row.items()} for row in kept.to_dict("records")]
    spread = {f"{kind}_{said}": _plain(value) for kind in EPSILONS for said, value in quantiles(spent, kind).items()}
    facts = {} if plan is None else plan.facts()
    return {
        "run": spent.label, **facts, "budget": spent.budget, "stopped": spent.stopped or None,
        "rounds": spent.rounds, "population": spent.run.experiment["population"], "clients": len(spent.clients),
        **spread, "guarantees": None if plan is None else plan.rows(), "by_round": rows,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Infinity is None: JSON has none."""
    return value if not isinstance(value, float) or np.isfinite(value) else None
