"""Reddit's comments from files: LEAF's json and a text file for each user, vocabularies, and refusals."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from workloads import build
from workloads.data.clients import text
from workloads.data.clients.contract import IGNORED

COMMENTS = {
    "11": ["the cat sat on the mat", "the dog sat on the cat because the dog was very tired of it all"],
    "12": ["a dog and a cat", "the end"],
    "13": ["cats and dogs and mats"],
    "14": ["the the the"],
}
HELD_OUT = {"11": ["the cat was on the moon"], "15": ["a dog sat"]}


def sequences(comment: str, length: int = 10) -> tuple[list, dict]:
    """A comment as LEAF's reddit preprocessing writes it."""
    words = ["<BOS>", *comment.split(), "<EOS>"]
    follow = [*words[1:], "<PAD>"]
    filling = -len(words) % length
    words, follow = words + ["<PAD>"] * filling, follow + ["<PAD>"] * filling
    counts = [float(word != "<PAD>") for word in words]

    def cut(values: list) -> list:
        return [values[start : start + length] for start in range(0, len(values), length)]

    about = {"subreddit": "aww", "created_utc": 1_512_086_400, "score": 3}
    return cut(words), about | {"target_tokens": cut(follow), "count_tokens": cut(counts)}


def write_leaf(folder: Path, users: dict[str, list[str]]) -> Path:
    folder.mkdir(parents=True)
    data = {}
    for user, comments in users.items():
        pairs = [sequences(comment) for comment in comments]
        data[user] = {"x": [x for x, _ in pairs], "y": [y for _, y in pairs]}
    counts = [99] * len(users)  # LEAF copies the numbers of before the split
    file = folder / f"reddit_0_{folder.name}.json"
    file.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": data}))
    return file


def write_texts(folder: Path, users: dict[str, list[str]]) -> None:
    folder.mkdir(parents=True)
    for user, comments in users.items():
        (folder / user).write_text("\n".join(comments) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_leaf(tmp_path / "train", COMMENTS)
    write_leaf(tmp_path / "test", HELD_OUT)
    return tmp_path


def opened(path: Path, population: int = 4, **keys: object):
    keys = {"vocabulary_size": 20, "sequence_length": 6, "model": "albert-small", **keys}
    return build(WorkloadSection(dataset="reddit", path=path, **keys), population, seed=3)


def words_of(workload, client: int) -> list[str]:
    """A client's words, put together again from its samples; every prediction once."""
    before, after = workload.data.shard(client)
    first = int(before[0, 0])
    rest = [int(word) for row in after.numpy() for word in row if word != IGNORED]
    return [workload.data.vocabulary[number] for number in [first, *rest]]


def test_a_user_is_a_client(root: Path) -> None:
    workload = opened(root)
    expected = [word for comment in COMMENTS["11"] for word in ["<BOS>", *comment.split(), "<EOS>"]]
    vocabulary = workload.data.vocabulary
    assert vocabulary[:3] == ["<PAD>", "<UNK>", "the"]
    assert len(vocabulary) == 20
    assert words_of(workload, 0) == [word if word in vocabulary else "<UNK>" for word in expected]
    assert workload.sample_counts.tolist() == [-(-(len(expected) - 1) // 6), 2, 1, 1]
    before, after = workload.data.shard(1)
    assert before.shape == after.shape == (2, 6)
    assert (after[0, :-1] == before[0, 1:]).all()  # the following words
    assert after[0, -1] == before[1, 0]  # blocks overlap by a word
    assert ((after == IGNORED) == (after < 0)).all()
    assert workload.label_counts().tolist() == [[count] for count in workload.sample_counts]


def test_the_vocabulary_is_by_frequency_and_then_by_word(root: Path) -> None:
    vocabulary = opened(root, vocabulary_size=16).data.vocabulary
    everything = [
        word for comments in COMMENTS.values() for comment in comments for word in f"<BOS> {comment} <EOS>".split()
    ]
    ranked = sorted(set(everything), key=lambda word: (-everything.count(word), word))
    assert vocabulary == ["<PAD>", "<UNK>", *ranked[:14]]


def test_a_vocabulary_file_goes_first(root: Path) -> None:
    (root / "vocabulary.txt").write_text("cat\ndog\n\nthe\n")
    workload = opened(root)
    assert workload.data.vocabulary == ["<PAD>", "<UNK>", "cat", "dog", "the"]
    assert words_of(workload, 3) == ["<UNK>", "the", "the", "the", "<UNK>"]
    assert "5 of 20 words known" in workload.description
    for content, says in (("\n", "is empty"), ("a\nb\na\n", "has 'a' twice")):
        (root / "vocabulary.txt").write_text(content)
        with pytest.raises(ExperimentError, match=f"vocabulary.txt {says}"):
            opened(root)


def test_a_text_file_for_each_user(tmp_path: Path) -> None:
    write_texts(tmp_path / "train", COMMENTS)
    write_texts(tmp_path / "test", HELD_OUT)
    workload = opened(tmp_path)
    assert words_of(workload, 3) == ["the", "the", "the"]
    assert workload.evaluate(workload.initial_model()).samples == (6 - 1) + (3 - 1)


def test_every_word_but_the_first_is_evaluated(root: Path) -> None:
    workload = opened(root)
    result = workload.evaluate(workload.initial_model())
    assert result.samples == (6 + 1) + (3 + 1)  # words of each user with <BOS> and <EOS>, less one
    assert result.loss == pytest.approx(np.log(20), abs=0.2)  # nothing is learned yet
    assert opened(root, test_samples=1).evaluate(workload.initial_model()).samples <= 6


def test_loss_and_accuracy_are_those_of_the_words(root: Path) -> None:
    import torch

    from workloads.models import vector
    from workloads.models.registry import text_model

    workload = opened(root)
    model = workload.initial_model()
    model += np.random.default_rng(0).normal(0, 0.3, model.shape).astype(np.float32)
    network = text_model("albert-small", 20)
    vector.attach(network, torch.from_numpy(model.copy()))
    before, after = workload.data.held_out()
    losses, right = [], 0
    with torch.no_grad():
        for row, follows in zip(before, after, strict=True):
            scores = network(row[None])[0].T.log_softmax(dim=1)
            for place, word in enumerate(follows.tolist()):
                if word != IGNORED:
                    losses.append(-float(scores[place, word]))
                    right += int(scores[place].argmax()) == word
    result = workload.evaluate(model)
    assert result.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert result.accuracy == pytest.approx(right / len(losses))


def changed(change: Callable[[dict], object]) -> Callable[[str], str]:
    def apply(content: str) -> str:
        data = json.loads(content)
        change(data)
        return json.dumps(data)

    return apply


DAMAGE = [
    (lambda content: content[:-3], "cannot be read as LEAF's json"),
    (changed(lambda data: data.pop("users")), "lacks users"),
    (changed(lambda data: data["user_data"].pop("12")), "user 12 has no x and y"),
    (changed(lambda data: data["user_data"]["12"].update(x=[])), "user 12: fewer than two words; remove the user"),
    (changed(lambda data: data["user_data"]["12"].update(x="text")), "user 12: x is not a list of comments"),
    (changed(lambda data: data["user_data"]["12"].update(x=[[["a", 3]]])), "user 12: comments must be lists of words"),
    (changed(lambda data: data["user_data"]["12"].update(x=None, y=None)), "user 12: x is not a list of comments"),
    (changed(lambda data: data["user_data"]["12"].update(x=[None, 3])), "user 12: comments must be lists of words"),
    (changed(lambda data: data["user_data"]["12"].update(x=[[["a", 10**400]]])), "comments must be lists of words"),
    (changed(lambda data: data["users"].append("12")), "user 12 occurs twice"),
]


@pytest.mark.parametrize(("damage", "says"), DAMAGE)
def test_damaged_files_are_named(root: Path, damage: Callable[[str], str], says: str) -> None:
    file = root / "train" / "reddit_0_train.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(ExperimentError) as refused:
        opened(root)
    assert says in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_absent_parts_and_too_many_clients_are_refused(root: Path) -> None:
    with pytest.raises(ExperimentError, match="4 users, fewer than population = 9"):
        opened(root, population=9)
    (root / "test" / "reddit_0_test.json").unlink()
    with pytest.raises(ExperimentError, match=naming("no files", "test")):
        opened(root)
    empty = root / "texts"
    write_texts(empty / "train", {"1": ["word"], "2": ["some words"]})
    write_texts(empty / "test", HELD_OUT)
    with pytest.raises(ExperimentError, match=naming("train/1", "two words")):
        opened(empty, population=2)


@pytest.mark.parametrize(("words", "length", "count"), [(0, 4, 0), (1, 4, 0), (2, 4, 1), (5, 4, 1), (6, 4, 2)])
def test_blocks_predict_every_word_once(words: int, length: int, count: int) -> None:
    assert text.block_count(words, length) == count
    cut = text.blocks(np.arange(2, 2 + words, dtype=np.int32), length)
    assert cut.shape == (count, length + 1)
    assert [int(word) for row in cut for word in row[1:] if word != text.PADDING] == list(range(3, 2 + words))
