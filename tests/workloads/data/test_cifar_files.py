"""CIFAR from files: the accepted versions and layouts, and messages for unreadable files."""

import gzip
import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.files import limits
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads import build
from workloads.data.clients.cifar_pickle import UnreadablePickle, batch

Files = dict[str, bytes]


def images(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def binary10(count: int, seed: int) -> bytes:
    return np.hstack([labels10(count)[:, None].astype(np.uint8), images(count, seed)]).tobytes()


def binary100(count: int, seed: int) -> bytes:
    fine = labels100(count)[:, None].astype(np.uint8)
    return np.hstack([fine // 5, fine, images(count, seed)]).tobytes()


def labels10(count: int) -> np.ndarray:
    return np.arange(count) % 10


def labels100(count: int) -> np.ndarray:
    return np.arange(count) * 7 % 100


def as_python2(pixels: np.ndarray, key: str, labels: Sequence[int]) -> bytes:
    """The opcodes, in their order, of the files that CIFAR's authors wrote with Python 2 and protocol 2."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85" + text("b") + b"\x87R("
    array += b"K\x01" + b"M" + struct.pack("<H", len(pixels)) + b"M\x00\x0c\x86"
    array += b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R(K\x03" + text("|")
    array += b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb\x89"
    array += b"T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    items = text("batch_label") + text("training batch 1 of 5") + text(key) + listed + text("data") + array
    return b"\x80\x02}q\x01(" + items + text("filenames") + b"](" + text("a.png") + b"eu."


def by_protocol(protocol: int) -> Callable[[np.ndarray, str, Sequence[object]], bytes]:
    def pickled(pixels: np.ndarray, key: str, labels: Sequence[object]) -> bytes:
        return pickle.dumps({b"data": pixels, key.encode(): labels, b"filenames": [b"a.png"]}, protocol)

    return pickled


def version(name: str, pickled: Callable = as_python2) -> tuple[str, str, Files]:
    """Folder, archive and files."""
    if name == "binary10":
        files = {f"data_batch_{number}.bin": binary10(20, number) for number in range(1, 6)}
        return "cifar-10-batches-bin", "cifar-10-binary.tar.gz", files | {"test_batch.bin": binary10(30, 9)}
    if name == "binary100":
        files = {"train.bin": binary100(100, 1), "test.bin": binary100(30, 9)}
        return "cifar-100-binary", "cifar-100-binary.tar.gz", files
    if name == "python10":
        files = {f"data_batch_{n}": pickled(images(20, n), "labels", labels10(20).tolist()) for n in range(1, 6)}
        files["test_batch"] = pickled(images(30, 9), "labels", labels10(30).tolist())
        return "cifar-10-batches-py", "cifar-10-python.tar.gz", files
    files = {"train": pickled(images(100, 1), "fine_labels", labels100(100).tolist())}
    files["test"] = pickled(images(30, 9), "fine_labels", labels100(30).tolist())
    return "cifar-100-python", "cifar-100-python.tar.gz", files


def write(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def pack(archive: Path, members: Files) -> None:
    with tarfile.open(archive, "w:gz") as packed:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def opened(path: Path, classes: int = 10, **keys: object):
    section = WorkloadSection(dataset=f"cifar{classes}", path=path, model="lenet", **keys)
    return build(section, population=5, seed=2)


VERSIONS = ["binary10", "binary100", "python10", "python100"]


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("layout", ["files", "root", "root-archive", "archive"])
def test_both_versions_are_read_wherever_they_are(tmp_path: Path, name: str, layout: str) -> None:
    folder, archive, files = version(name)
    if layout in ("files", "root"):
        write(tmp_path / (folder if layout == "root" else ""), files)
    else:
        pack(tmp_path / archive, {"readme.html": b"", **{f"{folder}/{file}": files[file] for file in files}})
    classes = 100 if name.endswith("100") else 10
    workload = opened(tmp_path / archive if layout == "archive" else tmp_path, classes)
    assert workload.description == f"CIFAR-{classes}, 32x32, 100 for training, 30 held out"
    labels_of = labels100 if classes == 100 else labels10
    held_images, held_labels = workload.data.held_out()
    assert held_labels.tolist() == labels_of(30).tolist()
    mean, deviation = ([0.507, 0.487, 0.441], [0.267, 0.256, 0.276])
    if classes == 10:
        mean, deviation = [0.491, 0.482, 0.447], [0.247, 0.243, 0.262]
    expected = (images(30, 9).reshape(30, 3, 32, 32).transpose(0, 2, 3, 1) / 255 - mean) / deviation
    assert np.allclose(held_images.numpy(), expected, atol=0.01)
    assert workload.sample_counts.tolist() == [20] * 5
    parts = [workload.data.shard(client) for client in range(5)]
    trained = {image.numpy().tobytes(): int(label) for part in parts for image, label in zip(*part, strict=True)}
    assert len(trained) == 100
    if classes == 100:
        assert sorted(trained.values()) == sorted(labels100(100).tolist())
    assert workload.label_counts().sum() == 100
    assert workload.evaluate(workload.initial_model()).samples == 30


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_pickles_of_any_protocol_hold_the_same(tmp_path: Path, protocol: int) -> None:
    for folder, pickled in (("two", as_python2), ("three", by_protocol(protocol))):
        write(tmp_path / folder, version("python10", pickled)[2])
    first, second = (opened(tmp_path / folder) for folder in ("two", "three"))
    for client in range(5):
        for ours, theirs in zip(first.data.shard(client), second.data.shard(client), strict=True):
            assert np.array_equal(ours, theirs)


class Calls:
    """A pickle that calls a function when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.file),)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, archive, files = version("python10")
    monkeypatch.setattr(limits, "ARCHIVE_BYTES", 2_000_000)
    pack(tmp_path / archive, {"zeros": bytes(3_000_000), **{f"{folder}/{file}": files[file] for file in files}})
    with pytest.raises(ExperimentError, match=naming("larger than", "unpacked")):
        opened(tmp_path / archive)


def test_memorised_text_does_not_fill_the_memory() -> None:
    """Ten bytes of the file each make another megabyte, if they may."""
    text = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20) + b"q\x00"
    kind = b"X\x06\x00\x00\x00latin1q\x01"
    call = b"c_codecs\nencode\n" + b"h\x00h\x01\x86R"
    with pytest.raises(UnreadablePickle, match=naming("more bytes", "file")):
        batch(b"](" + text + kind + call * 50 + b"e.", 10)


def test_nothing_in_a_pickle_is_executed(tmp_path: Path) -> None:
    files = version("python10")[2]
    trace = tmp_path / "executed"
    encode = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R."
    for attack, says in (
        (pickle.dumps({b"data": Calls(trace), b"labels": [1]}, 2), r"posix\.mkdir"),
        (pickle.dumps({b"data": Calls(trace), b"labels": [1]}, 4), r"posix\.mkdir"),
        (b"cos\nsystem\n(S'true'\ntR.", r"os\.system"),
        (b"cnumpy\nload\n(S'x'\ntR.", r"numpy\.load"),
        (b"cnumpy\nndarray\n(S'x'\ntR.", "calls a function"),
        (encode, "calls a function"),
        (b"cnumpy\nndarray\n}b.", "an object that CIFAR's do not"),  # the state of a function
        (b"cnumpy\ndtype\n(N}tb.", "an object that CIFAR's do not"),  # attributes of a class
        (b"K\x01)R.", "damaged"),  # a call of a number
        (b"cnumpy\ndtype\n)\x81.", r"a call \(NEWOBJ\)"),
        (pickle.dumps({b"data": np.array([object()]), b"labels": [1]}, 2), r"__builtin__\.object"),
    ):
        write(tmp_path, files | {"data_batch_3": attack})
        with pytest.raises(ExperimentError, match=rf"data_batch_3 cannot be read.*{says}") as refused:
            opened(tmp_path)
        assert "\n" not in str(refused.value)
    assert not trace.exists()


def test_absent_and_damaged_files_are_named(tmp_path: Path) -> None:
    def refused(match: str, path: Path = tmp_path, classes: int = 10) -> None:
        with pytest.raises(ExperimentError, match=match) as error:
            opened(path, classes)
        assert str(tmp_path) in str(error.value)
        assert "\n" not in str(error.value)

    refused("has no CIFAR-10; give the folder with data_batch_1.bin", tmp_path / "nowhere")
    refused(r"has no CIFAR-100; .* or cifar-100-binary.tar.gz or cifar-100-python.tar.gz", classes=100)
    folder, _, files = version("binary10")
    write(tmp_path, files)
    refused("has no CIFAR-100", classes=100)
    for damaged in (b"", files["test_batch.bin"][:-1], b"x" * 3072):
        write(tmp_path, {"data_batch_2.bin": damaged})
        refused("data_batch_2.bin cannot be read .*whole number of records of 3073")
    write(tmp_path, {"data_batch_2.bin": bytes([10]) + bytes(3072)})
    refused("a label 10; 0 to 9 are CIFAR-10's")
    (tmp_path / "data_batch_2.bin").unlink()
    refused("has test_batch.bin but not data_batch_2.bin")
    archive = tmp_path / "packed" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    pack(archive, {f"{folder}/{name}": content for name, content in files.items()})
    whole = archive.read_bytes()
    for damaged in (b"", b"not gzip", whole[:-1000], gzip.compress(b"no archive" * 100)):
        archive.write_bytes(damaged)
        refused("cannot be read as an archive", archive)
    pack(archive, files)  # not in their folder
    refused("but not data_batch_1.bin", archive)
    pack(archive, {f"{folder}/test_batch.bin": files["test_batch.bin"]})
    refused("but not data_batch_1.bin", archive.parent)


def test_damaged_pickles_are_named(tmp_path: Path) -> None:
    files = version("python10")[2]
    whole = files["test_batch"]
    labels = labels10(30).tolist()
    for damaged in (
        b"", whole[:-1], whole[:1000], b"not a pickle", pickle.dumps([1]), pickle.dumps({b"labels": labels}),
        pickle.dumps({b"data": images(30, 9), b"labels": labels}, 2)[:-40],
        *(as_python2(images(30, 9), "labels", wrong) for wrong in ([], labels[:-1], [*labels[:-1], 10])),
        as_python2(images(30, 9), "fine_labels", labels),
        by_protocol(2)(images(30, 9).astype(np.float32), "labels", labels),
        by_protocol(2)(images(30, 9)[:, :3000], "labels", labels),
        by_protocol(2)(np.asfortranarray(images(30, 9)), "labels", labels),
        by_protocol(2)(images(30, 9), "labels", ["a"] * 30),
    ):  # fmt: skip
        write(tmp_path, files | {"test_batch": damaged})
        with pytest.raises(ExperimentError, match=naming("test_batch", "read")) as refused:
            opened(tmp_path)
        assert "\n" not in str(refused.value)
