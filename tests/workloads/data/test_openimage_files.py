"""OpenImage in FedScale's layout: images from files, and messages for unreadable files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads import build
from workloads.data import openimage
from workloads.data.clients.owners import ClientDataCache

HEADING = "client_id,sample_path,label_name,label_id"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five photographers with three images each, and four held-out images."""
    random = np.random.default_rng(0)
    (tmp_path / "client_data_mapping").mkdir()
    for part, clients, each in (("train", 5, 3), ("test", 2, 2)):
        rows = [HEADING]
        (tmp_path / part / "deep").mkdir(parents=True)
        for client in range(clients):
            for number in range(each):
                name = f"deep/{part}-{client}-{number}.{'jpg' if number else 'png'}"
                size = (90 + 10 * number, 70)
                pixels = random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
                image = Image.fromarray(pixels)
                (image.convert("L") if number == 2 else image).save(tmp_path / part / name)
                rows.append(f"{100 + client},{name},Thing,{(7 * client + number) % 596}")
        (tmp_path / "client_data_mapping" / f"{part}.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def opened(path: Path, population: int = 5, seed: int = 1, **keys: object):
    return build(WorkloadSection(dataset="openimage", path=path, image_size=64, **keys), population, seed)


def test_a_photographer_is_a_client(root: Path) -> None:
    workload = opened(root)
    assert workload.dimension == 1_009_736
    assert workload.sample_counts.tolist() == [3] * 5
    images, labels = workload.data.shard(2)
    assert images.shape == (3, 3, 64, 64)
    assert labels.tolist() == [14, 15, 16]
    first = Image.open(root / "train" / "deep" / "train-2-0.png")
    expected = np.asarray(first.resize((64, 64), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.array_equal(images[0].numpy(), expected)
    assert (images[2, 0] == images[2, 1]).all()  # a grey image is one in colour
    counts = workload.label_counts()
    assert counts.shape == (5, 596)
    assert np.flatnonzero(counts[2]).tolist() == [14, 15, 16]
    held_out, classes = workload.data.held_out()
    assert held_out.shape == (4, 3, 64, 64)
    assert classes.tolist() == [0, 1, 7, 8]
    assert "5 photographers with 15 images, 4 held out" in workload.description


def test_training_and_evaluating_are_repeatable(root: Path) -> None:
    one, other = opened(root), opened(root)
    model = one.initial_model()
    first, again = one.train(1, model, 1), other.train(1, model, 1)
    assert np.array_equal(first.delta, again.delta)
    assert np.array_equal(one.train(1, model, 1).delta, first.delta)  # running statistics of before do not count
    assert np.abs(first.delta[999_272:]).max() > 1e-3  # they belong to the update
    assert one.evaluate(model + first.delta).samples == 4


def test_choices_are_made_by_the_seed(root: Path) -> None:
    names = [opened(root, population=2, seed=seed).data.shard(0)[1].tolist() for seed in range(6)]
    assert len({tuple(labels) for labels in names}) > 1
    few = opened(root, samples_per_client=2, test_samples=3)
    assert few.sample_counts.tolist() == [2] * 5
    assert few.label_counts().sum(axis=1).tolist() == [2] * 5
    assert len(few.data.held_out()[1]) == 3


def test_any_headings_are_skipped(root: Path) -> None:
    """As FedScale's loader does; the client is the first column, the file the second, the class the last one."""
    expected = opened(root).label_counts()
    for part in ("train", "test"):
        file = root / "client_data_mapping" / f"{part}.csv"
        rows = [row.split(",") for row in file.read_text().splitlines()[1:]]
        lines = ["author,image,source,class", *(f"{client},{path},web,{label}" for client, path, _, label in rows)]
        file.write_text("\n".join(lines) + "\n")
    assert np.array_equal(opened(root).label_counts(), expected)
    for part in ("train", "test"):
        file = root / "client_data_mapping" / f"{part}.csv"
        file.write_text("\n".join(line.replace(",web", "").replace(",source", "") for line in file.open()))
    assert np.array_equal(opened(root).label_counts(), expected)


def test_more_labels_make_a_larger_model(root: Path) -> None:
    file = root / "client_data_mapping" / "test.csv"
    file.write_text(file.read_text() + "9,deep/test-0-0.png,Other,599\n")
    workload = opened(root)
    assert workload.data.classes == 600
    assert workload.dimension == 1_009_736 + 4 * 1280


def in_mapping(change: Callable[[str], str]) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        file = root / "client_data_mapping" / "train.csv"
        file.write_text(change(file.read_text()))

    return apply


DAMAGE = [
    (lambda root: (root / "client_data_mapping" / "train.csv").unlink(), "train.csv cannot be read"),
    (lambda root: (root / "client_data_mapping" / "train.csv").write_bytes(b"\xff\xfe"), "train.csv cannot be read"),
    (lambda root: (root / "client_data_mapping" / "test.csv").write_text(HEADING + "\n"), "test.csv has no rows"),
    (lambda root: (root / "client_data_mapping" / "test.csv").unlink(), "test.csv cannot be read"),
    (lambda root: (root / "test").rename(root / "tests"), "no folder test"),
    (in_mapping(lambda text: "a,b\n" + text), "begins with 'a,b'; columns like FedScale's are needed, client_id,"),
    (in_mapping(lambda text: text.partition("\n")[2]), "which FedScale's loader would skip as headings; put the line"),
    (in_mapping(lambda text: ""), "begins with ''; columns like FedScale's are needed"),
    (in_mapping(lambda text: text + "105,deep/a.jpg,3\n"), "train.csv, line 17: 3 columns for 4 headings"),
    (in_mapping(lambda text: text + "105,deep/a.jpg,Thing,-1\n"), "line 17: label_id '-1'"),
    (
        in_mapping(lambda text: text + "105,deep/a.jpg,Thing,1000000\n"),
        "label_id '1000000'; a whole number from 0 to 99999",
    ),
    (
        in_mapping(lambda text: text + f"105,deep/a.jpg,Thing,{'5' * 5000}\n"),
        "label_id '55555555555555555555'...; a whole",
    ),
    (in_mapping(lambda text: text + "105,/etc/passwd,Thing,1\n"), "line 17: client_id and a sample_path inside"),
    (in_mapping(lambda text: text + "105,../a.jpg,Thing,1\n"), "line 17: client_id and a sample_path inside"),
    (in_mapping(lambda text: text + ",a.jpg,Thing,1\n"), "line 17: client_id and a sample_path inside"),
    (in_mapping(lambda text: HEADING + "\n"), "has 0 photographers, fewer than population = 5"),
]


@pytest.mark.parametrize(("damage", "says"), DAMAGE)
def test_damaged_mappings_are_named(root: Path, damage: Callable[[Path], object], says: str) -> None:
    damage(root)
    with pytest.raises(ExperimentError) as refused:
        opened(root)
    assert says in str(refused.value)
    assert str(root) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_damaged_images_are_named_when_they_are_needed(root: Path) -> None:
    file = root / "train" / "deep" / "train-3-1.jpg"
    content = file.read_bytes()
    for damage, says in (
        (lambda: file.write_bytes(content[: len(content) // 2]), "cannot be read as an image"),
        (lambda: file.write_bytes(b"no image"), "cannot be read as an image"),
        (file.unlink, "cannot be read as an image (no such file)"),
    ):
        damage()
        workload = opened(root)
        with pytest.raises(ExperimentError) as refused:
            workload.train(3, workload.initial_model(), 1)
        assert says in str(refused.value)
        assert str(file) in str(refused.value)


def test_the_cache_is_bounded() -> None:
    made = []

    def make(client: int) -> np.ndarray:
        made.append(client)
        return np.full(100, client, dtype=np.uint8)

    kept = ClientDataCache(make, capacity=250)
    for client in (1, 2, 1, 3, 1, 2):
        assert kept(client)[0] == client
        assert kept.nbytes <= 250
    assert made == [1, 2, 3, 2]  # 2 was the least recently used when 3 came
    assert openimage.CLASSES == 596
