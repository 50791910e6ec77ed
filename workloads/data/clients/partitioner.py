"""Partitioners with the interface of flwr-datasets: https://flower.ai/docs/datasets (Partitioner).

A partitioner is created with its options, is given a Hugging Face `Dataset` as ``partitioner.dataset``, has a number
``num_partitions``, and returns partition ``i`` from ``load_partition(i)``. It receives the labels and the other columns
of the data, never the samples, and decides only the assignment of samples to clients.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.extras import naming_extras
from testbed.plugins import options
from testbed.plugins.classes import plugin_class
from testbed.workload.partition import Partition

EXTRA = "flower-datasets"
"""The extra that installs the needed packages."""
_NUMBER = "testbed_sample"  # the column with the sample numbers


def parts(
    section: Partition, columns: Mapping[str, NDArray[Any]], population: int, random: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return the numbers of each client's samples, int64.

    Args:
        section: names the class and its options. ``num_partitions`` and ``seed``, if the class has them, are the
            population and a number of `random`, unless the options set them.
        columns: (samples,) each by name.
        population: number of clients.
        random: of the experiment's seed.

    Raises:
        ExperimentError: a needed package is not installed, or the class does not accept its options, makes another
            number of parts, or gives a sample to two clients.
    """
    name, where = section.scheme, "workload.partition.scheme"
    # The samples' numbers travel as a column, so that each partition says which samples it has.
    dataset = _dataset({**columns, _NUMBER: np.arange(len(columns["label"]))})
    with naming_extras(where, extra=EXTRA):
        kind = plugin_class(name, where)
    keywords = options.as_keywords(kind, name, "workload.partition.options", section.options, 0, "Options")
    parameters = inspect.signature(kind).parameters
    for key, value in {"num_partitions": population, "seed": int(random.integers(2**31))}.items():
        if key in parameters:
            keywords.setdefault(key, value)
    options.bind(kind, name, where, (), keywords)
    try:
        instance = kind(**keywords)
        instance.dataset = dataset
        count = int(instance.num_partitions)
        if count == population:
            client_parts = [
                np.asarray(instance.load_partition(client)[_NUMBER], np.int64) for client in range(population)
            ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        error_lines = str(error).strip().splitlines()
        raise ExperimentError(f"{where}: {name}: {error_lines[0] if error_lines else type(error).__name__}") from error
    if count != population:
        raise ExperimentError(
            f"{where}: {name} makes {count} parts for {population} clients; set population to {count}"
        )
    all_numbers = np.concatenate(client_parts)
    if len(np.unique(all_numbers)) < len(all_numbers):
        raise ExperimentError(f"{where}: {name} gives some samples to several clients")
    return client_parts


def _dataset(columns: Mapping[str, NDArray[Any]]) -> Any:
    """Return a Hugging Face dataset of these columns."""
    with naming_extras("workload.partition.scheme", extra=EXTRA):
        from datasets import Dataset
    return Dataset.from_dict({name: values.tolist() for name, values in columns.items()})
