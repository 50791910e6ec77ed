"""FEMNIST from files in the two published layouts, and messages for unreadable files."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import h5py
import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads import build

Writers = Mapping[str, tuple[np.ndarray, np.ndarray]]


def writers(count: int, seed: int = 0, first: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Bytes (n, 28, 28) and labels (n,) of some writers, of different numbers of images."""
    random = np.random.default_rng(seed)
    made = {}
    for number in range(first, first + count):
        size = 4 + number % 3
        images = random.integers(0, 256, (size, 28, 28), dtype=np.uint8)
        made[f"f{number:04}_{number % 50:02}"] = (images, random.integers(0, 62, size))
    return made


def as_leaf(some: Writers) -> dict:
    """What LEAF's data_to_json.py writes: an image is a list of 784 numbers from 0 to 1."""
    return {
        "users": list(some),
        "num_samples": [len(labels) for _, labels in some.values()],
        "user_data": {
            name: {"x": (images.reshape(-1, 784) / 255).tolist(), "y": labels.tolist()}
            for name, (images, labels) in some.items()
        },
    }


def write_leaf(folder: Path, some: Writers, of_each_file: int = 3, suffix: str = "") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    names = list(some)
    files = []
    for place, start in enumerate(range(0, len(names), of_each_file)):
        files.append(folder / f"all_data_{place}{suffix}.json")
        part = {name: some[name] for name in names[start : start + of_each_file]}
        files[-1].write_text(json.dumps(as_leaf(part)))
    return files


def write_hdf5(file: Path, some: Writers) -> None:
    """Write a file with the contents of TensorFlow Federated's fed_emnist."""
    with h5py.File(file, "w") as out:
        for name, (images, labels) in some.items():
            group = out.create_group(f"examples/{name}")
            group.create_dataset("pixels", data=(images / 255).astype(np.float32))
            group.create_dataset("label", data=labels.astype(np.int32))


def split_leaf(root: Path) -> None:
    write_leaf(root / "train", writers(7), suffix="_niid_0_keep_0_train_9")
    write_leaf(root / "test", writers(4, seed=1), suffix="_niid_0_keep_0_test_9")


def hdf5(root: Path) -> None:
    write_hdf5(root / "fed_emnist_train.h5", writers(7))
    write_hdf5(root / "fed_emnist_test.h5", writers(4, seed=1))


def opened(path: Path, population: int = 5, seed: int = 2, **keys: object):
    return build(WorkloadSection(dataset="femnist", path=path, model="logistic", **keys), population, seed)


@pytest.mark.parametrize("write", [split_leaf, hdf5])
def test_a_writer_is_a_client_and_images_are_unchanged(tmp_path: Path, write: Callable) -> None:
    write(tmp_path)
    workload = opened(tmp_path, population=7)
    for client, (images, labels) in enumerate(writers(7).values()):
        found, classes = workload.data.shard(client)
        assert np.array_equal(classes.numpy(), labels)
        scaled = (images / 255 - 0.9637) / 0.1597
        assert np.allclose(found.numpy(), scaled, atol=2e-3)
    assert workload.sample_counts.tolist() == [len(labels) for _, labels in writers(7).values()]
    assert workload.label_counts().sum(axis=1).tolist() == workload.sample_counts.tolist()
    assert np.array_equal(workload.label_counts()[3], np.bincount(writers(7)["f0003_03"][1], minlength=62))
    held_out, _ = workload.data.held_out()
    assert len(held_out) == sum(len(labels) for _, labels in writers(4, seed=1).values())
    assert "7 writers" in workload.description


def test_both_layouts_give_the_same_clients(tmp_path: Path) -> None:
    for name, write in (("json", split_leaf), ("hdf5", hdf5)):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    one, other = (opened(tmp_path / name, population=4, samples_per_client=3, epochs=2) for name in ("json", "hdf5"))
    model = one.initial_model()
    for client in range(4):
        assert np.array_equal(one.train(client, model, 1).delta, other.train(client, model, 1).delta)
    # Not `==`: the recall of a label that is not there is NaN.
    np.testing.assert_equal(asdict(one.evaluate(model)), asdict(other.evaluate(model)))
    assert one.sample_counts.tolist() == [3, 3, 3, 3]


def test_fewer_clients_than_writers_are_chosen_by_the_seed(tmp_path: Path) -> None:
    split_leaf(tmp_path)
    (tmp_path / "whole").mkdir()
    write_leaf(tmp_path / "whole" / "train", writers(7), of_each_file=7)
    write_leaf(tmp_path / "whole" / "test", writers(4, seed=1))

    def of(path: Path, population: int, seed: int) -> list[bytes]:
        data = opened(path, population, seed).data
        return [data.shard(client)[0].numpy().tobytes() for client in range(population)]

    assert of(tmp_path, 3, seed=2) == of(tmp_path / "whole", 3, seed=2)  # for any division into files
    assert set(of(tmp_path, 3, seed=2)) < set(of(tmp_path, 4, seed=2))
    assert len({tuple(of(tmp_path, 3, seed=seed)) for seed in range(5)}) > 1


def test_one_folder_is_split_here(tmp_path: Path) -> None:
    write_leaf(tmp_path, writers(7))
    workload = opened(tmp_path, population=7)
    sizes = [len(labels) for _, labels in writers(7).values()]
    assert workload.sample_counts.tolist() == [size - 1 for size in sizes]  # a tenth, and at least one
    held_out, _ = workload.data.held_out()
    assert len(held_out) == 7
    everything = np.concatenate([workload.data.shard(client)[0].numpy() for client in range(7)] + [held_out.numpy()])
    assert len(np.unique(everything.reshape(len(everything), -1), axis=0)) == sum(sizes)
    few = opened(tmp_path, population=7, test_samples=3)
    assert few.evaluate(few.initial_model()).samples == 3


@pytest.fixture
def leaf_file(tmp_path: Path) -> Path:
    split_leaf(tmp_path)
    return tmp_path / "train" / "all_data_1_niid_0_keep_0_train_9.json"


def changed(change: Callable[[dict], object]) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        data = json.loads(content)
        change(data)
        return json.dumps(data).encode()

    return apply


FOURTH = "f0003_03"
DAMAGE = [
    (lambda content: content[:-20], "cannot be read as LEAF's json"),
    (lambda content: b"", "cannot be read as LEAF's json"),
    (lambda content: b"\xff\xfe\x00", "cannot be read as LEAF's json"),
    (lambda content: b"[]", "lacks users and user_data"),
    (changed(lambda data: data.pop("user_data")), "lacks user_data"),
    (changed(lambda data: data.update(users=3)), "another kind"),
    (changed(lambda data: data["user_data"].pop(FOURTH)), f"user {FOURTH} has no x and y"),
    (changed(lambda data: data["user_data"][FOURTH].pop("y")), f"user {FOURTH} has no x and y"),
    (changed(lambda data: data["users"].remove(FOURTH)), f"user {FOURTH} is in user_data and not in users"),
    (changed(lambda data: data["users"].append(FOURTH)), f"user {FOURTH} occurs twice; keep one"),
    (changed(lambda data: data["user_data"].update(f0000_00=data["user_data"][FOURTH])), "f0000_00 is in user_data"),
    (lambda content: content.replace(b'"f0004_04": {', b'"f0003_03": {'), f"'{FOURTH}' occurs twice"),
    (changed(lambda data: data["user_data"][FOURTH].update(x=[], y=[])), "no images; remove the writer"),
    (changed(lambda data: data["user_data"][FOURTH]["y"].pop()), "labels (int64) for"),
    (changed(lambda data: data["user_data"][FOURTH]["x"][1].pop()), "different lengths"),
    (changed(lambda data: [image.pop() for image in data["user_data"][FOURTH]["x"]]), "shape (783,)"),
    (changed(lambda data: data["user_data"][FOURTH]["x"][1].__setitem__(5, 255.0)), "divide them by 255"),
    (changed(lambda data: data["user_data"][FOURTH]["x"][1].__setitem__(5, "?")), "not numbers"),
    (changed(lambda data: data["user_data"][FOURTH].update(x=5)), f"user {FOURTH}: not a list of images"),
    (changed(lambda data: data["user_data"][FOURTH].update(x=None, y=None)), f"user {FOURTH}: not a list of images"),
    (changed(lambda data: data["user_data"][FOURTH].update(x="ink")), f"user {FOURTH}: images of different lengths"),
    (changed(lambda data: data["user_data"][FOURTH].update(x={"x": 1, "y": 2})), "not numbers"),
    (changed(lambda data: data["user_data"][FOURTH].update(x=[1, 2])), "shape ()"),
    (changed(lambda data: data["user_data"][FOURTH]["x"][1].__setitem__(5, 10**400)), "not numbers"),
    (changed(lambda data: data["user_data"][FOURTH]["x"][1].__setitem__(5, 1e300)), "pixels beyond 0 to 1"),
    (changed(lambda data: data["user_data"][FOURTH]["x"][1].__setitem__(5, None)), "pixels beyond 0 to 1"),
    (changed(lambda data: data["user_data"][FOURTH]["y"].__setitem__(0, 10**400)), "one whole number each"),
    (changed(lambda data: data["user_data"][FOURTH]["y"].__setitem__(0, [1])), "not numbers"),
    (changed(lambda data: data["user_data"][FOURTH].update(y=None)), "one whole number each"),
    (lambda content: content.replace(b"[", b"[" + b"9" * 5000 + b",", 1), "cannot be read as LEAF's json"),
    (changed(lambda data: data["user_data"][FOURTH]["y"].__setitem__(0, 62)), "label 62; 0 to 61"),
    (changed(lambda data: data["user_data"][FOURTH]["y"].__setitem__(0, 1.5)), "one whole number each"),
]


@pytest.mark.parametrize(("damage", "says"), DAMAGE)
def test_damaged_json_is_named(leaf_file: Path, damage: Callable[[bytes], bytes], says: str) -> None:
    leaf_file.write_bytes(damage(leaf_file.read_bytes()))
    with pytest.raises(ExperimentError) as refused:
        opened(leaf_file.parents[1])
    assert says in str(refused.value)
    assert str(leaf_file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_writer_in_two_files_is_refused(leaf_file: Path) -> None:
    other = leaf_file.with_name("all_data_9.json")
    other.write_bytes(leaf_file.read_bytes())
    with pytest.raises(ExperimentError, match=rf"user {FOURTH} is there and in {leaf_file.name}; keep one"):
        opened(leaf_file.parents[1])


def test_damaged_hdf5_is_named(tmp_path: Path) -> None:
    def refused(says: str, **keys: object) -> None:
        with pytest.raises(ExperimentError) as error:
            opened(tmp_path, population=7, **keys)
        assert says in str(error.value)
        assert str(tmp_path) in str(error.value)
        assert "\n" not in str(error.value)

    hdf5(tmp_path)
    train = tmp_path / "fed_emnist_train.h5"
    content = train.read_bytes()
    (tmp_path / "fed_emnist_test.h5").rename(tmp_path / "elsewhere.h5")
    refused("no fed_emnist_test.h5")
    (tmp_path / "elsewhere.h5").rename(tmp_path / "fed_emnist_test.h5")
    for damaged in (b"", b"something else", content[: len(content) // 2]):
        train.write_bytes(damaged)
        refused("cannot be read as HDF5")
    train.write_bytes(content)
    with h5py.File(train, "a") as file:
        del file[f"examples/{FOURTH}/label"]
    refused(f"writer {FOURTH} has no pixels and label")
    with h5py.File(train, "a") as file:
        file[f"examples/{FOURTH}/label"] = np.array([1, 2], dtype=np.int32)
    refused(f"writer {FOURTH}: 2 labels (int32) for 4 images")
    with h5py.File(train, "a") as file:
        del file[f"examples/{FOURTH}"]
        file[f"examples/{FOURTH}/pixels"] = np.zeros((2, 14, 14), dtype=np.float32)
        file[f"examples/{FOURTH}/label"] = np.array([1, 2], dtype=np.int32)
    refused("shape (14, 14)")
    for pixels, says in (
        (np.float32(3), "not a list of images"), (h5py.Empty("f4"), "no pixels and label that can be read"),
        (np.zeros((2, 28, 28), dtype="V3"), "not numbers"),
    ):  # fmt: skip
        with h5py.File(train, "a") as file:
            del file[f"examples/{FOURTH}/pixels"]
            file[f"examples/{FOURTH}/pixels"] = pixels
        with pytest.raises(ExperimentError) as error:
            opened(tmp_path, population=7).data.shard(3)
        assert says in str(error.value)
        assert "\n" not in str(error.value)
    with h5py.File(train, "a") as file:
        del file["examples"]
    refused("no group examples")


def test_hdf5_without_h5py_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hdf5(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ExperimentError, match=r"fed_emnist_train.h5 needs h5py: .*hdf5"):
        opened(tmp_path)


def test_absent_files_and_too_many_clients_are_refused(tmp_path: Path) -> None:
    for says, prepare in (
        ("not a readable folder", lambda: None),
        ("neither fed_emnist_train.h5 nor json files", lambda: (tmp_path / "data").mkdir()),
        ("train/*.json and no test/*.json", lambda: write_leaf(tmp_path / "data" / "train", writers(7))),
        ("has 7 writers, fewer than population = 8", lambda: write_leaf(tmp_path / "data" / "test", writers(1))),
    ):
        prepare()
        with pytest.raises(ExperimentError) as refused:
            opened(tmp_path / "data", population=8)
        assert says in str(refused.value)


def test_it_is_learned(tmp_path: Path) -> None:
    # A class is a dark row of its own.
    some = {}
    for number in range(6):
        labels = np.arange(12) % 4
        images = np.full((12, 28, 28), 255, dtype=np.uint8)
        for place, label in enumerate(labels):
            images[place, 6 * label] = 40
        some[f"w{number}"] = (images, labels)
    write_leaf(tmp_path, some)
    workload = opened(tmp_path, population=6, batch_size=20, learning_rate=0.01, momentum=0.9, epochs=3)
    model = workload.initial_model()
    for number in (1, 2, 3):
        model = model + np.mean([workload.train(client, model, number).delta for client in range(6)], axis=0)
    assert workload.evaluate(model).accuracy > 0.9
