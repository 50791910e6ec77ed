"""Cost of Lotto per round, compared with a selection that trusts the server: common code of Tables 2 and 3.

`measure` runs the cells and returns one row for each round; `overhead_table` compares their means with the paper's.

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pandas as pd

from analysis.comparison.measures import per_round
from analysis.reproduction.contract import Measurements, ReproductionContext, Setting
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
        costs: tables of costs.
        trains: whether FEMNIST's clients are trained with the testbed's costs, instead of only charged for training.
            Modelled compute charges for simulated training, too, and no time or byte depends on it.
    """

    applications: Sequence[Application]
    participants: Mapping[int, int]
    rounds: Mapping[Application, int]
    least_rounds: Mapping[int, int] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    costs: Sequence[CostTable] = tuple(COST_TABLES)
    trains: bool = False

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
    "paper": OverheadScale(paper.APPLICATIONS, paper.PARTICIPANTS, paper.ROUNDS, trains=True),
}
"""Scales of Table 2."""

INFORMED_SCALES: dict[str, OverheadScale] = {
    "small": OverheadScale(
        paper.APPLICATIONS,
        paper.PARTICIPANTS,
        {"FEMNIST": 2, "OpenImage": 2, "Reddit": 2},
        {100: 4},
        costs=("authors",),
    ),
    "paper": SCALES["paper"],
}
"""Scales of Table 3; selection is informed from the second round on. The testbed's own costs are in Table 2: equal
devices and data leave no difference but chance."""


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
        training: kind of training; None: as the scale has it.
    """
    rounds = scale.rounds_of(application, population)
    if training is None:
        is_real = scale.trains and (application, costs) == ("FEMNIST", "testbed")
        training = "real" if is_real else "simulated"
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
        # Their code has no output without a proof: a client makes one proof in a round, and a candidate sends that one.
        "vrf.output": paper.VRF_PROVE_S,
        "vrf.prove": 0.0,
        "vrf.verify": paper.VRF_VERIFY_S,
        "mask.element": derived.mask_element_s,
        "train.parameter_example": derived.parameter_example_s,
    }


COLUMNS = ("application", "costs", "population", "protocol")
"""Columns that name a cell's run."""

_OF_ROUND = ["round", "outcome", "round_s", "client_s", "server_bytes", "client_bytes", "server_compute_s"]


def rounds_of(run: RunRecords) -> pd.DataFrame:
    """Return one row for each round of a run: outcome, times, bytes, and the slowest clients' modelled compute."""
    slowest = run.exchanges.groupby(["round", "stage", "sent_s"], observed=True)["compute_s"].max()
    frame = per_round(run)[_OF_ROUND]
    return frame.assign(clients_compute_s=frame["round"].map(slowest.groupby("round").sum()).fillna(0.0))


def compute_share(completed: pd.DataFrame) -> float:
    """Return the share of completed rounds' time that is modelled compute of the server and the slowest clients."""
    compute_s = completed["server_compute_s"] + completed["clients_compute_s"]
    return float(compute_s.sum() / completed["round_s"].sum()) if len(completed) else float("nan")


def cost_of(completed: pd.DataFrame) -> Cost:
    """Return the mean of completed rounds."""

    def mean(column: str) -> float:
        value = mean_interval(completed[column]).mean
        return float("nan") if value is None else value

    return Cost(
        mean("round_s") / 60, mean("client_s") / 60, mean("server_bytes") / paper.MB, mean("client_bytes") / paper.MB
    )


MEASURES = {"server_min": "server min", "client_min": "client min", "server_mb": "server MB", "client_mb": "client MB"}
RATIO = {"server_min": "server ×", "client_min": "client ×", "server_mb": "server MB ×", "client_mb": "client MB ×"}


def measure(
    context: ReproductionContext,
    scale: OverheadScale,
    selections: Mapping[str, Mapping[str, Any]],
    shown: Mapping[Application, Sequence[str]] = {},
) -> Measurements:
    """Run every cell, and return one row for each round.

    Args:
        context: where and how to run.
        scale: part of the table to run.
        selections: section `selection` by the paper's name of the protocol; the others are compared with the first.
        shown: protocols in an application's blocks, if not all.
    """
    parts = []
    for application in scale.applications:
        for costs in scale.costs:
            for population in scale.participants:
                context.progress(f"{application}, {population} clients, {COST_TABLES[costs]}")
                names = shown.get(application, list(selections))
                block = experiment(scale, application, costs, population, [selections[name] for name in names])
                runs = context.run_experiment(
                    block, context.out / "runs" / f"{application}-{costs}-{population}".lower()
                )
                for name, run in zip(names, runs, strict=True):
                    cell = (application, costs, population, name)
                    parts.append(rounds_of(run).assign(**dict[str, Any](zip(COLUMNS, cell, strict=True))))
    table = pd.concat(parts, ignore_index=True)[[*COLUMNS, *_OF_ROUND, "clients_compute_s"]]
    full = {name: paper.ROUNDS[name] for name in scale.applications}
    differs = [] if scale.rounds == full else [f"rounds: {scale}; the paper: 50 (OpenImage 100)"]
    setting = Setting("none", "", [1], {"latency_ms": LATENCY_MS, "ring_bits": RING_BITS}, differs)
    return Measurements(setting, {"rounds": table})


def overhead_table(rounds: pd.DataFrame, published: Mapping[tuple[Application, int, str], Cost]) -> pd.DataFrame:
    """Compare the mean completed round of every run with the paper's cells.

    Args:
        rounds: the table of `measure`; the first protocol of an application is the baseline of the others.
        published: the paper's cells.
    """
    records = []
    for place, block in rounds.groupby(list(COLUMNS[:3]), sort=False):
        runs = {str(name): rows for name, rows in block.groupby("protocol", sort=False)}
        records += _rows(runs, published, place)
    return pd.DataFrame.from_records(records)


def _rows(
    runs: Mapping[str, pd.DataFrame], published: Mapping[tuple[Application, int, str], Cost], place: Iterable[Any]
) -> list[dict[str, Any]]:
    application, costs, population = place
    completed = {name: rows[rows["outcome"] == "completed"] for name, rows in runs.items()}
    first = next(iter(runs))
    base = cost_of(completed[first])
    paper_base = published.get((application, population, first))
    rows = []
    for name, run in runs.items():
        cost = cost_of(completed[name])
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
        done = completed[name]
        server_compute_s = mean_interval(done["server_compute_s"]).mean
        row["server compute s"] = float("nan") if server_compute_s is None else server_compute_s
        row["compute %"] = 100 * compute_share(done)
        row["completed/aborted"] = f"{len(done)}/{len(run) - len(done)}"
        rows.append(row)
    return rows
