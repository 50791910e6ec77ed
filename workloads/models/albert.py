"""ALBERT for next-word prediction: Lan et al. 2020 (ICLR, arXiv 1909.11942), with causal attention.

The base configuration: embeddings of 128 for 30,000 words, hidden size 768, 12 layers that share their parameters, 12
heads, inner size 3072, 512 positions, no dropout (version 2). ALBERT's original task is to predict masked words, with
attention in both directions; here each position attends to itself and earlier ones, and predicts the next word. This
changes no parameter. Layers are normalised after each residual sum; GELU is its tanh approximation.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, softmax

from workloads.models.registry import Sizes
from workloads.models.vector import FederatedModel, embedding

_EPSILON = 1e-12  # in normalisations
_DEVIATION = np.float32(0.02)  # standard deviation of initial weights


@dataclass(frozen=True, slots=True)
class Configuration:
    """Sizes of a model.

    Attributes:
        vocabulary: words, special tokens included.
        embedding, hidden, inner: widths of the embeddings, of the layers and of their feed-forward part.
        layers, heads: number of layers and of heads.
        positions: longest sequence.
    """

    vocabulary: int = 30_000
    embedding: int = 128
    hidden: int = 768
    inner: int = 3072
    layers: int = 12
    heads: int = 12
    positions: int = 512


class Layer(nn.Module):
    """Self-attention and a feed-forward part, each with a residual sum and a normalisation."""

    def __init__(self, sizes: Configuration) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.query = nn.Linear(sizes.hidden, sizes.hidden)
        self.key = nn.Linear(sizes.hidden, sizes.hidden)
        self.value = nn.Linear(sizes.hidden, sizes.hidden)
        self.attended = nn.Linear(sizes.hidden, sizes.hidden)
        self.attention_norm = nn.LayerNorm(sizes.hidden, _EPSILON)
        self.inner = nn.Linear(sizes.hidden, sizes.inner)
        self.outer = nn.Linear(sizes.inner, sizes.hidden)
        self.norm = nn.LayerNorm(sizes.hidden, _EPSILON)

    def forward(self, values: Tensor, future: Tensor) -> Tensor:
        values = self.attention_norm(values + self.attended(self._attention(values, future)))
        normalised: Tensor = self.norm(values + self.outer(gelu(self.inner(values), approximate="tanh")))
        return normalised

    def _attention(self, values: Tensor, future: Tensor) -> Tensor:
        # Not torch's fused attention: it chooses among kernels that differ in the last bits.
        count, length, width = values.shape
        query, key, value = (
            part(values).view(count, length, self.heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(width // self.heads)
        # Causal: a later word would reveal the word to predict.
        weights = softmax(scores.masked_fill(future, -math.inf), dim=3)
        attended: Tensor = (weights @ value).transpose(1, 2).reshape(count, length, width)
        return attended


class Albert(FederatedModel):
    """Network from words (N, T) int64 to logits (N, vocabulary, T) of the next word at each position."""

    # The base configuration's vector has 15,091,680 numbers, as Lotto (arXiv 2401.02880) transmits. Its authors use
    # Hugging Face's AlbertForMaskedLM and count tied parameters once for each of their names.
    #   words 3,840,000 + positions 65,536 + segments 256 + normalisation 256     3,906,048
    #   embedding to hidden                                                          99,072
    #   one layer: attention 2,362,368 + inner 4,722,432 + normalisations 3,072   7,087,872
    #   prediction: dense 98,432 + normalisation 256 + bias 30,000                  128,688
    #   together                                                                 11,221,680
    #   words again, as the prediction's weight                                   3,840,000
    #   the prediction's bias again                                                  30,000
    #   sent                                                                     15,091,680
    # Clients read the first of two copies, train it, and send it twice.
    sent_twice = ("words.weight", "bias")

    def __init__(self, sizes: Configuration) -> None:
        super().__init__()
        self.sizes = sizes
        self.words = embedding(sizes.vocabulary, sizes.embedding)
        self.positions = embedding(sizes.positions, sizes.embedding)
        self.segments = embedding(2, sizes.embedding)  # ALBERT has two; all words here are of the first
        self.embedding_norm = nn.LayerNorm(sizes.embedding, _EPSILON)
        self.to_hidden = nn.Linear(sizes.embedding, sizes.hidden)
        self.layer = Layer(sizes)
        self.prediction = nn.Linear(sizes.hidden, sizes.embedding)
        self.prediction_norm = nn.LayerNorm(sizes.embedding, _EPSILON)
        self.bias = nn.Parameter(torch.empty(sizes.vocabulary))

    def forward(self, words: Tensor) -> Tensor:
        length = words.shape[1]
        embedded = self.words(words) + self.positions.weight[:length] + self.segments.weight[0]
        values = self.to_hidden(self.embedding_norm(embedded))
        future = later(words)
        for _ in range(self.sizes.layers):
            values = self.layer(values, future)
        predicted = self.prediction_norm(gelu(self.prediction(values), approximate="tanh"))
        logits: Tensor = linear(predicted, self.words.weight, self.bias).transpose(1, 2)
        return logits

    @staticmethod
    def initial_weights(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
        """Return initial weights: normal with standard deviation 0.02."""
        return small_normal(random, shape)


def later(words: Tensor) -> Tensor:
    """Return (T, T) booleans for words (N, T): whether the second position is later, and so hidden from the first."""
    length = words.shape[1]
    # Diagonal 1: each position attends to itself.
    return torch.ones(length, length, dtype=torch.bool, device=words.device).triu(1)


def small_normal(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
    """Return flat weights of a shape: normal with standard deviation 0.02.

    Args:
        random: source of the weights.
        shape: their shape.
    """
    return random.standard_normal(shape.numel(), dtype=np.float32) * _DEVIATION


def albert(sizes: Sizes) -> Albert:
    """Return the base configuration."""
    return Albert(Configuration(sizes.outputs))


def albert_small(sizes: Sizes) -> Albert:
    """Return a small configuration: embeddings 32, hidden 64, inner 256, 2 layers, 4 heads."""
    return Albert(Configuration(sizes.outputs, embedding=32, hidden=64, inner=256, layers=2, heads=4))
