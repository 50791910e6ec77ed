"""A small causal transformer for next-word prediction: the decoder of Vaswani et al. 2017 (arXiv 1706.03762).

Layers are those of `workloads.models.albert`, each with its own parameters: self-attention and a feed-forward part
with GELU, normalised after each residual sum, without dropout. The prediction's weight is the embedding's.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear

from workloads.models.albert import Configuration, Layer, later, small_normal
from workloads.models.registry import Sizes
from workloads.models.vector import FederatedModel, embedding


class Transformer(FederatedModel):
    """Network from words (N, T) int64 to logits (N, vocabulary, T) of the next word at each position."""

    def __init__(self, sizes: Configuration) -> None:
        super().__init__()
        self.words = embedding(sizes.vocabulary, sizes.hidden)
        self.positions = embedding(sizes.positions, sizes.hidden)
        self.norm = nn.LayerNorm(sizes.hidden)
        self.layers = nn.ModuleList([Layer(sizes) for _ in range(sizes.layers)])
        self.bias = nn.Parameter(torch.empty(sizes.vocabulary))

    def forward(self, words: Tensor) -> Tensor:
        values: Tensor = self.norm(self.words(words) + self.positions.weight[: words.shape[1]])
        future = later(words)
        for layer in self.layers:
            values = layer(values, future)
        return linear(values, self.words.weight, self.bias).transpose(1, 2)

    @staticmethod
    def initial_weights(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
        """Return initial weights: normal with standard deviation 0.02."""
        return small_normal(random, shape)


def transformer(sizes: Sizes) -> Transformer:
    """Return a model of hidden size 512, inner size 2048, 8 layers, 8 heads."""
    return Transformer(Configuration(sizes.outputs, hidden=512, inner=2048, layers=8, heads=8))


def transformer_small(sizes: Sizes) -> Transformer:
    """Return a model of hidden size 64, inner size 256, 2 layers, 4 heads."""
    return Transformer(Configuration(sizes.outputs, hidden=64, inner=256, layers=2, heads=4))
