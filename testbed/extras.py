"""Optional parts of the installation: the extra that provides a module.

The plain package runs numpy workloads in one process and reads records. Training with PyTorch, Ray and some file
formats are extras. Code that needs an extra reports it through this module, in one line with the command to type.
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
"""Top-level modules that the package imports from each extra of pyproject.toml."""

_EXTRA_OF = {module: extra for extra, modules in MODULES.items() for module in modules}
_INSTEAD = {
    "ray": "set cluster.network: in-process (--network in-process)",
    "torch": "use a workload class of your own that does not need it (docs/how-to/own-workload.md)",
}


class MissingExtraError(ExperimentError):
    """An extra is not installed; the message has the command that installs it."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    Example:
        >>> install_command("ray")
        "pip install 'sortition-testbed[ray]'"
    """
    return f"pip install '{PROJECT}[{extra}]'"


def extra_of(module: str) -> str | None:
    """Return the extra that provides a module, e.g. ``torch`` for ``torch.nn``; None if no extra does."""
    return _EXTRA_OF.get(module.partition(".")[0])


def missing_extra(
    module: str, needed_by: str, *, extra: str | None = None, alternative: bool = False
) -> MissingExtraError:
    """Return the error for a module of an extra that is not installed.

    Args:
        module: importable name, one of `MODULES`.
        needed_by: the key or action that needs it, e.g. ``workload.dataset: digits``.
        extra: the extra to install; default: the one that provides the module.
        alternative: whether to name an alternative to the extra, if there is one.
    """
    top = module.partition(".")[0]
    extra = extra or _EXTRA_OF[top]
    main = MODULES[extra][0]
    named = top if _is_installed(main) else main  # Ray, not one of the libraries that it brings
    instead = f", or {_INSTEAD[extra]}" if alternative and extra in _INSTEAD else ""
    return MissingExtraError(f"{needed_by} needs {named}: {install_command(extra)}{instead}")


def first_missing(*modules: str) -> str | None:
    """Return the first of some top-level modules that is not installed; None if all are."""
    return next((module for module in modules if not _is_installed(module)), None)


def _is_installed(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # imported, without a spec
        return True
    return spec is not None and spec.origin is not None  # without origin: a folder of this name, not a package


@contextmanager
def naming_extras(needed_by: str, *, extra: str | None = None, alternative: bool = False) -> Iterator[None]:
    """Turn a failed import of an extra's module within the block into `MissingExtraError`.

    Other errors pass through unchanged, also for modules that no extra provides.

    Args:
        needed_by, extra, alternative: as in `missing_extra`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or extra_of(error.name) is None:
            raise
        raise missing_extra(error.name, needed_by, extra=extra, alternative=alternative) from error
