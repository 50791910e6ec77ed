"""Users' code that cannot be trained is refused, with messages."""

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from tests.messages_named import naming
from tests.workloads.own.mine import made
from workloads import build
from workloads.training.metrics import measured


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"dataset": "few"}, "mine_to_learn:few gave 5 training samples for 6 clients; lower population"),
        ({"dataset": "nothing"}, "mine_to_learn:nothing gave a int; taken are (x, y) arrays"),
        ({"options": {"cuont": 5}}, "workload.options.cuont: unknown option; did you mean 'count'?"),
        ({"model_options": {"hiden": 5}}, "workload.model_options.hiden: unknown option; did you mean 'hidden'?"),
        ({"model": "number"}, "module mine_to_learn has no class number"),
        ({"model": "instance"}, "mine_to_learn:instance is a module; name its class"),
        ({"model": "nothing"}, "mine_to_learn:nothing returned a int; return a torch.nn.Module"),
        ({"model": "Pairs"}, "mine_to_learn:Pairs: must be a torch.nn.Module"),
        ({"model": "Whole"}, "mine_to_learn:Whole: parameter count is int64; a model is sent as floats"),
        ({"model": "frozen"}, "mine_to_learn:frozen has no parameter to train"),
        ({"model": "Cumulative"}, "BatchNorm1d with momentum=None averages over all batches"),
        ({"model": "Lazy"}, "mine_to_learn:Lazy: 0.weight has no size yet (a lazy layer); give the layer the size"),
        ({"model": "NoGradient"}, "its outputs have no gradient"),
        ({"loss": "mine_to_learn:detached"}, "workload.loss mine_to_learn:detached has no gradient"),
        ({"loss": "mine_to_learn:of_four"}, "which workload.loss mine_to_learn:of_four does not take with labels"),
        ({"optimizer": "torch.optim:LBFGS"}, "workload.optimizer: torch.optim:LBFGS: its step() needs a closure"),
        ({"optimizer": "mine_to_learn:WithClosure"}, "step() needs a closure"),
        ({"path": "/data"}, "workload.path: is for built-in data sets; set the options of mine_to_learn:load"),
        ({"vocabulary_size": 50}, "workload.vocabulary_size: is for built-in data sets"),
        ({"model": "mlp", "loss": "mine_to_learn:detached"}, "mlp: workload.loss mine_to_learn:detached has no grad"),
        ({"dataset": "flwr_datasets:load"}, "pip install 'sortition-testbed[flower-datasets]' (on all nodes)"),
        ({"model": "Two"}, "mine_to_learn:Two returns a tuple; return one tensor of outputs"),
        ({"model": "images"}, "mine_to_learn:images does not take samples (4, 4) of float32: "),
        ({"model_options": {"outputs": 1}}, "outputs (4, 1) for 4 samples, 1 classes; the labels go up to 1"),
        ({"loss": "mse"}, "returns outputs (4, 2) for 4 samples; mse needs as many values as the labels have, (4,)"),
        ({"loss": "bce"}, "mse" and "cross_entropy"),
        ({"dataset": "values"}, "labels are float64, and cross_entropy takes whole numbers"),
        ({"dataset": "values", "loss": "mine_to_learn:focal"}, "which workload.loss mine_to_learn:focal does not take"),
        (
            {"loss": "mine_to_learn:Pairs"},
            "workload.loss: mine_to_learn:Pairs: must be a function or",
        ),
        ({"loss": "mine_to_learn:gone"}, "workload.loss: mine_to_learn:gone: module mine_to_learn"),
        ({"optimizer": "mine_to_learn:Two"}, "workload.optimizer: mine_to_learn:Two: must be a class like those of"),
        ({"optimizer": "torch.optim:Adam", "optimizer_options": {"beta": 1}}, "optimizer_options.beta: unknown option"),
        ({"loss": "mine_to_learn:mean_focal", "clients_at_once": 2}, "mean_focal returns one loss for a batch"),
        (
            {"model": "Normed"},
            "workload.batch_size: 6 clients end an epoch with a batch of one sample, which",
        ),
        (
            {"model": "Normed", "batch_size": 8, "clients_at_once": 2},
            "mine_to_learn:Normed has BatchNorm1d",
        ),
    ],
    ids=str,
)
def test_untrainable_code_is_refused_in_one_line_before_the_first_round(keys: dict, says: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        made(**keys)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_built_in_data_and_models_are_tried_with_an_own_loss() -> None:
    with pytest.raises(ExperimentError, match=naming("workload.loss", "mine_to_learn:detached", "gradient")):
        build(WorkloadSection(model="logistic", loss="mine_to_learn:detached"), 10, 1)
    assert build(WorkloadSection(model="logistic", loss="mine_to_learn:focal"), 10, 1).dimension == 650


def test_a_metric_without_a_result_is_named() -> None:
    def silent(*_: object) -> float:
        raise ValueError

    with pytest.raises(ExperimentError, match=naming("workload.metrics", "silent", "(2,)", "ValueError")):
        measured({"silent": silent}, np.zeros(2), np.zeros(2))
