"""Membership and labels from views of real runs: inferred where possible, at chance elsewhere; refusals."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analysis.attacks import inference_report, membership_in_sums
from analysis.attacks.membership_in_sums import Trials, membership
from analysis.attacks.property_of_sums import Detector, property_inference
from analysis.attacks.sums_seen import SumsSeen
from analysis.statistics import Proportion
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.analysis.attacks.conftest import BASE
from tests.messages_named import naming
from workloads.training.classification import TorchWorkload

Made = Callable[..., RunRecords]

SMALL: dict[str, Any] = {
    "rounds": 40, "population": 12,
    "workload": {
        "dataset": "digits", "model": "mlp", "samples_per_client": 10, "batch_size": 10, "momentum": 0.0,
        "learning_rate": 0.02, "evaluate_every": 40,
    },
    "selection": {"participants": 4},
}  # fmt: skip
BATCHES = {"protocol": "batch-partition", "participants": 4, "privacy": 4}
NOISE = {"mechanism": "skellam", "clip": 0.1, "noise_multiplier": 32.0}
SECAGG = {"protocol": "secagg", "weights": "equal"}


@pytest.fixture(scope="module")
def plain(made: Made) -> RunRecords:
    return made(**SMALL)


def test_members_are_separated_from_others_by_updates_and_by_all_sums(plain: RunRecords) -> None:
    found = membership(plain)
    assert (found.facts.privacy.value, found.facts.isolated) == (1, 12)
    assert not found.facts.warning
    assert found.by_observation["update"].members == 120
    assert found.by_observation["update"].auc_low > 0.6
    assert found.by_observation["sums"].auc_low > 0.5
    assert membership(plain, level=0.1).by_observation["update"].true_positives.low > 0.1
    assert found.by_observation["update"].auc > found.by_observation["sums"].auc > found.by_observation["round"].auc
    assert found.sources["update"].low > 1 / 12
    assert found.sources["sums"].low > 1 / 12


def test_batches_leave_the_sums_less_and_single_updates_as_they_are(made: Made, plain: RunRecords) -> None:
    batches = membership(made(**SMALL | {"selection": BATCHES}))
    assert batches.facts.privacy.value == 4
    assert batches.facts.strong_privacy == 4
    alone = membership(plain)
    assert batches.sources["sums"].rate <= 0.25 + 0.05  # four clients with one sum are equally likely
    assert batches.sources["update"].low > batches.sources["sums"].rate
    assert batches.by_observation["sums"].auc < alone.by_observation["sums"].auc
    assert batches.by_observation["update"].auc == pytest.approx(alone.by_observation["update"].auc, abs=0.1)


def test_one_sample_a_client_and_one_step_give_everything_away(made: Made) -> None:
    """An update is the sample's gradient: the cosine is 1."""
    seen = SumsSeen.of(made(), 1, 3)
    update = next(iter(seen.updates(0, seen.view.model).items()))
    samples = seen.workload.data.shard(update[0])
    ((gradients, losses),) = seen.workload.sample_gradients(seen.view.model, samples)
    cosine = -(gradients[0] @ update[1]) / np.linalg.norm(gradients[0]) / np.linalg.norm(update[1])
    assert cosine == pytest.approx(1, abs=1e-4)
    assert losses[0] == pytest.approx(seen.workload.train(update[0], seen.view.model, 1).loss, rel=1e-5)
    assert membership(made(), 1, 3).by_observation["update"].auc > 0.95


def test_two_sets_of_held_out_samples_are_not_separated(plain: RunRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Trials.sample

    def nobody(workload: TorchWorkload, clients: Any, most: int, seed: int, several: bool) -> Trials:
        made = drawn(workload, clients, most, seed, several)
        inputs, labels = workload.data.held_out()
        left = {label: np.flatnonzero(labels.numpy() == label)[::-1].tolist() for label in range(10)}
        used = set()
        taken = []
        for label in made.samples[1][: len(made.clients)].tolist():
            taken.append(next(place for place in left[label] if place not in used))
            used.add(taken[-1])
        members = torch.cat((inputs[taken], made.samples[0][len(made.clients) :]))
        return Trials((members, made.samples[1]), made.clients, made.holders)

    monkeypatch.setattr(membership_in_sums.Trials, "sample", nobody)
    for told in membership(plain).by_observation.values():
        assert told.auc_low < 0.5 < told.auc_high


def test_trials_are_of_the_clients_and_have_the_same_labels(plain: RunRecords) -> None:
    seen = SumsSeen.of(plain)
    trials = Trials.sample(seen.workload, seen.clients, 60, 3)
    members, others = np.split(trials.samples[1].numpy(), 2)
    assert np.array_equal(members, others)
    held_out = {image.tobytes() for image in seen.workload.data.held_out()[0].numpy()}
    for place, client in enumerate(trials.clients.tolist()):
        inputs, labels = seen.workload.data.shard(client)
        same = (inputs == trials.samples[0][place]).flatten(1).all(dim=1)
        assert labels[same].tolist() == [members[place]]
        assert trials.samples[0][place + 60].numpy().tobytes() in held_out
    assert len({image.numpy().tobytes() for image in trials.samples[0]}) == 120


def test_samples_shared_by_all_clients_are_tested_once(made: Made) -> None:
    shared = SMALL["workload"] | {"partition": {"shared_samples": 10}, "samples_per_client": 12}
    run = made(**SMALL | {"workload": shared, "rounds": 4})
    seen = SumsSeen.of(run)
    trials = Trials.sample(seen.workload, seen.clients, 300, 1, several=True)
    everybody = frozenset(seen.clients.tolist())
    assert len(trials.clients) == 10 + 2 * len(everybody)
    assert sorted(map(len, trials.holders)) == [1] * 2 * len(everybody) + [len(everybody)] * 10
    assert all(client in held for client, held in zip(trials.clients.tolist(), trials.holders, strict=True))
    found = membership(run)
    assert found.by_observation["update"].members == len(trials.clients)
    assert found.sources["sums"].count >= 10  # of these each client is right
    assert not found.warnings


def test_held_out_samples_of_other_writers_give_a_warning(made: Made) -> None:
    writers = {"dataset": "synthetic-femnist", "model": "logistic", "samples_per_client": 12, "evaluate_every": 2}
    found = membership(made(rounds=2, workload=writers), samples=8)
    assert "each client is one writer" in found.warnings[0]
    assert "warning: seen: each client" in inference_report.membership_table([found], "text", 0.95)
    assert not found.rows()[0]["others_alike"]


def test_secagg_shows_the_same_sums(made: Made, plain: RunRecords) -> None:
    masked = membership(made(**SMALL | {"aggregation": {"protocol": "secagg"}}))
    assert masked.facts.deviation < 0.02
    assert masked.by_observation["sums"].auc == pytest.approx(membership(plain).by_observation["sums"].auc, abs=0.05)


def test_much_noise_leaves_nothing_and_no_more_than_the_ledger_allows(made: Made) -> None:
    sections = SMALL | {"aggregation": SECAGG | {"noise": NOISE}, "privacy": {"delta": 0.001}}
    noisy = made(**sections)
    found = membership(noisy)
    assert found.facts.epsilon is not None
    assert 0 < found.facts.epsilon < 1
    for name in ("sums", "round"):
        told = found.by_observation[name]
        assert told.auc_low < 0.5 < told.auc_high
        most = found.facts.most_found(Proportion.of(told.false_positives, told.others).high)
        assert most is not None
        assert told.true_positives.low <= most < 0.2
    rows = {row["seen"]: row for row in found.rows()}
    assert rows["update"]["true_positive_rate_at_most"] is None
    assert rows["sums"]["true_positive_rate_at_most"] == found.facts.most_found(0.01)
    labels = property_inference(noisy, shadows=20)
    assert labels.by_observation["update"].top.low > labels.by_observation["update"].top_guessed
    assert labels.by_observation["sums"].top.low < labels.by_observation["sums"].top_guessed


def test_labels_are_found_of_clients_by_all_sums_and_of_batches_only_together(made: Made) -> None:
    skewed = SMALL | {"workload": SMALL["workload"] | {"partition": {"scheme": "label-shards", "shards_per_client": 1}}}
    alone = property_inference(made(**skewed), shadows=30)
    for seen in ("update", "sums", "group"):
        assert alone.by_observation[seen].top.rate >= 0.9
        assert alone.by_observation[seen].off < 0.5 * alone.by_observation[seen].off_guessed
    assert alone.by_observation["sums"].top == alone.by_observation["group"].top
    assert alone.by_observation["round"].top.rate < alone.by_observation["sums"].top.rate
    together = property_inference(made(**skewed | {"selection": BATCHES}), shadows=30)
    assert together.by_observation["update"].top.rate >= 0.9
    assert together.by_observation["sums"].top.rate <= 0.6  # a batch of four has about four labels
    assert together.by_observation["group"].top.trials == 3
    assert together.by_observation["group"].off < 0.5 * together.by_observation["group"].off_guessed
    assert together.by_observation["group"].off < 0.5 * together.by_observation["sums"].off


def test_a_detector_of_linear_updates_is_exact() -> None:
    rng = np.random.default_rng(1)
    directions, shares = rng.normal(size=(3, 50)), rng.dirichlet(np.ones(3), 40)
    detector = Detector.fit(shares @ directions + 1.0, shares)
    others = rng.dirichlet(np.ones(3), 5)
    assert detector(others @ directions + 1.0) == pytest.approx(others, abs=1e-3)


def test_the_same_seed_gives_the_same_and_another_one_others(plain: RunRecords) -> None:
    one, again, other = (membership(plain, 1, 10, samples=50, seed=seed).rows() for seed in (1, 1, 2))
    assert one == again
    assert one != other
    first, second, third = (property_inference(plain, 1, 4, shadows=8, seed=seed).rows() for seed in (1, 1, 2))
    assert first == second
    assert first != third


def test_rounds_that_determine_nothing_give_a_note(plain: RunRecords) -> None:
    found = membership(plain, 1, 4, samples=40)
    assert found.facts.isolated < found.facts.clients
    assert f"the updates of {found.facts.isolated} of" in inference_report.membership_table([found], "text", 0.95)


def test_tables_and_pictures(plain: RunRecords, tmp_path: Path) -> None:
    members, labels = membership(plain, 1, 8, samples=60), property_inference(plain, 1, 4, shadows=8)
    tables: list[Callable[[str], str]] = [
        lambda format: inference_report.membership_table([members], format, 0.95),
        lambda format: inference_report.property_table([labels], format, 0.95),
    ]
    for table in tables:
        assert len(json.loads(table("json"))["rows"]) == 4
        assert len(table("csv").splitlines()) == 5
        assert table("markdown").startswith("| Run |")
        assert max(map(len, table("text").splitlines())) <= 118
        with pytest.raises(ExperimentError, match="--format"):
            table("latex")
    written = [
        *inference_report.draw_membership([members], tmp_path),
        *inference_report.draw_property([labels], tmp_path),
    ]
    assert sorted(path.name for path in written) == sorted(
        f"{name}.{kind}" for name in ("membership", "property") for kind in ("png", "pdf", "csv")
    )


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"records": {"aggregates": "none"}}, r"records\.aggregates=all"),
        ({"records": {"aggregates": [3, 6]}, "_from": 1}, r"no aggregate of round 1; run it with records\.aggregates"),
        ({"workload": BASE["workload"] | {"training": "simulated"}}, naming("workload.dataset", "training: real")),
        (
            {"aggregation": {"protocol": "plain", "weights": "equal", "robust": {"rule": "median"}}},
            r"by a rule \(aggregation\.robust\)",
        ),
        (
            {
                "selection": {"protocol": "bernoulli", "client_rate": 0.5},
                "aggregation": {
                    "protocol": "dp-sgd-random-participation", "sample_rate": 0.9, "clip": 1.0, "sigma": 1.0,
                    "learning_rate": 0.1,
                },
                "workload": {"dataset": "digits", "model": "logistic"},
            },
            naming("dp-sgd-random-participation", "gradients"),
        ),
        (
            {
                "aggregation": SECAGG | {"noise": NOISE},
                "privacy": {"delta": 0.001, "canaries": {"clients": 0.5}},
            },
            r"canaries sent known vectors \(privacy\.canaries\)",
        ),
    ],
)  # fmt: skip
def test_missing_parts_of_a_run_are_refused_in_one_line(made: Made, sections: dict[str, Any], said: str) -> None:
    first = sections.pop("_from", None)
    run = made(**{"rounds": 6} | sections)
    for attack in (membership, property_inference):
        with pytest.raises(ExperimentError, match=said) as raised:
            attack(run, first)
        assert "\n" not in str(raised.value)


def _other_arrays(path: Path, change: Callable[[Any], Any]) -> None:
    with np.load(path / "aggregates" / "round-000002.npz") as stored:
        arrays = {name: change(values) if values.ndim else values for name, values in stored.items()}
    np.savez(path / "aggregates" / "round-000002.npz", **arrays)


def _other_experiment(path: Path, there: str, instead: str) -> None:
    text = (path / "experiment.yaml").read_text()
    assert there in text
    (path / "experiment.yaml").write_text(text.replace(there, instead))


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (lambda path: _other_arrays(path, lambda values: values[:100]), "round 2 is of another model"),
        (lambda path: _other_arrays(path, lambda values: values * np.nan), "round 2 is not finite"),
        (lambda path: _other_experiment(path, "model: mlp", "model: logistic"), "8970 parameters, .* has 650"),
        (lambda path: _other_experiment(path, "population: 8", "population: 5"), "of a population of 5"),
    ],
)
def test_records_that_do_not_fit_together_are_refused(
    made: Made, tmp_path: Path, damaged: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "run"
    shutil.copytree(made().path, path)
    damaged(path)
    for attack in (membership, property_inference):
        with pytest.raises(ExperimentError, match=said):
            attack(RunRecords(path))


def test_recorded_rounds_are_the_default(made: Made) -> None:
    found = membership(made(rounds=6, records={"aggregates": [3, 6]}), samples=20)
    assert (found.facts.first_round, found.facts.last_round, found.facts.completed) == (3, 6, 4)


def test_words_have_no_classes(made: Made) -> None:
    workload = {"dataset": "synthetic-reddit", "samples_per_client": 2, "sequence_length": 4, "vocabulary_size": 16}
    run = made(rounds=1, workload=workload | {"model": "transformer-small", "evaluate_every": 1})
    with pytest.raises(ExperimentError, match=naming("label", "several classes")):
        property_inference(run)


def test_options_of_the_commands(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from testbed.cli import main

    path = str(made().path)
    assert main(["attack", "membership", path, "--to", "4", "--samples", "8", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["seen"] for row in rows] == ["update", "sums", "round", "model"]
    assert rows[0]["last_round"] == 4
    figures = str(tmp_path / "figures")
    assert main(["attack", "property", path, "--to", "2", "--shadows", "4", "--figures", figures]) == 0
    printed = capsys.readouterr()
    assert "all sums: group" in printed.out
    assert "property.png" in printed.err
    assert main(["attack", "membership", path, "--from", "30"]) == 2
    assert "there are rounds 1 to 24" in capsys.readouterr().err
