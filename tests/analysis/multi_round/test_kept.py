"""Cache of the weak privacy: when the file beside a run is used, and when the search is repeated."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import analysis.multi_round.kept as kept
from analysis.comparison.overhead import compare
from analysis.multi_round.kept import FILE, weak_privacy_of
from analysis.multi_round.over_rounds import WeakPrivacy, weak_privacy
from analysis.multi_round.participation import participation_matrix
from testbed.records import RunRecords

MakeRun = Callable[..., RunRecords]


class Search:
    """Replacement of the search that returns a given result and counts its calls."""

    def __init__(self, value: int = 4, lower_bound: int = 4) -> None:
        self.found = WeakPrivacy(value, lower_bound)
        self.asked = 0

    def __call__(self, matrix: object, time_limit_s: float) -> WeakPrivacy:
        self.asked += 1
        return self.found


@pytest.fixture
def run(make_run: MakeRun) -> RunRecords:
    return make_run("run", rounds=3, population=12, participants=8)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    stands_in = Search()
    monkeypatch.setattr(kept, "weak_privacy", stands_in)
    return stands_in


def ask(run: RunRecords, time_limit_s: float = 5.0) -> WeakPrivacy:
    return weak_privacy_of(run, participation_matrix(run, compact=True), time_limit_s)


def test_the_file_has_the_result_of_the_search(run: RunRecords) -> None:
    matrix = participation_matrix(run, compact=True)
    found = weak_privacy(matrix, time_limit_s=5.0)
    assert ask(run) == ask(run) == WeakPrivacy(found.value, found.lower_bound)
    assert json.loads((run.path / FILE).read_text())["value"] == found.value


def test_a_certified_value_is_searched_for_once(run: RunRecords, search: Search) -> None:
    assert [ask(run), ask(run), ask(RunRecords(run.path), 0.1)] == [WeakPrivacy(4, 4)] * 3
    assert search.asked == 1


def test_compare_searches_once(run: RunRecords, search: Search) -> None:
    assert [compare([run]).loc[0, "multi_round_privacy_weak"] for _ in range(3)] == [4] * 3
    assert search.asked == 1


def test_a_bound_is_kept_for_its_time_limit_alone(run: RunRecords, search: Search) -> None:
    search.found = WeakPrivacy(3, 2)
    assert not ask(run, 1.0).certified
    ask(run, 1.0)
    assert search.asked == 1
    ask(run, 10.0)
    assert search.asked == 2


def test_another_participation_is_searched_again(run: RunRecords, make_run: MakeRun, search: Search) -> None:
    ask(run)
    other = make_run("other", rounds=4, population=12, participants=4)
    shutil.copyfile(run.path / FILE, other.path / FILE)
    ask(other)
    assert search.asked == 2


def test_a_run_that_goes_on_is_searched_again(run: RunRecords, search: Search) -> None:
    matrix = np.repeat(np.eye(4, dtype=np.uint8), 4, axis=1)
    for rounds in (3, 3, 4, 4):
        weak_privacy_of(run, matrix[:rounds], 5.0)
    assert search.asked == 2


def test_another_version_of_the_search_ignores_the_file(
    run: RunRecords, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(run)
    monkeypatch.setattr(kept, "_search", lambda: "another")
    ask(run)
    assert search.asked == 2


def test_each_source_of_the_search_tells_it_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {kept._search.__wrapped__()}
    read = Path.read_bytes
    for name in kept._SEARCH:
        monkeypatch.setattr(Path, "read_bytes", lambda path, name=name: read(path) + b"#" * (path.stem == name))
        digests.add(kept._search.__wrapped__())
    assert len(digests) == 1 + len(kept._SEARCH)


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: "{",
        lambda stored: "[" * 100_000,
        lambda stored: "[]",
        lambda stored: json.dumps({**stored, "value": None}),
        lambda stored: json.dumps({**stored, "value": 4.0}),
        lambda stored: json.dumps({**stored, "value": 3}),  # less than the lower bound
        lambda stored: json.dumps({**stored, "value": 99, "lower_bound": 99}),
        lambda stored: json.dumps({**stored, "value": 9, "lower_bound": 9}),  # each round's sum is of eight at most
        lambda stored: json.dumps({**stored, "value": 0, "lower_bound": 0}),
        lambda stored: json.dumps({name: stored[name] for name in stored if name != "search"}),
    ],
)  # fmt: skip
def test_a_damaged_file_is_ignored(run: RunRecords, search: Search, change: Callable[..., str]) -> None:
    ask(run)
    (run.path / FILE).write_text(change(json.loads((run.path / FILE).read_text())))
    assert ask(run) == WeakPrivacy(4, 4)
    assert search.asked == 2
    ask(run)
    assert search.asked == 2  # it has been replaced


def test_the_search_is_repeated_if_the_directory_is_read_only(run: RunRecords, search: Search) -> None:
    (run.path / FILE).mkdir()
    assert [ask(run), ask(run)] == [WeakPrivacy(4, 4)] * 2
    assert search.asked == 2
    assert sorted(path.name for path in run.path.iterdir() if "writing" in path.name) == []
