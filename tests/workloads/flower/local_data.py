"""Put this machine's data sets where Flower's examples look for theirs: `python local_data.py CACHE DATA COUNT`.

CACHE is the folder that HF_DATASETS_CACHE names, DATA has mnist/ and cifar10-jpeg/ (or is missing), and COUNT training
images of each are taken, a fifth as many of the test part. Iris comes with scikit-learn. Fashion-MNIST, which is not
here, is replaced by MNIST, which has the same shapes. It runs in the environment of the apps, which has `datasets`.
"""

import gzip
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_iris

CIFAR_LABELS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
DIGITS = [str(digit) for digit in range(10)]
SPECIES = ["setosa", "versicolor", "virginica"]


def write(cache: Path, name: str, splits: dict[str, datasets.Dataset]) -> None:
    """Write a data set as `datasets` keeps those that it has downloaded."""
    namespace, _, short = name.partition("/")
    folder = cache / f"{namespace}___{short}" / "default" / "0.0.0" / "local"
    folder.mkdir(parents=True)
    infos = {}
    for split, rows in splits.items():
        writer = datasets.arrow_writer.ArrowWriter(
            path=str(folder / f"{short}-{split}.arrow"), features=rows.features, disable_nullable=False
        )
        writer.write_table(rows.data.table)
        count, size = writer.finalize()
        infos[split] = datasets.SplitInfo(split, num_bytes=size, num_examples=count, dataset_name=short)
    features = next(iter(splits.values())).features
    info = datasets.DatasetInfo(features=features, splits=datasets.SplitDict(infos, dataset_name=short))
    info.builder_name, info.dataset_name, info.config_name, info.version = "cache", short, "default", "0.0.0"
    info.write_to_directory(str(folder))


def iris() -> dict[str, dict[str, Any]]:
    """The flowers under the names and the column names of two data sets, in an order that mixes the species."""
    values, species = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(species))
    columns = values[order].T
    names = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
    capitals = ["SepalLengthCm", "SepalWidthCm", "PetalLengthCm", "PetalWidthCm"]
    labels = [SPECIES[one] for one in species[order]]
    return {
        "hitorilabs/iris": dict(zip(names, columns, strict=True)) | {"species": species[order]},
        "scikit-learn/iris": dict(zip(capitals, columns, strict=True)) | {"Species": labels},
    }


def png(pixels: np.ndarray[Any, Any]) -> dict[str, Any]:
    """An image as `datasets` stores it."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def mnist(folder: Path, part: str, count: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The first images of a part, train or t10k, with their digits."""
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as images:
        pixels = np.frombuffer(images.read(16 + 784 * count), np.uint8)[16:].reshape(-1, 28, 28)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as labels:
        digits = np.frombuffer(labels.read(8 + count), np.uint8)[8:]
    yield from zip((png(image) for image in pixels), digits.tolist(), strict=True)


def cifar(folder: Path, part: str, count: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Random images of a part, train or test, with their labels."""
    rows = []
    with tarfile.open(folder / f"{part}.tar.xz") as archive:
        for member in archive:
            if (file := archive.extractfile(member)) is not None:
                rows.append(({"bytes": file.read(), "path": None}, CIFAR_LABELS.index(member.name.split("/")[1])))
    for row in np.random.default_rng(10).permutation(len(rows))[:count].tolist():
        yield rows[row]


def images(rows: Iterator[tuple[dict[str, Any], int]], column: str, labels: list[str]) -> datasets.Dataset:
    """A data set of two columns, the image and its label."""
    features = datasets.Features({column: datasets.Image(), "label": datasets.ClassLabel(names=labels)})
    pictures, numbers = zip(*rows, strict=True)
    return datasets.Dataset.from_dict({column: list(pictures), "label": list(numbers)}, features=features)


def main(cache: Path, data: Path, count: int) -> None:
    """Write all data sets that are here."""
    for name, columns in iris().items():
        write(cache, name, {"train": datasets.Dataset.from_dict(columns)})
    if (data / "mnist").is_dir():
        parts = {"train": ("train", count), "test": ("t10k", max(1, count // 5))}
        digits = {split: images(mnist(data / "mnist", *part), "image", DIGITS) for split, part in parts.items()}
        for name in ("ylecun/mnist", "zalando-datasets/fashion_mnist"):
            write(cache, name, digits)
    if (data / "cifar10-jpeg").is_dir():
        parts = {"train": ("train", count), "test": ("test", max(1, count // 5))}
        pictures = {
            split: images(cifar(data / "cifar10-jpeg", *part), "img", CIFAR_LABELS) for split, part in parts.items()
        }
        write(cache, "uoft-cs/cifar10", pictures)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
