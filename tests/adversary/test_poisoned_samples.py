"""Clients that train on poisoned samples: the real digits, and a federation poisoned by them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workloads
from testbed.adversary.poisoned_samples import Backdoor, BackdoorOptions, FlipLabels, LabelOptions, add_trigger
from testbed.adversary.section import Adversary
from testbed.engine.in_process import run_in_process
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.randomness import Randomness
from testbed.records import RunDirectory, RunRecords
from tests.engine.federations import Pulling
from tests.former_defaults import with_former_defaults
from tests.messages_named import naming

DIGITS = {"dataset": "digits", "model": "logistic"}
ROBUST = {"protocol": "plain", "weights": "equal", "robust": {"rule": "multi-krum", "max_dishonest": 5}}


def experiment(clients: Any = None, dishonest: Any = 0.4, **more: Any) -> Experiment:
    keys: dict[str, Any] = {
        "name": "poisoned", "seed": 2, "rounds": 12, "population": 20, "workload": DIGITS,
        "selection": {"participants": 15}, "aggregation": {"protocol": "plain", "weights": "equal"},
    }  # fmt: skip
    if clients is not None:
        keys["adversary"] = {"dishonest": dishonest, "clients": clients}
    return Experiment.model_validate(with_former_defaults(keys | more))


def recorded(path: Path, described: Experiment) -> RunRecords:
    records = RunDirectory.create(path, described.plain())
    workload = workloads.build(described.workload, described.population, 2)
    run_in_process(described, workload, 0, records, lambda progress: None)
    return RunRecords(path)


# -- samples -----------------------------------------------------------------------------------------------------------


def test_labels_are_mirrored_or_replaced() -> None:
    inputs, labels = np.zeros((5, 2)), np.array([0, 1, 4, 9, 4])
    same, mirrored = FlipLabels.poisoned((inputs, labels), 10, LabelOptions())
    assert same is inputs
    assert mirrored.tolist() == [9, 8, 5, 0, 5]
    one = LabelOptions(source=4, target=7)
    assert FlipLabels.poisoned((inputs, labels), 10, one)[1].tolist() == [0, 1, 7, 9, 7]
    wanted = FlipLabels.attacked_samples(one)
    assert wanted is not None
    chosen, told = wanted((inputs, labels))
    assert chosen.shape == (2, 2)
    assert told.tolist() == [7, 7]
    assert FlipLabels.attacked_samples(LabelOptions()) is None


@pytest.mark.parametrize(
    ("shape", "corner"),
    [
        ((4, 8, 8), np.s_[:, 6:, 6:]),
        ((4, 8, 6, 3), np.s_[:, 6:, 4:, :]),
        ((4, 3, 8, 6), np.s_[:, :, 6:, 4:]),
        ((4, 1, 8, 6), np.s_[:, :, 6:, 4:]),
    ],
)
def test_the_trigger_is_in_the_corner(shape: tuple[int, ...], corner: Any) -> None:
    images = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    before = images.copy()
    marked = add_trigger(images, 2)
    assert (images == before).all()
    assert (marked[corner] == images.max()).all()
    expected = images.copy()
    expected[corner] = images.max()
    assert (marked == expected).all()


@pytest.mark.parametrize(("share", "count"), [(1.0, 40), (0.5, 20), (0.3125, 12), (0.01, 0)])
def test_an_evenly_spread_share_of_the_samples_has_the_trigger(share: float, count: int) -> None:
    images, labels = np.random.default_rng(1).uniform(-1, 1, (40, 8, 8)), np.arange(40) % 9 + 1
    chosen = BackdoorOptions(target=0, share=share)
    marked, told = Backdoor.poisoned((images, labels), 10, chosen)
    triggered = (marked != images).any(axis=(1, 2))
    assert triggered.sum() == count
    assert (told[triggered] == 0).all()
    assert (told[~triggered] == labels[~triggered]).all()
    if count:
        assert np.diff(np.flatnonzero(triggered)).max(initial=1) <= 1 / share + 1
    wanted = Backdoor.attacked_samples(chosen)
    assert wanted is not None
    tried, taken_for = wanted((images, labels % 10))
    assert len(tried) == (labels % 10 != 0).sum()
    assert not taken_for.any()


def test_training_on_poisoned_samples_leaves_the_data_unchanged() -> None:
    described = experiment()
    workload: Any = workloads.build(described.workload, 20, 2)
    model = workload.initial_model()
    honest, before = workload.train(3, model, 1), workload.evaluate(model)
    poisoned = workload.with_samples(lambda samples: FlipLabels.poisoned(samples, 10, LabelOptions()))
    update = poisoned.train(3, model, 1)
    assert (update.samples, update.examples_processed) == (honest.samples, honest.examples_processed)
    assert not np.allclose(update.delta, honest.delta)
    again = poisoned.with_samples(lambda samples: FlipLabels.poisoned(samples, 10, LabelOptions()))
    assert again.train(3, model, 1).delta.tobytes() == honest.delta.tobytes()  # flipped back
    assert workload.train(3, model, 1).delta.tobytes() == honest.delta.tobytes()
    assert workload.evaluate(model) == before
    gradients = [one.gradient_sum(3, model, 1, np.arange(4), 1.0).delta for one in (workload, poisoned)]
    assert not np.allclose(*gradients)


# -- federations -------------------------------------------------------------------------------------------------------


def test_flipped_labels_cost_accuracy_and_a_robust_rule_restores_it(tmp_path: Path) -> None:
    clients: dict[str, Any] = {"flip-labels": {}}
    attacked = recorded(tmp_path / "attacked", experiment(clients))
    clean = recorded(tmp_path / "clean", experiment())
    robust = recorded(tmp_path / "robust", experiment(clients, dishonest=0.25, aggregation=ROBUST))
    accuracy = {name: run.rounds["accuracy"].iloc[-1] for name, run in locals().items() if isinstance(run, RunRecords)}
    assert accuracy["attacked"] < accuracy["clean"] - 0.1
    assert accuracy["robust"] > accuracy["clean"] - 0.1
    assert attacked.rounds["attack_success"].isna().all()
    assert clean.rounds["attack_success"].isna().all()
    told = attacked.events[attacked.events["kind"] == "attack"]["detail"]
    assert told.str.fullmatch(r"flip-labels: \d+ of \d+ labels changed").all()


def test_a_backdoor_is_learned_beside_the_task_and_measured(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", experiment([{"backdoor": {"target": 3}}], dishonest=0.4))
    honest = recorded(tmp_path / "honest", experiment([{"backdoor": {"target": 3}}], dishonest=0))
    for one in (run, honest):
        assert one.rounds["accuracy"].iloc[-1] > 0.8
    assert run.rounds["attack_success"].iloc[-1] > 0.8
    assert honest.rounds["attack_success"].iloc[-1] < 0.3
    # By hand: the share of triggered samples, of other digits, that the model takes for a 3.
    described = experiment()
    workload: Any = workloads.build(described.workload, 20, 2)
    inputs, labels = (part.numpy() for part in workload.data.held_out())
    weights, biases = run.model[:640].reshape(10, 64), run.model[640:]
    said = (add_trigger(inputs, 2).reshape(-1, 64) @ weights.T + biases).argmax(axis=1)
    assert run.rounds["attack_success"].iloc[-1] == pytest.approx((said == 3)[labels != 3].mean())


def test_without_suitable_held_out_samples_there_is_no_success_rate() -> None:
    described = experiment([{"backdoor": {"target": 3}}])
    workload: Any = workloads.build(described.workload, 20, 2)
    threes = workload.with_samples(lambda samples: (samples[0], np.full_like(samples[1], 3)))
    assert described.adversary is not None
    adversary = Adversary(described.adversary, 20, 12, Randomness(2))
    assert adversary.success(workload, workload.initial_model()) is not None
    assert adversary.success(threes, workload.initial_model()) is None


def test_misclassification_as_the_target_is_measured(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", experiment({"flip-labels": {"source": 1, "target": 8}}, dishonest=0.6))
    recalls = run.rounds["recalls"].iloc[-1]
    assert run.rounds["attack_success"].iloc[-1] > 0.5
    assert recalls[1] <= 1 - run.rounds["attack_success"].iloc[-1]


def test_scaling_composes_and_hosts_and_batched_training_change_nothing(tmp_path: Path) -> None:
    clients = ["scale-update", "backdoor"]
    one = experiment(clients, dishonest=[4], rounds=2, selection={"participants": 20})
    run = recorded(tmp_path / "run", one)
    kinds = run.events[run.events["kind"] == "attack"]["detail"].str.partition(":")[0]
    assert kinds.tolist() == ["backdoor", "scale-update"] * 2
    together = recorded(tmp_path / "together", one.model_copy(update={
        "workload": one.workload.model_copy(update={"clients_at_once": 4})
    }))  # fmt: skip
    assert together.model == pytest.approx(run.model, abs=1e-4)
    assert together.rounds["attack_success"].iloc[-1] == pytest.approx(run.rounds["attack_success"].iloc[-1], abs=0.02)


@pytest.mark.parametrize(
    ("clients", "workload", "parts"),
    [
        ({"backdoor": {"target": 10}}, {}, ("backdoor.target", "10 of 10")),
        ({"backdoor": {"size": 9}}, {}, ("backdoor.size", "9 x 9", "8 x 8")),
        ({"flip-labels": {"source": 1, "target": 12}}, {}, ("flip-labels.target", "12 of 10")),
        ("backdoor", {"training": "simulated"}, ("backdoor", "workload.training", "simulated")),
        (
            "backdoor",
            {"dataset": "synthetic-reddit", "model": "auto"},
            ("backdoor", "labels"),
        ),
        (
            "flip-labels",
            {"dataset": "tests.engine.federations:Pulling"},
            ("flip-labels", "ReplaceableSamplesWorkload"),
        ),
    ],
)
def test_workloads_without_samples_to_poison_are_refused(
    clients: Any, workload: dict[str, Any], parts: tuple[str, ...]
) -> None:
    described = experiment(clients, workload=DIGITS | workload)
    chosen = Pulling(20) if ":" in described.workload.dataset else workloads.build(described.workload, 20, 2)

    def checked() -> None:
        adversary = RunPlan(described, 0).adversary
        assert adversary is not None
        adversary.check_workload(chosen)

    with pytest.raises(ExperimentError, match=naming(*parts)) as error:
        checked()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"source": 1}, ("source", "target", "both")),
        ({"source": 1, "target": 1}, ("target", 1, "source")),
        ({"source": -1}, ("source", -1)),
    ],
)
def test_invalid_labels_are_refused(options: dict[str, Any], parts: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*parts)):
        experiment({"flip-labels": options})
