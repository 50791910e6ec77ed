"""Optional parts of the installation: which extra of the package brings a module that is not installed.

The plain package runs numpy workloads in one process and reads records. Training with PyTorch, Ray and some file
formats are extras. Everything that needs an extra says so through this module, in one line with the command to type.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.errors import ExperimentError

PROJECT = "sortition-testbed"

MODULES = {
    "aegis": ("aeg",),
    "flower-datasets": ("flwr_datasets",),
    "hdf5": ("h5py",),
    "huggingface": ("datasets",),
    "mlflow": ("mlflow", "alembic", "sqlalchemy"),
    "peft": ("peft", "transformers"),
    "ray": ("ray", "psutil", "aiohttp", "grpc", "requests"),
    "tensorboard": ("tensorboard",),
    "torch": ("torch", "torchvision", "sklearn"),
    "wandb": ("wandb",),
}
"""The top-level modules that the package imports from each extra of pyproject.toml."""

_EXTRA_OF = {module: extra for extra, modules in MODULES.items() for module in modules}
_INSTEAD = {
    "ray": "set cluster.network: in-process (--network in-process)",
    "torch": "take a workload class of your own that does without (docs/how-to/own-workload.md)",
}


class MissingExtraError(ExperimentError):
    """An extra that is not installed; the message has the command that installs it."""


def install_command(extra: str) -> str:
    """The command that installs an extra, e.g. ``pip install 'sortition-testbed[ray]'``."""
    return f"pip install '{PROJECT}[{extra}]'"


def extra_of(module: str) -> str | None:
    """The extra that brings a module, e.g. ``torch`` for ``torch.nn``; None: no extra does."""
    return _EXTRA_OF.get(module.partition(".")[0])


def missing_extra(
    module: str, needed_by: str, *, extra: str | None = None, alternative: bool = False
) -> MissingExtraError:
    """The error for a module of an extra that is not installed.

    Args:
        module: importable name, one of `MODULES`.
        needed_by: what cannot be done without it, e.g. ``workload.dataset: digits``.
        extra: the extra to install; default: the one that brings the module.
        alternative: also name a way to do without the extra, where there is one.
    """
    top = module.partition(".")[0]
    extra = extra or _EXTRA_OF[top]
    main = MODULES[extra][0]
    named = top if _is_installed(main) else main  # Ray, rather than a library that came with it
    instead = f", or {_INSTEAD[extra]}" if alternative and extra in _INSTEAD else ""
    return MissingExtraError(f"{needed_by} needs {named}: {install_command(extra)}{instead}")


def first_missing(*modules: str) -> str | None:
    """The first of some top-level modules that is not installed; None: all are."""
    return next((module for module in modules if not _is_installed(module)), None)


def _is_installed(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # imported, and does not say from where
        return True
    return spec is not None and spec.origin is not None  # a folder of that name is no package


@contextmanager
def naming_extras(needed_by: str, *, extra: str | None = None, alternative: bool = False) -> Iterator[None]:
    """Turn a failed import of an extra's module within the block into `MissingExtraError`; see `missing_extra`.

    Other errors, of modules that no extra brings among them, pass through unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or extra_of(error.name) is None:
            raise
        raise missing_extra(error.name, needed_by, extra=extra, alternative=alternative) from error
