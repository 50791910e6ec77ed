"""Model, data, training: nothing of Flower."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy


class Net(nn.Module):
    """Two hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def load_data(partition: int, partitions: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every `partitions`-th image; four fifths to train on."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images[partition::partitions] / 16, dtype=torch.float32)
    labels = torch.tensor(labels[partition::partitions])
    cut = 4 * len(labels) // 5
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def train(net: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int, learning_rate: float) -> float:
    """SGD; returns the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    losses = []
    net.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(5):
            optimizer.zero_grad()
            loss = cross_entropy(net(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Loss and accuracy."""
    net.eval()
    with torch.no_grad():
        logits = net(images)
    return cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).float().mean().item()
