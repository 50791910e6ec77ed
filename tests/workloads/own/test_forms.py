"""Common forms of users' data become arrays; other objects are refused and named."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from tests.thoroughness import examples
from workloads.data.own.arrays import ClientArrays
from workloads.data.own.forms import ColumnChoice, TabularData, tables

X = np.arange(24.0).reshape(8, 3)
Y = np.arange(8) % 2


class Pairs(Dataset):
    def __init__(self, count: int = 8) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.tensor(X[number]), int(Y[number])


class Endless(IterableDataset):
    def __iter__(self):
        yield 1


class HuggingFace:
    """As much of `datasets.Dataset` as is used."""

    column_names = ("label", "pixels")

    def with_format(self, kind: str) -> "HuggingFace":
        assert kind == "numpy"
        return self

    def __getitem__(self, rows: slice) -> dict:
        return {"pixels": X[rows], "label": Y[rows]}


FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": Y})


@pytest.mark.parametrize(
    "form",
    [
        (X, Y),
        [X, Y],
        (X.tolist(), Y.tolist()),
        (torch.tensor(X, requires_grad=True), torch.tensor(Y)),
        (FRAME[["a", "b", "c"]], FRAME["label"]),
        (FRAME[["a", "b", "c"]], FRAME["label"].tolist()),
        (FRAME[["a", "b", "c"]], FRAME[["label"]].rename(columns={"label": "kind"})),
        {"x": X, "y": Y},
        {"data": X, "target": Y, "feature_names": ["a", "b", "c"]},
        FRAME,
        HuggingFace(),
        Pairs(),
        TensorDataset(torch.tensor(X), torch.tensor(Y)),
        torch.utils.data.Subset(Pairs(), range(8)),
    ],
    ids=lambda form: type(form).__name__,
)
def test_every_form_gives_the_same_arrays_alone_and_as_a_pair(form: object) -> None:
    for given_, has_test in ((form, False), ((form, form) if not isinstance(form, list) else ((X, Y), (X, Y)), True)):
        train, test = tables(given_, ColumnChoice(), "here")
        assert (test is not None) == has_test
        for part in (train, test or train):
            assert np.array_equal(part.inputs, X)
            assert np.array_equal(part.labels, Y)
    train, test = tables({"train": form, "validation": form}, ColumnChoice(), "here")
    assert test is not None
    assert len(train) == len(test) == 8


def test_columns_that_are_no_features_stay_known() -> None:
    frame = FRAME.assign(ward=list("aabbccdd"))
    train, _ = tables(frame, ColumnChoice("label", ("a", "b"), ("ward",)), "here")
    assert train.inputs.tolist() == X[:, :2].tolist()
    assert sorted(train.columns) == ["c", "label", "ward"]
    train, _ = tables({"x": X, "y": Y, "ward": list("aabbccdd")}, ColumnChoice(), "here")
    assert train.columns["ward"].tolist() == list("aabbccdd")
    bunch, _ = tables(load_breast_cancer(), ColumnChoice(), "here")
    assert bunch.inputs.shape == (569, 30)


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        (None, "here gave nothing (None); taken are (x, y) arrays"),
        (3, "here gave a int; taken are"),
        (X, "here gave one array without labels (numpy.ndarray); taken are"),
        ((X, Y, Y), "here gave a tuple of 3 (ndarray, ndarray, ndarray); taken are"),
        (iter([1]), "which can only be gone through (a map-style Dataset has a length)"),
        (Endless(), "Endless, which can only be gone through"),
        ((X, Y[:5]), "here: 8 samples and 5 labels; each sample needs one"),
        ((X[:0], Y[:0]), "here gave no samples"),
        (Pairs(0), "here gave no samples"),
        (range(3), "here: sample 0 is a int, not (x, y)"),
        (([[1], [2, 3]], [0, 1]), "samples of different shapes, or of no numbers"),
        ((["good", "bad"], [0, 1]), "samples are text; let the loader turn them into numbers"),
        ((np.where(X == 5, np.nan, X), Y), "1 samples hold NaN, infinity or more than 3.4e38 (the first is 1)"),
        ((np.where(X == 5, 1e300, X), Y), "more than 3.4e38 (the first is 1)"),
        (
            FRAME.rename(columns={"label": "y"}),
            "no column 'label'; set workload.label to that of the labels, one of a",
        ),
        (FRAME.assign(name="x"), "column 'name' does not hold numbers"),
        (FRAME[["label"]], "no column beside label"),
        (((X, Y), (X[:, :2], Y)), "training samples of shape (3,), test samples of (2,)"),
        ({"x": X}, "a mapping with x and no labels"),
        ({"train": (X, Y), "test": 4}, "here: the test part gave a int"),
        (SimpleNamespace(x=X), "here gave a types.SimpleNamespace"),
    ],
)
def test_anything_else_is_refused_in_one_line(given_: object, says: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        tables(given_, ColumnChoice(), "here")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_test_part_has_the_columns_of_the_training_part_in_their_order() -> None:
    train, test = tables((FRAME, FRAME[["label", "c", "a", "b"]]), ColumnChoice(), "here")
    assert test is not None
    assert np.array_equal(train.inputs, test.inputs)
    with pytest.raises(ExperimentError, match=naming("'c'", "a, b, d", "workload.features")):
        tables((FRAME, FRAME.rename(columns={"c": "d"})), ColumnChoice(), "here")
    train, test = tables({"train": FRAME, "test": FRAME.assign(d=1.0)}, ColumnChoice(), "here")
    assert test is not None
    assert np.array_equal(train.inputs, test.inputs)


def test_features_are_columns_once_and_never_the_labels() -> None:
    with pytest.raises(ExperimentError, match=naming("workload.features", "'label'")):
        tables(FRAME, ColumnChoice("label", ("a", "label")), "here")
    with pytest.raises(ExperimentError, match=naming("workload.features", "'a'", "twice")):
        tables(FRAME, ColumnChoice("label", ("a", "b", "a")), "here")
    train, _ = tables(
        FRAME, ColumnChoice("label", ("a", "b"), ("a",)), "here"
    )  # the column of a partition may also be a feature
    assert np.array_equal(train.columns["a"], X[:, 0])


def test_masked_values_are_missing_and_values_without_rows_are_ignored() -> None:
    with pytest.raises(ExperimentError, match=naming("1 samples", "NaN", "first is 1")):
        tables((np.ma.masked_array(X, X == 5), Y), ColumnChoice(), "here")
    assert len(tables((np.ma.masked_array(X), Y), ColumnChoice(), "here")[0]) == 8
    train, _ = tables({"x": X, "y": Y, "scale": np.float64(2), "mean": torch.tensor(1.0)}, ColumnChoice(), "here")
    assert train.columns == {}
    train, _ = tables((torch.tensor(X).to(torch.bfloat16), Y), ColumnChoice(), "here")
    assert train.inputs.dtype == np.float32


def test_two_frames_of_the_same_columns_are_a_training_and_a_test_part() -> None:
    without = FRAME.rename(columns={"label": "kind"})
    with pytest.raises(ExperimentError, match=naming("'label'", "workload.label")):
        tables((without, without), ColumnChoice(), "here")
    train, test = tables((without, without), ColumnChoice("kind"), "here")
    assert test is not None
    assert np.array_equal(train.labels, test.labels)
    one = FRAME[["a"]]
    assert tables((one, FRAME["label"]), ColumnChoice(), "here")[0].inputs.shape == (8, 1)
    assert tables({"x": one, "y": Y}, ColumnChoice(), "here")[0].inputs.shape == (8, 1)


@pytest.mark.parametrize(
    ("given_", "columns", "says"),
    [
        (
            (X, Y),
            ColumnChoice("kind"),
            "workload.label: is for data with named columns, and here gave samples and labels",
        ),
        ((X, Y), ColumnChoice("label", ("a",)), "workload.features: is for data with named columns"),
        (Pairs(), ColumnChoice("kind"), "workload.label: is for"),
        ({"x": X, "y": Y}, ColumnChoice("label", ("a",)), "workload.features: is for"),
        ({"x": X, "y": Y}, ColumnChoice("kind"), "workload.label: is for"),
    ],
)
def test_names_of_columns_where_there_are_none_are_refused(given_: object, columns: ColumnChoice, says: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        tables(given_, columns, "workload.dataset: here")
    assert says in str(refused.value)
    assert tables({"x": X, "kind": Y}, ColumnChoice("kind"), "here")[0].labels.tolist() == Y.tolist()


def arrays(labels: object, population: int = 2, **keys: object) -> ClientArrays:
    given_ = TabularData(np.zeros((len(labels), 3)), np.asarray(labels))
    return ClientArrays(given_, None, WorkloadSection(dataset="mine:load", **keys), population, 1)


@pytest.mark.parametrize(
    ("labels", "keys", "says"),
    [
        (
            [0.0, 1.0] * 4,
            {},
            "labels are float64, and cross_entropy takes whole numbers from 0; set workload.loss",
        ),
        (["a", "b"] * 4, {}, "labels are text; number them in the loader (pandas.factorize"),
        (np.array(["0", "1"] * 4, object), {}, "labels are text; number them in the loader (pandas.factorize"),
        ([0, 10**9] * 4, {}, "the label 1000000000; classes are numbered from 0 without gaps"),
        ([0, 1] * 4, {"partition": {"scheme": "overlapping"}}, "overlapping needs samples_per_client"),
        (
            [0, 1] * 4,
            {"partition": {"shared_samples": 2}, "samples_per_client": 2},
            "workload.samples_per_client: counts the 2 of partition.shared_samples, too: 2 leave a client none",
        ),
        ([0, -1] * 4, {}, "the label -1; classes are numbered from 0"),
        ([0.0, np.nan] * 4, {"loss": "mse"}, "some labels are NaN or infinite"),
        ([0, 2] * 4, {"loss": "bce"}, "labels from 0 to 2; bce takes 0 and 1"),
        (
            [0.5, 2] * 4,
            {"loss": "mse", "partition": {"scheme": "dirichlet"}},
            "dirichlet needs classes, and labels are values (float32)",
        ),
        ([0.5, 2] * 4, {"loss": "l1", "partition": {"shared_samples": 1}}, "shared_samples needs classes"),
        (
            [0, 1] * 4,
            {"partition": {"scheme": "by-column", "column": "ward"}},
            "there is no column 'ward'; these data have label",
        ),
    ],
)
def test_labels_that_the_loss_or_the_partition_does_not_take(labels: list, keys: dict, says: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        arrays(labels, **keys)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_labels_become_the_type_of_the_loss() -> None:
    assert arrays([0, 1] * 4).shard(0)[1].dtype == torch.int64
    assert arrays([False, True] * 4).outputs == 2
    assert arrays([0, 1] * 4, loss="bce").shard(0)[1].dtype == torch.float32
    assert (arrays([0, 1] * 4, loss="bce").classes, arrays([0, 1] * 4, loss="bce").outputs) == (2, 1)
    assert arrays([0.5, 2.5] * 4, loss="mse").label_counts().tolist() == [[3], [3]]
    assert arrays([0.5, 2.5] * 4, loss="torch.nn.functional:huber_loss").shard(0)[1].dtype == torch.float32
    assert arrays([[0.5, 2.5]] * 8, loss="mse").outputs == 2
    assert arrays([0, 10**9] * 4, loss="mse").classes is None


def test_values_can_be_the_column_of_a_partition() -> None:
    by_label = {"partition": {"scheme": "by-column", "column": "label"}, "loss": "mse"}
    data = arrays([0.5, 0.5, 2.5, 2.5] * 4, **by_label)
    assert [set(data.shard(client)[1].tolist()) for client in (0, 1)] == [{0.5}, {2.5}]
    other = np.array(list("aabb") * 4)
    given_ = TabularData(np.zeros((16, 1)), np.arange(16.0), {"label": other, "price": np.arange(16.0)})
    section = WorkloadSection(dataset="mine:load", label="price", **by_label)
    data = ClientArrays(given_, TabularData(np.zeros((1, 1)), np.zeros(1)), section, 2, 1)
    assert data.shard(0)[1].tolist() == [0, 1, 4, 5, 8, 9, 12, 13]  # a column of that name is it


@pytest.mark.parametrize("empty", [np.nan, None, pd.NA, pd.NaT])
def test_samples_without_an_owner_are_refused(empty: object) -> None:
    for values in (["a", empty, "b", "b"], *([[1.0, empty, 2.0, 2.0]] if empty is np.nan else [])):
        column = np.asarray(pd.Series(values))
        given_ = TabularData(np.zeros((4, 1)), np.zeros(4, int), {"ward": column})
        section = WorkloadSection(partition={"scheme": "by-column", "column": "ward"})
        with pytest.raises(ExperimentError, match=naming("ward", "1 samples")):
            ClientArrays(given_, given_, section, 2, 1)


@settings(max_examples=examples(30))
@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=20, max_size=80),
    st.integers(1, 8),
    st.integers(0, 2**40),
)
def test_by_column_each_value_is_one_client(wards: list[str], population: int, seed: int) -> None:
    values = np.array(wards)
    given_ = TabularData(np.arange(len(wards), dtype=np.float64)[:, None], np.zeros(len(wards), int), {"ward": values})
    section = WorkloadSection(partition={"scheme": "by-column", "column": "ward"})
    test = TabularData(np.zeros((1, 1)), np.zeros(1, int))
    found = len(set(wards))
    if found < population:
        with pytest.raises(
            ExperimentError, match=rf"ward has {found} values among .*, for {population} clients; lower"
        ):
            ClientArrays(given_, test, section, population, seed)
        return
    data = ClientArrays(given_, test, section, population, seed)
    held = [data.shard(client)[0].numpy()[:, 0].astype(int) for client in range(population)]
    assert sorted(np.concatenate(held)) == list(range(len(wards)))
    owners = [set(values[numbers]) for numbers in held]
    assert sum(map(len, owners)) == found
    if found == population:
        assert owners == [{ward} for ward in sorted(set(wards))]
    sizes = [len(owner) for owner in owners]
    assert max(sizes) - min(sizes) <= 1


def test_labels_from_one_leave_class_zero_without_samples() -> None:
    """The class 0 is an output of the model that no sample trains; it may be meant, so it is a note."""
    data = arrays([1, 2] * 4)
    assert data.classes == 3
    (note,) = data.notes
    assert re.search(naming("workload.dataset", "labels are 1 to 2", "class 0", "3 classes"), note)
    for labels in ([0, 1], [0, 2]):
        assert not arrays(labels * 4).notes
    assert not arrays([1, 2] * 4, loss="mse").notes
