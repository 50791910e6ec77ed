"""Arrays of any shape, spread over the clients by a partitioner."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.data.clients import partition
from workloads.data.clients.contract import IGNORED, Batch, ClientData
from workloads.data.own.forms import TabularData, label_kind
from workloads.data.own.scale import unscaled_feature
from workloads.determinism import Purpose, stream

_TEST_SHARE = 0.2
_MOST_CLASSES = 1_000_000  # each client's samples are counted by class
_BY_LABEL = ("dirichlet", "label-shards")


class ClientArrays(ClientData):
    """Samples of any single shape, each with one or several classes or values.

    Args:
        train, test: the two parts; without a test part a fifth of the first is held out, stratified by class.
        section: loss, partition, samples_per_client, test_samples.
        population, seed: of the experiment.
        where: begins the lines of errors.

    Attributes:
        shape: shape of one sample.
        classes: number of classes; None: labels are values, or one for each position.
        outputs: number of outputs of a model per sample.
        notes: a line if no training sample has class 0, as if classes were numbered from 1; a line if the features are
            unscaled.
        facts: ``unscaled_feature``, see `workloads.data.own.scale.unscaled_feature`, if there is one.

    Raises:
        ExperimentError: labels that the loss does not accept, or a client would hold too few samples.
    """

    def __init__(
        self,
        train: TabularData,
        test: TabularData | None,
        section: WorkloadSection,
        population: int,
        seed: int,
        where: str = "workload.dataset",
    ) -> None:
        parts = [train] if test is None else [train, test]
        labels = [_labels(part.labels, section.loss, where) for part in parts]
        kinds = [_classes(part_labels, section.loss) for part_labels in labels]
        self.classes = max(kind for kind in kinds if kind is not None) if None not in kinds else None
        class_numbers = labels[0].astype(np.int64) if self.classes is not None else np.zeros(len(train), np.int64)
        if self.classes is None and (section.partition.scheme in _BY_LABEL or section.partition.shared_samples):
            key = section.partition.scheme if section.partition.scheme in _BY_LABEL else "shared_samples"
            raise ExperimentError(
                f"workload.partition: {key} needs classes, and labels are {_labels_text(labels[0])}; take iid or "
                "by-column"
            )
        self._inputs, self._labels = _inputs(train.inputs), labels[0]
        train_numbers = np.arange(len(train))
        if test is None:
            if len(train) < 2:
                raise ExperimentError(f"{where} has one sample; one to train on and one held out are needed")
            train_numbers, test_numbers = self._split(class_numbers, stream(seed, Purpose.SPLIT))
            self._held_out = self._inputs[test_numbers], self._labels[test_numbers]
        else:
            self._held_out = _inputs(test.inputs), labels[1]
        self._numbers, self._classed = train_numbers, class_numbers[train_numbers]
        columns: Mapping[str, NDArray[Any]] = {name: values[train_numbers] for name, values in train.columns.items()}
        self._assignment = partition.assign(
            self._classed,
            population,
            section.partition,
            section.samples_per_client,
            stream(seed, Purpose.PARTITION),
            self._columns(columns, section.label),
        )
        self.sample_counts = self._assignment.counts
        count = len(self._held_out[1])
        if section.test_samples is not None and section.test_samples < count:
            chosen = stream(seed, Purpose.TEST_SUBSET).permutation(count)[: section.test_samples]
            self._held_out = self._held_out[0][chosen], self._held_out[1][chosen]
        self.shape = tuple(self._inputs.shape[1:])
        width = int(np.prod(self._labels.shape[1:]))
        self.outputs = self.classes if self.classes is not None and section.loss != "bce" else width
        notes: list[str] = []
        if self.classes is not None and section.loss == "cross_entropy" and class_numbers.min(initial=1) > 0:
            notes.append(
                f"{where}: labels are {int(class_numbers.min())} to {int(class_numbers.max())}, so class 0 has no "
                f"sample, and the model has {self.classes} classes; if labels start at 1, subtract 1 in the loader"
            )
        if feature := unscaled_feature(self._inputs[self._numbers], train.features):
            self.facts = {"unscaled_feature": feature}
            notes.append(
                f"{where}: the features are unscaled: {feature['name']} is {feature['ratio']:,.0f} times as large as "
                "the median one (root mean squares); standardise them in the loader, e.g. with "
                "sklearn.preprocessing.StandardScaler"
            )
        self.notes = notes
        kind = f"{self.classes} classes" if self.classes is not None else f"labels {_labels_text(labels[0])}"
        self.description = (
            f"{section.dataset}: samples of shape {self.shape} {self._inputs.dtype}, {kind}, {len(train_numbers)} for "
            f"training, {len(self._held_out[1])} held out"
        )

    def _split(
        self, class_numbers: NDArray[np.int64], random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        train, test = partition.stratified(class_numbers, _TEST_SHARE, random)
        # Few samples of each class may round to no test sample at all.
        return (train, test) if len(test) else (train[1:], train[:1])

    def _columns(self, others: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
        """Return the columns for partitions: labels, as classes or values, by their name, and the other columns."""
        if self.classes is not None:
            return {**others, name: self._classed}
        if self._labels.ndim > 1:
            return dict(others)
        values = self._labels[self._numbers]
        return {"label": values, **others, name: values}

    def image_shape(self) -> tuple[int, int, int]:
        """Return (height, width, channels) for the built-in models: a table's row is an image of one line.

        Raises:
            ExperimentError: samples are not rows, grey images or colour images.
        """
        match self.shape:
            case (width,):
                return 1, width, 1
            case (height, width):
                return height, width, 1
            case (height, width, 3):
                return height, width, 3
        raise ExperimentError(
            "workload.model: the built-in ones take samples of shape (numbers,), (height, width) or (height, width, "
            f"3), these are {self.shape}; bring a model, package.module:Name"
        )

    def as_floats(self) -> "ClientArrays":
        """Return the same data with samples as floats."""
        made = copy.copy(self)
        made._inputs = self._inputs.astype(np.float32, copy=False)
        made._held_out = self._held_out[0].astype(np.float32, copy=False), self._held_out[1]
        return made

    def shard(self, client: int) -> Batch:
        chosen = self._numbers[self._assignment.of(client)]
        return _tensors(self._inputs[chosen], self._labels[chosen])

    def held_out(self) -> Batch:
        return _tensors(*self._held_out)

    def label_counts(self) -> NDArray[np.int64]:
        if self.classes is None:
            return self.sample_counts[:, None].copy()
        return self._assignment.label_counts(self._classed, self.classes)

    def own_label_counts(self) -> NDArray[np.int64]:
        if self.classes is None:
            return self._assignment.own_counts[:, None].copy()
        return self._assignment.own_label_counts(self._classed, self.classes)


def _tensors(inputs: NDArray[Any], labels: NDArray[Any]) -> Batch:
    import torch  # here: data sets are described without it

    return torch.tensor(inputs), torch.tensor(labels)  # copies have the same alignment in every process


def _inputs(inputs: NDArray[Any]) -> NDArray[Any]:
    """Return floats as 32-bit ones, bytes unchanged, other whole numbers as int64 for layers and embeddings."""
    if inputs.dtype.kind == "f":
        return inputs.astype(np.float32, copy=False)
    # Whole numbers may be indices of an embedding, so they do not become floats.
    return inputs if inputs.dtype == np.uint8 else inputs.astype(np.int64, copy=False)


def _labels(labels: NDArray[Any], loss: str, where: str) -> NDArray[Any]:
    """Return the labels in the type of the loss: int64, or float32."""
    kind = labels.dtype.kind
    if kind == "O":  # a frame's column of whole numbers with gaps, or of several kinds
        try:
            if any(isinstance(label, str) for label in labels.flat):
                raise TypeError
            labels, kind = labels.astype(np.float64), "f"
        except (TypeError, ValueError):
            kind = "U"
    if kind not in "biuf":
        raise ExperimentError(
            f"{where}: labels are {label_kind(labels)}; number them in the loader (pandas.factorize, "
            "sklearn.preprocessing.LabelEncoder)"
        )
    if kind == "f" and not np.isfinite(labels).all():
        raise ExperimentError(f"{where}: some labels are NaN or infinite; leave these samples out")
    if loss == "cross_entropy":
        if kind == "f":
            raise ExperimentError(
                f"{where}: labels are {labels.dtype}, and cross_entropy takes whole numbers from 0; set workload.loss "
                "to mse (or bce), or make classes of them in the loader"
            )
        class_numbers = labels.astype(np.int64)
        if labels.ndim == 1 and (class_numbers < 0).any():
            raise ExperimentError(f"{where}: the label {int(class_numbers.min())}; classes are numbered from 0")
        if class_numbers.max(initial=0) >= _MOST_CLASSES:
            raise ExperimentError(
                f"{where}: the label {int(class_numbers.max())}; classes are numbered from 0 without gaps: number them "
                "so in the loader (pandas.factorize, sklearn.preprocessing.LabelEncoder)"
            )
        if labels.ndim > 1 and (class_numbers[class_numbers != IGNORED] < 0).any():
            raise ExperimentError(
                f"{where}: a negative label; classes are numbered from 0, and {IGNORED} means no label"
            )
        return class_numbers
    if loss == "bce" and ((labels < 0) | (labels > 1)).any():
        raise ExperimentError(f"{where}: labels from {labels.min()} to {labels.max()}; bce takes 0 and 1")
    if loss in ("bce", "mse", "l1") or kind == "f":
        return labels.astype(np.float32)
    return labels.astype(np.int64)


def _classes(labels: NDArray[Any], loss: str) -> int | None:
    """Return the number of classes if each sample has one class, else None."""
    if labels.ndim > 1 or loss in ("mse", "l1"):
        return None
    if loss == "bce":
        return 2 if np.isin(labels, (0.0, 1.0)).all() else None
    if labels.dtype.kind == "f" or labels.min(initial=0) < 0 or labels.max(initial=0) >= _MOST_CLASSES:
        return None
    return int(labels.max()) + 1


def _labels_text(labels: NDArray[Any]) -> str:
    return f"values ({labels.dtype})" if labels.ndim == 1 else f"several for each sample {labels.shape[1:]}"
