"""The 8x8 digits of scikit-learn, and a network of 8,970 parameters."""

from functools import cache
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn


class Net(nn.Sequential):
    """Two hidden layers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


@cache
def data() -> tuple[Any, Any]:
    """Images and labels, to train on and to test."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32).numpy(), labels
    return (x[:1500], y[:1500]), (x[1500:], y[1500:])
