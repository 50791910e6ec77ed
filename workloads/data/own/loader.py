"""The user's own data: the function that an experiment names is called, and its samples are spread over clients."""

import inspect
from collections.abc import Mapping
from typing import Any

from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.workload.section import WorkloadSection
from workloads.data.own.arrays import ClientArrays
from workloads.data.own.forms import ColumnChoice, tables
from workloads.determinism import Purpose, seeded_globals, stream

_WORKLOAD = ("section", "population", "seed")


def is_loader(named: Any) -> bool:
    """Return whether the object in ``workload.dataset`` returns data when it is called, and is not a workload.

    A class is a workload, unless it is a sequence of samples, like a torch Dataset. A function returns data, unless it
    has the signature of a workload: a section, a population and a seed.
    """
    if inspect.isclass(named):
        return hasattr(named, "__getitem__") and hasattr(named, "__len__") and not hasattr(named, "train")
    try:
        names = tuple(inspect.signature(named).parameters)
    except (TypeError, ValueError):
        return True
    return names[:3] != _WORKLOAD


def check(load: Any, section: WorkloadSection) -> Mapping[str, Any]:
    """Return the arguments of the call.

    Args:
        load: the loader.
        section: the experiment's ``workload``.

    Raises:
        ExperimentError: options that the loader does not accept.
    """
    name = section.dataset
    for key in ("path", "image_size", "sequence_length", "vocabulary_size"):
        if getattr(section, key) is not None:
            raise ExperimentError(
                f"workload.{key}: is for built-in data sets; set the options of {name} in workload.options"
            )
    keywords = options.as_keywords(load, name, "workload.options", section.options, 0, "Options")
    options.bind(load, name, "workload.dataset", (), keywords)
    return keywords


def client_arrays(load: Any, section: WorkloadSection, population: int, seed: int) -> ClientArrays:
    """Return the data of `load`, spread over the clients.

    Args:
        load: called with the experiment's options; its draws from global generators are the same in every process.
        section: names the loader, and the partition of its data.
        population, seed: of the experiment.

    Raises:
        ExperimentError: a needed package is not installed, the loader does not return data, or a client would hold too
            few samples. The loader's own errors pass through unchanged.
    """
    where = f"workload.dataset: {section.dataset}"
    keywords = check(load, section)
    # A loader may shuffle by global generators: every process must get the same samples in the same order.
    with seeded_globals(stream(seed, Purpose.OWN_DATA)):
        data = load(**keywords)
        apart = [] if section.partition.column is None else [section.partition.column]
        try:
            train, test = tables(data, ColumnChoice(section.label, section.features, apart), where)
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise ExperimentError(  # numpy's, because arrays of an archive are read only here
                f"{where} gave an .npz with arrays of Python objects, which are not loaded; save arrays of numbers "
                "(numpy.savez of astype(numpy.float32))"
            ) from None
    if len(train) < population and section.partition.minimum_samples and section.partition.scheme != "overlapping":
        raise ExperimentError(
            f"{where} gave {len(train)} training samples for {population} clients; lower population, or set "
            "workload.partition.minimum_samples: 0"
        )
    return ClientArrays(train, test, section, population, seed, where)
