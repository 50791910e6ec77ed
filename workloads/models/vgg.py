"""VGG-11: Simonyan and Zisserman 2015 (ICLR, arXiv 1409.1556), Table 1, configuration A, for images of 32x32.

Eight padded 3x3 convolutions with ReLU, five poolings that leave one pixel of 512 channels, and one linear layer, which
is how the network is used on CIFAR: the paper's three dense layers are for images of 224x224. As in the paper there is
no batch normalisation: its running statistics would be averaged over clients of one label each. There is no dropout,
which the paper has between its dense layers.

The vector has 9,271,780 numbers at 100 classes, 9,225,610 at ten; the convolutions are 9,220,480 of them.
"""

from torch import Tensor, nn

from workloads.models.registry import Sizes
from workloads.models.vector import FederatedModel, he_uniform

_CHANNELS = (64, 128, 256, 256, 512, 512, 512, 512)
_POOLED = (0, 1, 3, 5, 7)  # the convolutions after which there is pooling


class _Planes(nn.Module):
    """(N, H, W, 3) to (N, 3, H, W) in this order: the gradients of the filters come in it, too, without a copy."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2).contiguous()


class VGG11(FederatedModel):
    """(N, 32, 32, 3) float32 to (N, classes).

    Initial weights are He's: nothing normalises here, and with Xavier's scale signals fade where the channels grow.
    """

    initial_weights = staticmethod(he_uniform)

    def __init__(self, classes: int) -> None:
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
        self.output = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(images))
        return logits


def vgg11(sizes: Sizes) -> VGG11:
    """For the registry."""
    return VGG11(sizes.outputs)
