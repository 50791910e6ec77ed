"""Partitioners: assignment of the samples of one data set to clients.

Each partitioner gives every sample to exactly one client and is a function of its arguments and the generator alone;
except `overlapping`, where several clients may hold a sample. With the shared-data strategy some samples are set aside
first and held by every client.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.workload.partition import Partition
from workloads.data.clients import partitioner


@dataclass(frozen=True, slots=True)
class Assignment:
    """The samples of each client, as two arrays (10**6 clients need no 10**6 objects).

    Attributes:
        order: (samples,) int64, numbers of the samples that one client alone holds, those of client 0 first; with
            `overlapping`, other clients may hold them, too.
        offsets: (population + 1,) int64; client i holds ``order[offsets[i]:offsets[i + 1]]``.
        shared: (s,) int64, numbers of the samples that every client holds in addition; usually none.
    """

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]
    shared: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def of(self, client: int) -> NDArray[np.int64]:
        """Return the sample numbers of one client, int64: its own, then the shared ones."""
        own = self.order[self.offsets[client] : self.offsets[client + 1]]
        return np.concatenate([own, self.shared]) if len(self.shared) else own

    @property
    def own_counts(self) -> NDArray[np.int64]:
        """(population,) int64: samples that each client alone holds."""
        return np.diff(self.offsets)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(population,) int64: samples of each client, the shared ones included."""
        return self.own_counts + len(self.shared)

    def own_label_counts(self, labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        """Return (population, classes) int64: samples of each label that each client alone holds."""
        population = len(self.offsets) - 1
        holder = np.repeat(np.arange(population), self.own_counts)
        cells = np.bincount(holder * classes + labels[self.order], minlength=population * classes)
        return cells.reshape(population, classes).astype(np.int64)

    def label_counts(self, labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        """Return (population, classes) int64: samples of each label at each client, the shared ones included."""
        return self.own_label_counts(labels, classes) + np.bincount(labels[self.shared], minlength=classes)

    def limited(self, limit: int) -> "Assignment":
        """Return the assignment with at most `limit` samples per client: the shared ones and its own first ones."""
        own = max(0, limit - len(self.shared))
        position = np.arange(len(self.order)) - np.repeat(self.offsets[:-1], self.own_counts)
        offsets = _offsets(np.minimum(self.own_counts, own))
        return Assignment(self.order[position < own], offsets, self.shared)


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def _equal_sizes(samples: int, parts: int) -> NDArray[np.int64]:
    """Return (parts,) int64 sizes that differ by at most one and add up to `samples`."""
    return np.full(parts, samples // parts, dtype=np.int64) + (np.arange(parts) < samples % parts)


def unequal_sizes(samples: int, population: int, section: Partition, random: np.random.Generator) -> NDArray[np.int64]:
    """Return client sizes that add up to `samples`, drawn by the scheme ``sizes``.

    Each client holds ``minimum_samples``, and a random share of the rest, rounded to a whole sample. The shares are
    log-normal, or from Dir(beta, ..., beta) as in NIID-Bench (its ``utils.py`` names them ``iid-diff-quantity``, and
    draws again until each client has 10 samples).

    Args:
        samples: at least ``population * minimum_samples``.
        population: number of clients.
        section: ``workload.partition``, with ``sizes`` other than equal.
        random: of the experiment's seed.

    Returns:
        (population,) int64.

    Source:
        Li et al. 2022, arXiv 2102.02079.
    """
    if section.sizes == "dirichlet":
        weights = random.dirichlet(np.full(population, section.size_beta))
    else:
        weights = np.exp(section.size_sigma * random.standard_normal(population))
    rest = samples - population * section.minimum_samples
    # Borders between clients are rounded, not sizes, so that the sizes add up.
    borders = np.cumsum(weights)
    ends = np.rint(borders / borders[-1] * rest).astype(np.int64)
    return np.asarray(np.diff(ends, prepend=0) + section.minimum_samples, np.int64)


def iid(
    samples: int, population: int, random: np.random.Generator, sizes: NDArray[np.int64] | None = None
) -> Assignment:
    """Assign a random share of the samples to each client.

    Args:
        samples: number of samples.
        population: number of clients.
        random: of the experiment's seed.
        sizes: (population,) int64, samples of each client; None: equal shares, which differ by at most one.
    """
    sizes = _equal_sizes(samples, population) if sizes is None else sizes
    return Assignment(random.permutation(samples), _offsets(sizes))


def overlapping(samples: int, population: int, size: int, random: np.random.Generator) -> Assignment:
    """Assign `size` different samples to each client, drawn anew from all, for populations larger than the data.

    Args:
        samples: number of samples.
        population: number of clients.
        size: samples of each client.
        random: of the experiment's seed.

    Raises:
        ExperimentError: there are fewer than `size` samples.
    """
    if size > samples:
        raise ExperimentError(
            f"workload.samples_per_client: {size} different ones of {samples} training samples (overlapping); lower it"
        )
    choices = [random.choice(samples, size, replace=False) for _ in range(population)]
    return Assignment(np.concatenate(choices), np.arange(population + 1, dtype=np.int64) * size)


def dirichlet(
    labels: NDArray[np.int64],
    population: int,
    alpha: float,
    random: np.random.Generator,
    sizes: NDArray[np.int64] | None = None,
) -> Assignment:
    """Assign shares with a class mix drawn for each client from Dir(alpha * class frequencies).

    Samples are drawn without replacement: if a client's mix asks for a class that is used up, the draw is repeated
    among the remaining classes.

    Args:
        labels: (samples,) int64 >= 0.
        population: number of clients.
        alpha: concentration; towards 0 each client has one class, towards infinity the clients are alike.
        random: of the experiment's seed.
        sizes: (population,) int64, samples of each client; None: equal shares.

    Source:
        Hsu, Qi and Brown 2019 (arXiv 1909.06335), section 2.
    """
    classes, class_sizes = np.unique(labels, return_counts=True)
    # The samples of class k are taken from the front of pools[k].
    pools = [random.permutation(np.flatnonzero(labels == label)) for label in classes]
    taken = np.zeros(len(classes), dtype=np.int64)
    sizes = _equal_sizes(len(labels), population) if sizes is None else sizes
    prior = class_sizes / len(labels)
    parts: list[NDArray[np.int64]] = []
    for size in sizes[sizes > 0]:
        mix = random.dirichlet(alpha * prior)
        before = taken.copy()
        missing = int(size)
        while missing:
            left = class_sizes - taken
            weights = np.where(left > 0, mix, 0.0)
            if weights.sum() <= 0.0:  # all classes of this client's mix are used up
                weights = left.astype(np.float64)
            # A used-up class gives fewer than asked; the loop draws the rest from the remaining classes.
            counts = np.minimum(random.multinomial(missing, weights / weights.sum()), left)
            taken += counts
            missing -= int(counts.sum())
        parts.extend(pool[start:stop] for pool, start, stop in zip(pools, before, taken, strict=True) if stop > start)
    return Assignment(np.concatenate(parts), _offsets(sizes))


def label_shards(
    labels: NDArray[np.int64], population: int, shards_per_client: int, random: np.random.Generator
) -> Assignment:
    """Assign random shards of samples sorted by label, `shards_per_client` equal shards to each client.

    Samples of one label are in random order, and shard sizes differ by at most one.

    Args:
        labels: (samples,) int64.
        population: number of clients.
        shards_per_client: number of shards of each client.
        random: of the experiment's seed.

    Source:
        McMahan et al. 2017 (arXiv 1602.05629), section 3 (200 shards of 300 MNIST digits, 2 for each of 100 clients).
    """
    shuffled = random.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = _equal_sizes(len(labels), population * shards_per_client)
    shard_order = random.permutation(len(sizes))
    ordered_sizes = sizes[shard_order]
    # Position p of the result, in the dealt shard that begins at `begin`, is sample p - begin of that shard.
    begin = _offsets(ordered_sizes)[:-1]
    source = np.arange(len(labels)) + np.repeat(_offsets(sizes)[:-1][shard_order] - begin, ordered_sizes)
    return Assignment(by_label[source], _offsets(ordered_sizes.reshape(population, shards_per_client).sum(axis=1)))


def stratified(
    labels: NDArray[np.int64], test_share: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split samples into a training and a test part with the same label frequencies (to the nearest sample).

    Args:
        labels: (samples,) int64.
        test_share: share of the test part, 0 to 1.
        random: of the experiment's seed.

    Returns:
        The sample numbers of the training and of the test part, int64, in random order.
    """
    test_parts, train_parts = [], []
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        test_size = round(test_share * len(members))
        test_parts.append(members[:test_size])
        train_parts.append(members[test_size:])
    return random.permutation(np.concatenate(train_parts)), random.permutation(np.concatenate(test_parts))


def by_column(values: NDArray[Any], population: int, name: str, random: np.random.Generator) -> Assignment:
    """Assign the samples of each value to one client; if there are more values than clients, random ones are joined.

    Args:
        values: (samples,) the owner of each sample.
        population: number of clients.
        name: name of the column, for errors.
        random: of the experiment's seed.

    Raises:
        ExperimentError: fewer values than clients, or samples without a value.
    """
    if empty := _empty(values):
        raise ExperimentError(
            f"workload.partition.column: {name} has no value for {empty} samples (empty or NaN); fill it in, or leave "
            "these samples out"
        )
    # `unique` sorts, and objects of several types cannot be compared.
    as_text = values.astype(str) if values.dtype.kind not in "biufSU" else values
    owner_values, number = np.unique(as_text, return_inverse=True)
    if len(owner_values) < population:
        raise ExperimentError(
            f"workload.partition.column: {name} has {len(owner_values)} values among the training samples, for "
            f"{population} clients; lower population to {len(owner_values)}, or take another column"
        )
    holder = np.arange(population)
    if len(owner_values) > population:
        holder = random.permutation(len(owner_values)) % population
    client_of = holder[number]
    return Assignment(np.argsort(client_of, kind="stable"), _offsets(np.bincount(client_of, minlength=population)))


def _empty(values: NDArray[Any]) -> int:
    """Return the number of missing values, as pandas and NumPy mark them."""
    if values.dtype.kind == "O":
        return sum(value is None or str(value) in ("nan", "<NA>", "NaT") for value in values)
    # NaN and NaT are the only values that differ from themselves.
    return int(np.count_nonzero(values != values))


def shared_samples(labels: NDArray[np.int64], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return samples that all clients hold, as many of each label as of any other.

    The labels with one sample more, if the numbers do not divide evenly, are random; of a label with too few samples
    all are taken.

    Args:
        labels: (samples,) int64.
        count: number of shared samples.
        random: of the experiment's seed.

    Returns:
        (count,) int64 sample numbers, sorted.

    Raises:
        ExperimentError: no sample would be left for the clients.

    Source:
        Zhao et al. 2018 (arXiv 1806.00582), section 4.1: the shared data are uniform over the classes.
    """
    if count >= len(labels):
        raise ExperimentError(
            f"workload.partition.shared_samples: {count} of the {len(labels)} training samples; lower it, so that "
            "samples are left for the clients"
        )
    # The first sample of every label in random order, then the second ones, and so on.
    shuffled = random.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels)
    turn = np.arange(len(labels)) - np.repeat(_offsets(sizes)[:-1], sizes)
    precedence = random.permutation(len(sizes))[labels[by_label]]
    return np.sort(by_label[np.lexsort((precedence, turn))[:count]])


def assign(
    labels: NDArray[np.int64],
    population: int,
    section: Partition,
    limit: int | None,
    random: np.random.Generator,
    columns: Mapping[str, NDArray[Any]] | None = None,
) -> Assignment:
    """Assign labelled samples to the clients by the experiment's partition.

    Args:
        labels: (samples,) int64.
        population: number of clients.
        section: ``workload.partition``.
        limit: ``workload.samples_per_client``, or None.
        random: of the experiment's seed.
        columns: further facts about the samples, (samples,) each by name, for partitioners that use them.

    Raises:
        ExperimentError: clients would hold fewer samples than ``minimum_samples``, or there is no such column.
    """
    if section.scheme == "overlapping" and limit is None:
        raise ExperimentError(
            "workload.partition.scheme: overlapping needs samples_per_client, the number that each client draws"
        )
    if limit is not None and limit <= section.shared_samples:
        raise ExperimentError(
            f"workload.samples_per_client: counts the {section.shared_samples} of partition.shared_samples, too: "
            f"{limit} leave a client none of its own; raise it"
        )
    all_columns = {"label": labels, **(columns or {})}
    if not section.shared_samples:
        assignment = _spread(labels, all_columns, population, section, random, limit)
    else:
        shared = shared_samples(labels, section.shared_samples, random)
        private = np.setdiff1d(np.arange(len(labels)), shared, assume_unique=True)
        of_private = {name: values[private] for name, values in all_columns.items()}
        own_limit = None if limit is None else limit - len(shared)
        spread = _spread(labels[private], of_private, population, section, random, own_limit)
        assignment = Assignment(private[spread.order], spread.offsets, shared)
    if limit is not None:
        assignment = assignment.limited(limit)
    _require_samples(assignment.own_counts, len(labels), section)
    return assignment


def _spread(
    labels: NDArray[np.int64],
    columns: Mapping[str, NDArray[Any]],
    population: int,
    section: Partition,
    random: np.random.Generator,
    limit: int | None,
) -> Assignment:
    if section.column is not None:
        if section.column not in columns:
            raise ExperimentError(
                f"workload.partition.column: there is no column {section.column!r}; these data have "
                f"{', '.join(columns)}"
            )
        return by_column(columns[section.column], population, section.column, random)
    if section.is_own:
        parts = partitioner.parts(section, columns, population, random)
        return Assignment(np.concatenate(parts), _offsets(np.array([len(part) for part in parts])))
    if section.scheme == "overlapping":
        assert limit is not None  # see `assign`
        return overlapping(len(labels), population, limit, random)
    if section.scheme != "label-shards":  # known at once, before any work
        _require_samples(_equal_sizes(len(labels), population), len(labels), section)
    # Equal sizes draw nothing, so that their assignment does not depend on the other sizes.
    sizes = None if section.sizes == "equal" else unequal_sizes(len(labels), population, section, random)
    if section.scheme == "iid":
        return iid(len(labels), population, random, sizes)
    if section.scheme == "dirichlet":
        return dirichlet(labels, population, section.alpha, random, sizes)
    return label_shards(labels, population, section.shards_per_client, random)


def _require_samples(counts: NDArray[np.int64], samples: int, section: Partition) -> None:
    short = int((counts < section.minimum_samples).sum())
    if short:
        raise ExperimentError(
            f"workload.partition: {short} of {len(counts)} clients would hold fewer than minimum_samples = "
            f"{section.minimum_samples} of the {samples} training samples ({section.scheme}); lower "
            "population or set workload.partition.minimum_samples: 0 to allow clients without data"
        )
