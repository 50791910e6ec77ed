"""Tests of the findings: each is found in records that contain its cause, and none in records of a healthy run."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.comparison import overhead, time_to_target
from analysis.findings import MOST, Finding, block, findings, lines, render
from analysis.tables import WIDTH
from testbed.network.recorder import Event
from testbed.records import RunDirectory, RunRecords
from testbed.records.clients import clients_table
from tests.analysis.recorded import RecordedRound, asked, write_run
from tests.messages_named import naming

Make = Callable[..., RunRecords]
GOOD = (0.9, 0.85, 0.95)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that writes a run of 4 clients without any finding, except for the given changes."""
    numbers = count()

    def made(
        *,
        rounds: int = 12,
        recalls: Sequence[float] = GOOD,
        losses: Sequence[float] = (),
        change: Callable[[int, RecordedRound], None] = lambda number, one: None,
        round_s: Callable[[int], float] = lambda number: 1.0,
        samples: Sequence[int] = (50, 60, 70, 80),
        keys: Mapping[str, Any] = {},
        provenance: Mapping[str, Any] = {},
        protocol: str = "random",
        seed: int = 1,
    ) -> RunRecords:
        now, written = 0.0, []
        for number in range(rounds):
            ended = now + round_s(number)
            stages = [asked("train", now, [0, 1, 2, 3], [ended] * 4, down=10, up=10)]
            loss = losses[number] if losses else 2.0 / (number + 1)
            one = RecordedRound(now, ended, stages, [0, 1, 2, 3], [0, 1, 2, 3], loss=loss)
            one.recalls, one.accuracy = list(recalls), float(np.mean(recalls))
            change(number, one)
            written.append(one)
            now = one.ended_s
        experiment = {
            "name": protocol, "seed": seed, "rounds": rounds, "population": 4, "selection": {"protocol": protocol},
            "aggregation": {"protocol": "plain"}, "time": {"deadline_s": 60.0, "disconnects": "invisible"},
            "workload": {"dataset": "digits", "epochs": 5, "batch_size": 10, "learning_rate": 0.1},
            "provenance": {"label": protocol, "sweep": {"selection.protocol": protocol}, **provenance}, **keys,
        }  # fmt: skip
        path = tmp_path / f"run-{next(numbers)}"
        write_run(path, experiment, written)
        columns = {name: np.ones(4) for name in ("down_mbit_s", "up_mbit_s", "latency_ms", "loss", "device_factor")}
        table = clients_table(("",), np.zeros(4, np.int16), {**columns, "samples": np.asarray(samples)})
        RunDirectory.reopen(path).write_clients(table)
        return RunRecords(path)

    return made


def codes(runs: Sequence[RunRecords]) -> list[str]:
    return [finding.code for finding in findings(runs)]


def test_nothing_is_found_where_nothing_is_wrong(make: Make) -> None:
    assert findings([make()]) == []
    assert findings([make(seed=seed, protocol=name) for name in ("random", "oort") for seed in (1, 2)]) == []


def _waits(number: int, one: RecordedRound) -> None:
    one.ended_s = one.started_s + 60.0
    one.exchanges = [
        asked("train", one.started_s, [0, 1, 2, 3], [one.started_s + 1, None, None, None], outcome=[0, 3, 3, 3])
    ]


def test_rounds_that_wait_for_a_deadline_are_counted_with_their_seconds(make: Make) -> None:
    (found,) = findings([make(change=lambda number, one: _waits(number, one) if number % 3 == 0 else None)])
    assert found.code == "waited-for-deadline"
    assert "4 of 12 rounds" in found.text
    assert "59.0 s" in found.text
    assert found.keys[0] == "time.disconnects"


def test_a_wait_that_does_not_dominate_the_round_time_is_no_finding(make: Make) -> None:
    slow = make(round_s=lambda number: 50.0, change=lambda number, one: _waits(number, one) if number == 0 else None)
    assert codes([slow]) == []


def test_a_stage_that_ends_at_a_visible_departure_waits_for_nothing(make: Make) -> None:
    def leaves(number: int, one: RecordedRound) -> None:
        _waits(number, one)
        one.ended_s = one.started_s + 1.0

    assert codes([make(change=leaves, keys={"time": {"deadline_s": 60.0, "disconnects": "visible"}})]) == []


def test_late_answers_name_the_deadline_first(make: Make) -> None:
    def late(number: int, one: RecordedRound) -> None:
        _waits(number, one)
        one.exchanges = [asked("train", one.started_s, [0, 1], [one.started_s + 1, None], outcome=[0, 4])]

    (found,) = findings([make(change=late)])
    assert (found.code, found.keys[0]) == ("waited-for-deadline", "time.deadline_s")


def test_not_finite_updates_suppress_the_findings_that_follow_from_them(make: Make) -> None:
    def diverges(number: int, one: RecordedRound) -> None:
        _waits(number, one)
        one.outcome, one.reason, one.survivors = "aborted", "below-threshold: 0 of 4 needed advertised keys", []
        one.events = [Event("train", f"client:{client}", "refusal", "train.diverged: NaN") for client in range(4)]

    (found,) = findings([make(change=diverges)])
    assert found.code == "not-finite"
    assert "4 of 4 clients" in found.text
    assert "0.1" in found.text
    assert found.keys[0] == "workload.learning_rate"


@pytest.mark.parametrize(
    ("recalls", "losses", "wrong"),
    [
        ((1.0, 0.0, 0.0), [1.1] * 12, True),  # one label, whatever its share of the samples
        ((0.4, 0.3, 0.3), [1.1] * 12, True),
        ((1.0, 0.0, 0.0), [1.1 - 0.05 * number for number in range(12)], False),  # it begins to learn
        ((0.6, 0.4, 0.4), [1.1] * 12, False),
    ],
)
def test_a_model_no_better_than_chance_does_not_learn(
    make: Make, recalls: Sequence[float], losses: Sequence[float], wrong: bool
) -> None:
    assert codes([make(recalls=recalls, losses=losses)]) == (["does-not-learn"] if wrong else [])


SHARES = (0.95, 0.05)
FALLS = [0.2 + 0.5 * 0.5**number for number in range(12)]  # to about 0.1985, the entropy of the shares


@pytest.mark.parametrize(
    ("shares", "recalls", "losses", "wrong"),
    [
        (SHARES, (1.0, 0.0), FALLS, True),  # the loss falls, and accuracy is 95 %
        (SHARES, (1.0, 0.0), [0.7 * loss for loss in FALLS], True),
        (SHARES, (0.99, 0.6), FALLS, False),
        ((0.7, 0.3), (1.0, 0.0), [0.61 + loss / 10 for loss in FALLS], True),  # the entropy is 0.611
        ((0.7, 0.3), (1.0, 0.0), [0.3 + loss for loss in FALLS], False),  # below it: the model begins to learn
        ((0.6, 0.2, 0.2), (1.0, 0.0, 0.0), [0.94 + loss / 10 for loss in FALLS], True),  # the entropy is 0.950
        ((0.6, 0.2, 0.2), (1.0, 0.0, 0.0), [0.6 + loss / 10 for loss in FALLS], False),
    ],
)
def test_a_model_that_learned_only_label_frequencies_does_not_learn(
    make: Make, shares: Sequence[float], recalls: Sequence[float], losses: Sequence[float], wrong: bool
) -> None:
    def change(number: int, one: RecordedRound) -> None:
        one.accuracy = float(np.dot(shares, recalls))

    found = findings([make(recalls=recalls, losses=losses, change=change)])
    assert [one.code for one in found] == (["does-not-learn"] if wrong else [])
    if wrong:
        assert f"accuracy {100 * shares[0]:.1f} %" in found[0].text
        assert re.search(naming("one label", "(0)", "share"), found[0].text)


def test_changing_predicted_label_is_not_a_constant_prediction(make: Make) -> None:
    def change(number: int, one: RecordedRound) -> None:
        one.accuracy = SHARES[number % 2]
        one.recalls = [float(number % 2 == 0), float(number % 2 == 1)]

    assert codes([make(losses=FALLS, change=change)]) == []


def test_model_that_stops_predicting_one_label_is_healthy(make: Make) -> None:
    def change(number: int, one: RecordedRound) -> None:
        one.recalls = [1.0, 0.0] if number < 10 else [0.98, 0.5]
        one.accuracy = float(np.dot(SHARES, one.recalls))

    assert codes([make(losses=FALLS, change=change)]) == []


@pytest.mark.parametrize(
    ("last", "better", "wrong"),
    [(1.25, (), True), (1.12, (), True), (1.0, (), False), (1.25, (10,), False)],
)
def test_loss_that_falls_to_the_loss_of_a_uniform_guess_shows_no_learning(
    make: Make, last: float, better: Sequence[int], wrong: bool
) -> None:
    def change(number: int, one: RecordedRound) -> None:
        label = number % 3
        one.recalls = [0.9, 0.5, 0.4] if number in better else [float(at == label) for at in range(3)]

    run = make(losses=[1.6, *[1.3] * 10, last], change=change)  # ln(3) is 1.099
    assert codes([run]) == (["does-not-learn"] if wrong else [])


def test_poisoned_models_are_not_reported(make: Make) -> None:
    poisoned = make(recalls=(1.0, 0.0, 0.0), losses=[1.1] * 12, keys={"adversary": {"clients": ["flip-labels"]}})
    assert codes([poisoned]) == []


@pytest.mark.parametrize(("epochs", "batch", "wrong"), [(1, 100, True), (1, 20, False), (5, 100, False)])
def test_one_gradient_step_per_round_is_reported(make: Make, epochs: int, batch: int, wrong: bool) -> None:
    run = make(keys={"workload": {"dataset": "digits", "epochs": epochs, "batch_size": batch}})
    assert codes([run]) == (["one-step"] if wrong else [])


def test_recorded_unscaled_features_are_reported_unless_the_model_has_learned(make: Make) -> None:
    facts = {"data": {"unscaled_feature": {"name": "proline", "ratio": 313.0}}}
    (found,) = findings([make(provenance=facts)])
    assert found.code == "unscaled-features"
    assert "proline" in found.text
    assert "313" in found.text
    assert codes([make(provenance=facts, recalls=(1.0, 0.99, 0.98))]) == []


def test_a_skewed_label_does_not_hide_unscaled_features(make: Make) -> None:
    def change(number: int, one: RecordedRound) -> None:
        one.accuracy = 0.96

    facts = {"data": {"unscaled_feature": {"name": "proline", "ratio": 313.0}}}
    found = codes([make(provenance=facts, recalls=(1.0, 0.0), change=change)])
    assert sorted(found) == ["does-not-learn", "unscaled-features"]


def _fails(number: int, one: RecordedRound) -> None:
    one.outcome, one.reason = "aborted", "too-few-candidates: 3 candidates, 10 wanted"


@pytest.mark.parametrize(
    ("failing", "rounds", "wrong"), [(4, 30, True), (3, 30, False), (3, 12, True), (2, 12, False), (7, 12, True)]
)
def test_more_than_a_tenth_of_the_rounds_ended_early(make: Make, failing: int, rounds: int, wrong: bool) -> None:
    runs = [make(rounds=rounds, change=lambda number, one: _fails(number, one) if number < failing else None)]
    assert codes(runs) == (["ended-early"] if wrong else [])
    if wrong:
        (found,) = findings(runs)
        assert f"{failing} of {rounds} rounds" in found.text
        assert "3 candidates, 10 wanted" in found.text
        assert found.keys[0] == "selection.over_selection"
    table = render(overhead.compare(runs), findings(runs))
    assert table.count("too-few-candidates") == 1  # either in the note or in the finding, not in both


def test_rounds_that_end_early_because_of_late_answers_name_the_deadline(make: Make) -> None:
    def late(number: int, one: RecordedRound) -> None:
        one.ended_s = one.started_s + 0.01
        one.outcome, one.reason, one.survivors = "skipped", "too-few-available: 0 available, 4 wanted", []
        one.exchanges = [asked("check-in", one.started_s, [0, 1, 2, 3], [None] * 4, outcome="late")]

    (found,) = findings([make(change=late, keys={"time": {"deadline_s": 0.01, "disconnects": "visible"}})])
    assert found.code == "ended-early"
    assert found.keys[:2] == ("time.deadline_s", "time.stage_deadlines")
    assert "48 of 48 missing answers" in found.text
    assert "10 ms" in found.text


def test_exchanges_of_a_run_are_read_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(number: int, one: RecordedRound) -> None:
        _fails(number, one)
        _waits(number, one)

    reads: list[Any] = []
    in_stretches = RunRecords.exchanges_in_stretches

    def counted(run: RunRecords, columns: Any = None, **options: Any) -> Any:
        reads.append(columns)
        return in_stretches(run, columns, **options)

    run = make(change=late)
    monkeypatch.setattr(RunRecords, "exchanges_in_stretches", counted)
    assert "ended-early" in codes([run])
    assert sum("outcome" in (columns or ()) for columns in reads) == 1


def test_rows_that_end_early_for_other_reasons_have_their_own_finding(make: Make) -> None:
    def separation(number: int, one: RecordedRound) -> None:
        one.outcome, one.reason = "skipped", "too-few-rested: 3 rested, 10 wanted"

    runs = [make(protocol="random", change=_fails), make(protocol="oort", change=separation)]
    found = [one for one in findings(runs) if one.code == "ended-early"]
    assert {(one.rows, one.keys[0]) for one in found} == {
        (("random",), "selection.over_selection"),
        (("oort",), "selection.separation"),
    }


def test_clients_that_are_always_offline_are_counted(make: Make) -> None:
    def away(number: int, one: RecordedRound) -> None:
        one.exchanges = [
            asked("check-in", one.started_s, [0, 1, 2, 3], [one.ended_s] * 3 + [None], outcome=[0, 0, 0, 2])
        ]

    keys = {"availability": {"model": "trace", "path": "phones.parquet"}}
    (found,) = findings([make(change=away, keys=keys)])
    assert (found.code, found.keys[0]) == ("never-available", "availability.path")
    assert "1 of 4 clients" in found.text
    assert codes([make(change=away, keys=keys, rounds=9)]) == []


def _noisy(make: Make, name: str, seed: int, accuracy: float) -> RunRecords:
    return make(protocol=name, seed=seed, recalls=(accuracy,) * 3)


def test_rows_with_overlapping_accuracies_cannot_be_ranked(make: Make) -> None:
    runs = [_noisy(make, "random", seed, value) for seed, value in enumerate((0.90, 0.70, 0.80))]
    runs += [_noisy(make, "oort", seed, value) for seed, value in enumerate((0.75, 0.90, 0.81))]
    (found,) = findings(runs)
    assert found.code == "cannot-be-ranked"
    assert "accuracy" in found.text
    assert "3 seeds" in found.text
    assert found.keys == ("sweep.seed",)


def test_rows_that_differ_seed_by_seed_can_be_ranked(make: Make) -> None:
    runs = [_noisy(make, "random", seed, value) for seed, value in enumerate((0.90, 0.70, 0.80))]
    runs += [_noisy(make, "oort", seed, value + 0.02) for seed, value in enumerate((0.90, 0.70, 0.801))]
    assert codes(runs) == []


def test_only_the_rows_that_cannot_be_ranked_are_named(make: Make) -> None:
    base = (0.90, 0.50, 0.70)
    runs = [_noisy(make, "random", seed, value) for seed, value in enumerate(base)]
    lower = (-0.10, -0.12, -0.08)  # wide on its own, clear pair by pair
    runs += [
        _noisy(make, "lotto", seed, value + less) for seed, (value, less) in enumerate(zip(base, lower, strict=True))
    ]
    runs += [_noisy(make, "oort", seed, value) for seed, value in enumerate((0.70, 0.91, 0.60))]
    (found,) = findings(runs)
    assert found.rows == ("oort",)
    assert "random" in found.text


def test_paired_seeds_have_the_interval_of_their_differences(make: Make) -> None:
    runs = [_noisy(make, "random", seed, value) for seed, value in enumerate((0.69, 0.70, 0.71))]
    runs += [_noisy(make, "oort", seed, value) for seed, value in enumerate((0.76, 0.75, 0.74))]
    assert codes(runs) == []
    opposed = [_noisy(make, "random", seed, value) for seed, value in enumerate((0.68, 0.70, 0.72))]
    opposed += [_noisy(make, "oort", seed, value) for seed, value in enumerate((0.80, 0.78, 0.76))]
    independent = [_noisy(make, "random", seed, value) for seed, value in enumerate((0.68, 0.70, 0.72))]
    independent += [_noisy(make, "oort", seed + 10, value) for seed, value in enumerate((0.80, 0.78, 0.76))]
    assert codes(opposed) == ["cannot-be-ranked"]  # +8.0 ±9.9 points of pairs, ±7.0 of independent samples
    assert codes(independent) == []


def test_rows_with_one_and_several_seeds_have_separate_findings(make: Make) -> None:
    runs = [_noisy(make, "random", seed, value) for seed, value in enumerate((0.90, 0.70, 0.80))]
    runs += [_noisy(make, "oort", seed, value) for seed, value in enumerate((0.75, 0.90, 0.81))]
    runs += [_noisy(make, "bernoulli", 1, 0.82)]
    several, single = findings(runs)
    assert (several.rows, single.rows) == (("oort",), ("bernoulli",))
    assert "3 seeds" in several.text
    assert "3 seeds" not in single.text


@pytest.mark.parametrize(("other", "wrong"), [(0.83, True), (0.7, False), (0.8, False)])
def test_close_accuracies_of_one_seed_are_not_ranked(make: Make, other: float, wrong: bool) -> None:
    runs = [_noisy(make, "random", 1, 0.8), _noisy(make, "oort", 1, other)]
    assert codes(runs) == (["cannot-be-ranked"] if wrong else [])


LINKS = {"transport": "auto", "latency_ms": 50.0, "loss": 0.0, "buffer_ms": None, "model": None}


def test_rows_with_a_different_transport_are_named(make: Make) -> None:
    runs = [make(protocol=name, keys={"links": LINKS}) for name in ("random", "oort")]
    runs += [make(protocol="bernoulli", keys={"links": LINKS | {"transport": "none"}})]
    (found,) = findings(runs)
    assert (found.code, found.rows, found.keys) == ("transport-differs", ("bernoulli",), ("links.transport",))
    assert "none" in found.text
    assert "tcp" in found.text


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"transport": "auto"}, {"transport": "tcp"}),
        ({"transport": "auto", "latency_ms": 0.0}, {"transport": "none"}),
        ({"transport": "none"}, None),  # of an earlier version
    ],
)
def test_transports_that_resolve_to_the_same_do_not_differ(
    make: Make, one: Mapping[str, Any], two: Mapping[str, Any] | None
) -> None:
    runs = [make(protocol="random", keys={"links": LINKS | one})]
    runs += [make(protocol="oort", keys={"links": {} if two is None else LINKS | two})]
    assert codes(runs) == []


@pytest.mark.parametrize("as_section", [True, False])
def test_swept_transports_are_not_reported(make: Make, as_section: bool) -> None:
    def swept(value: str) -> RunRecords:
        sweep = {"links": {"transport": value}} if as_section else {"links.transport": value}
        return make(keys={"links": LINKS | {"transport": value}}, provenance={"sweep": sweep})

    assert codes([swept("tcp"), swept("none")]) == []


def test_a_finding_of_several_rows_appears_once_with_their_labels(make: Make) -> None:
    bad = {"change": _fails}
    runs = [make(protocol=name, **bad) for name in ("random", "oort")] + [make(protocol="bernoulli")]
    (found,) = [one for one in findings(runs) if one.code == "ended-early"]
    assert found.rows == ("random", "oort")
    assert "24 of 24 rounds" in found.text
    (everywhere,) = [one for one in findings(runs[:2]) if one.code == "ended-early"]
    assert everywhere.rows == ()


def test_records_of_earlier_versions_are_read(make: Make) -> None:
    old = make(
        recalls=GOOD, keys={"time": {}, "workload": {}}, provenance={},
        change=lambda number, one: setattr(one, "recalls", None),
    )  # fmt: skip
    (old.path / "clients.parquet").unlink()
    assert codes([RunRecords(old.path)]) == ["does-not-learn"]  # the same accuracy twelve times, and no more is known


# -- display ---------------------------------------------------------------------------------------------------------


MANY = [
    Finding(f"code-{at}", "a sentence with numbers: " + "12 of 40 rounds " * 6, tuple(map(str, range(at))), ("a.key",))
    for at in range(8)
]


def test_at_most_five_are_shown_in_two_lines_each(make: Make) -> None:
    shown = block(MANY).splitlines()
    assert len(lines(MANY)) == MOST + 1
    assert "3 more" in shown[-1]
    assert max(map(len, shown)) <= WIDTH
    assert len(shown) <= 1 + 2 * MOST + 1
    assert block([]) == ""


def test_json_has_all_of_them_and_an_empty_list_where_there_are_none(make: Make) -> None:
    frame = overhead.compare([make()])
    assert json.loads(render(frame, [], "json"))["findings"] == []
    all_of_them = json.loads(render(frame, MANY, "json"))["findings"]
    assert [set(one) for one in all_of_them] == [{"code", "text", "rows", "keys"}] * 8


@pytest.mark.parametrize("format", ["text", "markdown", "latex"])
def test_formats_for_people_end_in_the_findings(make: Make, format: str) -> None:
    runs = [make(change=_fails)]
    table = render(overhead.compare(runs), findings(runs), format)
    assert "selection.over_selection" in table.splitlines()[-1] + table.splitlines()[-2]
    assert "Findings" in table
    if format == "latex":
        assert all(line.startswith("%") for line in table[table.index("% Findings") :].splitlines())
    assert "Findings" not in render(overhead.compare([make()]), [], format)


def test_csv_has_no_findings(make: Make) -> None:
    frame = overhead.compare([make()])
    assert render(frame, MANY, "csv") == render(frame, [], "csv")


def test_times_to_a_target_are_ranked_by_their_ratio(make: Make) -> None:
    def after(round_number: int) -> Callable[[int, RecordedRound], None]:
        def change(number: int, one: RecordedRound) -> None:
            one.accuracy = 0.9 if number >= round_number else 0.2

        return change

    runs = [make(seed=seed, change=after(at)) for seed, at in enumerate((2, 6, 10))]
    runs += [make(seed=seed, change=after(at), protocol="oort") for seed, at in enumerate((9, 3, 4))]
    targets = time_to_target.compare_targets(runs, ["80%"])
    assert any("time to target" in one.text for one in findings(runs, targets=targets))
    assert not any("time to target" in one.text for one in findings(runs))
