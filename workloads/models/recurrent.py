"""Classifiers of sequences of characters or words: modules with inputs (N, length) int64.

All are LEAF's (Caldas et al. 2018, arXiv 1812.01097, and its authors' published code), with Glorot's initial weights,
as in TensorFlow. Numbers in brackets are a layer's parameters.
"""

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workloads.data.clients.text import UNKNOWN
from workloads.models.registry import Sizes
from workloads.models.vector import FederatedModel, embedding, glorot_uniform

_FORGET = 1.0  # bias of the forget gate: at first little is forgotten


# Instead of torch's own, which supports neither several clients at once nor gradients of single samples. On a CPU a
# step of `char-lstm` takes 2.3 times as long as with torch's (20 windows, one thread: 135 and 59 ms).
class Lstm(nn.Module):
    """One layer, from (N, length, inputs) to its states, (N, length, hidden)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.inputs = nn.Linear(inputs, 4 * hidden)
        self.state = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        state = cell = values.new_zeros(len(values), self.hidden)
        states = []
        for projected in self.inputs(values).unbind(dim=1):  # one product for all steps
            entry, new, forget, out = (projected + self.state(state)).chunk(4, dim=1)
            # Zaremba et al. 2014; the parameters are in the order of TensorFlow's BasicLSTMCell (i, j, f, o).
            cell = cell * torch.sigmoid(forget + _FORGET) + torch.sigmoid(entry) * torch.tanh(new)
            state = torch.tanh(cell) * torch.sigmoid(out)
            states.append(state)
        return torch.stack(states, dim=1)


class StackedLstm(FederatedModel):
    """An embedding, two LSTM layers and linear layers from the last state: (N, length) int64 to (N, classes).

    Args:
        sizes: outputs and vocabulary.
        width: width of the embedding.
        hidden: width of each LSTM layer.
        between: widths of linear layers before the last one.
    """

    def __init__(self, sizes: Sizes, width: int, hidden: int, between: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.embedding = embedding(sizes.vocabulary, width)
        self.layers = nn.Sequential(Lstm(width, hidden), Lstm(hidden, hidden))
        widths = (hidden, *between, sizes.outputs)
        self.output = nn.Sequential(*(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)))

    def forward(self, tokens: Tensor) -> Tensor:
        # The last state alone: it has seen the whole sequence.
        logits: Tensor = self.output(self.layers(self.embedding(tokens))[:, -1])
        return logits

    @staticmethod
    def initial_weights(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
        """Return Glorot and Bengio's initial weights."""
        return glorot_uniform(random, shape)


class WordBag(FederatedModel):
    """Logistic regression over counts of words: (N, length) int64 to (N, classes).

    LEAF's `sent140/bag_log_reg`; 20,002 parameters at 10,000 words and two classes.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = embedding(sizes.vocabulary, sizes.outputs)
        self.bias = nn.Parameter(torch.empty(sizes.outputs))

    def forward(self, tokens: Tensor) -> Tensor:
        # Padding (0) and unknown words (1) do not count, as in LEAF.
        counts = (tokens > UNKNOWN).unsqueeze(dim=2)
        logits: Tensor = (self.words(tokens) * counts).sum(dim=1) + self.bias
        return logits

    @staticmethod
    def initial_weights(random: np.random.Generator, shape: torch.Size) -> NDArray[np.float32]:
        """Return Glorot and Bengio's initial weights."""
        return glorot_uniform(random, shape)


# LEAF's `shakespeare/stacked_lstm`; for 80 characters 817,872 parameters (640, 271,360, 525,312, 20,560).
def character_lstm(sizes: Sizes) -> StackedLstm:
    return StackedLstm(sizes, width=8, hidden=256)


# LEAF's `sent140/stacked_lstm`, with no nonlinearity between its dense layers; for 10,000 words 1,173,986 parameters.
def sentence_lstm(sizes: Sizes) -> StackedLstm:
    return StackedLstm(sizes, width=100, hidden=100, between=(128,))
