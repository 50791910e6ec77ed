"""User-defined modules as one vector: initial contents, and refused modules."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads.data.own.arrays import ClientArrays
from workloads.data.own.forms import TabularData
from workloads.determinism import Purpose, stream
from workloads.models import vector
from workloads.training.classification import TorchWorkload

WITH_SCALES = [
    lambda: nn.BatchNorm1d(3),
    lambda: nn.BatchNorm2d(3),
    lambda: nn.BatchNorm3d(3),
    lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    lambda: nn.GroupNorm(3, 6),
    lambda: nn.LayerNorm((2, 3)),
    lambda: nn.RMSNorm((2, 3)),
    lambda: nn.PReLU(4),
]


@pytest.mark.parametrize("make", WITH_SCALES, ids=lambda make: type(make()).__name__)
def test_scales_begin_as_torch_makes_them(make) -> None:
    layer = make()
    floats = [tensor for tensor in layer.state_dict().values() if tensor.is_floating_point()]
    expected = torch.cat([tensor.flatten() for tensor in floats]).numpy()
    vector.check_floats(layer, "mine")
    assert np.array_equal(vector.initial_vector(layer, 1), expected)
    assert vector.dimension(layer) == len(expected)


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def workload(network: nn.Module) -> TorchWorkload:
    """As a class of the user's own derives from it."""
    random = np.random.default_rng(0)
    labels = np.arange(120) % 2
    samples = TabularData((random.normal(0, 0.5, (120, 4)) + labels[:, None]).astype(np.float32), labels)
    section = WorkloadSection(dataset="mine:Workload", batch_size=8, learning_rate=0.1, momentum=0.9)
    return TorchWorkload("mine", ClientArrays(samples, None, section, 6, 1), "net", network, section, 1, 250)


def test_a_plain_batch_normalisation_is_learned_and_its_count_is_not_sent() -> None:
    with torch.device("meta"):
        network = Normed()
    made = workload(network)
    assert made.dimension == 4 * 8 + 8 + 2 * 8 + 2 * 8 + 2 + 16
    model = made.initial_model()
    assert (model[40:48] == 1).all()  # the scale: with zeros nothing would come through
    update = made.train(0, model, 1).delta
    assert update[-16:].any()  # running statistics
    assert np.abs(update).max() < 10  # no count
    for number in range(1, 16):
        model = model + np.mean([made.train(client, model, number).delta for client in range(6)], axis=0)
    assert made.evaluate(model).accuracy > 0.85


def test_running_statistics_are_those_of_torch() -> None:
    made = workload(Normed())
    reference = Normed()
    model = made.initial_model()
    vector.check_floats(reference, "mine")
    vector.attach(reference, torch.from_numpy(model.copy()))
    before = copy.deepcopy(reference)
    samples, labels = made.data.shard(1)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    order = stream(1, Purpose.BATCHES, 1, 2).permutation(len(labels))
    for start in range(0, len(labels), 8):
        optimizer.zero_grad()
        chosen = order[start : start + 8]
        nn.functional.cross_entropy(reference(samples[chosen]), labels[chosen]).backward()
        optimizer.step()
    moved = made.train(1, model, 2).delta[-16:]
    for place, name in ((slice(0, 8), "running_mean"), (slice(8, 16), "running_var")):
        expected = getattr(reference[1], name) - getattr(before[1], name)
        assert np.allclose(moved[place], expected.numpy(), atol=1e-6)


class Counting(nn.Module):
    def __init__(self, parameter: bool) -> None:
        super().__init__()
        self.line = nn.Linear(4, 2)
        places = torch.arange(3)
        if parameter:
            self.places = nn.Parameter(places, requires_grad=False)
        else:
            self.register_buffer("places", places)


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (Counting(parameter=True), "workload.model: net: parameter places is int64; a model is sent as floats, so"),
        (Counting(parameter=False), "workload.model: net: buffer places is int64; a model is sent as floats, so"),
        (nn.BatchNorm1d(4, momentum=None), "workload.model: net: BatchNorm1d with momentum=None averages over all"),
    ],
)
def test_what_is_no_float_is_refused_in_one_line(network: nn.Module, says: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        workload(network)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
