"""Cost of Lotto per round, compared with a selection that trusts the server: common code of Tables 2 and 3.

Every cell runs twice, with different costs of compute and otherwise identical:

- ``testbed``: this testbed's own costs on a core of the reference machine, which resembles a core of the paper's
  c5.xlarge clients (both are Xeons with AVX-512), and the measured cost of a training step of each model (`TRAINING`);
- ``authors``: the cost of the authors' Python code. A proof takes 302 ms and its verification 226 ms (`VRF_PROVE_S`,
  quoted). The costs of a mask and of a training step follow from two of the paper's cells (`published.derived`). All
  other cells are then predictions.

Client-centric Lotto runs as in the paper, where participants verify the proofs of their list and the server verifies
none (`server_verifies: none`; the server computes O(1) in the paper's Table 1). It runs once more with a server that
verifies the proofs of all candidates, which is the testbed's default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pandas as pd

from analysis.comparison.measures import per_round
from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.experiments import declared
from analysis.reproduction.lotto import published as paper
from analysis.reproduction.lotto.published import Application, Cost
from analysis.statistics import mean_interval
from testbed.emulation.compute.cost import REFERENCE_COSTS
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

CostTable = Literal["testbed", "authors"]
COST_TABLES: dict[CostTable, str] = {"testbed": "the testbed's costs", "authors": "the authors' costs"}

RING_BITS = 32
LATENCY_MS = 0.5  # one way; the paper's machines stood in one region of a cloud, and it states no latency
ANNOUNCE_DEADLINE_S = 5.0  # the paper's l, which it does not state
SILENT = "Cli-Ctr, silent"
VERIFIED = "Cli-Ctr, server verifies"

TRAINING: dict[Application, float] = {"FEMNIST": 1.0, "OpenImage": 30.0, "Reddit": 60.0}
"""Cost of training per parameter and example, relative to FEMNIST's CNN: medians of three local trainings of the same
models on generated data with one thread of one machine, 0.41, 12 and 24 ns (CNN, MobileNetV2 x 0.25, ALBERT)."""

DATASETS = {"FEMNIST": "synthetic-femnist", "OpenImage": "synthetic-openimage", "Reddit": "synthetic-reddit"}


@dataclass(frozen=True)
class OverheadScale:
    """Part of the table that is run.

    Attributes:
        applications: applications to run.
        participants: number of participants by population.
        rounds: number of rounds of each run, by application.
        least_rounds: least number of rounds by population: with few participants rounds are cheap, and some are
            aborted.
        workload: keys of the experiments' workload that differ.
    """

    applications: Sequence[Application]
    participants: Mapping[int, int]
    rounds: Mapping[Application, int]
    least_rounds: Mapping[int, int] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)

    def rounds_of(self, application: Application, population: int) -> int:
        """Return the number of rounds of a run."""
        return max(self.rounds[application], self.least_rounds.get(population, 0))

    def __str__(self) -> str:
        """Return the rounds as text."""
        rounds = ", ".join(f"{name} {count}" for name, count in self.rounds.items() if name in self.applications)
        least = ", ".join(
            f"at least {count} at {population} clients" for population, count in self.least_rounds.items()
        )
        return f"{rounds} ({least})" if least else rounds


SCALES: dict[str, OverheadScale] = {
    "small": OverheadScale(
        paper.APPLICATIONS, paper.PARTICIPANTS, {"FEMNIST": 2, "OpenImage": 1, "Reddit": 1}, {100: 4}
    ),
    "paper": OverheadScale(paper.APPLICATIONS, paper.PARTICIPANTS, paper.ROUNDS),
}
"""Scales of Table 2."""

INFORMED_SCALES: dict[str, OverheadScale] = {
    "small": OverheadScale(
        paper.APPLICATIONS, paper.PARTICIPANTS, {"FEMNIST": 3, "OpenImage": 2, "Reddit": 2}, {100: 5}
    ),
    "paper": SCALES["paper"],
}
"""Scales of Table 3; selection is informed from the second round on."""


def experiment(
    scale: OverheadScale,
    application: Application,
    costs: CostTable,
    population: int,
    selections: Sequence[Mapping[str, Any]],
    training: Literal["real", "simulated"] | None = None,
) -> Experiment:
    """Return one block of the table: an application, a table of costs and a population, swept over selections.

    Args:
        scale: rounds, participants and workload.
        application: the application.
        costs: table of costs.
        population: n.
        selections: sections `selection`, without the participants.
        training: None: real for FEMNIST with the testbed's costs, otherwise simulated. Modelled compute charges for
            simulated training, too, and no time or byte depends on it.
    """
    rounds = scale.rounds_of(application, population)
    if training is None:
        training = "real" if (application, costs) == ("FEMNIST", "testbed") else "simulated"
    return declared(
        f"{application}, {costs}, {population}",
        """
        seed: 1
        workload: {test_samples: 200}
        aggregation: {protocol: secagg, threshold: 0.7}
        devices: {model: constant, factor: 1.0}
        time: {deadline_s: 86400.0}
        """,
        {
            "rounds": rounds,
            "population": population,
            "workload": {
                "dataset": DATASETS[application],
                "samples_per_client": paper.SAMPLES[application],
                "training": training,
                "epochs": paper.EPOCHS[application],
                "batch_size": paper.BATCH_SIZE,
                "learning_rate": paper.LEARNING_RATES[application],
                "evaluate_every": rounds,
                **scale.workload,
            },
            "selection.participants": scale.participants[population],
            "aggregation.bits": RING_BITS,
            "links": {**paper.LINKS, "latency_ms": LATENCY_MS},
            "time.costs": _costs(costs, application),
            "time.stage_deadlines": {"lotto/announce": ANNOUNCE_DEADLINE_S},
            "sweep": {"selection": [dict(selection) for selection in selections]},
        },
    )


def _costs(costs: CostTable, application: Application) -> dict[str, float]:
    if costs == "testbed":
        return {"train.parameter_example": REFERENCE_COSTS["train.parameter_example"] * TRAINING[application]}
    derived = paper.derived(application, transfer_bytes=paper.PARAMETERS[application] * (4 + RING_BITS / 8))
    return {
        "vrf.prove": paper.VRF_PROVE_S,
        "vrf.output": paper.VRF_PROVE_S,  # their code knows the output only by making the proof
        "vrf.verify": paper.VRF_VERIFY_S,
        "mask.element": derived.mask_element_s,
        "train.parameter_example": derived.parameter_example_s,
    }


def compute_share(run: RunRecords) -> float:
    """Return the share of completed rounds' time that is modelled compute of the server and the slowest clients."""
    rounds = run.rounds[run.rounds["outcome"] == "completed"].set_index("round")
    slowest = run.exchanges.groupby(["round", "stage", "sent_s"], observed=True)["compute_s"].max()
    clients = slowest.groupby("round").sum().reindex(rounds.index)
    return float((rounds["server_compute_s"] + clients).sum() / (rounds["ended_s"] - rounds["started_s"]).sum())


def cost_of(run: RunRecords) -> tuple[Cost, float, str]:
    """Return a run's mean round, its server's compute in seconds, and its rounds as completed/aborted."""
    rounds = per_round(run)
    done = rounds[rounds["outcome"] == "completed"]

    def mean(column: str) -> float:
        value = mean_interval(done[column]).mean
        return float("nan") if value is None else value

    cost = Cost(
        mean("round_s") / 60, mean("client_s") / 60, mean("server_bytes") / paper.MB, mean("client_bytes") / paper.MB
    )
    return cost, mean("server_compute_s"), f"{len(done)}/{len(rounds) - len(done)}"


MEASURES = {"server_min": "server min", "client_min": "client min", "server_mb": "server MB", "client_mb": "client MB"}
RATIO = {"server_min": "server ×", "client_min": "client ×", "server_mb": "server MB ×", "client_mb": "client MB ×"}


def table(
    context: ReproductionContext,
    scale: OverheadScale,
    selections: Mapping[str, Mapping[str, Any]],
    published: Mapping[tuple[Application, int, str], Cost],
    shown: Mapping[Application, Sequence[str]] = {},
) -> pd.DataFrame:
    """Run every cell, and compare it with the paper's.

    Args:
        context: where and how to run.
        scale: part of the table to run.
        selections: section `selection` by the paper's name of the protocol; the others are compared with the first.
        published: the paper's cells.
        shown: protocols in an application's blocks, if not all.
    """
    records = []
    for application in scale.applications:
        for costs in COST_TABLES:
            for population in scale.participants:
                context.progress(f"{application}, {population} clients, {COST_TABLES[costs]}")
                names = shown.get(application, list(selections))
                block = experiment(scale, application, costs, population, [selections[name] for name in names])
                runs = context.run_experiment(
                    block, context.out / "runs" / f"{application}-{costs}-{population}".lower()
                )
                records += _rows(dict(zip(names, runs, strict=True)), published, (application, costs, population))
    return pd.DataFrame.from_records(records)


def _rows(
    runs: Mapping[str, RunRecords],
    published: Mapping[tuple[Application, int, str], Cost],
    place: tuple[Application, CostTable, int],
) -> list[dict[str, Any]]:
    application, costs, population = place
    first = next(iter(runs))
    base = cost_of(runs[first])[0]
    paper_base = published.get((application, population, first))
    rows = []
    for name, run in runs.items():
        cost, server_compute_s, counts = cost_of(run)
        paper = published.get((application, population, name))
        row: dict[str, Any] = {"application": application, "costs": costs, "population": population, "protocol": name}
        cells, base_cells = asdict(cost), asdict(base)
        for key, heading in MEASURES.items():
            row[heading] = cells[key]
            row[f"{heading} (paper)"] = None if paper is None else asdict(paper)[key]
            row[RATIO[key]] = cells[key] / base_cells[key]
            if key.endswith("min"):  # its traffic is printed in GB, with two digits after the point
                row[f"{RATIO[key]} (paper)"] = (
                    None if paper is None or paper_base is None else asdict(paper)[key] / asdict(paper_base)[key]
                )
        row["server compute s"] = server_compute_s
        row["compute %"] = 100 * compute_share(run)
        row["completed/aborted"] = counts
        rows.append(row)
    return rows
