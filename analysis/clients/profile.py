"""Profile of an experiment's clients: samples, labels, devices and links."""

import textwrap
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

import workloads
from analysis.tables import WIDTH, Table, data, render, to_json
from testbed.arrays import Floats
from testbed.emulation.links import BYTES_PER_MBIT
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import Experiment
from testbed.workload.contract import LabelledWorkload, NotedWorkload

SKEW = (
    "label skew: total variation distance between the label shares of the client and of all clients together, from 0 "
    "(equal) to 1 (no common label). It is half the distance of Zhao et al. 2018, arXiv 1806.00582."
)
_MEASURES = {
    "samples": ("samples", 0),
    "labels": ("labels", 0),
    "label_skew": ("label skew", 3),
    "device_factor": ("device factor", 2),
    "down_mbit_s": ("downlink [Mbit/s]", 2),
    "up_mbit_s": ("uplink [Mbit/s]", 2),
    "latency_ms": ("latency [ms]", 1),
}


@dataclass(frozen=True)
class ClientProfile:
    """The clients of an experiment.

    Attributes:
        name: of the experiment.
        description: of the data, one line.
        clients: one row per client: client, class (empty without classes), samples, labels (number of different
            labels), label_skew, device_factor (multiple of the reference machine's time), down_mbit_s, up_mbit_s,
            latency_ms. Without labels the two columns are missing.
        label_counts: (population, labels) int64; None: samples have no label.
        notes: lines about unusual properties of the data.
    """

    name: str
    description: str
    clients: pd.DataFrame
    label_counts: npt.NDArray[np.int64] | None
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> pd.DataFrame:
        """Labels of each client, one row each: client, label, samples."""
        counts = np.zeros((len(self.clients), 0), np.int64) if self.label_counts is None else self.label_counts
        client, label = counts.nonzero()
        return pd.DataFrame({"client": client, "label": label, "samples": counts[client, label]})


def profile(experiment: Experiment, seed: int) -> ClientProfile:
    """Return the clients of an experiment without a sweep; data are loaded or generated as in a run.

    Args:
        experiment: as for a run.
        seed: of its simulation.

    Raises:
        ExperimentError: as a run would, before its first round.
    """
    plan = RunPlan(experiment, seed)
    workload = workloads.build(experiment.workload, experiment.population, seed)
    links, members = plan.links(), plan.class_members
    counts = workload.label_counts() if isinstance(workload, LabelledWorkload) else None
    if counts is not None and counts.shape[1] < 2:  # next words, or values: all samples count as one
        counts = None
    samples = np.asarray(workload.sample_counts)
    clients = pd.DataFrame({"client": np.arange(len(samples))})
    clients["class"] = "" if members is None else np.array(members.names)[members.class_of]
    clients["samples"] = samples
    if counts is not None:
        clients["labels"] = (counts > 0).sum(axis=1)
        clients["label_skew"] = label_skew(counts)
    clients["device_factor"] = plan.speed_factors()
    clients["down_mbit_s"] = links.down.mean() / BYTES_PER_MBIT
    clients["up_mbit_s"] = links.up.mean() / BYTES_PER_MBIT
    clients["latency_ms"] = links.latency_s * 1000
    described = getattr(workload, "description", experiment.workload.dataset)
    notes = tuple(workload.notes) if isinstance(workload, NotedWorkload) else ()
    return ClientProfile(experiment.name, str(described), clients, counts, notes)


def label_skew(counts: npt.NDArray[np.int64]) -> Floats:
    """Return (population,) float64, see `SKEW`; NaN for clients without samples.

    Args:
        counts: (population, labels) samples.
    """
    client_samples = counts.sum(axis=1, keepdims=True)
    everybody = counts.sum(axis=0) / max(1, counts.sum())
    with np.errstate(invalid="ignore"):
        shares = counts / client_samples
    skew: Floats = np.abs(shares - everybody).sum(axis=1) / 2
    return skew


def report(client_profile: ClientProfile, format: str) -> str:
    """Return the profile as a report.

    Args:
        client_profile: the profile.
        format: ``text`` or ``markdown`` with statistics for people; ``csv`` or ``json`` with all clients.
    """
    if format == "csv":
        return data(client_profile.clients, "csv")
    if format == "json":
        labels = None if client_profile.label_counts is None else client_profile.label_counts.tolist()
        return to_json(
            {"description": client_profile.description, "clients": client_profile.clients, "label_counts": labels}
        )
    parts = [f"{client_profile.name}: {client_profile.description}\n", render(_overall(client_profile.clients), format)]
    if client_profile.clients["class"].any():
        parts.append(render(_by_class(client_profile.clients), format))
    if client_profile.label_counts is not None:
        parts.append(textwrap.fill(SKEW, WIDTH) + "\n" if format == "text" else f"{SKEW}\n")
    return "\n".join(parts)


def _overall(clients: pd.DataFrame) -> Table:
    rows = []
    for column, (name, digits) in _MEASURES.items():
        if column in clients:
            values = clients[column].dropna()
            summary_values = (values.min(), values.median(), values.max(), values.mean())
            rows.append(
                [
                    name,
                    *(f"{value:,.{digits}f}" for value in summary_values[:3]),
                    f"{summary_values[3]:,.{max(digits, 1)}f}",
                ]
            )
    total = f"{len(clients):,} clients, {int(clients['samples'].sum()):,} training samples"
    return Table(("per client", "minimum", "median", "maximum", "mean"), rows, left=[0], title=total)


def _by_class(clients: pd.DataFrame) -> Table:
    measures = [column for column in _MEASURES if column in clients]
    rows = []
    for name, members in clients.groupby("class", sort=True):
        medians = [f"{members[column].median():,.{_MEASURES[column][1]}f}" for column in measures]
        rows.append([str(name), f"{len(members):,}", *medians])
    heads = ["class", "clients", *(_MEASURES[column][0] for column in measures)]
    return Table(heads, rows, left=[0], title="Medians by class")
