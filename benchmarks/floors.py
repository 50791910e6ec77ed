"""Floors: the least work that a task must do, written plainly, measured in the process of the benchmark."""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def plain_network(model_name: str, height: int, width: int, classes: int) -> nn.Sequential:
    """A model of `workloads.models.classifiers` as a stack of stock torch layers, over (N, C, H, W) float32.

    Images are grey (C = 1) of up to 28 pixels in each direction, and larger ones in colour (C = 3).
    """
    pixels = height * width
    hidden = min(200, pixels)
    layers: list[nn.Module] = []
    if model_name == "logistic":
        layers = _dense(pixels, classes)
    elif model_name == "mlp":
        layers = _dense(pixels, hidden, hidden, classes)
    elif model_name == "cnn":
        layers = [*_pooled(nn.Conv2d(1, 16, 3, padding=1)), *_pooled(nn.Conv2d(16, 32, 3, padding=1))]
        layers += _dense(32 * (height // 4) * (width // 4), classes)
    elif model_name == "femnist-cnn":
        layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Dropout(0.25)]
        layers += [nn.Flatten(), nn.Linear(7744, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, classes)]
    elif model_name == "mnist-cnn":
        layers = [*_pooled(nn.Conv2d(1, 32, 5, padding=2)), *_pooled(nn.Conv2d(32, 64, 5, padding=2))]
        layers += _dense(3136, 512, classes)
    elif model_name == "lenet":
        first = nn.Conv2d(1, 6, 5, padding=2) if height == 28 else nn.Conv2d(3, 6, 5)
        layers = [*_pooled(first), *_pooled(nn.Conv2d(6, 16, 5)), *_dense(400, 120, 84, classes)]
    elif model_name == "cifar-cnn":
        layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
        layers += [nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes)]
    elif model_name == "vgg11":
        channels = 3
        for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
            for out in stage:
                layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU()]
                channels = out
            layers.append(nn.MaxPool2d(2))
        layers += _dense(512, classes)
    else:
        raise ValueError(f"no plain network is written for model {model_name!r}")
    return nn.Sequential(*layers)


def _pooled(convolution: nn.Conv2d) -> list[nn.Module]:
    return [convolution, nn.ReLU(), nn.MaxPool2d(2)]


def _dense(*sizes: int) -> list[nn.Module]:
    """Linear layers of these sizes over flattened input, with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]


def bare_training_loop(
    model_name: str,
    client_data: Sequence[tuple[Tensor, Tensor]],
    epochs: int,
    batch_size: int,
    lr: float,
    momentum: float,
    threads: int,
    clock: Callable[[], float] = time.perf_counter,
    device: str = "cpu",
) -> float:
    """One FedAvg round of local training with nothing around it: stock torch layers and torch.optim.SGD.

    For every client the global weights are loaded into the one model, it is trained on data that are already
    tensors in memory, and its change is taken; any FedAvg must do this much. Summing the changes is not
    included.

    Args:
        model_name: a name of `plain_network`.
        client_data: for each client, images (n, H, W) or (n, H, W, 3) float32 and labels (n,) int64.
        epochs: passes over each client's samples.
        batch_size: samples per step.
        lr: learning rate.
        momentum: of SGD, started anew for each client.
        threads: torch threads to use; the former number is set again afterwards.
        clock: returns seconds.
        device: where the network is and the data are, moved there beforehand.

    Returns:
        Seconds of `clock` for all clients.
    """
    height, width = client_data[0][0].shape[1:3]
    classes = 62 if model_name == "femnist-cnn" else 1 + max(int(labels.max()) for _, labels in client_data)
    former_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        network = plain_network(model_name, height, width, classes).to(device)
        network.train()
        loss_function = nn.CrossEntropyLoss()
        global_vector = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
        shaped = [
            (
                (images.unsqueeze(1) if images.dim() == 3 else images.permute(0, 3, 1, 2).contiguous()).to(device),
                labels.to(device),
            )
            for images, labels in client_data
        ]
        started = clock()
        for images, labels in shaped:
            nn.utils.vector_to_parameters(global_vector.clone(), network.parameters())
            optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)
            for _ in range(epochs):
                order = torch.randperm(len(labels)).to(device)
                for start in range(0, len(labels), batch_size):
                    chosen = order[start : start + batch_size]
                    optimizer.zero_grad()
                    loss_function(network(images[chosen]), labels[chosen]).backward()
                    optimizer.step()
            _delta = (nn.utils.parameters_to_vector(network.parameters()).detach() - global_vector).cpu()
        return clock() - started
    finally:
        torch.set_num_threads(former_threads)
