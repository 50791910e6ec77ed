"""Generated data in the shapes of OpenImage and Reddit, and simulated training: sizes, repeatability, messages."""

import asyncio
import hashlib
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from testbed.workload.section import WorkloadSection
from tests.repository import ROOT
from workloads.contract import Workload
from workloads.registry import built_in

PHOTOS = {"dataset": "synthetic-openimage", "image_size": 64, "samples_per_client": 6, "test_samples": 25}
WRITERS = {"dataset": "synthetic-femnist", "samples_per_client": 6}
WORDS = {
    "dataset": "synthetic-reddit", "model": "albert-small", "vocabulary_size": 60, "sequence_length": 12,
    "samples_per_client": 30, "test_samples": 25, "optimizer": "adamw", "learning_rate": 0.003,
    "batch_size": 20,
}  # fmt: skip


def test_images_have_the_shapes_of_openimage() -> None:
    workload = built_in(WorkloadSection(**PHOTOS), population=4, seed=1)
    images, labels = workload.data.shard(2)
    assert images.shape == (6, 3, 64, 64)
    assert images.dtype.itemsize == 1
    assert workload.dimension == 1_009_736
    assert workload.label_counts().shape == (4, 596)
    assert np.array_equal(workload.label_counts()[2], np.bincount(labels, minlength=596))
    assert built_in(WorkloadSection(dataset="synthetic-openimage"), 2, 1).data.shard(0)[0].shape[2:] == (256, 256)
    held_out, classes = workload.data.held_out()
    assert len(held_out) == len(classes) == 25
    assert "not OpenImage's" in workload.description
    pixels = images.numpy().astype(float)
    assert 40 < pixels.mean() < 215
    assert pixels.std() > 20


def test_words_have_the_shapes_of_reddit() -> None:
    workload = built_in(WorkloadSection(**WORDS), population=4, seed=1)
    before, after = workload.data.shard(2)
    assert before.shape == after.shape == (30, 12)
    assert (after[:, :-1] == before[:, 1:]).all()
    assert 2 <= int(before.min()) <= int(before.max()) < 60
    assert built_in(WorkloadSection(dataset="synthetic-reddit"), 2, 1).dimension == 15_091_680
    assert "not Reddit's comments" in workload.description
    assert workload.label_counts().tolist() == [[30]] * 4


@pytest.mark.parametrize("keys", [PHOTOS, WRITERS, WORDS], ids=["photos", "writers", "words"])
def test_a_client_depends_on_the_seed_and_not_on_the_population_or_the_order(keys: dict[str, Any]) -> None:
    few, many, other = (built_in(WorkloadSection(**keys), n, seed).data for n, seed in ((4, 1), (9, 1), (4, 2)))
    many.shard(2)
    assert all(map(np.array_equal, few.shard(3), many.shard(3)))
    assert not np.array_equal(few.shard(3)[0], other.shard(3)[0])


def test_the_words_can_be_learned() -> None:
    workload = built_in(WorkloadSection(**WORDS), population=10, seed=5)
    model = workload.initial_model()
    before = workload.evaluate(model)
    assert before.samples == 25 * 12
    assert np.exp(before.loss) == pytest.approx(60, rel=0.1)
    for number in range(1, 7):
        model = model + np.mean([workload.train(client, model, number).delta for client in range(10)], axis=0)
    after = workload.evaluate(model)
    assert np.exp(after.loss) < 0.6 * np.exp(before.loss)
    assert after.accuracy > before.accuracy


def test_the_images_can_be_learned() -> None:
    steps: dict[str, Any] = {"batch_size": 20, "learning_rate": 0.02, "momentum": 0.9, "epochs": 2}
    section = WorkloadSection(**PHOTOS | {"samples_per_client": 40} | steps)
    workload = built_in(section, population=3, seed=5)
    model = workload.initial_model()
    losses = []
    for number in (1, 2, 3):
        updates = [workload.train(client, model, number) for client in range(3)]
        losses.append(np.mean([update.loss for update in updates]))
        model = model + np.mean([update.delta for update in updates], axis=0)
    assert losses[2] < 0.8 * losses[0]


SHARED = {"scheme": "label-shards", "shards_per_client": 1, "shared_samples": 200}
FEW = {"test_samples": 20, "batch_size": 50}
FINGERPRINTED = [
    (PHOTOS, 4),
    (WORDS, 4),
    (PHOTOS | {"training": "simulated"}, 4),
    ({"dataset": "synthetic-cifar10", "partition": SHARED, "samples_per_client": 260, **FEW}, 40),
    ({"dataset": "synthetic-cifar100", "samples_per_client": 12, **FEW}, 40),
]
FINGERPRINT = f"""
import hashlib, json, random, sys
import numpy as np
import torch
from testbed.workload.section import WorkloadSection
from workloads.registry import built_in
before = torch.get_rng_state(), random.getstate()
found = {{}}
for place, (keys, population) in enumerate({FINGERPRINTED!r}):
    workload = built_in(WorkloadSection(**keys), population, 2**65 + 9)
    model = workload.initial_model()
    for client, number in json.loads(sys.argv[1]):
        update = workload.train(client, model, number)
        found[f"{{place}} {{client}} {{number}}"] = [hashlib.sha256(update.delta.tobytes()).hexdigest(), update.loss]
    found[str(place)] = [hashlib.sha256(model.tobytes()).hexdigest(), repr(workload.evaluate(model))]
assert torch.equal(torch.get_rng_state(), before[0])
assert random.getstate() == before[1]
assert not {{"torch._dynamo", "torch._inductor", "sympy"}} & sys.modules.keys()
print(json.dumps(found, sort_keys=True))
"""


def test_results_do_not_depend_on_the_process_or_the_order_and_start_light() -> None:
    jobs = [(3, 1), (1, 1), (3, 2)]
    outputs = []
    for order in (jobs, jobs[::-1]):
        done = subprocess.run(
            [sys.executable, "-c", FINGERPRINT, json.dumps(order)], capture_output=True, text=True, check=False,
            cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    digests = [digest for digest, _ in json.loads(outputs[0]).values()]
    assert len(set(digests)) == len(digests) == 5 * (1 + len(jobs))


@pytest.mark.parametrize("dataset", ["synthetic-femnist", "synthetic-openimage", "synthetic-reddit", "digits"])
def test_simulated_training_has_the_size_and_charges_of_real_training(dataset: str) -> None:
    real, simulated = (
        built_in(WorkloadSection(dataset=dataset, epochs=3, training=training), 12, 4)
        for training in ("real", "simulated")
    )
    assert isinstance(simulated, Workload)
    assert simulated.dimension == real.dimension
    assert np.array_equal(simulated.sample_counts, real.sample_counts)
    assert np.array_equal(simulated.label_counts(), real.label_counts())
    assert "simulated" in simulated.description
    assert "simulated" in simulated.model_name
    model = simulated.initial_model()
    update = simulated.train(5, model, 1)
    assert update.delta.shape == model.shape == (real.dimension,)
    assert update.delta.dtype == model.dtype == np.float32
    assert update.samples == real.sample_counts[5]
    assert update.examples_processed == 3 * update.samples
    assert 0.001 < float(update.delta.std()) < 0.002
    assert abs(float(update.delta.mean())) < 5 * 0.0015 / real.dimension**0.5
    assert np.array_equal(simulated.train(5, model, 1).delta, update.delta)
    others = [simulated.train(6, model, 1), simulated.train(5, model, 2)]
    assert not any(np.array_equal(other.delta, update.delta) for other in others)
    assert others[0].loss != update.loss == others[1].loss > 0
    assert simulated.evaluate(model) is None


def test_a_client_without_samples_simulates_nothing() -> None:
    section = WorkloadSection(dataset="digits", training="simulated", partition={"minimum_samples": 0})
    workload = built_in(section, population=2000, seed=1)
    idle = int(np.flatnonzero(workload.sample_counts == 0)[0])
    update = workload.train(idle, workload.initial_model(), 1)
    assert (update.samples, update.examples_processed, update.loss) == (0, 0, 0.0)
    assert not update.delta.any()


def described(training: str, compute: str = "modelled") -> Experiment:
    return validated(
        {
            "seed": 1, "rounds": 2, "population": 6,
            "workload": {"dataset": "synthetic-femnist", "model": "logistic", "training": training},
            "selection": {"participants": 4}, "aggregation": {"protocol": "plain"}, "time": {"compute": compute},
        },
        "test",
    )  # fmt: skip


def test_a_simulated_round_takes_the_time_and_bytes_of_a_real_one_and_measures_no_accuracy() -> None:
    ended = []
    for training in ("real", "simulated"):
        experiment = described(training)
        federation = federation_in_process(RunPlan(experiment, 0), built_in(experiment.workload, 6, 1), None)
        outcomes = [asyncio.run(federation.run_next_round()) for _ in range(2)]
        assert [outcome.state for outcome in outcomes] == ["completed"] * 2
        digest = hashlib.sha256(outcomes[1].model.tobytes()).hexdigest()
        ended.append((federation.network.now_s, federation.accuracy, digest))
    # Losses differ in nothing but their digits: both messages are of one length.
    assert ended[0][0] == ended[1][0] > 0
    assert ended[0][1] is not None
    assert ended[1][1] is None
    assert ended[0][2] != ended[1][2]


def test_measured_time_of_simulated_training_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"workload\.training: simulated .*set time\.compute: modelled"):
        described("simulated", compute="measured")
