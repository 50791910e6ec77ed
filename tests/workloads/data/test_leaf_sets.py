"""Shakespeare, CelebA and Sent140 from files as LEAF's scripts write them, FEMNIST's and Reddit's ways to them."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from tests.workloads.data.leaf import Users, changed, split_by_sample, split_by_user, write_all
from workloads import build
from workloads.data.shakespeare import CHARACTERS, numbers

LINES = {
    "HAMLET_HAMLET": "To be, or not to be: that is the question",
    "MACBETH_LADY_MACBETH": "Out, damned spot! out, I say!",
    "OTHELLO_IAGO": "I am not what I am.\nPut money in thy purse;",
    "LEAR_FOOL": "Caf\u00e9",
    "LEAR_SERVANT": "O",
    "TEMPEST_ARIEL": "Where the bee sucks, there suck I",
}


def plays() -> Users:
    """As ``shake_utils.py`` makes windows: a line behind 80 spaces, and every character of it after its window."""
    users = {}
    for role, said in LINES.items():
        x, y = [], []
        for line in (" " * 80 + one for one in said.splitlines(keepends=True)):
            x += [line[start : start + 80] for start in range(len(line) - 80)]
            y += [line[start + 80] for start in range(len(line) - 80)]
        users[role] = (x, y)
    return users


def smiles() -> Users:
    """As ``metadata_to_json.py`` does: labels are halves of 2 and 0."""
    return {
        str(c): ([f"{c:03}{n:03}.jpg" for n in range(5 + c)], [float((n + c) % 2) for n in range(5 + c)])
        for c in range(1, 7)
    }


def portraits(folder: Path) -> None:
    folder.mkdir(parents=True)
    colours = np.random.default_rng(0).integers(0, 256, (200, 3), dtype=np.uint8)
    for place, name in enumerate(name for names, _ in smiles().values() for name in names):
        Image.fromarray(np.broadcast_to(colours[place], (218, 178, 3)).copy()).save(folder / name)


def tweets() -> Users:
    """As ``data_to_json.py`` does: all columns of the table but the label."""
    glad, sad = ["I love it!", "so happy, so good"], ["I hate it...", "so sad; so bad and @nobody cares"]
    users = {}
    for number in range(6):
        x = [
            [
                str(1000 + number),
                "Mon Apr 06 2009",
                "NO_QUERY",
                f"user{number}",
                (sad, glad)[n % 2][n // 2 % 2],
                "training",
            ]
            for n in range(1 if number == 4 else 8)
        ]
        users[f"user{number}"] = (x, [n % 2 for n in range(len(x))])
    return users


SETS: dict[str, tuple[Callable[[], Users], dict[str, Any]]] = {
    "shakespeare": (plays, {}),
    "celeba": (smiles, {"image_size": 16}),
    "sent140": (tweets, {"vocabulary_size": 20, "model": "word-bag"}),
}


def opened(name: str, path: Path, population: int = 4, seed: int = 3, **keys: Any) -> Any:
    return build(WorkloadSection(dataset=name, path=path, **SETS[name][1], **keys), population, seed)


@pytest.fixture(params=SETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name / "data"
    if name == "celeba":
        portraits(folder / "raw" / "img_align_celeba")
    return folder


def test_split_by_sample_every_user_is_in_both_parts(name: str, data: Path) -> None:
    users = SETS[name][0]()
    split_by_sample(data, users, hierarchies=["PLAY"] * len(users) if name == "shakespeare" else None)
    many = {user: len(y) for user, (_, y) in users.items() if len(y) > 1}
    trained = {user: max(1, int(0.9 * count)) if count > 2 else 1 for user, count in many.items()}
    workload = opened(name, data, population=len(many))
    assert workload.sample_counts.tolist() == [trained[user] for user in sorted(many)]
    assert len(workload.data.held_out()[1]) == sum(many.values()) - sum(trained.values())
    assert workload.label_counts().sum(axis=1).tolist() == workload.sample_counts.tolist()
    for path in (data / "train", data.parent):
        other = opened(name, path, population=len(many))
        assert np.array_equal(other.data.shard(1)[0], workload.data.shard(1)[0])
        assert len(other.data.held_out()[1]) == len(workload.data.held_out()[1])
    with pytest.raises(ExperimentError, match=rf"{len(many)} \w+s, fewer than population = {len(many) + 1}"):
        opened(name, data, population=len(many) + 1)


def test_split_by_user_no_user_is_in_both_parts(name: str, data: Path) -> None:
    users = SETS[name][0]()
    split_by_user(data, users, 0.7, hierarchies=["PLAY"] * len(users) if name == "shakespeare" else None)
    workload = opened(name, data, population=4)
    kept = workload.sample_counts.sum() + len(workload.data.held_out()[1])
    assert kept == sum(len(y) for _, y in users.values())


def test_unsplit_data_are_split_here(name: str, data: Path) -> None:
    users = SETS[name][0]()
    folder = write_all(data, users)
    workload = opened(name, folder, population=6)
    sizes = np.array([len(users[user][1]) for user in sorted(users)])
    held_out = np.minimum(sizes - 1, np.maximum(1, np.rint(0.1 * sizes).astype(int)))
    assert workload.sample_counts.tolist() == (sizes - held_out).tolist()
    assert len(workload.data.held_out()[1]) == held_out.sum()


def test_training_is_the_same_everywhere_and_the_split_follows_the_seed(name: str, data: Path) -> None:
    split_by_sample(data, SETS[name][0]())
    keys: dict[str, Any] = {"samples_per_client": 3, "test_samples": 4, "batch_size": 2, "learning_rate": 0.01}
    one, other = (opened(name, data, **keys) for _ in range(2))
    assert one.sample_counts.tolist() == [3] * 4
    model = one.initial_model()
    first = one.train(2, model, 1)
    assert np.array_equal(first.delta, other.train(2, model, 1).delta)
    assert first.delta.any()
    assert np.isfinite(first.delta).all()
    assert one.evaluate(model).samples == 4
    chosen = {opened(name, data, 2, seed).data.shard(0)[1].numpy().tobytes() for seed in range(8)}
    assert len(chosen) > 1
    simulated = opened(name, data, training="simulated")
    assert simulated.dimension == one.dimension


def test_a_part_that_is_absent_or_of_another_split_is_refused(name: str, data: Path, tmp_path: Path) -> None:
    users = SETS[name][0]()
    with pytest.raises(ExperimentError, match=naming("workload.path", data)):
        opened(name, data)
    split_by_sample(data, users)
    changed_users = dict(list(users.items())[1:])
    some = dict(list(changed_users.items())[:2]) | {"somebody": users[next(iter(users))]}
    split_by_sample(tmp_path / "other", some)
    other = tmp_path / "other" / "test" / "all_data_niid_05_keep_0_test_9.json"
    test = data / "test" / other.name
    test.write_text(other.read_text())
    with pytest.raises(ExperimentError, match=naming("2 users", "train", 1, "by sample", "by user")) as error:
        opened(name, data)
    assert "\n" not in str(error.value)
    test.unlink()
    with pytest.raises(ExperimentError, match=naming("train/*.json", "test/*.json")):
        opened(name, data / "train")


def test_the_test_part_alone_and_the_folder_above_unsplit_data_are_refused(name: str, data: Path) -> None:
    users = SETS[name][0]()
    whole = write_all(data, users)
    with pytest.raises(ExperimentError, match=naming("json files", "all_data")) as e:
        opened(name, data)
    assert str(e.value).endswith(str(whole))
    split_by_sample(data, users)
    with pytest.raises(ExperimentError, match=naming("/data/test", "/data")):
        opened(name, data / "test")


def test_data_inspect_shows_the_assignment(name: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from analysis.clients.profile import profile, report
    from testbed.experiment.schema import Experiment

    split_by_sample(data, SETS[name][0]())
    experiment = Experiment.model_validate(
        {
            "name": "sets",
            "seed": 3,
            "rounds": 1,
            "population": 4,
            "workload": {"dataset": name, "path": str(data), **SETS[name][1]},
            "selection": {"protocol": "random", "participants": 2},
            "aggregation": {"protocol": "plain"},
        }
    )
    found = profile(experiment, 3)
    assert found.label_counts is not None
    assert found.label_counts.shape == (4, 80 if name == "shakespeare" else 2)
    assert "label skew" in report(found, "text")


# Tests of single data sets.


def test_shakespeares_windows_are_numbered_as_leaf_numbers_them(tmp_path: Path) -> None:
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 80
    split_by_user(tmp_path, plays(), 0.99)
    workload = opened("shakespeare", tmp_path, population=5)
    assert workload.dimension == 817_872
    (file,) = (tmp_path / "train").iterdir()
    for client, role in enumerate(sorted(json.loads(file.read_text())["users"])):
        windows, follow = workload.data.shard(client)
        assert windows.shape[1] == 80
        written = "".join(CHARACTERS[number] for number in follow.tolist())
        assert written == LINES[role].replace("\u00e9", " ")
        assert (windows[0] == CHARACTERS.index(" ")).all()
        if len(follow) > 1:
            assert windows[1, -1] == follow[0]
    assert "windows of 80 characters and the next of 80, 5 roles" in workload.description


@pytest.mark.parametrize("written", ["\u2014", "\u2019", "\U0001f600", "\u00e9", "#", "\ud800"])
def test_a_character_outside_the_plays_is_a_space(written: str) -> None:
    assert [CHARACTERS[number] for number in numbers(f"a{written}?")] == ["a", " ", "?"]


def test_windows_of_another_length_are_refused(tmp_path: Path) -> None:
    short = {role: ([window[-20:] for window in x], y) for role, (x, y) in plays().items()}
    split_by_sample(tmp_path, short)
    with pytest.raises(ExperimentError) as refused:
        opened("shakespeare", tmp_path)
    assert "a window of 20 characters, and 80 are needed; set workload.sequence_length" in str(refused.value)
    assert opened("shakespeare", tmp_path, sequence_length=20).data.shard(0)[0].shape[1] == 20


DAMAGE: list[tuple[str, dict[str, Any], str]] = [
    ("shakespeare", {"y": ["a"]}, "windows and 1 next characters"),
    ("shakespeare", {"x": [], "y": []}, "0 windows and 0 next characters; one each, and at least one"),
    ("shakespeare", {"x": "text"}, "x and y must be lists of texts"),
    ("shakespeare", {"x": [3], "y": ["a"]}, "x and y must be lists of texts"),
    ("shakespeare", {"x": [" " * 80], "y": ["ab"]}, "y must be single characters"),
    ("celeba", {"x": ["../a.jpg"], "y": [1.0]}, "'../a.jpg' is not an image name"),
    ("celeba", {"x": [7], "y": [1.0]}, "7 is not an image name"),
    ("celeba", {"y": [1.0]}, "x must be a list of names of images, y one label each"),
    ("celeba", {"x": ["1.jpg"], "y": [2]}, "labels must be 0 or 1 (smiling)"),
    ("celeba", {"x": ["1.jpg"], "y": [None]}, "labels must be 0 or 1 (smiling)"),
    ("sent140", {"x": ["a tweet"], "y": [1]}, "a tweet must be id, date, query, user, text and part"),
    ("sent140", {"x": [["1", "d", "q", "u", 5, "training"]], "y": [1]}, "a tweet must be id, date, query"),
    ("sent140", {"y": [1]}, "x must be a list of tweets, y one label each"),
    ("sent140", {"x": [["1", "d", "q", "u", "t", "training"]], "y": [4]}, "labels must be 0 or 1 (glad)"),
    ("sent140", {"x": [["1", "d", "q", "u", "t", "training"]], "y": [[1]]}, "labels must be 0 or 1 (glad)"),
]


@pytest.mark.parametrize(("name", "parts", "says"), DAMAGE)
def test_damaged_users_are_named(name: str, data: Path, parts: dict[str, Any], says: str) -> None:
    users = SETS[name][0]()
    split_by_sample(data, users)
    file = data / "train" / "all_data_niid_05_keep_0_train_9.json"
    user = next(iter(users))
    changed(file, user, **parts)
    with pytest.raises(ExperimentError) as refused:
        opened(name, data)
    assert f"{file}: user {user}: " in str(refused.value)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_portraits_are_those_of_the_names(tmp_path: Path) -> None:
    portraits(tmp_path / "img_align_celeba")
    split_by_sample(tmp_path, smiles())
    workload = build(WorkloadSection(dataset="celeba", path=tmp_path / "train", batch_size=4), 6, 1)
    assert isinstance(workload.dimension, int)
    assert workload.dimension == 31_458
    images, labels = workload.data.shard(0)  # type: ignore[attr-defined]
    assert images.shape == (5, 3, 84, 84)
    assert labels.dtype == torch.int64
    assert workload.sample_counts.tolist() == [5, 6, 7, 8, 9, 9]
    told = {tuple(image[:, 40, 40].tolist()) for image in images}
    files = [tmp_path / "img_align_celeba" / name for name in smiles()["1"][0]]
    there = {tuple(np.asarray(Image.open(file).resize((84, 84)).convert("RGB"))[40, 40].tolist()) for file in files}
    assert told <= there


def test_a_model_without_support_for_bytes_gets_advice(tmp_path: Path) -> None:
    portraits(tmp_path / "img_align_celeba")
    split_by_sample(tmp_path, smiles())
    options = {"in_channels": 3, "out_channels": 2, "kernel_size": 3}
    with pytest.raises(ExperimentError, match=naming("uint8", "bytes", "x.float")):
        opened("celeba", tmp_path, model="torch.nn:Conv2d", model_options=options)


def test_missing_portraits_are_named_before_training(tmp_path: Path) -> None:
    split_by_sample(tmp_path, smiles())
    with pytest.raises(ExperimentError, match=r"has no raw/img_align_celeba; put CelebA's images there"):
        opened("celeba", tmp_path)
    portraits(tmp_path / "raw" / "img_align_celeba")
    for name in smiles()["2"][0]:
        (tmp_path / "raw" / "img_align_celeba" / name).unlink()
    with pytest.raises(ExperimentError, match=naming("img_align_celeba", "lacks 6")):
        opened("celeba", tmp_path, population=6)
    for name in smiles()["2"][0]:
        (tmp_path / "raw" / "img_align_celeba" / name).write_bytes(b"no image")
    workload = opened("celeba", tmp_path, population=6)
    with pytest.raises(ExperimentError, match=naming("read as an image")) as refused:
        workload.train(1, workload.initial_model(), 1)
    assert "take its name out of the json files" in str(refused.value)


def test_tweets_become_words_of_the_clients_vocabulary(tmp_path: Path) -> None:
    split_by_sample(tmp_path, tweets())
    workload = opened("sent140", tmp_path, population=5)
    vocabulary = workload.data.vocabulary
    assert vocabulary[:2] == ["<PAD>", "<UNK>"]
    assert set(vocabulary[2:4]) <= {"so", "I", "it", ",", "."}
    words, labels = workload.data.shard(0)
    assert words.shape == (7, 25)
    for row, label in zip(words.tolist(), labels.tolist(), strict=True):
        said = " ".join(vocabulary[number] for number in row if number)
        assert ("love" in said or "happy" in said) == bool(label)
    held_out, classes = workload.data.held_out()
    for row, label in zip(held_out.tolist(), classes.tolist(), strict=True):
        found = [vocabulary[number] for number in row if number]
        assert (not {"love", "happy"}.isdisjoint(found)) == bool(label)
    (tmp_path / "vocabulary.txt").write_text("love\nsad\n")
    known = opened("sent140", tmp_path, population=5).data
    assert known.vocabulary == ["<PAD>", "<UNK>", "love", "sad"]
    assert set(np.unique(known.held_out()[0])) <= {0, 1, 2, 3}
    whole = tmp_path / "whole"
    write_all(whole, tweets())
    unsplit = opened("sent140", whole / "all_data", population=6).data
    assert unsplit.held_out()[0].max() < len(unsplit.vocabulary)


@pytest.mark.parametrize("model", ["word-bag", "sent-lstm"])
def test_sentiment_is_learned(tmp_path: Path, model: str) -> None:
    split_by_sample(tmp_path, tweets())
    rate = {"word-bag": 0.1, "sent-lstm": 0.01}[model]
    section = WorkloadSection(
        dataset="sent140", path=tmp_path, model=model, vocabulary_size=30, sequence_length=8, optimizer="adamw",
        learning_rate=rate, batch_size=4, epochs=3,
    )  # fmt: skip
    workload: Any = build(section, 5, 1)
    weights = workload.initial_model()
    for number in range(1, 8):
        weights = weights + np.mean([workload.train(client, weights, number).delta for client in range(5)], axis=0)
    assert workload.evaluate(weights).accuracy == 1.0


def test_reddit_and_femnist_are_found_from_their_train_folder(tmp_path: Path) -> None:
    words = random.Random(0)  # noqa: S311
    users: Users = {
        f"u{number}": ([[["<BOS>", *words.sample("abcdefgh", 5), "<EOS>"]] for _ in range(4)], [{}] * 4)
        for number in range(3)
    }
    split_by_sample(tmp_path / "reddit", users, 0.5)
    section = WorkloadSection(
        dataset="reddit", path=tmp_path / "reddit" / "train", model="albert-small", vocabulary_size=16
    )
    reddit: Any = build(section, 3, 1)
    assert reddit.data.held_out()[0].shape[0] == 3
    writers = {f"f{number}": ([[0.5] * 784] * 5, [number] * 5) for number in range(3)} | {"one": ([[0.5] * 784], [1])}
    split_by_sample(tmp_path / "femnist", writers)
    femnist: Any = build(
        WorkloadSection(dataset="femnist", path=tmp_path / "femnist" / "train", model="logistic"), 3, 1
    )
    assert femnist.sample_counts.tolist() == [4, 4, 4]
    assert len(femnist.data.held_out()[1]) == 3
