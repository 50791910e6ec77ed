"""Multi-round metrics of runs as text, tables and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.multi_round.bound_search import Progress, no_progress
from analysis.multi_round.over_rounds import TIME_LIMIT_S, OverRounds, over_rounds
from analysis.multi_round.participation import participation_matrix, summed_clients
from analysis.tables import Table, csv, protocol_name, require_format, rows_of_every, to_json
from analysis.tables import render as render_table
from testbed.display import visible
from testbed.errors import ExperimentError
from testbed.records import RunRecords

_FEW_ROUNDS = 8
_FEW_CLIENTS = 24
_HEADERS = {
    "run": "Run",
    "round": "Round",
    "strong": "T strong",
    "weak": "T weak",
    "lower_bound": "T weak, lower bound",
}
_HEADERS |= {"proof": "Proof", "fairness": "F", "cardinality": "C"}


@dataclass(frozen=True)
class Measured:
    """Metrics of one run.

    Attributes:
        label: label of the run.
        protocol: name of the selection protocol.
        population: N.
        planned: number of rounds of the experiment; an unfinished run has fewer.
        clients: `(k,)` int64, the clients that were in a sum; the first k columns of the participation matrix.
        numbers: `(rounds,)` int64, the rounds' numbers.
        matrix: `(rounds, columns)` participation matrix.
        metrics: metrics after each round.
    """

    label: str
    protocol: str
    population: int
    planned: int
    clients: Any
    numbers: Any
    matrix: Any
    metrics: OverRounds

    def certificate(self) -> dict[str, Any]:
        """Return a combination with the fewest clients after the last round.

        Returns:
            Keys: rounds, coefficients (coprime integers, in the order of the rounds) and clients (those that are left).
        """
        combination = self.metrics.combination(len(self.metrics) - 1)
        values = np.zeros(self.matrix.shape[1], dtype=object)  # coefficients may exceed 64 bits
        for place, coefficient in combination.items():
            values += coefficient * self.matrix[place].astype(object)
        return {
            "rounds": [int(self.numbers[place]) for place in combination],
            "coefficients": list(combination.values()),
            "clients": self.clients[np.flatnonzero(values[: len(self.clients)] != 0)].tolist(),
        }

    def frame(self, every: int) -> pd.DataFrame:
        """Return a row for each `every`-th round and the last; T is missing while nothing is reachable."""
        frame = self.metrics.frame()
        frame["round"] = self.numbers
        frame.insert(0, "run", self.label)
        reachable = frame["rank"] > 0
        for column in ("strong", "weak", "lower_bound"):
            frame[column] = frame[column].astype("Int64").where(reachable)
        return rows_of_every(frame, every).reset_index(drop=True)


def has_sums(run: RunRecords) -> bool:
    """Check whether any round of the run gave a sum, which `measured` needs."""
    return len(summed_clients(run)) > 0


def measured(run: RunRecords, time_limit_s: float = TIME_LIMIT_S, progress: Progress = no_progress) -> Measured:
    """Compute the metrics of a run, which may still be running.

    Args:
        run: records of the run.
        time_limit_s: seconds of processor time for the searches for the weak privacy.
        progress: function that is called with a line before each step that takes time.

    Raises:
        ExperimentError: no round of the run gave a sum.
    """
    clients = summed_clients(run)
    if not len(clients):
        raise ExperimentError(
            f"{run.path}: no round of this run gave a sum, so there is nothing to measure; "
            "`testbed status` shows the outcome of its rounds"
        )
    matrix = participation_matrix(run, compact=True)
    metrics = over_rounds(matrix, time_limit_s, progress)
    protocol = protocol_name(run.experiment.get("selection")) or run.label
    numbers = run.rounds["round"].to_numpy(np.int64)
    population, planned = int(run.experiment["population"]), int(run.experiment["rounds"])
    return Measured(run.label, protocol, population, planned, clients, numbers, matrix, metrics)


def render(runs: Sequence[Measured], format: str, every: int | None) -> str:
    """Return the metrics after the last round, or after every k-th round, as text.

    Args:
        runs: metrics of the runs.
        format: text, markdown, csv or json.
        every: number of rounds from one row to the next; None: the last round only (in JSON all rounds).

    Raises:
        ExperimentError: the format is unknown.
    """
    require_format(format, "text", "markdown", "csv", "json")
    if format == "json":
        return to_json([_json(run, every or 1) for run in runs], indent=1, ascii=True)
    if format == "text" and every is None:
        return "\n".join(_text(run) for run in runs)
    frame = pd.concat([run.frame(every or len(run.metrics)) for run in runs], ignore_index=True)
    if format == "csv":
        return csv(frame)
    rows = [_cells(row) for row in frame.to_dict("records")]
    return render_table(Table(list(_HEADERS.values()), rows, ruled=False), format)


def _cells(row: dict[Any, Any]) -> list[str]:
    row = row | {key: f"{row[key]:.4g}" for key in ("fairness", "cardinality")}
    return ["–" if row[key] is pd.NA else str(row[key]) for key in _HEADERS]


def _text(run: Measured) -> str:
    row = run.frame(len(run.metrics)).iloc[-1]
    certificate = run.certificate()
    weak = f"{row['weak']}" if row["certified"] else f"at most {row['weak']}, at least {row['lower_bound']}"
    certified = int(run.metrics.certified.sum())
    lines = {
        "T strong": f"{row['strong']}",
        "T weak": f"{weak} (proof: {row['proof']})",
        "  combination": _combination(certificate),
        "  sum over": _clients(certificate["clients"]),
        "  certified": f"in {certified} of {len(run.metrics)} rounds",
        "F": f"{row['fairness']:.4g}" + _of_completed(row),
        "C": f"{row['cardinality']:.4g}",
    }
    body = render_table(Table((), list(lines.items()), ruled=False, indent=2), "text")
    rounds = f"{len(run.metrics)} rounds"
    if len(run.metrics) < run.planned:
        rounds = f"{len(run.metrics)} of {run.planned} rounds (not finished)"
    return f"{visible(run.label)}: {rounds}, {run.population} clients\n{body}"


def _of_completed(row: "pd.Series[Any]") -> str:
    """Return F over completed rounds as text, if it differs from F over all rounds."""
    gap = row["fairness_completed"]
    return "" if gap == row["fairness"] else f" ({gap:.4g} by completed rounds alone)"


def _combination(certificate: dict[str, Any]) -> str:
    rounds, coefficients = certificate["rounds"], certificate["coefficients"]
    if len(rounds) > _FEW_ROUNDS:
        digits = max(len(str(abs(coefficient))) for coefficient in coefficients)
        size = "1 digit" if digits == 1 else f"up to {digits} digits"
        return f"{len(rounds)} rounds, coefficients of {size} (see --format json)"
    terms = [f"{coefficient:+d} × round {number}" for number, coefficient in zip(rounds, coefficients, strict=True)]
    return ", ".join(terms).replace("+1 ×", "+").replace("-1 ×", "−").replace("-", "−")


def _clients(clients: Sequence[int]) -> str:
    shown = ", ".join(map(str, clients[:_FEW_CLIENTS]))
    more = f", … ({len(clients)} clients)" if len(clients) > _FEW_CLIENTS else ""
    return f"client{'s' if len(clients) > 1 else ''} {shown}{more}"


def _json(run: Measured, every: int) -> dict[str, Any]:
    certificate = run.certificate()
    # As text: many readers of JSON hold numbers as doubles, and these may have a hundred digits.
    certificate["coefficients"] = [str(coefficient) for coefficient in certificate["coefficients"]]
    return {
        "run": run.label,
        "selection": run.protocol,
        "population": run.population,
        "rounds": len(run.metrics),
        "planned_rounds": run.planned,
        "certified_rounds": int(run.metrics.certified.sum()),
        "certificate": certificate,
        "by_round": run.frame(every).drop(columns="run"),
    }
