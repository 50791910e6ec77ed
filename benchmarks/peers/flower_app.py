"""The same task as people write it for Flower, with its message API and its FedAvg."""

import importlib
import os

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch.nn.functional import cross_entropy

task = importlib.import_module(os.environ["PEERS_TASK"])
client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """An epoch of SGD on a client's share."""
    torch.set_num_threads(1)
    net = task.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    (images, labels), _ = task.data()
    partition, partitions = context.node_config["partition-id"], context.node_config["num-partitions"]
    x = torch.as_tensor(images[partition::partitions])
    y = torch.as_tensor(labels[partition::partitions])
    optimizer = torch.optim.SGD(net.parameters(), lr=message.content["config"]["lr"])
    for batch in torch.randperm(len(y)).split(10):
        optimizer.zero_grad()
        cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging of 10 of 100 clients."""
    strategy = FedAvg(fraction_train=0.1, fraction_evaluate=0.0, min_available_nodes=100)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(task.Net().state_dict()),
        train_config=ConfigRecord({"lr": 0.1}),
        num_rounds=int(os.environ["PEERS_ROUNDS"]),
    )
