"""Small classifiers of images: modules over (N, H, W) or (N, H, W, 3) float32.

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

import numpy as np
import torch
from torch import Tensor, nn

from workloads.models.registry import Sizes


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


def logistic(sizes: Sizes) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(sizes.height * sizes.width, sizes.outputs))


def mlp(sizes: Sizes) -> nn.Sequential:
    pixels = sizes.height * sizes.width
    hidden = min(200, pixels)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(pixels, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, sizes.outputs),
    )


def cnn(sizes: Sizes) -> nn.Sequential:
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(32 * (sizes.height // 4) * (sizes.width // 4), sizes.outputs),
    )


def femnist_cnn(sizes: Sizes) -> nn.Sequential:
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
        nn.Linear(128, sizes.outputs),
    )


def mnist_cnn(sizes: Sizes) -> nn.Sequential:
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
        nn.Linear(512, sizes.outputs),
    )


def emnist_cnn(sizes: Sizes) -> nn.Sequential:
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
        nn.Linear(256, sizes.outputs),
    )


def lenet(sizes: Sizes) -> nn.Sequential:
    padding = 2 if sizes.channels == 1 else 0  # grey images are of 28x28
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(sizes.channels, 6, 5, padding=padding),
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
        nn.Linear(84, sizes.outputs),
    )
