"""The built-in models: an entry for each, with its inputs and the function that constructs it.

Read at every check of an experiment, also on machines without torch: a model's module is imported for its construction.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from testbed.errors import ExperimentError
from testbed.workload.specs import Form, ModelSpec

if TYPE_CHECKING:
    from torch import nn


class Sizes(NamedTuple):
    """Sizes of a model's inputs and outputs.

    Attributes:
        outputs: classes, or words of the vocabulary.
        height, width, channels: sizes of the images; 0 for text.
        vocabulary: different characters or words of a sequence; 0 for images and text.
    """

    outputs: int
    height: int = 0
    width: int = 0
    channels: int = 0
    vocabulary: int = 0


@dataclass(frozen=True, kw_only=True)
class Model(ModelSpec):
    """A built-in model.

    Attributes:
        constructor: ``module:callable`` under `workloads.models`, which returns a network for `Sizes`.
    """

    constructor: str


_MODELS = (
    Model(name="logistic", takes={Form.GREY: None}, constructor="classifiers:logistic"),
    Model(name="mlp", takes={Form.GREY: None}, constructor="classifiers:mlp"),
    Model(name="cnn", takes={Form.GREY: None}, constructor="classifiers:cnn", summary="small"),
    Model(
        name="femnist-cnn",
        takes={Form.GREY: 28},
        constructor="classifiers:femnist_cnn",
        summary="1,018,174 parameters at 62 classes, the FEMNIST model of the Lotto paper; 28x28 images only",
    ),
    Model(
        name="mnist-cnn",
        takes={Form.GREY: 28},
        constructor="classifiers:mnist_cnn",
        summary="McMahan et al. 2017; 1,663,370 parameters at ten classes; 28x28",
    ),
    Model(
        name="emnist-cnn",
        takes={Form.GREY: 28},
        constructor="classifiers:emnist_cnn",
        summary="Hasircioglu and Gunduz 2022; 156,526 at 62 classes; 28x28",
    ),
    Model(
        name="lenet",
        takes={Form.GREY: 28, Form.COLOUR: 32},
        constructor="classifiers:lenet",
        summary="62,006 at ten classes in colour; 32x32 in colour or 28x28 in grey",
    ),
    Model(
        name="cifar-cnn",
        takes={Form.COLOUR: 32},
        constructor="classifiers:cifar_cnn",
        summary="pfl-research's for CIFAR-10; 1,626,442 at ten classes; 32x32 in colour",
    ),
    Model(
        name="vgg11",
        takes={Form.COLOUR: 32},
        constructor="classifiers:VGG11",
        summary="9,271,780 at 100 classes; 32x32 in colour",
    ),
    Model(
        name="mobilenet-v2",
        takes={Form.PHOTO: None},
        constructor="classifiers:MobileNetV2",
        summary="width 0.25; a vector of 1,009,736 at 596 classes",
        smallest=33,
    ),
    Model(
        name="celeba-cnn",
        takes={Form.PHOTO: None},
        constructor="classifiers:CelebaCnn",
        summary="LEAF's for CelebA; a vector of 31,458 at 84x84 and two classes",
        smallest=16,
    ),
    Model(
        name="char-lstm",
        takes={Form.SEQUENCE: None},
        constructor="recurrent:character_lstm",
        summary="LEAF's for Shakespeare; 817,872 at 80 characters",
    ),
    Model(
        name="sent-lstm",
        takes={Form.SEQUENCE: None},
        constructor="recurrent:sentence_lstm",
        summary="LEAF's for Sent140; 1,173,986 at 10,000 words",
    ),
    Model(
        name="word-bag",
        takes={Form.SEQUENCE: None},
        constructor="recurrent:WordBag",
        summary="logistic regression over counts of words; 20,002 at 10,000",
    ),
    Model(
        name="albert",
        takes={Form.TEXT: None},
        constructor="albert:albert",
        summary="base configuration, causal; a vector of 15,091,680",
    ),
    Model(name="albert-small", takes={Form.TEXT: None}, constructor="albert:albert_small", summary="the same, small"),
    Model(
        name="transformer",
        takes={Form.TEXT: None},
        constructor="transformer:transformer",
        summary="causal, 8 layers of 512; 40,872,240 at 30,000 words",
    ),
    Model(
        name="transformer-small",
        takes={Form.TEXT: None},
        constructor="transformer:transformer_small",
        summary="the same, 2 layers of 64",
    ),
)


def specs() -> tuple[Model, ...]:
    """Return all models, in the order in which messages list them."""
    return _MODELS


def image_model(name: str, height: int, width: int, classes: int, channels: int = 1) -> "nn.Module":
    """Return an image model on torch's meta device, without memory; `workloads.training.local` gives it memory.

    Args:
        name: a model of grey images (N, H, W), or of colour images: (N, H, W, 3), or (N, 3, H, W) bytes.
        height, width: size of the images, in pixels.
        classes: number of labels.
        channels: channels of the images, 1 or 3.

    Raises:
        ExperimentError: an unknown name, or images that the model cannot take.
    """
    kind, forms = ("grey", {Form.GREY}) if channels == 1 else ("colour", {Form.COLOUR, Form.PHOTO})
    model = _model_for(name, f"{kind} images", forms)
    needed = next(size for form, size in model.takes.items() if form in forms)
    if needed is not None and (height, width) != (needed, needed):
        raise ExperimentError(
            f"workload.model: {name} needs {needed}x{needed} images, but these are {height}x{width}; use another model "
            "(grey images of any size: logistic, mlp, cnn)"
        )
    if min(height, width) < model.smallest:
        raise ExperimentError(
            f"workload.model: {name} needs images of at least {model.smallest}x{model.smallest}, but these are "
            f"{height}x{width}; use another model"
        )
    return _made(model, Sizes(classes, height, width, channels))


def text_model(name: str, vocabulary_size: int) -> "nn.Module":
    """Return a text model without memory, as `image_model`.

    Args:
        name: a model of text.
        vocabulary_size: words, special tokens included.

    Raises:
        ExperimentError: an unknown name.
    """
    return _made(_model_for(name, "text", {Form.TEXT}), Sizes(vocabulary_size))


def sequence_model(name: str, classes: int, vocabulary_size: int) -> "nn.Module":
    """Return a model of sequences without memory, as `image_model`.

    Args:
        name: ``char-lstm``, ``sent-lstm`` or ``word-bag``.
        classes: number of labels.
        vocabulary_size: different characters or words.

    Raises:
        ExperimentError: an unknown name.
    """
    return _made(_model_for(name, "sequences", {Form.SEQUENCE}), Sizes(classes, vocabulary=vocabulary_size))


def _model_for(name: str, data: str, forms: set[Form]) -> Model:
    """Return the model of this name among those that take one of `forms`."""
    models = {model.name: model for model in _MODELS if not forms.isdisjoint(model.takes)}
    if name not in models:
        raise ExperimentError(f"workload.model: {name!r} is not a model of {data}; allowed: {', '.join(models)}")
    return models[name]


def _made(model: Model, sizes: Sizes) -> "nn.Module":
    import torch  # only here, as descriptions of models do not need it

    module, _, function = model.constructor.partition(":")
    constructor = getattr(import_module(f"workloads.models.{module}"), function)
    with torch.device("meta"):  # on this device the layers' constructors draw no random numbers
        network: nn.Module = constructor(sizes)
    return network
