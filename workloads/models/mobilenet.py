"""MobileNetV2 at width 0.25: Sandler et al. 2018 (arXiv 1801.04381), Table 2, as Lotto's authors have it.

The vector has 1,009,736 numbers at 596 classes, which is what Lotto (arXiv 2401.02880) transmits: 999,272 parameters
and the 10,464 running means and variances of batch normalisation, without its 53 counts of batches. The figure is that
of the authors' published code, which follows FedScale (arXiv 2105.11367), and differs from torchvision's class of the
same width (1,001,588 parameters at 596 classes) in three things:

- channels are a quarter of the paper's (8; 4, 6, 8, 16, 24, 40, 80) and not rounded to multiples of eight;
- the first unit, too, begins with a 1x1 convolution (of expansion 1);
- the classifier has no bias, and no dropout comes before it.

Their code resizes images to 256x256, pools 7x7 windows of the 8x8 map and so gives four times as many outputs as there
are classes; here the whole map is pooled, as in the paper.
"""

import torch
from torch import Tensor, nn

from workloads.models.registry import Sizes
from workloads.models.vector import FederatedModel, he_uniform

_FIRST, _LAST = 8, 1280
_UNITS = ((1, 4, 1, 1), (6, 6, 2, 2), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1), (6, 40, 3, 2), (6, 80, 1, 1))
"""Expansion, output channels, number of units, stride of the first of them."""

# Of red, green and blue, in bytes: what Lotto's authors normalise OpenImage with (0.4914, ... of 255).
_MEANS, _DEVIATIONS = (125.307, 122.961, 113.8575), (51.5865, 50.847, 51.255)


class _Bytes(nn.Module):
    """(N, 3, H, W) uint8 to normalised float32, a batch at a time: a client's images stay bytes."""

    def forward(self, images: Tensor) -> Tensor:
        means = torch.tensor(_MEANS, device=images.device).view(1, 3, 1, 1)
        deviations = torch.tensor(_DEVIATIONS, device=images.device).view(1, 3, 1, 1)
        return images.to(torch.float32).sub_(means).div_(deviations).contiguous(memory_format=torch.channels_last)


class _Convolution(nn.Sequential):
    """Convolution without bias, batch normalisation and (unless linear) ReLU6."""

    def __init__(self, channels: int, out: int, size: int, stride: int = 1, groups: int = 1, linear: bool = False):
        normalisation = nn.BatchNorm2d(out)
        normalisation.num_batches_tracked = None  # a count that nothing reads: the statistics move by a tenth
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
        self.is_residual = stride == 1 and channels == out

    def forward(self, values: Tensor) -> Tensor:
        changed: Tensor = self.layers(values)
        return values + changed if self.is_residual else changed


class MobileNetV2(FederatedModel):
    """(N, 3, H, W) uint8 to (N, classes); H and W of 33 or more, so that no channel is a single pixel in the end."""

    initial_weights = staticmethod(he_uniform)

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Bytes(), _Convolution(3, _FIRST, 3, stride=2)]
        channels = _FIRST
        for expansion, out, units, stride in _UNITS:
            for number in range(units):
                layers.append(_Unit(channels, out, expansion, stride if number == 0 else 1))
                channels = out
        self.features = nn.Sequential(*layers, _Convolution(channels, _LAST, 1))
        self.output = nn.Linear(_LAST, classes, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(images).mean(dim=(2, 3)))
        return logits


def mobilenet_v2(sizes: Sizes) -> MobileNetV2:
    """For the registry."""
    return MobileNetV2(sizes.outputs)
