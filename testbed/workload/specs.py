"""Declarations of built-in data sets and models, from which the checks of the ``workload`` section follow.

They stand beside their data sets and models, in a package above this one. That package registers the services
``workload.datasets`` and ``workload.models``: functions without arguments that return the specs without importing
torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeVar

from testbed.plugins.services import service


class Form(Enum):
    """Form of one sample, as a model receives it."""

    GREY = "grey images"
    """(height, width) float32."""
    COLOUR = "colour images"
    """(height, width, 3) float32."""
    PHOTO = "photographs"
    """(3, height, width) uint8; the model scales it."""
    TEXT = "text"
    """(length,) int64 numbers of words; each word is predicted from the words before it."""
    SEQUENCE = "sequences"
    """(length,) int64 numbers of characters or words, with one label."""


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """Settings that an experiment can have with a data set.

    Attributes:
        name: ``workload.dataset``.
        summary: a few words for the schema's description.
        form: form of a sample.
        size: height and width of the images, in pixels; None: set by the experiment or the data.
        default_model: the model that ``workload.model: auto`` stands for.
        owner: the person or account that one client stands for, e.g. "writer", in data that come with their owners;
            None:
            ``workload.partition`` spreads the data.
        files: the files that ``workload.path`` must name; None: no files are read.
        layouts: other supported layouts of these files, for the schema's description.
        reads: keys of the section that only some data sets read, this one among them.
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
    """Settings that an experiment can have with a model.

    Attributes:
        name: ``workload.model``.
        takes: the forms of samples that the model supports; for images with their height and width (None: any).
        summary: a few words for the schema's description; may be empty.
        smallest: least height and width of images, in pixels.
    """

    name: str
    takes: Mapping[Form, int | None]
    summary: str = ""
    smallest: int = 1

    def fits(self, data: DatasetSpec) -> bool:
        """Return whether the model takes the samples of a data set."""
        return data.form in self.takes and self.takes[data.form] in (None, data.size)


_Spec = TypeVar("_Spec", DatasetSpec, ModelSpec)


@cache
def datasets() -> dict[str, DatasetSpec]:
    """Return the built-in data sets by name."""
    return _by_name(service("workload.datasets")())


@cache
def models() -> dict[str, ModelSpec]:
    """Return the built-in models by name."""
    return _by_name(service("workload.models")())


def models_for(data: DatasetSpec) -> tuple[str, ...]:
    """Return the names of the models that take a data set's samples."""
    return tuple(name for name, model in models().items() if model.fits(data))


def is_language(dataset: str) -> bool:
    """Return whether a data set is for next-word prediction, so that exp(loss) is a perplexity.

    False for a user-defined class.
    """
    spec = datasets().get(dataset)
    return spec is not None and spec.form is Form.TEXT


def _by_name(specs: Iterable[_Spec]) -> dict[str, _Spec]:
    specs_by_name: dict[str, _Spec] = {}
    for spec in specs:
        if spec.name in specs_by_name:
            raise ValueError(f"{spec.name} is declared twice")
        specs_by_name[spec.name] = spec
    return specs_by_name
