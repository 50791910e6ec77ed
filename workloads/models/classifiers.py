"""Classifiers of images: modules over (N, H, W) or (N, H, W, 3) float32, `MobileNetV2` over bytes.

Each function computes the same function of the same parameters, in the order of ``module.parameters()``, as the
textbook stack of torch layers (tests compare values and gradients), in a form that is faster on a CPU. Numbers in
brackets are a layer's parameters.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workloads.models.registry import Sizes
from workloads.models.vector import FederatedModel, he_uniform, leave_out_counts


class ChannelsLast(nn.Module):
    """Layer from images (N, H, W) or (N, H, W, 3) to (N, C, H, W) in channels-last layout, without a copy."""

    def forward(self, images: Tensor) -> Tensor:
        # With one channel both layouts have the same bytes; only the strides select torch's channels-last kernels.
        return (images.unsqueeze(-1) if images.dim() == 3 else images).permute(0, 3, 1, 2)


class SeededDropout(nn.Module):
    """Dropout with masks from a given stream instead of torch's global generator.

    Each unit costs one random byte (torch's own costs a 32-bit draw and, on a CPU, a tenth of a training step), so the
    probability is a multiple of 1/256. Without a stream, as in evaluation, values pass unchanged.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.threshold = round(probability * 256)
        if self.threshold != probability * 256 or not 0 <= self.threshold < 256:
            raise ValueError(f"dropout probability {probability} is not a multiple of 1/256 in [0, 1)")
        self.random: np.random.Generator | None = None
        self.masks: Iterator[Tensor] | None = None  # if set, replaces the stream: masks of several clients

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.threshold == 0:
            return values
        if self.masks is not None:
            return values * next(self.masks)
        if self.random is None:
            return values
        octets = torch.from_numpy(self.octets(self.random, values.numel())).to(values.device)
        return values * self.mask(octets).view(values.shape)

    @staticmethod
    def octets(random: np.random.Generator, count: int) -> NDArray[np.uint8]:
        """Return (count,) uint8, one for each unit, from whole words of the stream."""
        return random.bit_generator.random_raw((count + 7) // 8).view(np.uint8)[:count]

    def mask(self, octets: Tensor) -> Tensor:
        """Return the factors of units, float32 of the same shape: zero if dropped, else 1 / keep probability."""
        return (octets >= self.threshold).to(torch.float32).mul_(256.0 / (256 - self.threshold))


def _pooled(convolution: nn.Conv2d, step: int = 2) -> tuple[nn.Module, ...]:
    """Return a convolution, maximum pooling of 2x2 with stride `step`, and ReLU."""
    # Pooling first: maximum and ReLU commute, and ReLU then has a quarter of the values.
    return convolution, nn.MaxPool2d(2, step), nn.ReLU(inplace=True)


def _dense(*widths: int) -> list[nn.Module]:
    """Return linear layers between these widths, with ReLU between the layers."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    # Without the last ReLU: logits may be negative.
    return layers[:-1]


def logistic(sizes: Sizes) -> nn.Sequential:
    return nn.Sequential(*_dense(sizes.height * sizes.width, sizes.outputs))


# The "2NN" of McMahan et al. 2017 (arXiv 1602.05629): two hidden layers of 200 units, 199,210 parameters for MNIST. For
# images of fewer than 200 pixels the layers are as wide as the image has pixels.
def mlp(sizes: Sizes) -> nn.Sequential:
    pixels = sizes.height * sizes.width
    hidden = min(200, pixels)
    return nn.Sequential(*_dense(pixels, hidden, hidden, sizes.outputs))


# A small network for 8x8 as well as 28x28: padding keeps the size, and two poolings divide it by four.
def cnn(sizes: Sizes) -> nn.Sequential:
    return nn.Sequential(
        ChannelsLast(),
        *_pooled(nn.Conv2d(1, 16, 3, padding=1)),
        *_pooled(nn.Conv2d(16, 32, 3, padding=1)),
        *_dense(32 * (sizes.height // 4) * (sizes.width // 4), sizes.outputs),
    )


# The FEMNIST model of Lotto (arXiv 2401.02880; `cnn_ddgauss` in its authors' code): the "1M parameter" CNN of Kairouz,
# Liu and Steinke 2021 (arXiv 2102.06387), which stays under 2**20 for the randomised Hadamard transform. At 62 classes
# 1,018,174 parameters: conv 1->32 (320), conv 32->64 (18,496), dense 7744->128 (991,360), dense 128->62 (7,998).
# Dropout (0.25 and 0.25, in TensorFlow Federated 0.25 and 0.5) and Xavier's gain are Lotto's.
def femnist_cnn(sizes: Sizes) -> nn.Sequential:
    return nn.Sequential(
        ChannelsLast(),
        *_pooled(nn.Conv2d(1, 32, 3)),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        SeededDropout(0.25),
        nn.Linear(7744, 128),
        nn.ReLU(inplace=True),
        SeededDropout(0.25),
        nn.Linear(128, sizes.outputs),
    )


# The CNN of McMahan et al. 2017 for MNIST, 1,663,370 parameters: conv 5x5 1->32 (832), conv 5x5 32->64 (51,264), dense
# 3136->512 (1,606,144), dense 512->10 (5,130).
def mnist_cnn(sizes: Sizes) -> nn.Sequential:
    return nn.Sequential(
        ChannelsLast(),
        *_pooled(nn.Conv2d(1, 32, 5, padding=2)),
        *_pooled(nn.Conv2d(32, 64, 5, padding=2)),
        *_dense(3136, 512, sizes.outputs),
    )


# Hasircioglu and Gunduz (arXiv 2205.01556), Figure 8, for EMNIST ByClass; 156,526 parameters at 62 classes: conv 1->16
# (1,040), conv 16->32 (8,224), dense 512->256 (131,328), dense 256->62 (15,934).
def emnist_cnn(sizes: Sizes) -> nn.Sequential:
    return nn.Sequential(
        ChannelsLast(),
        *_pooled(nn.Conv2d(1, 16, 8, stride=2, padding=3), step=1),
        *_pooled(nn.Conv2d(16, 32, 4, stride=2), step=1),
        *_dense(512, 256, sizes.outputs),
    )


# pfl-research's CIFAR-10 benchmark (Granqvist et al. 2024, arXiv 2404.06430; `simple_cnn` in its authors' code). At ten
# classes 1,626,442 parameters: conv 3->32 (896), conv 32->64 (18,496), dense 12544->128 (1,605,760), dense 128->10
# (1,290).
def cifar_cnn(sizes: Sizes) -> nn.Sequential:
    return nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(3, 32, 3),
        nn.ReLU(inplace=True),
        *_pooled(nn.Conv2d(32, 64, 3)),
        nn.Flatten(),
        SeededDropout(0.25),
        nn.Linear(12544, 128),
        nn.ReLU(inplace=True),
        SeededDropout(0.5),
        nn.Linear(128, sizes.outputs),
    )


# LeNet-5 of LeCun et al. 1998 in its modern form, with ReLU and maximum pooling. For 32x32 in colour and ten classes
# 62,006 parameters (456, 2,416, 48,120, 10,164, 850); for grey images of 28x28, padded to 32x32 as LeCun's, 61,706.
def lenet(sizes: Sizes) -> nn.Sequential:
    padding = 2 if sizes.channels == 1 else 0  # grey images have 28x28 pixels
    return nn.Sequential(
        ChannelsLast(),
        *_pooled(nn.Conv2d(sizes.channels, 6, 5, padding=padding)),
        *_pooled(nn.Conv2d(6, 16, 5)),
        *_dense(400, 120, 84, sizes.outputs),
    )


_CHANNELS = (64, 128, 256, 256, 512, 512, 512, 512)
_POOLED = (0, 1, 3, 5, 7)  # convolutions followed by pooling


class _Planes(nn.Module):
    """Layer from (N, H, W, 3) to contiguous (N, 3, H, W); gradients of filters have this layout without a copy."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2).contiguous()


class VGG11(FederatedModel):
    """VGG-11, (N, 32, 32, 3) float32 to (N, classes).

    Simonyan and Zisserman 2015 (ICLR, arXiv 1409.1556), Table 1, configuration A.

    Eight padded 3x3 convolutions with ReLU, five poolings that leave one pixel of 512 channels, and one linear layer,
    as usual on CIFAR: the paper's three dense layers are for images of 224x224. As in the paper there is no batch
    normalisation: its running statistics would be averaged over clients with one label each. The paper's dropout
    between its dense layers is left out.

    The vector has 9,271,780 numbers at 100 classes, 9,225,610 at ten; the convolutions are 9,220,480 of them. Initial
    weights are He's: without normalisation, signals fade with Xavier's scale where the channels grow.
    """

    initial_weights = staticmethod(he_uniform)

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Planes()]
        channels = 3
        for place, out in enumerate(_CHANNELS):
            layers.append(nn.Conv2d(channels, out, 3, padding=1))
            if place in _POOLED:
                layers.append(nn.MaxPool2d(2))
            layers.append(nn.ReLU(inplace=True))
            channels = out
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.output = nn.Linear(channels, sizes.outputs)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(images))
        return logits


_FIRST, _LAST = 8, 1280
_UNITS = ((1, 4, 1, 1), (6, 6, 2, 2), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1), (6, 40, 3, 2), (6, 80, 1, 1))
"""Expansion, output channels, number of units, stride of the first unit."""

# Red, green and blue, in bytes: Lotto's authors normalise OpenImage with these (0.4914, ... of 255).
_MEANS, _DEVIATIONS = (125.307, 122.961, 113.8575), (51.5865, 50.847, 51.255)


class _Bytes(nn.Module):
    """Layer from (N, 3, H, W) uint8 to normalised float32, one batch at a time; a client's images stay bytes."""

    def forward(self, images: Tensor) -> Tensor:
        means = torch.tensor(_MEANS, device=images.device).view(1, 3, 1, 1)
        deviations = torch.tensor(_DEVIATIONS, device=images.device).view(1, 3, 1, 1)
        return images.to(torch.float32).sub_(means).div_(deviations).contiguous(memory_format=torch.channels_last)


class _Convolution(nn.Sequential):
    """Convolution without bias, batch normalisation and (unless linear) ReLU6."""

    def __init__(self, channels: int, out: int, size: int, stride: int = 1, groups: int = 1, linear: bool = False):
        normalisation = nn.BatchNorm2d(out)
        normalisation.num_batches_tracked = None  # unused: the statistics have a fixed momentum of 0.1
        layers: list[nn.Module] = [
            nn.Conv2d(channels, out, size, stride, padding=size // 2, groups=groups, bias=False),
            normalisation,
        ]
        super().__init__(*layers, *([] if linear else [nn.ReLU6(inplace=True)]))


class _Unit(nn.Module):
    """Inverted residual with linear bottleneck (section 3.3): expand, filter each channel, project."""

    def __init__(self, channels: int, out: int, expansion: int, stride: int) -> None:
        super().__init__()
        middle = channels * expansion
        self.layers = nn.Sequential(
            _Convolution(channels, middle, 1),
            _Convolution(middle, middle, 3, stride, groups=middle),
            _Convolution(middle, out, 1, linear=True),
        )
        # Section 3.3: only equal shapes can be added.
        self.is_residual = stride == 1 and channels == out

    def forward(self, values: Tensor) -> Tensor:
        changed: Tensor = self.layers(values)
        return values + changed if self.is_residual else changed


class CelebaCnn(FederatedModel):
    """LEAF's network for CelebA, (N, 3, H, W) uint8 to (N, classes).

    Caldas et al. 2018 (arXiv 1812.01097; ``celeba/cnn`` in its authors' published code).

    Four times a padded 3x3 convolution of 32 channels, batch normalisation, maximum pooling that keeps a last odd row,
    and ReLU; one linear layer. For 84x84 images and two classes 31,202 parameters (896, three times 9,248, four times
    64, 2,306), and 256 running means and variances in the vector. LEAF also uses the batch's statistics in evaluation,
    which needs no running statistics, and takes unscaled bytes; after the first normalisation this differs only at the
    border.
    """

    initial_weights = staticmethod(he_uniform)

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Bytes()]
        channels, height, width = 3, sizes.height, sizes.width
        for _ in range(4):
            layers += [nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.MaxPool2d(2, ceil_mode=True)]
            layers.append(nn.ReLU(inplace=True))
            channels, height, width = 32, -(-height // 2), -(-width // 2)
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.output = nn.Linear(32 * height * width, sizes.outputs)
        for module in self.modules():
            leave_out_counts(module, "celeba-cnn")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(images))
        return logits


class MobileNetV2(FederatedModel):
    """MobileNetV2 at width 0.25, (N, 3, H, W) uint8 to (N, classes); H and W are at least 33.

    Sandler et al. 2018 (arXiv 1801.04381), Table 2, in the form of Lotto's authors. With smaller images a channel would
    end as a single pixel.

    The vector has 1,009,736 numbers at 596 classes, the size that Lotto (arXiv 2401.02880) transmits: 999,272
    parameters and the 10,464 running means and variances of batch normalisation, without its 53 counts of batches. The
    number is that of the authors' published code, which follows FedScale (arXiv 2105.11367), and differs from
    torchvision's class of the same width (1,001,588 parameters at 596 classes) in three points:

    - channels are a quarter of the paper's (8; 4, 6, 8, 16, 24, 40, 80) and not rounded to multiples of eight;
    - the first unit, too, begins with a 1x1 convolution (of expansion 1);
    - the classifier has no bias, and no dropout comes before it.

    Their code resizes images to 256x256, pools 7x7 windows of the 8x8 map and so has four times as many outputs as
    classes; here the whole map is pooled, as in the paper.
    """

    initial_weights = staticmethod(he_uniform)

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Bytes(), _Convolution(3, _FIRST, 3, stride=2)]
        channels = _FIRST
        for expansion, out, units, stride in _UNITS:
            for number in range(units):
                layers.append(_Unit(channels, out, expansion, stride if number == 0 else 1))
                channels = out
        self.features = nn.Sequential(*layers, _Convolution(channels, _LAST, 1))
        self.output = nn.Linear(_LAST, sizes.outputs, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(images).mean(dim=(2, 3)))
        return logits
