"""Images of MNIST's size, 50 for each of 100 clients, and the CNN of McMahan et al. 2017, 1,663,370 parameters.

The images are noise: time does not depend on their content.
"""

from functools import cache
from typing import Any

import numpy as np
from torch import nn


class Net(nn.Sequential):
    """Two convolutions, two dense layers."""

    def __init__(self) -> None:
        first = (nn.Conv2d(1, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU())
        second = (nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU())
        super().__init__(*first, *second, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10))


@cache
def data() -> tuple[Any, Any]:
    """Images and labels, to train on and to test."""
    x = np.random.default_rng(0).normal(size=(5100, 1, 28, 28)).astype(np.float32)
    y = np.arange(5100) % 10
    return (x[:5000], y[:5000]), (x[5000:], y[5000:])
