"""What data sets and models say of themselves, from which every check of the ``workload`` section derives.

They are declared beside what they describe, in a package above this one, which registers them as the services
``workload.datasets`` and ``workload.models``: functions without arguments that give the specs, without torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeVar

from testbed.plugins.services import service


class Form(Enum):
    """What one sample is when it is given to a model."""

    GREY = "grey images"
    """(height, width) float32."""
    COLOUR = "colour images"
    """(height, width, 3) float32."""
    PHOTO = "photographs"
    """(3, height, width) uint8, which the model scales."""
    TEXT = "text"
    """(length,) int64 numbers of words, each to be predicted from those before it."""
    SEQUENCE = "sequences"
    """(length,) int64 numbers of characters or words, with one label."""


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """What an experiment may say of a data set.

    Attributes:
        name: ``workload.dataset``.
        summary: a few words for the schema's description.
        form: of a sample.
        size: height and width of the images in pixels; None: the experiment or the data say.
        default_model: what ``workload.model: auto`` means.
        owner: whose samples one client holds, e.g. "writer", in data that come with their owners; None: the data are
            spread by ``workload.partition``.
        files: what ``workload.path`` must be; None: no files are read.
        layouts: which other forms of these files are read; for the schema's description.
        reads: keys of the section that are read by some data sets only, this one among them.
    """

    name: str
    summary: str
    form: Form
    size: int | None = None
    default_model: str
    owner: str | None = None
    files: str | None = None
    layouts: str = ""
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What an experiment may say of a model.

    Attributes:
        name: ``workload.model``.
        takes: the forms of samples that it is made for, and of images the height and width (None: any).
        summary: a few words for the schema's description, or none.
        smallest: least height and width of images, in pixels.
    """

    name: str
    takes: Mapping[Form, int | None]
    summary: str = ""
    smallest: int = 1

    def fits(self, data: DatasetSpec) -> bool:
        """Whether the model takes the samples of a data set."""
        return data.form in self.takes and self.takes[data.form] in (None, data.size)


_Spec = TypeVar("_Spec", DatasetSpec, ModelSpec)


@cache
def datasets() -> dict[str, DatasetSpec]:
    """The built-in data sets, by name."""
    return _by_name(service("workload.datasets")())


@cache
def models() -> dict[str, ModelSpec]:
    """The built-in models, by name."""
    return _by_name(service("workload.models")())


def models_for(data: DatasetSpec) -> tuple[str, ...]:
    """The names of the models that a data set can be learned with."""
    return tuple(name for name, model in models().items() if model.fits(data))


def is_language(dataset: str) -> bool:
    """Whether the loss is that of the next word, so that exp(loss) is a perplexity; False for a user-defined class."""
    spec = datasets().get(dataset)
    return spec is not None and spec.form is Form.TEXT


def _by_name(specs: Iterable[_Spec]) -> dict[str, _Spec]:
    specs_by_name: dict[str, _Spec] = {}
    for spec in specs:
        if spec.name in specs_by_name:
            raise ValueError(f"{spec.name} is declared twice")
        specs_by_name[spec.name] = spec
    return specs_by_name
