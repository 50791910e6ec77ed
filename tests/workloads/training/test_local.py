"""Local training: equal to torch.optim.SGD, independent of process, thread and order, and it learns."""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.floors import plain_network
from testbed.workload.section import WorkloadSection
from tests.repository import ROOT
from workloads import ImageClassification, build
from workloads.contract import LabelledEvaluation
from workloads.determinism import Purpose, stream
from workloads.training.local import LocalTrainer

DIGITS = {"dataset": "digits", "model": "mlp", "batch_size": 10}


def textbook_sgd(
    workload: ImageClassification,
    section: WorkloadSection,
    client: int,
    model: np.ndarray,
    round_number: int,
    seed: int,
) -> tuple[np.ndarray, float]:
    """The oracle: stock layers, a new torch.optim.SGD, the same order of samples; (delta, mean loss)."""
    images, labels = workload.data.shard(client)
    network = plain_network(workload.model_name, images.shape[1], images.shape[2], 10)
    vector_to_parameters(torch.from_numpy(model.copy()), network.parameters())
    rate = section.learning_rate * section.learning_rate_decay ** (round_number - 1)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=rate, momentum=section.momentum, weight_decay=section.weight_decay
    )
    order_stream = stream(seed, Purpose.BATCHES, client, round_number)
    losses = []
    for _ in range(section.epochs):
        order = order_stream.permutation(len(labels))
        for start in range(0, len(labels), section.batch_size):
            batch = torch.from_numpy(order[start : start + section.batch_size])
            optimizer.zero_grad()
            loss = cross_entropy(network(images[batch].unsqueeze(1)), labels[batch])
            loss.backward()
            optimizer.step()
            losses += [loss.item()] * len(batch)
    local = parameters_to_vector(network.parameters()).detach().numpy()
    return local - model, float(np.mean(losses))


@pytest.mark.parametrize("model_name", ["logistic", "mlp", "cnn"])
@pytest.mark.parametrize(
    "keys",
    [
        {"momentum": 0.0},
        {"momentum": 0.9, "epochs": 2},
        {"momentum": 0.5, "weight_decay": 0.01, "learning_rate_decay": 0.9},
    ],
)
def test_training_equals_torch_sgd(model_name: str, keys: dict) -> None:
    section = WorkloadSection(dataset="digits", model=model_name, batch_size=16, learning_rate=0.03, **keys)
    workload = build(section, population=33, seed=11)
    assert workload.sample_counts[3] % 16 != 0  # the last batch is smaller
    model = workload.initial_model()
    for client, round_number in ((3, 1), (17, 4)):  # the second starts with the optimizer used before
        update = workload.train(client, model, round_number)
        delta, loss = textbook_sgd(workload, section, client, model, round_number, seed=11)
        assert np.allclose(update.delta, delta, rtol=1e-3, atol=1e-5)
        assert np.abs(delta).max() > 1e-2
        assert update.loss == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("model_name", ["logistic", "mlp", "cnn"])
def test_squared_losses_are_reported_and_change_no_bit_of_the_update(
    model_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the same trainer with the loss as one call to cross_entropy, and losses measured one by one."""
    section = WorkloadSection(
        dataset="digits", model=model_name, batch_size=16, learning_rate=0.03, epochs=2, momentum=0.9
    )
    found = build(section, population=33, seed=11)
    model = found.initial_model()
    update = found.train(3, model, 2)
    single: list[float] = []

    def epoch(trainer: LocalTrainer, images: torch.Tensor, labels: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for start in range(0, len(labels), 16):
            trainer._optimizer.zero_grad()
            logits, batch = trainer._network(images[start : start + 16]), labels[start : start + 16]
            single.extend(
                cross_entropy(row[None], label[None]).item() for row, label in zip(logits, batch, strict=True)
            )
            loss = cross_entropy(logits, batch)
            loss.backward()
            trainer._optimizer.step()
            total.add_(loss.detach(), alpha=len(batch))
        return total

    monkeypatch.setattr(LocalTrainer, "_epoch", epoch)
    alone = build(section, population=33, seed=11).train(3, model, 2)
    assert update.delta.tobytes() == alone.delta.tobytes()
    assert update.loss == alone.loss
    assert len(single) == update.examples_processed
    assert update.squared_loss == pytest.approx(np.square(single).mean(), rel=1e-5)
    assert update.squared_loss > 1.001 * update.loss**2  # not the square of the mean


def test_what_an_update_says() -> None:
    section = WorkloadSection(**DIGITS, epochs=3)
    workload = build(section, population=40, seed=1)
    model = workload.initial_model()
    update = workload.train(5, model, 1)
    assert update.delta.shape == model.shape == (workload.dimension,)
    assert update.delta.dtype == model.dtype == np.float32
    assert update.samples == workload.sample_counts[5]
    assert update.examples_processed == 3 * update.samples
    model[:] += 1.0
    assert not np.array_equal(workload.initial_model(), model)  # each caller has its own
    kept = update.delta.copy()
    workload.train(6, model, 1)
    assert np.array_equal(update.delta, kept)  # not a view into the trainer's memory
    for wrong in (model[:-1], model.astype(np.float64)):
        with pytest.raises(ValueError, match="float32"):
            workload.train(5, wrong, 1)


def test_read_only_and_memory_mapped_models_are_taken_and_left_alone(tmp_path: Path, recwarn) -> None:
    workload = build(WorkloadSection(**DIGITS), population=10, seed=1)
    model = workload.initial_model()
    expected = workload.train(0, model, 1).delta
    np.save(tmp_path / "model.npy", model)
    mapped = np.load(tmp_path / "model.npy", mmap_mode="r")
    assert np.array_equal(workload.train(0, mapped, 1).delta, expected)
    assert workload.evaluate(mapped) == workload.evaluate(model)
    assert np.array_equal(mapped, model)
    assert not [warning for warning in recwarn if "writable" in str(warning.message)]


def test_a_client_without_samples_changes_nothing() -> None:
    section = WorkloadSection(**DIGITS, partition={"minimum_samples": 0})
    workload = build(section, population=2000, seed=1)
    idle = int(np.flatnonzero(workload.sample_counts == 0)[0])
    update = workload.train(idle, workload.initial_model(), 1)
    assert (update.samples, update.examples_processed, update.loss) == (0, 0, 0.0)
    assert not update.delta.any()


def test_rounds_and_clients_differ_in_order_of_samples_and_dropout() -> None:
    section = WorkloadSection(dataset="synthetic-femnist", samples_per_client=8, batch_size=8)
    workload = build(section, population=3, seed=4)
    model = workload.initial_model()
    # One full batch: the order of the samples hardly matters, so the difference is dropout's.
    first, again, second = (workload.train(1, model, round_number).delta for round_number in (1, 1, 2))
    assert np.array_equal(first, again)
    assert np.abs(first - second).max() > 1e-3


FINGERPRINT = """
import hashlib, json, sys
import numpy as np
from testbed.workload.section import WorkloadSection
from workloads import build
found = {}
for dataset, samples in (("digits", None), ("synthetic-femnist", 20)):
    workload = build(WorkloadSection(dataset=dataset, samples_per_client=samples, test_samples=40), 50, 2**65 + 9)
    model = workload.initial_model()
    for client, round_number in json.loads(sys.argv[1]):
        update = workload.train(client, model, round_number)
        key = f"{dataset} {client} {round_number}"
        found[key] = [hashlib.sha256(update.delta.tobytes()).hexdigest(), update.loss]
    found[dataset] = [hashlib.sha256(model.tobytes()).hexdigest(), workload.evaluate(model).loss]
print(json.dumps(found, sort_keys=True))
"""


def test_results_do_not_depend_on_the_process_or_on_the_order_of_calls() -> None:
    jobs = [(3, 1), (8, 1), (3, 2), (49, 7)]
    repository = ROOT
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", FINGERPRINT, json.dumps(order)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=repository,
            env={**os.environ, "OMP_NUM_THREADS": threads},
        )
        for order, threads in ((jobs, "1"), (jobs[::-1], "2"))
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    found = json.loads(outputs[0])
    assert len({digest for digest, _ in found.values()}) == len(found) == 10
    # And in this process, from another thread, after other work.
    workload = build(WorkloadSection(dataset="synthetic-femnist", samples_per_client=20), 50, 2**65 + 9)
    model = workload.initial_model()
    digests = []
    worker = threading.Thread(
        target=lambda: digests.append(hashlib.sha256(workload.train(8, model, 1).delta.tobytes()).hexdigest())
    )
    worker.start()
    worker.join()
    assert digests == [found["synthetic-femnist 8 1"][0]]


def test_threads_that_share_a_workload_do_not_mix() -> None:
    workload = build(WorkloadSection(**DIGITS), population=8, seed=1)
    model = workload.initial_model()
    expected = [workload.train(client, model, 1).delta for client in range(8)]
    found: dict[int, np.ndarray] = {}

    def work(client: int) -> None:
        found[client] = workload.train(client, model, 1).delta

    workers = [threading.Thread(target=work, args=(client,)) for client in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(np.array_equal(found[client], expected[client]) for client in range(8))


def test_global_generators_are_left_alone() -> None:
    before = (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())  # noqa: NPY002
    workload = build(WorkloadSection(dataset="synthetic-femnist", samples_per_client=20, test_samples=20), 5, 1)
    model = workload.initial_model()
    workload.train(0, model, 1)
    workload.evaluate(model)
    build(WorkloadSection(**DIGITS, partition={"scheme": "dirichlet"}), 5, 1).train(
        0, build(WorkloadSection(**DIGITS), 5, 1).initial_model(), 1
    )
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


@pytest.mark.parametrize("scheme", ["iid", "dirichlet", "label-shards"])
def test_federated_averaging_learns_the_digits(scheme: str) -> None:
    partition = {"scheme": scheme, "shards_per_client": 4}
    section = WorkloadSection(**DIGITS, partition=partition, learning_rate=0.05, momentum=0.9)
    workload = build(section, population=10, seed=5)
    model = workload.initial_model()
    assert workload.evaluate(model).accuracy < 0.4
    losses = []
    for round_number in range(1, 9):
        updates = [workload.train(client, model, round_number) for client in range(10)]
        total = sum(update.samples for update in updates)
        model = model + sum(update.delta * np.float32(update.samples / total) for update in updates)
        losses.append(np.mean([update.loss for update in updates]))
    result = workload.evaluate(model)
    assert result.accuracy > 0.8
    assert isinstance(workload, ImageClassification)
    assert isinstance(result, LabelledEvaluation)
    labels = workload.data.held_out()[1].numpy()
    assert np.average(result.recalls, weights=np.bincount(labels)) == pytest.approx(result.accuracy)
    assert min(result.recalls) < max(result.recalls) <= 1
    assert losses[-1] < losses[0] / 2
    assert result.samples == 359
