"""Common forms of users' data as arrays: ``(x, y)``, mappings, frames, torch's and Hugging Face's datasets.

Objects of other libraries are recognised by their methods, so that none of these libraries is imported here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError

TAKEN = (
    "(x, y) arrays, a mapping with x and y, a torch Dataset, a pandas frame or a Hugging Face dataset, or a training "
    "and a test part of these"
)
_X, _Y = ("x", "data", "features"), ("y", "target", "labels")
_TRAIN, _TEST = ("train",), ("test", "validation", "val")


@dataclass(frozen=True)
class ColumnChoice:
    """The columns of a table by their use.

    Attributes:
        label: the column with the labels.
        features: the columns that the model takes; empty: all others.
        apart: columns that are not features unless they are named, such as that of a partition.
    """

    label: str = "label"
    features: Sequence[str] = ()
    apart: Sequence[str] = ()


@dataclass(frozen=True)
class TabularData:
    """Samples as arrays, in the types of the source.

    Attributes:
        inputs: (n, ...) inputs of a model.
        labels: (n, ...).
        columns: further facts about the samples, (n,) each by name.
        features: names of the columns of the inputs, in their order; empty: they have none.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    features: Sequence[str] = ()

    def take(self, numbers: NDArray[np.int64]) -> "TabularData":
        """Return the samples with these numbers."""
        columns = {name: values[numbers] for name, values in self.columns.items()}
        return TabularData(self.inputs[numbers], self.labels[numbers], columns, self.features)

    def __len__(self) -> int:
        return len(self.labels)


def tables(data: Any, columns: ColumnChoice, where: str) -> tuple[TabularData, TabularData | None]:
    """Return a training part, and a test part if there is one.

    Args:
        data: the result of a loader.
        columns: choice of columns for data with named columns.
        where: begins the lines of errors.

    Raises:
        ExperimentError: an unknown form of data, or samples of different shapes.
    """
    train, test = _pair(data, columns.label)
    first = _table(train, columns, where)
    second = None if test is None else _like(first, _table(test, columns, f"{where}: the test part"), where)
    if second is not None and second.inputs.shape[1:] != first.inputs.shape[1:]:
        raise ExperimentError(
            f"{where}: training samples of shape {first.inputs.shape[1:]}, test samples of {second.inputs.shape[1:]}"
        )
    return first, second


def _like(train: TabularData, test: TabularData, where: str) -> TabularData:
    """Return a test part with the training part's columns in their order; raise `ExperimentError` for missing ones."""
    if not train.features or not test.features or list(train.features) == list(test.features):
        return test
    lacking = [name for name in train.features if name not in test.features]
    if lacking or test.inputs.ndim != 2:
        name = next(iter(lacking or train.features))
        raise ExperimentError(
            f"{where}: the training part has a column {name!r}, the test part has {_listed(test.features)}; give both "
            "the same columns, or name those that the model takes in workload.features"
        )
    # Frames of two files often have the same columns in another order.
    places = [list(test.features).index(name) for name in train.features]
    return TabularData(test.inputs[:, places], test.labels, test.columns, train.features)


def _pair(data: Any, label: str) -> tuple[Any, Any]:
    if isinstance(data, Mapping) and _first(data, _TRAIN) is not None:
        test = _first(data, _TEST)
        return data[_TRAIN[0]], None if test is None else data[test]
    if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_whole, data)):
        # Two frames may also be a training and a test part; then both have the same columns.
        if all(map(_is_frame, data)) and _are_samples_and_labels(data[0], data[1], label):
            return (data[0], data[1]), None
        return data[0], data[1]
    return data, None


def _are_samples_and_labels(first: Any, second: Any, label: str) -> bool:
    """Return whether two frames are samples and labels, not a training and a test part."""
    names = list(first.columns), list(second.columns)
    return len(first) == len(second) and names[0] != names[1] and not any(label in part for part in names)


def _first(data: Mapping[Any, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in data), None)


def _is_whole(data: Any) -> bool:
    """Return whether the data hold samples and their labels."""
    if _is_frame(data) or _is_hugging_face(data) or isinstance(data, Mapping) or _is_dataset(data):
        return True
    return isinstance(data, tuple) and len(data) == 2 and all(map(_is_array, data))


def _is_frame(data: Any) -> bool:
    return hasattr(data, "iloc") and hasattr(data, "columns")


def _is_hugging_face(data: Any) -> bool:
    return hasattr(data, "with_format") and hasattr(data, "column_names")


def _is_array(data: Any) -> bool:
    return hasattr(data, "__array__") or isinstance(data, list)


def _is_dataset(data: Any) -> bool:
    """Return whether the data are a sequence of samples, like torch's Dataset, judged by their methods."""
    if _is_array(data) or isinstance(data, str | bytes | tuple | Mapping):
        return False
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _table(data: Any, columns: ColumnChoice, where: str) -> TabularData:
    if _is_hugging_face(data):
        made = _of_columns(_hugging_face(data), columns, where)
    elif _is_frame(data):
        made = _of_columns({str(name): np.asarray(data[name]) for name in data.columns}, columns, where)
    elif isinstance(data, Mapping):
        made = _of_mapping(data, columns, where)
    elif isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_array, data)):
        _refuse_names(columns, where)
        made = TabularData(_samples(data[0]), _array(data[1]))
    elif _is_dataset(data):
        _refuse_names(columns, where)
        made = _of_dataset(data, where)
    else:
        raise ExperimentError(f"{where} gave {_type_text(data)}; taken are {TAKEN}")
    return _checked(made, where)


def _refuse_names(columns: ColumnChoice, where: str, label: bool = True) -> None:
    """Raise `ExperimentError` if columns are named and the data have none; `label`: also the labels' column."""
    key = "features" if columns.features else "label" if label and columns.label != ColumnChoice.label else None
    if key is not None:
        raise ExperimentError(
            f"workload.{key}: is for data with named columns, and {where.removeprefix('workload.dataset: ')} gave "
            "samples and labels; leave it out"
        )


def _type_text(data: Any) -> str:
    kind = type(data)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if isinstance(data, tuple | list):
        parts = ", ".join(type(part).__name__ for part in data[:4])
        return f"a {name} of {len(data)} ({parts}{', ...' if len(data) > 4 else ''})"
    if hasattr(data, "__array__"):
        return f"one array without labels ({name})"
    if hasattr(data, "__iter__") and not isinstance(data, str | Mapping):
        return f"a {name}, which can only be gone through (a map-style Dataset has a length)"
    return "nothing (None)" if data is None else f"a {name}"


def _array(data: Any) -> NDArray[Any]:
    """Return a numpy array; tensors on another device, or with a gradient, are copied."""
    if hasattr(data, "detach"):
        data = data.detach().cpu()
        data = (data.float() if str(data.dtype) == "torch.bfloat16" else data).numpy()  # numpy has no bfloat16
    if np.ma.is_masked(data):
        data = data.astype(np.float64).filled(np.nan)  # masked values are reported as missing
    if _is_frame(data):
        data = data.to_numpy()
        return np.asarray(data[:, 0] if data.shape[1] == 1 else data)
    try:
        return np.asarray(data)
    except ValueError:  # of lists that are not all as long
        made = np.empty(len(data), object)
        made[:] = data
        return made


def _samples(data: Any) -> NDArray[Any]:
    """Return an array as `_array`, but a frame of one column as a table."""
    return _array(data.to_numpy() if _is_frame(data) else data)


def _of_mapping(data: Mapping[Any, Any], columns: ColumnChoice, where: str) -> TabularData:
    """Return arrays by name; without an array named x, all are columns."""
    x, y = _first(data, _X), columns.label if columns.label in data else _first(data, _Y)
    if x is not None:
        _refuse_names(columns, where, label=columns.label not in data)
    if x is None:
        return _of_columns({str(name): _array(values) for name, values in data.items()}, columns, where)
    if y is None:
        raise ExperimentError(
            f"{where} gave a mapping with {x} and no labels: name them {_Y[0]}, or give workload.label"
        )
    inputs, labels = _samples(data[x]), _array(data[y])
    others = {
        str(name): _array(values)
        for name, values in data.items()
        if name not in (x, y) and _is_array(values) and np.shape(labels)[:1] == _array(values).shape[:1]
    }
    return TabularData(inputs, labels, others)


def _hugging_face(data: Any) -> dict[str, NDArray[Any]]:
    values = data.with_format("numpy")[:]
    return {name: _array(values[name]) for name in data.column_names}


def _of_columns(values: Mapping[str, NDArray[Any]], columns: ColumnChoice, where: str) -> TabularData:
    if columns.label not in values:
        raise ExperimentError(
            f"{where} has no column {columns.label!r}; set workload.label to that of the labels, one of "
            f"{_listed(list(values))}"
        )
    apart = {columns.label, *columns.apart}
    names = list(columns.features) or [name for name in values if name not in apart]
    if unknown := [name for name in names if name not in values]:
        raise ExperimentError(
            f"{where} has no column {unknown[0]!r} (workload.features); it has {_listed(list(values))}"
        )
    if not names:
        raise ExperimentError(f"{where} has no column beside {', '.join(sorted(apart))}; a model needs one")
    if columns.label in names:
        raise ExperimentError(
            f"workload.features: {columns.label!r} is the column of the labels, which the model must not see; leave "
            "it out"
        )
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ExperimentError(f"workload.features: {repeated[0]!r} occurs twice; name each column once")
    other_names = [name for name in values if name not in names or name in columns.apart]
    others = {name: values[name] for name in other_names if values[name].ndim == 1}
    if len(names) == 1 and values[names[0]].ndim > 1:
        return TabularData(values[names[0]], values[columns.label], others, names)
    for name in names:
        if values[name].ndim != 1 or values[name].dtype.kind not in "biuf":
            raise ExperimentError(
                f"{where}: column {name!r} does not hold numbers; name the columns of numbers in workload.features, or "
                "convert it in the loader"
            )
    table = np.stack([values[name].astype(np.float32) for name in names], axis=1)
    return TabularData(table, values[columns.label], others, names)


def _of_dataset(data: Any, where: str) -> TabularData:
    """Return every sample, read once: a random transform is also drawn once."""
    try:
        samples = [data[number] for number in range(len(data))]
    except TypeError as error:
        raise ExperimentError(f"{where} gave a {type(data).__name__} that cannot be read: {error}") from None
    if not samples:
        raise ExperimentError(f"{where} gave no samples")
    if not all(isinstance(sample, tuple | list) and len(sample) == 2 for sample in samples):
        raise ExperimentError(
            f"{where}: sample 0 is a {type(samples[0]).__name__}, not (x, y); let the Dataset give pairs"
        )
    inputs, labels = ([_array(sample[place]) for sample in samples] for place in (0, 1))
    return TabularData(_stacked(inputs, where), _stacked(labels, where))


def _stacked(arrays: list[NDArray[Any]], where: str) -> NDArray[Any]:
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]
        raise ExperimentError(
            f"{where}: samples of different shapes, {first} and {second}; pad or cut them in the loader"
        )
    return np.stack(arrays)


def _checked(table: TabularData, where: str) -> TabularData:
    inputs, labels = table.inputs, table.labels
    if inputs.ndim == 0 or labels.ndim == 0 or len(inputs) != len(labels):
        raise ExperimentError(f"{where}: {_size(inputs)} samples and {_size(labels)} labels; each sample needs one")
    if not len(labels):
        raise ExperimentError(f"{where} gave no samples")
    if inputs.dtype.kind == "O":
        raise ExperimentError(
            f"{where}: samples of different shapes, or of no numbers ({type(inputs.flat[0]).__name__}); let the loader "
            "make one array of numbers"
        )
    if inputs.dtype.kind not in "biuf":
        raise ExperimentError(f"{where}: samples are {_kind(inputs)}; let the loader turn them into numbers")
    if inputs.dtype.kind == "f":
        with np.errstate(over="ignore"):  # beyond the range of 32-bit floats: infinite
            finite = np.isfinite(inputs.reshape(len(inputs), -1).astype(np.float32, copy=False)).all(axis=1)
        if not finite.all():
            raise ExperimentError(
                f"{where}: {np.count_nonzero(~finite)} samples hold NaN, infinity or more than 3.4e38 (the first is "
                f"{int(np.flatnonzero(~finite)[0])}); leave them out or fill them in"
            )
    return table


def _size(array: NDArray[Any]) -> int:
    return len(array) if array.ndim else 0


def _kind(array: NDArray[Any]) -> str:
    return "text" if array.dtype.kind in "USO" else str(array.dtype)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def label_kind(array: NDArray[Any]) -> str:
    """Return the kind of labels, for errors."""
    return _kind(array)
