"""The clients."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data
from digits_app.task import test as test_fn
from digits_app.task import train as train_fn

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model on local data."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels, _, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    rate = message.content["config"]["lr"]
    loss = train_fn(net, images, labels, context.run_config["local-epochs"], rate)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    _, _, images, labels = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss, accuracy = test_fn(net, images, labels)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
