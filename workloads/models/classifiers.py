"""The models that clients train, by name; here small classifiers, modules over (N, H, W) or (N, H, W, 3) float32.

`workloads.models.vgg` and `workloads.models.mobilenet` have the larger ones for colour images,
`workloads.models.albert` those for text.

- ``logistic``: multinomial logistic regression.
- ``mlp``: two hidden layers of 200 units, the "2NN" of McMahan et al. 2017 (arXiv 1602.05629), 199,210
  parameters for MNIST; for images of fewer than 200 pixels the layers are as wide as the image has pixels.
- ``cnn``: two small padded convolutions (16 and 32 channels) with pooling, for 8x8 as well as 28x28.
- ``femnist-cnn``: the FEMNIST model of Lotto (Jiang et al., arXiv 2401.02880; ``cnn_ddgauss`` in its authors'
  published code), which is the "1M parameter" CNN of Kairouz, Liu and Steinke 2021 (arXiv 2102.06387; EMNIST
  task of TensorFlow Federated), sized to stay under 2**20 for the randomised Hadamard transform:
  conv 3x3 1->32 (320), pool, conv 3x3 32->64 (18,496), dense 7744->128 (991,360), dense 128->62 (7,998),
  1,018,174 parameters at 62 classes. The sources differ on dropout (0.25 and 0.5 in TensorFlow Federated,
  0.25 and 0.25 in Lotto's code) and on Xavier's gain; Lotto's choices are used here.
- ``mnist-cnn``: the CNN of McMahan et al. 2017 for MNIST, 1,663,370 parameters: conv 5x5 1->32 (832), pool, conv 5x5
  32->64 (51,264), pool, dense 3136->512 (1,606,144), dense 512->10 (5,130); convolutions keep the size.
- ``emnist-cnn``: the network of Hasircioglu and Gunduz (arXiv 2205.01556, Figure 8) for EMNIST ByClass, 156,526
  parameters at 62 classes: conv 8x8 1->16, stride 2, padding 3 (1,040), pool 2x2 by steps of 1, conv 4x4 16->32, stride
  2 (8,224), pool as before, dense 512->256 (131,328), dense 256->62 (15,934).
- ``lenet``: LeNet-5 of LeCun et al. 1998 ("Gradient-based learning applied to document recognition") as it is written
  today, with ReLU and maximum pooling: conv 5x5 ->6, pool, conv 5x5 6->16, pool, dense 400->120->84->classes. For
  colour images of 32x32 and ten classes 62,006 parameters (456, 2,416, 48,120, 10,164, 850); for grey ones of 28x28,
  padded to 32x32 as LeCun's are, 61,706.

Each computes the same function of the same parameters, in the order of ``module.parameters()``, as the
textbook stack of torch layers (tests compare values and gradients); three things only make it faster on a
CPU: images go through convolutions channels-last, pooling comes before ReLU (they commute) and dropout draws
one byte per unit.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from testbed.errors import ExperimentError
from workloads.models import vector
from workloads.randomness import Purpose, stream


class ChannelsLast(nn.Module):
    """Grey images (N, H, W) or colour images (N, H, W, 3) as (N, C, H, W) that torch takes for channels-last, without
    copying.

    With one channel both layouts are the same bytes; only the strides tell torch which kernels to use.
    """

    def forward(self, images: Tensor) -> Tensor:
        return (images.unsqueeze(-1) if images.dim() == 3 else images).permute(0, 3, 1, 2)


class SeededDropout(nn.Module):
    """Dropout whose masks come from a given stream instead of torch's global generator.

    Each unit costs one random byte (torch's own costs a 32-bit draw and, on a CPU, a tenth of a training
    step), so the probability is a multiple of 1/256. Without a stream, as in evaluation, it passes values
    through.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.threshold = round(probability * 256)
        if self.threshold != probability * 256 or not 0 <= self.threshold < 256:
            raise ValueError(f"dropout probability {probability} is not a multiple of 1/256 in [0, 1)")
        self.random: np.random.Generator | None = None

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.random is None or self.threshold == 0:
            return values
        count = values.numel()
        words = self.random.bit_generator.random_raw((count + 7) // 8)
        octets = torch.from_numpy(words.view(np.uint8)[:count]).to(values.device)
        mask = (octets >= self.threshold).to(values.dtype).mul_(256.0 / (256 - self.threshold))
        return values * mask.view(values.shape)


def _logistic(height: int, width: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(height * width, classes))


def _mlp(height: int, width: int, classes: int) -> nn.Sequential:
    pixels = height * width
    hidden = min(200, pixels)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(pixels, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, classes),
    )


def _cnn(height: int, width: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), classes),
    )


def _require(model: str, size: tuple[int, int], needed: tuple[int, int]) -> None:
    if size != needed:
        raise ExperimentError(
            f"workload.model: {model} needs {needed[0]}x{needed[1]} images, these are {size[0]}x{size[1]}; use another "
            "model (grey images of any size: logistic, mlp, cnn)"
        )


def _femnist_cnn(height: int, width: int, classes: int) -> nn.Sequential:
    _require("femnist-cnn", (height, width), (28, 28))
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(1, 32, 3),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        SeededDropout(0.25),
        nn.Linear(7744, 128),
        nn.ReLU(inplace=True),
        SeededDropout(0.25),
        nn.Linear(128, classes),
    )


def _mnist_cnn(height: int, width: int, classes: int) -> nn.Sequential:
    _require("mnist-cnn", (height, width), (28, 28))
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(1, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(inplace=True),
        nn.Linear(512, classes),
    )


def _emnist_cnn(height: int, width: int, classes: int) -> nn.Sequential:
    _require("emnist-cnn", (height, width), (28, 28))
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.MaxPool2d(2, stride=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.MaxPool2d(2, stride=1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(512, 256),
        nn.ReLU(inplace=True),
        nn.Linear(256, classes),
    )


def _grey_lenet(height: int, width: int, classes: int) -> nn.Sequential:
    _require("lenet", (height, width), (28, 28))
    return _lenet(1, 2, classes)


def _colour_lenet(height: int, width: int, classes: int) -> nn.Sequential:
    _require("lenet", (height, width), (32, 32))
    return _lenet(3, 0, classes)


def _lenet(channels: int, padding: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(channels, 6, 5, padding=padding),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(inplace=True),
        nn.Linear(120, 84),
        nn.ReLU(inplace=True),
        nn.Linear(84, classes),
    )


def _vgg11(height: int, width: int, classes: int) -> nn.Module:
    _require("vgg11", (height, width), (32, 32))
    from workloads.models.vgg import VGG11

    return VGG11(classes)


def _mobilenet_v2(height: int, width: int, classes: int) -> nn.Module:
    from workloads.models.mobilenet import MobileNetV2

    return MobileNetV2(classes)


_Make = Callable[[int, int, int], nn.Module]
_GREY: dict[str, _Make] = {
    "logistic": _logistic,
    "mlp": _mlp,
    "cnn": _cnn,
    "femnist-cnn": _femnist_cnn,
    "mnist-cnn": _mnist_cnn,
    "emnist-cnn": _emnist_cnn,
    "lenet": _grey_lenet,
}
_COLOUR: dict[str, _Make] = {"lenet": _colour_lenet, "vgg11": _vgg11, "mobilenet-v2": _mobilenet_v2}


def make(name: str, height: int, width: int, classes: int, channels: int = 1) -> nn.Module:
    """A model without storage (torch's meta device): its shapes only; `workloads.training.local` gives it memory.

    Args:
        name: ``logistic``, ``mlp``, ``cnn``, ``femnist-cnn``, ``mnist-cnn``, ``emnist-cnn`` or ``lenet`` of grey images
            (N, H, W); ``lenet`` or ``vgg11`` of colour images (N, H, W, 3), ``mobilenet-v2`` of (N, 3, H, W) bytes.
        height, width: of the images, in pixels.
        classes: number of labels.
        channels: of the images, 1 or 3.

    Raises:
        ExperimentError: an unknown name, or images that the model cannot take.
    """
    known = _GREY if channels == 1 else _COLOUR
    if name not in known:
        kind = "grey" if channels == 1 else "colour"
        raise ExperimentError(f"workload.model: {name!r} is no model of {kind} images; allowed: {', '.join(known)}")
    # On the meta device the layers' constructors draw no random numbers.
    with torch.device("meta"):
        return known[name](height, width, classes)


def dimension(network: nn.Module) -> int:
    """The length of a model's vector; see `workloads.models.vector`."""
    return vector.dimension(network)


def initial_vector(network: nn.Module, seed: int) -> NDArray[np.float32]:
    """(d,) float32 initial values; of the models in this module: Xavier uniform with ReLU's gain for weights, zero for
    biases.

    A function of the shapes and the seed alone: no generator of torch is used.
    """
    return vector.initial(network, stream(seed, Purpose.WEIGHTS))
