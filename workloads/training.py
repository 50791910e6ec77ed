"""Local training: mini-batch SGD with momentum on one client's samples, and evaluation.

McMahan et al. 2017 (arXiv 1602.05629), Algorithm 1, ClientUpdate; momentum as in torch.optim.SGD, started
from zero in every round.

One model lives in each process. All its parameters are views into one flat vector, so that taking in a
federation's model is one copy and giving back the change is one subtraction, whatever the number of layers.
"""

import threading
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss
from torch.optim.sgd import sgd

from testbed.experiment.workload import Workload
from workloads.contract import Evaluation
from workloads.models import SeededDropout, dimension
from workloads.randomness import Purpose, stream

_EVALUATION_BATCH = 250


def prepare_process() -> torch.device:
    """Set what bit-identical results need in this process, and choose the device: CUDA if there is one, else
    CPU.

    One thread: hosts share the cores among processes, and the order of torch's sums depends on the number of
    threads. On CUDA cuDNN is kept to deterministic kernels; a GPU's sums still differ from a CPU's in the
    last bits, so tables meant to be identical bit for bit need hosts of one kind.
    """
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class MomentumDescent:
    """What torch.optim.SGD does, bit for bit, by the function that is behind it.

    The class would import torch's compiler when it is first made: 160 MB and a second for every process that trains.

    Args:
        parameters: tensors that are changed in place.
        momentum, weight_decay: as in torch.optim.SGD.
    """

    def __init__(self, parameters: list[nn.Parameter], momentum: float, weight_decay: float) -> None:
        self._parameters = parameters
        self._momentum = momentum
        self._weight_decay = weight_decay
        self.begin(0.0)

    def begin(self, learning_rate: float) -> None:
        """Start anew: momentum is zero."""
        self._learning_rate = learning_rate
        self._velocities: list[Tensor | None] = [None] * len(self._parameters)

    def forget_gradients(self) -> None:
        """Backward passes add to gradients; the next one begins from none."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """Move the parameters by their gradients."""
        gradients = [parameter.grad for parameter in self._parameters]
        with torch.no_grad():
            # fused: one pass over gradient, momentum and weights instead of three.
            sgd(
                self._parameters, gradients, self._velocities, has_sparse_grad=False, foreach=False, fused=True,
                weight_decay=self._weight_decay, momentum=self._momentum, lr=self._learning_rate, dampening=0.0,
                nesterov=False, maximize=False,
            )  # fmt: skip


class LocalTrainer:
    """The one model of a process, and SGD on it.

    Calls from several threads are safe and run one after the other.

    Args:
        network: a model on the meta device (`workloads.models.make`); it is given memory here.
        section: epochs, batch size, learning rate, momentum, weight decay.
        seed: the experiment's seed.
        device: where to compute.
    """

    def __init__(self, network: nn.Module, section: Workload, seed: int, device: torch.device) -> None:
        self.device = device
        self._section = section
        self._seed = seed
        self._network = network
        self._flat = torch.zeros(dimension(network), dtype=torch.float32, device=device)
        start = 0
        for module in network.modules():  # not to_empty: that imports sympy, half a second in every process
            for name, parameter in list(module.named_parameters(recurse=False)):
                stop = start + parameter.numel()
                setattr(module, name, nn.Parameter(self._flat[start:stop].view(parameter.shape)))
                start = stop
        self._dropouts = [module for module in self._network.modules() if isinstance(module, SeededDropout)]
        self._descent = MomentumDescent(list(self._network.parameters()), section.momentum, section.weight_decay)
        self._lock = threading.Lock()

    def _load(self, model: NDArray[np.float32]) -> None:
        if model.shape != tuple(self._flat.shape) or model.dtype != np.float32:
            raise ValueError(
                f"a model of shape {tuple(self._flat.shape)} and dtype float32 is needed, "
                f"not {model.shape} and {model.dtype}"
            )
        if self.device.type == "cpu":
            # Through numpy: torch.from_numpy warns about read-only arrays such as memory-mapped ones.
            np.copyto(self._flat.numpy(), model)
        else:
            self._flat.copy_(torch.from_numpy(np.array(model)))

    def train(
        self, client: int, images: Tensor, labels: Tensor, model: NDArray[np.float32], round_number: int
    ) -> tuple[NDArray[np.float32], float, float]:
        """SGD on one client's samples, from `model`.

        Args:
            client, round_number: name the streams for the order of the samples and for dropout.
            images: (n, ...) float32 and labels: (n,) int64, n >= 1, on `device`.
            model: (d,) float32, not changed.

        Returns:
            delta: (d,) float32, the local model minus `model`; the mean loss over all examples processed, and the
            mean of its square.
        """
        section = self._section
        with self._lock:
            self._load(model)
            if not self._network.training:  # walking the modules costs as much as a small model's step
                self._network.train()
            self._descent.begin(section.learning_rate * section.learning_rate_decay ** (round_number - 1))
            if self._dropouts:
                dropout_stream = stream(self._seed, Purpose.DROPOUT, client, round_number)
                for dropout in self._dropouts:
                    dropout.random = dropout_stream
            order_stream = stream(self._seed, Purpose.BATCHES, client, round_number)
            total = torch.zeros((), device=self.device)
            losses = torch.empty((section.epochs, len(labels), 1), device=self.device)
            for epoch in losses:
                order = torch.from_numpy(order_stream.permutation(len(labels))).to(self.device)
                total += self._epoch(images.index_select(0, order), labels.index_select(0, order), epoch)
            local = self._flat.cpu().numpy()
            delta = np.subtract(local, model)
        return delta, float(total) / (section.epochs * len(labels)), float(losses.double().square().mean())

    def _epoch(self, images: Tensor, labels: Tensor, losses: Tensor) -> Tensor:
        """One pass in the given order; returns the sum of the losses without waiting for the device.

        Each sample's own loss goes into `losses`, (n, 1).
        """
        size = self._section.batch_size
        total = torch.zeros((), device=self.device)
        rows = labels.unsqueeze(1)
        for start in range(0, len(labels), size):
            batch_labels = labels[start : start + size]
            self._descent.forget_gradients()
            # What cross_entropy does, in its two steps: the first is needed for the single losses, too.
            likelihoods = log_softmax(self._network(images[start : start + size]), 1)
            loss = nll_loss(likelihoods, batch_labels)
            loss.backward()
            self._descent.step()
            total.add_(loss.detach(), alpha=len(batch_labels))
            torch.gather(likelihoods.detach(), 1, rows[start : start + size], out=losses[start : start + size])
        return total

    def evaluate(self, images: Tensor, labels: Tensor, model: NDArray[np.float32]) -> Evaluation:
        """Mean cross-entropy (natural logarithm) and accuracy of `model` on the given samples."""
        loss_sum, correct = 0.0, 0
        with self._lock, torch.inference_mode():
            self._load(model)
            self._network.eval()
            for start in range(0, len(labels), _EVALUATION_BATCH):
                batch_labels = labels[start : start + _EVALUATION_BATCH]
                logits = cast(Tensor, self._network(images[start : start + _EVALUATION_BATCH]))
                loss_sum += float(cross_entropy(logits, batch_labels, reduction="sum"))
                correct += int((logits.argmax(dim=1) == batch_labels).sum())
        count = len(labels)
        return Evaluation(loss=loss_sum / count, accuracy=correct / count, samples=count)
