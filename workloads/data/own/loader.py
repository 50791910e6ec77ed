"""Data of the user's own: the function that an experiment names is called, and its samples are spread."""

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
    """Whether the object that ``workload.dataset`` names gives data when it is called, and is no workload.

    A class is a workload, unless it is a sequence of samples, as a torch Dataset is. A function gives data, unless it
    is called as a workload is: with a section, a population and a seed.
    """
    if inspect.isclass(named):
        return hasattr(named, "__getitem__") and hasattr(named, "__len__") and not hasattr(named, "train")
    try:
        names = tuple(inspect.signature(named).parameters)
    except (TypeError, ValueError):
        return True
    return names[:3] != _WORKLOAD


def check(load: Any, section: WorkloadSection) -> Mapping[str, Any]:
    """The arguments of the call; raises `ExperimentError` for options that the loader does not take."""
    name = section.dataset
    for key in ("path", "image_size", "sequence_length", "vocabulary_size"):
        if getattr(section, key) is not None:
            raise ExperimentError(
                f"workload.{key}: is for built-in data sets; what {name} takes is said in workload.options"
            )
    keywords = options.as_keywords(load, name, "workload.options", section.options, 0, "Options")
    options.bind(load, name, "workload.dataset", (), keywords)
    return keywords


def client_arrays(load: Any, section: WorkloadSection, population: int, seed: int) -> ClientArrays:
    """The data of `load`, spread over the clients.

    Args:
        load: called with the experiment's options; its draws from global generators are the same in every process.
        section: names it, and says how its data are spread.
        population, seed: of the experiment.

    Raises:
        ExperimentError: it needs a package that is not installed, gives something else than data, or a client would
            hold too few samples. Its own errors are passed on unchanged.
    """
    where = f"workload.dataset: {section.dataset}"
    keywords = check(load, section)
    with seeded_globals(stream(seed, Purpose.OWN_DATA)):
        data = load(**keywords)
        apart = [] if section.partition.column is None else [section.partition.column]
        try:
            train, test = tables(data, ColumnChoice(section.label, section.features, apart), where)
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise ExperimentError(  # numpy's, of an archive whose arrays are read only now
                f"{where} gave an .npz with arrays of Python objects, which are not loaded; save arrays of numbers "
                "(numpy.savez of astype(numpy.float32))"
            ) from None
    if len(train) < population and section.partition.minimum_samples and section.partition.scheme != "overlapping":
        raise ExperimentError(
            f"{where} gave {len(train)} training samples for {population} clients; lower population, or set "
            "workload.partition.minimum_samples: 0"
        )
    return ClientArrays(train, test, section, population, seed, where)
